"""Machines by name: builders for tests, examples and `kubeqos up`, whose nodes need not exist in hardware.

`MACHINES` is the table that commands offer; `regular` makes any even machine in one line.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import replace

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import CoreKind, Cpu, Device, Machine, NumaNode

GIB = 1 << 30
MIB = 1 << 20


class Numbering(enum.Enum):
    """How firmware numbers the threads of a machine."""

    SIBLINGS_LAST = "siblings-last"  # all first threads, then all second threads: core 0 is CPUs 0 and 40 of 80
    ADJACENT = "adjacent"  # core by core: core 0 is CPUs 0 and 1


def regular(
    *,
    sockets: int = 1,
    numa_per_socket: int = 1,
    uncores_per_numa: int = 1,
    cores_per_uncore: int = 4,
    threads: int = 2,
    memory_bytes: int = 16 * GIB,
    hugepages: Mapping[int, int] | None = None,
    numbering: Numbering = Numbering.SIBLINGS_LAST,
    devices: tuple[Device, ...] = (),
    name: str = "",
) -> Machine:
    """An even machine; memory and huge pages are per NUMA node."""
    numas = sockets * numa_per_socket
    uncores = numas * uncores_per_numa
    cores = uncores * cores_per_uncore
    cpus = []
    for core in range(cores):
        uncore = core // cores_per_uncore
        numa = uncore // uncores_per_numa
        for thread in range(threads):
            number = core + thread * cores if numbering is Numbering.SIBLINGS_LAST else core * threads + thread
            first = core if numbering is Numbering.SIBLINGS_LAST else core * threads
            cpus.append(Cpu(number, first, numa // numa_per_socket, numa, uncore))
    nodes = tuple(
        NumaNode(i, memory_bytes, dict(hugepages or {}), _distances(i, numas, numa_per_socket)) for i in range(numas)
    )
    return Machine(tuple(cpus), nodes, devices, name=name)


def _distances(of: int, numas: int, per_socket: int) -> dict[int, int]:
    return {to: 10 if to == of else 12 if to // per_socket == of // per_socket else 21 for to in range(numas)}


def kep80() -> Machine:
    """The machine of KEP-3461's examples: CPUs 0-39 on NUMA 0, 40-79 on NUMA 1, 226 GB and a NIC on each."""
    return regular(
        sockets=2,
        cores_per_uncore=20,
        memory_bytes=226 * 10**9,
        numbering=Numbering.ADJACENT,
        devices=(
            Device("eth0", "nic", 0, {"speed": "25000", "address": "fdbd:dc05:3:154::20"}),
            Device("eth1", "nic", 1, {"speed": "25000", "address": "fdbd:dc05:3:155::20"}),
        ),
        name="kep80",
    )


def split80() -> Machine:
    """The same size, numbered as most servers are: NUMA 0 is 0-19,40-59 and NUMA 1 is 20-39,60-79."""
    devices = (Device("eth0", "nic", 0, {"speed": "25000"}), Device("eth1", "nic", 1, {"speed": "25000"}))
    return regular(
        sockets=2,
        cores_per_uncore=20,
        memory_bytes=226 * GIB,
        hugepages={2 * MIB: 1024},
        devices=devices,
        name="split80",
    )


def hybrid20() -> Machine:
    """A hybrid desktop: six performance cores with two threads (0-11) and eight efficiency cores (12-19)."""
    fast = [Cpu(i, i - i % 2, 0, 0, 0) for i in range(12)]
    slow = [Cpu(i, i, 0, 0, 0, CoreKind.EFFICIENCY) for i in range(12, 20)]
    return Machine((*fast, *slow), (NumaNode(0, 32 * GIB, {}, {0: 10}),), name="hybrid20")


def big384() -> Machine:
    """Two sockets, eight NUMA nodes, 24 caches of eight cores: 384 CPUs, with NICs, GPUs and huge pages."""
    devices = (
        *(Device(f"gpu{i}", "gpu", i, {}) for i in range(8)),
        Device("eth0", "nic", 0, {"speed": "100000"}),
        Device("eth1", "nic", 4, {"speed": "100000"}),
    )
    return regular(
        sockets=2,
        numa_per_socket=4,
        uncores_per_numa=3,
        cores_per_uncore=8,
        memory_bytes=96 * GIB,
        hugepages={2 * MIB: 2048, GIB: 4},
        devices=devices,
        name="big384",
    )


def laptop8() -> Machine:
    """Four cores with two threads, one NUMA node: the smallest machine that still has siblings."""
    return regular(cores_per_uncore=4, numbering=Numbering.ADJACENT, name="laptop8")


def tiny2() -> Machine:
    """Two CPUs, one NUMA node."""
    return regular(cores_per_uncore=2, threads=1, memory_bytes=4 * GIB, name="tiny2")


def superchip34() -> Machine:
    """Two CPU nodes and 32 nodes that are only GPU memory, as on coherent CPU-GPU boards."""
    base = regular(sockets=2, cores_per_uncore=72, threads=1, memory_bytes=480 * GIB, name="superchip34")
    extra = tuple(NumaNode(i, 12 * GIB, {}, {}) for i in range(2, 34))
    devices = tuple(Device(f"gpu{i}", "gpu", i, {}) for i in range(4))
    return replace(base, nodes=(*base.nodes, *extra), devices=devices)


def ragged() -> Machine:
    """Everything irregular at once: holes in numbering, offline and isolated CPUs, a memory-only node."""
    rows = [
        (0, 0, 0, 0, 0),
        (1, 0, 0, 0, 0),
        (2, 2, 0, 0, 0),
        (5, 5, 0, 2, 1),
        (6, 5, 0, 2, 1),
        (7, 5, 0, 2, 1),
    ]
    rows += [(12, 12, 3, 5, 4), (13, 13, 3, 5, 4)]
    cpus = tuple(Cpu(*row) for row in rows)
    nodes = (NumaNode(0, 8 * GIB), NumaNode(2, 4 * GIB), NumaNode(5, 0), NumaNode(6, 32 * GIB))
    return Machine(cpus, nodes, (), CpuSet.of(13), CpuSet.of(3, 4), "ragged")


MACHINES: Mapping[str, Callable[[], Machine]] = {
    build.__name__: build for build in (tiny2, laptop8, hybrid20, kep80, split80, big384, superchip34, ragged)
}
