"""Random machines for the properties of this room: irregular on purpose, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import CoreKind, Cpu, Machine, NumaNode


@st.composite
def machines(draw: st.DrawFn, *, most_nodes: int = 4) -> Machine:
    """Sockets of different size, holes in numbering, one to three threads per core, memory-only nodes."""
    cpus: list[Cpu] = []
    number = draw(st.integers(0, 3))
    numa_ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=most_nodes, unique=True))
    for index, numa in enumerate(numa_ids):
        socket = draw(st.integers(0, 1)) if index else 0
        for _ in range(draw(st.integers(1, 5))):
            core = number
            kind = draw(st.sampled_from(CoreKind))
            for _ in range(draw(st.sampled_from([1, 2, 2, 2, 3]))):
                cpus.append(Cpu(number, core, socket, numa, index * 2 + draw(st.just(0)), kind))
                number += draw(st.sampled_from([1, 1, 1, 2]))
    nodes = [NumaNode(numa, draw(st.integers(0, 8)) << 30) for numa in numa_ids]
    if draw(st.booleans()):
        nodes.append(NumaNode(20, 4 << 30))
    online = CpuSet.from_ids(cpu.id for cpu in cpus)
    isolated = draw(subsets(online)) if draw(st.integers(0, 3)) == 0 else CpuSet()
    return Machine(tuple(cpus), tuple(nodes), (), isolated)


@st.composite
def subsets(draw: st.DrawFn, cpus: CpuSet) -> CpuSet:
    """Some of these CPUs."""
    return CpuSet.from_ids(cpu for cpu in cpus if draw(st.booleans()))


@st.composite
def machines_with_free(draw: st.DrawFn) -> tuple[Machine, CpuSet]:
    """A machine and the CPUs that are still free on it (often all, so that whole units occur)."""
    machine = draw(machines())
    free = machine.online if draw(st.booleans()) else draw(subsets(machine.online))
    return machine, free


def machine_of_rows(rows: Iterable[tuple[int, ...]], name: str = "") -> Machine:
    """A machine from rows (cpu, core, socket, numa, uncore), with nodes that have no memory."""
    cpus = tuple(Cpu(*row) for row in rows)
    return Machine(cpus, tuple(NumaNode(node) for node in sorted({cpu.numa for cpu in cpus})), name=name)
