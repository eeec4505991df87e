"""The one table of machines: what qemu is told, and so what the tests may expect of a guest."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
CPU = "Haswell-noTSX,+pdpe1gb"
"""EPYC shows one thread per core under emulation; pdpe1gb lets the kernel have pages of 1 GiB."""

NEWER = ",-cx16"
"""qemu 7.2 spoils the flags of cmpxchg16b, which newer kernels allocate memory by if there is one."""


@dataclass(frozen=True, slots=True)
class Numa:
    """One NUMA node: its CPUs (as a list, such as 0-3; empty for none) and its memory."""

    cpus: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What is booted. `kernel` is added to the kernel's command line; `distances` holds (from, to): distance;
    `backports` boots the newer kernel of Debian's backports (`tools.vm.backports`); `core` machines boot in CI, too.
    """

    name: str
    about: str
    sockets: int
    cores: int
    threads: int
    nodes: tuple[Numa, ...]
    distances: dict[tuple[int, int], int] = field(default_factory=dict)
    nics: tuple[int, ...] = ()
    """The NUMA node of each network card; none of them leads anywhere."""
    kernel: tuple[str, ...] = ()
    backports: bool = False
    core: bool = True

    @property
    def memory_mib(self) -> int:
        return sum(node.memory_mib for node in self.nodes)

    def hardware(self) -> list[str]:
        """qemu's words for processors and memory."""
        count = self.sockets * self.cores * self.threads
        words = ["-cpu", CPU + (NEWER if self.backports else ""), "-m", str(self.memory_mib)]
        words += ["-smp", f"{count},sockets={self.sockets},cores={self.cores},threads={self.threads}"]
        for number, node in enumerate(self.nodes):
            words += ["-object", f"memory-backend-ram,id=ram{number},size={node.memory_mib}M"]
            ranges = "".join(f",cpus={part}" for part in node.cpus.split(",") if part)
            words += ["-numa", f"node,nodeid={number},memdev=ram{number}{ranges}"]
        for (here, there), distance in self.distances.items():
            words += ["-numa", f"dist,src={here},dst={there},val={distance}"]
        for number, node in enumerate(self.nics):
            words += ["-device", f"pxb-pcie,id=side{number},bus_nr={64 * (number + 1)},bus=pcie.0,numa_node={node}"]
            words += ["-device", f"pcie-root-port,id=port{number},bus=side{number},chassis={number + 1}"]
            words += ["-netdev", f"user,id=net{number},restrict=on"]
            words += ["-device", f"virtio-net-pci,netdev=net{number},bus=port{number},romfile="]
        return words


MACHINES = {
    machine.name: machine
    for machine in (
        Machine(
            "two-sockets",
            "2 sockets of 2 cores of 2 threads, one NUMA node each, huge pages of 2 MiB on both and one of 1 GiB, a "
            "network card at the second",
            sockets=2,
            cores=2,
            threads=2,
            nodes=(Numa("0-3", 2048), Numa("4-7", 3072)),
            distances={(0, 1): 21},
            nics=(1,),
            kernel=("hugepagesz=2M", "hugepages=0:24,1:24", "hugepagesz=1G", "hugepages=1:1"),
        ),
        Machine(
            "newer-kernel",
            "as two-sockets without huge pages, with the kernel of Debian's backports: partitions of CPUs below pods",
            sockets=2,
            cores=2,
            threads=2,
            nodes=(Numa("0-3", 2048), Numa("4-7", 2048)),
            distances={(0, 1): 21},
            backports=True,
            core=False,
        ),
        Machine(
            "four-nodes",
            "4 NUMA nodes of uneven memory, at uneven distances, the last without CPUs; one thread per core",
            sockets=4,
            cores=2,
            threads=1,
            nodes=(Numa("0-1", 1024), Numa("2-3", 640), Numa("4-7", 1536), Numa("", 384)),
            distances={(0, 1): 12, (0, 2): 20, (0, 3): 32, (1, 2): 20, (1, 3): 32, (2, 3): 32},
        ),
        Machine(
            "offline",
            "1 socket of 4 cores of one thread, the last of them offline",
            sockets=1,
            cores=4,
            threads=1,
            nodes=(Numa("0-3", 1536),),
            kernel=("maxcpus=3",),
        ),
        Machine(
            "cgroup-v1",
            "1 socket of 2 cores of 2 threads, huge pages of 2 MiB, and the older cgroups, which systemd keeps as well",
            sockets=1,
            cores=2,
            threads=2,
            nodes=(Numa("0-3", 1536),),
            kernel=("systemd.unified_cgroup_hierarchy=0", "hugepagesz=2M", "hugepages=24"),
            core=False,
        ),
    )
}
NOT_SHOWN = {
    "performance and efficiency cores": "no qemu to date shows CPUID leaf 0x1A, so a guest cannot tell its cores "
    "apart; that they are found is shown on a written tree of sysfs "
    "(`tests/model/test_machine.py::test_sysfs_tells_efficiency_cores_of_intel_and_arm`)",
}
"""Machines that nobody can boot, and why; listed by `python -m tools.vm` and in docs/reference/proven-on.md."""
