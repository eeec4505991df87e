"""One machine as a value: sockets, NUMA nodes, caches, cores, CPUs and the devices that hang on them.

Allocators, QRM plugins, CCI drivers, the node agent and `kubeqos map` all work on this description and never
on the machine they run on. It comes from a sysfs tree (`model.hardware.sysfs`), a YAML file
(`model.hardware.machinefile`) or a builder (`model.hardware.named`). Nothing here assumes regularity: ids may have
holes, cores may have one thread or four, a socket may be half offline, a NUMA node may have memory and no CPU.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.model.hardware.layout import Layout

LOCAL_DISTANCE = 10  # ACPI SLIT: a node to itself
REMOTE_DISTANCE = 20  # what Linux assumes when the firmware says nothing
MAX_NUMA_ID = 63  # hint masks are 64 bits wide, as in Kubernetes


class CoreKind(enum.Enum):
    """What a core is built for (hybrid processors have both kinds)."""

    PERFORMANCE = "performance"
    EFFICIENCY = "efficiency"


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU (hardware thread) that is online. Core ids are unique over the machine."""

    id: int
    core: int
    socket: int
    numa: int
    uncore: int
    kind: CoreKind = CoreKind.PERFORMANCE


@dataclass(frozen=True, slots=True)
class NumaNode:
    """Memory of one NUMA node: all of it, the huge pages set aside in it (page size → count), distances."""

    id: int
    memory_bytes: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict, hash=False)
    distances: Mapping[int, int] = field(default_factory=dict, hash=False)

    def hugepage_bytes(self, page_bytes: int | None = None) -> int:
        """Memory held by huge pages of one size, or of all sizes."""
        if page_bytes is not None:
            return page_bytes * self.hugepages.get(page_bytes, 0)
        return sum(size * count for size, count in self.hugepages.items())


