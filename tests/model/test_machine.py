"""A machine described by hand, by YAML or by sysfs answers the same questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.document import parse_document
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.machinefile import machine_from_dict, machine_from_doc, machine_to_dict, machine_to_yaml
from kubeqos.model.hardware.named import GIB, MACHINES, MIB, big384, hybrid20, kep80, ragged, split80
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import CoreKind, Cpu, Machine, NumaNode


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def test_the_machine_of_kep_3461_is_numbered_as_its_examples_say() -> None:
    machine = kep80()
    assert machine.numa_cpus == {0: cpus("0-39"), 1: cpus("40-79")}
    assert machine.cores[2] == cpus("2-3")
    assert [(d.name, d.numa) for d in machine.devices] == [("eth0", 0), ("eth1", 1)]
    assert machine.node(0).memory_bytes == 226 * 10**9


def test_the_same_size_with_siblings_numbered_last() -> None:
    machine = split80()
    assert machine.numa_cpus == {0: cpus("0-19,40-59"), 1: cpus("20-39,60-79")}
    assert machine.cores[1] == cpus("1,41")
    assert machine.sockets[1] == machine.cpus_in(NumaSet.of(1))


def test_a_large_machine_has_every_level() -> None:
    machine = big384()
    assert (len(machine.online), len(machine.cores), len(machine.uncores)) == (384, 192, 24)
    assert (len(machine.numa), len(machine.sockets), machine.threads_per_core) == (8, 2, 2)
    assert (machine.distance(0, 0), machine.distance(0, 3), machine.distance(0, 4)) == (10, 12, 21)
    assert machine.node(0).hugepage_bytes() == 2048 * 2 * MIB + 4 * GIB
    assert machine.node(0).hugepage_bytes(GIB) == 4 * GIB


def test_a_hybrid_machine_tells_its_kinds_apart() -> None:
    machine = hybrid20()
    assert (machine.performance, machine.efficiency) == (cpus("0-11"), cpus("12-19"))
    assert machine.cores[12] == cpus("12")


def test_an_irregular_machine_keeps_its_holes() -> None:
    machine = ragged()
    assert machine.numa == NumaSet.of(0, 2, 5, 6)
    assert machine.cpu_numa == NumaSet.of(0, 2, 5)
    assert machine.numa_cpus[6] == CpuSet()
    assert machine.numa_of(cpus("1,6")) == NumaSet.of(0, 2)
    assert machine.whole_cores(cpus("0-1,5-6,12")) == cpus("0-1,12")
    assert machine.touched_cores(cpus("0,6")) == cpus("0-1,5-7")
    assert machine.distance(0, 6) == 20


def described(text: str) -> Machine:
    return machine_from_doc(parse_document(text, "machine", InputError))


@pytest.mark.parametrize("name", MACHINES)
def test_a_document_gives_the_machine_back(name: str) -> None:
    machine = MACHINES[name]()
    assert described(machine_to_yaml(machine)) == machine
    assert machine_from_dict(machine_to_dict(machine)) == machine


def test_a_machine_in_six_lines_of_yaml() -> None:
    machine = described(
        """
        name: small
        cpus:
        - {numa: 0, cores: ["0,2", "1,3"]}
        - {numa: 1, socket: 1, uncore: 1, kind: efficiency, cores: [4, 5]}
        devices: [{name: eth0, kind: nic, numa: 1}]
        """
    )
    assert machine.cores == {0: cpus("0,2"), 1: cpus("1,3"), 4: cpus("4"), 5: cpus("5")}
    assert machine.efficiency == cpus("4-5")
    assert [(d.name, d.numa) for d in machine.devices] == [("eth0", 1)]


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("[1]", "expected a mapping", "machine:1"),
        ("cpus: [{cores: ['0-x']}]", 'invalid number "x"', "machine:1  cpus[0].cores[0]"),
        ("cpus: [{cores: ['']}]", "a core needs at least one CPU", "machine:1  cpus[0].cores[0]"),
        ("cpus: [{kind: fast, cores: [0]}]", "'fast' is none of performance, efficiency", "machine:1  cpus[0].kind"),
        ("cpus: [{core: [0]}]", "unknown key", "machine:1  cpus[0].core"),
        ("cpus: [{numa: -1, cores: [0]}]", "expected a whole number", "machine:1  cpus[0].numa"),
        ("cpus: 3", "expected a list", "machine:1  cpus"),
        ("devices: [{kind: nic}]", "no name", "machine:1  devices[0]"),
        ("{name: m, cpus: [{cores: [0, 0]}]}", "CPU 0 is listed twice", "machine:1"),
        ("{name: m, numa: [{id: 1}], cpus: [{cores: [0]}]}", "NUMA node 0, which is not described", "machine:1"),
        ("{name: m, isolated: '7', cpus: [{cores: [0]}]}", "isolated CPUs 7 are not online", "machine:1"),
        ("{name: m, offline: '0', cpus: [{cores: [0]}]}", "both online and offline", "machine:1"),
        ("{name: m, numa: [{id: 64}]}", "between 0 and 63", "machine:1"),
        ("{name: m, devices: [{name: e, numa: 3}]}", "device 'e' sits on NUMA node 3", "machine:1"),
        ("a: [", "not valid YAML", "machine:2"),
    ],
)
def test_a_bad_document_is_refused_with_its_place(text: str, what: str, where: str | None) -> None:
    with pytest.raises(InputError) as refused:
        described(text)
    assert what in refused.value.what
    assert refused.value.where == where


def test_threads_of_one_core_cannot_sit_on_two_nodes() -> None:
    with pytest.raises(InputError, match="share core 0"):
        Machine((Cpu(0, 0, 0, 0, 0), Cpu(1, 0, 0, 1, 0)), (NumaNode(0), NumaNode(1)))


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def sysfs_cpu(number: int, socket: int, threads: str, l3: str | None) -> dict[str, str]:
    base = f"devices/system/cpu/cpu{number}"
    files = {f"{base}/topology/physical_package_id": str(socket), f"{base}/topology/core_id": "0"}
    files[f"{base}/topology/core_cpus_list"] = threads
    if l3:
        files |= {f"{base}/cache/index3/level": "3", f"{base}/cache/index3/shared_cpu_list": l3}
    return files


@pytest.mark.proves("discovery")
def test_sysfs_of_a_two_socket_machine_with_a_memory_only_node(tmp_path: Path) -> None:
    write(
        tmp_path,
        sysfs_cpu(0, 0, "0,2", "0,2")
        | sysfs_cpu(2, 0, "0,2", "0,2")
        | sysfs_cpu(4, 1, "4", "4-5")
        | {
            "devices/system/cpu/online": "0,2,4",
            "devices/system/cpu/offline": "5-6",
            "devices/system/cpu/isolated": "4",
            "devices/system/node/online": "0-1,3",
            "devices/system/node/node0/cpulist": "0,2",
            "devices/system/node/node0/meminfo": "Node 0 MemTotal:       1024 kB",
            "devices/system/node/node0/distance": "10 21 30",
            "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "3",
            "devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": "0",
            "devices/system/node/node1/cpulist": "4-5",
            "devices/system/node/node1/distance": "21 10 30",
            "devices/system/node/node3/cpulist": "",
            "devices/system/node/node3/meminfo": "Node 3 MemTotal:       4096 kB",
            "class/net/eth0/device/numa_node": "1",
            "class/net/eth0/speed": "25000",
            "class/net/lo/speed": "0",
            "bus/pci/devices/0000:01:00.0/class": "0x030200",
            "bus/pci/devices/0000:01:00.0/numa_node": "-1",
            "bus/pci/devices/0000:01:00.0/vendor": "0x10de",
            "bus/pci/devices/0000:00:00.0/class": "0x060000",
        },
    )
    machine = read_machine(tmp_path, "recorded")
    assert machine.cpus == (Cpu(0, 0, 0, 0, 0), Cpu(2, 0, 0, 0, 0), Cpu(4, 4, 1, 1, 1))
    assert machine.nodes == (
        NumaNode(0, 1 << 20, {2 * MIB: 3}, {0: 10, 1: 21, 3: 30}),
        NumaNode(1, 0, {}, {0: 21, 1: 10, 3: 30}),
        NumaNode(3, 4 << 20, {}, {}),
    )
    assert (machine.isolated, machine.offline) == (cpus("4"), cpus("5-6"))
    assert [(d.name, d.kind, d.numa) for d in machine.devices] == [
        ("eth0", "nic", 1),
        ("0000:01:00.0", "gpu", None),
    ]


@pytest.mark.proves("discovery")
def test_a_nic_is_where_the_device_above_it_is(tmp_path: Path) -> None:
    """A virtio interface is the child of a PCI device, which alone knows its NUMA node."""
    write(
        tmp_path,
        sysfs_cpu(0, 0, "0", "0")
        | {
            "devices/system/cpu/online": "0",
            "devices/system/node/online": "0-1",
            "devices/system/node/node0/cpulist": "0",
            "devices/system/node/node1/cpulist": "",
            "devices/pci0000:00/0000:00:03.0/numa_node": "1",
            "devices/pci0000:00/0000:00:03.0/virtio0/vendor": "0x1af4",
            "class/net/eth0/speed": "-1",
        },
    )
    (tmp_path / "class/net/eth0/device").symlink_to(tmp_path / "devices/pci0000:00/0000:00:03.0/virtio0")
    assert [(one.name, one.numa) for one in read_machine(tmp_path).devices] == [("eth0", 1)]


@pytest.mark.proves("discovery")
@pytest.mark.parametrize(
    "hint",
    [
        {"devices/cpu_atom/cpus": "1"},
        {f"devices/system/cpu/cpu{n}/cpu_capacity": str(1024 - n) for n in (0, 1)},
    ],
)
def test_sysfs_tells_efficiency_cores_of_intel_and_arm(tmp_path: Path, hint: dict[str, str]) -> None:
    write(tmp_path, sysfs_cpu(0, 0, "0", None) | sysfs_cpu(1, 0, "1", None) | hint)
    machine = read_machine(tmp_path)
    assert [cpu.kind for cpu in machine.cpus] == [CoreKind.PERFORMANCE, CoreKind.EFFICIENCY]
    assert machine.numa == NumaSet.of(0)


def test_a_folder_that_is_no_sysfs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no CPU found") as refused:
        read_machine(tmp_path)
    assert refused.value.remedy


@pytest.mark.proves("discovery", on="v1")
def test_the_machine_this_runs_on_can_be_read() -> None:
    machine = read_machine(Path("/sys"))
    assert machine.online and machine.online <= machine.cpus_in(machine.numa)