@dataclass(frozen=True, slots=True)
class Device:
    """A NIC, GPU or other device; `numa` is None when the firmware does not tell where it sits."""

    name: str
    kind: str = "other"
    numa: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Machine:
    """Everything an allocator may ask about one machine. `cpus` holds the online ones, ascending by id."""

    cpus: tuple[Cpu, ...]
    nodes: tuple[NumaNode, ...]
    devices: tuple[Device, ...] = ()
    isolated: CpuSet = NO_CPUS  # kernel isolcpus: online, but the scheduler leaves them alone
    offline: CpuSet = NO_CPUS
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpus", tuple(sorted(self.cpus, key=lambda cpu: cpu.id)))
        object.__setattr__(self, "nodes", tuple(sorted(self.nodes, key=lambda node: node.id)))
        for problem in _problems(self):
            raise InputError(problem, where=self.name or None)

    @cached_property
    def online(self) -> CpuSet:
        """All CPUs that can run something."""
        return CpuSet.from_ids(cpu.id for cpu in self.cpus)

    @cached_property
    def sockets(self) -> Mapping[int, CpuSet]:
        """CPUs of each socket, ascending by socket id."""
        return self._group("socket")

    @cached_property
    def uncores(self) -> Mapping[int, CpuSet]:
        """CPUs that share one last-level (uncore, L3) cache, ascending by cache id."""
        return self._group("uncore")

    @cached_property
    def cores(self) -> Mapping[int, CpuSet]:
        """SMT siblings of each physical core, ascending by core id."""
        return self._group("core")

    @cached_property
    def _core_masks(self) -> tuple[int, ...]:
        """Every admission of a claim asks several times which cores its CPUs are of."""
        return tuple(core.mask for core in self.cores.values())

    @cached_property
    def numa_cpus(self) -> Mapping[int, CpuSet]:
        """CPUs of every NUMA node, ascending by node id; empty for a memory-only node."""
        return {node.id: CpuSet() for node in self.nodes} | self._group("numa")

    @cached_property
    def numa(self) -> NumaSet:
        """All NUMA nodes, memory-only ones included."""
        return NumaSet.from_ids(node.id for node in self.nodes)

    @cached_property
    def cpu_numa(self) -> NumaSet:
        """The NUMA nodes that have CPUs."""
        return NumaSet.from_ids(cpu.numa for cpu in self.cpus)

    @cached_property
    def performance(self) -> CpuSet:
        """CPUs of performance cores (all of them on a machine that is not hybrid)."""
        return CpuSet.from_ids(cpu.id for cpu in self.cpus if cpu.kind is CoreKind.PERFORMANCE)

    @cached_property
    def efficiency(self) -> CpuSet:
        """CPUs of efficiency cores."""
        return self.online - self.performance

    @cached_property
    def threads_per_core(self) -> int:
        """CPUs per core on average, rounded down, as Kubernetes counts it; 1 on a machine without CPUs."""
        return max(1, len(self.cpus) // max(1, len(self.cores)))

    @cached_property
    def layout(self) -> Layout:
        """The containment tables that allocators walk."""
        return Layout.of(self)

    @cached_property
    def _by_id(self) -> Mapping[int, Cpu]:
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def _nodes_by_id(self) -> Mapping[int, NumaNode]:
        return {node.id: node for node in self.nodes}

    def cpu(self, cpu_id: int) -> Cpu:
        """The online CPU with this id."""
        return self._by_id[cpu_id]

    def node(self, numa_id: int) -> NumaNode:
        """The NUMA node with this id."""
        return self._nodes_by_id[numa_id]

    def cpus_in(self, nodes: NumaSet) -> CpuSet:
        """All CPUs of these NUMA nodes."""
        return CpuSet.union(self.numa_cpus[numa_id] for numa_id in nodes)

    def numa_of(self, cpus: CpuSet) -> NumaSet:
        """The NUMA nodes that these CPUs sit on."""
        return NumaSet.from_ids(numa_id for numa_id, inside in self.numa_cpus.items() if inside & cpus)

    def whole_cores(self, cpus: CpuSet) -> CpuSet:
        """The part of `cpus` that consists of complete cores."""
        mask, inside = 0, cpus.mask
        for core in self._core_masks:
            if core & inside == core:
                mask |= core
        return CpuSet(mask)

    def touched_cores(self, cpus: CpuSet) -> CpuSet:
        """`cpus` and every sibling of one of them."""
        mask, inside = 0, cpus.mask
        for core in self._core_masks:
            if core & inside:
                mask |= core
        return CpuSet(mask)

    def distance(self, from_node: int, to_node: int) -> int:
        """How far memory is, in the firmware's units (10 is local)."""
        default = LOCAL_DISTANCE if from_node == to_node else REMOTE_DISTANCE
        return self.node(from_node).distances.get(to_node, default)

    def _group(self, attribute: str) -> dict[int, CpuSet]:
        masks: dict[int, int] = {}
        for cpu in self.cpus:
            key = getattr(cpu, attribute)
            masks[key] = masks.get(key, 0) | 1 << cpu.id
        return {key: CpuSet(masks[key]) for key in sorted(masks)}


def _problems(machine: Machine) -> Iterable[str]:
    """Contradictions in a description, most basic first."""
    seen: dict[int, Cpu] = {}
    home: dict[int, Cpu] = {}
    nodes = {node.id for node in machine.nodes}
    if len(nodes) != len(machine.nodes):
        yield "a NUMA node is listed twice"
    if nodes and not 0 <= min(nodes) <= max(nodes) <= MAX_NUMA_ID:
        yield f"NUMA node ids must lie between 0 and {MAX_NUMA_ID}"
    for cpu in machine.cpus:
        if cpu.id in seen:
            yield f"CPU {cpu.id} is listed twice"
        seen[cpu.id] = cpu
        if cpu.numa not in nodes:
            yield f"CPU {cpu.id} sits on NUMA node {cpu.numa}, which is not described"
        first = home.setdefault(cpu.core, cpu)
        if (first.socket, first.numa, first.kind) != (cpu.socket, cpu.numa, cpu.kind):
            yield f"CPUs {first.id} and {cpu.id} share core {cpu.core}, but not socket, NUMA node and kind"
    online = machine.online
    if not machine.isolated <= online:
        yield f"isolated CPUs {machine.isolated - online} are not online"
    if machine.offline & online:
        yield f"CPUs {machine.offline & online} are both online and offline"
    for device in machine.devices:
        if device.numa is not None and device.numa not in nodes:
            yield f"device {device.name!r} sits on NUMA node {device.numa}, which is not described"
