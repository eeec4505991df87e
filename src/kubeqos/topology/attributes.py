"""The per-core attributes of KEP-3675 as values, and what each of them promises.

Enum values are the KEP's spellings, so that a claim's parameters map by `Siblings("CORE-SIBLING-REQUIRED")`.
`violations` states the promises once; `topology.compute` allocates by them, the CCI manager checks with it
what a foreign driver answered.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kubeqos.model.cpuset import NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.topology.answers import Shortage, Violation


class Siblings(enum.Enum):
    """How the threads of one physical core are used."""

    ANY = ""
    REQUIRED = "CORE-SIBLING-REQUIRED"  # all threads of each core that is used
    PREFERRED = "CORE-SIBLING-PREFERRED"  # as many complete cores as possible
    DENIED = "CORE-SIBLING-DENIED"  # one thread of each core; nobody gets the others


class MemoryAffinity(enum.Enum):
    """How CPUs and memory lie to each other."""

    NONE = "NO-MEM-AFFINITY"
    BIND_REQUIRED = "NUMA-MEM-AFFINITY-BIND-REQUIRED"  # all CPUs on one NUMA node
    BIND_PREFERRED = "NUMA-MEM-AFFINITY-BIND-PREFERRED"
    INTERLEAVE_REQUIRED = "NUMA-MEM-AFFINITY-INTERLEAVE-REQUIRED"  # CPUs on every NUMA node that has some
    INTERLEAVE_PREFERRED = "NUMA-MEM-AFFINITY-INTERLEAVE-PREFERRED"

    @property
    def required(self) -> bool:
        return self in (MemoryAffinity.BIND_REQUIRED, MemoryAffinity.INTERLEAVE_REQUIRED)

    @property
    def preferred(self) -> bool:
        return self in (MemoryAffinity.BIND_PREFERRED, MemoryAffinity.INTERLEAVE_PREFERRED)

    @property
    def as_required(self) -> MemoryAffinity:
        """The same wish as a demand."""
        return MemoryAffinity.BIND_REQUIRED if self.bind else MemoryAffinity.INTERLEAVE_REQUIRED

    @property
    def bind(self) -> bool:
        return self in (MemoryAffinity.BIND_REQUIRED, MemoryAffinity.BIND_PREFERRED)

    @property
    def interleave(self) -> bool:
        return self in (MemoryAffinity.INTERLEAVE_REQUIRED, MemoryAffinity.INTERLEAVE_PREFERRED)


class DeviceAffinity(enum.Enum):
    """Whether CPUs come from the NUMA nodes of the devices that the container has."""

    NONE = "NO-DEVICE-AFFINITY"
    REQUIRED = "NUMA-DEVICE-AFFINITY-REQUIRED"
    PREFERRED = "NUMA-DEVICE-AFFINITY-PREFERRED"


class Isolation(enum.Enum):
    """Use of the CPUs that the kernel keeps away from its scheduler (isolcpus)."""

    NO = "NOT-ISOLATED"
    REQUIRED = "ISOLATED-REQUIRED"
    ALLOWED = "ISOLATED-ALLOWED"


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """One group of cores of a claim: `count` CPUs (up to `most` if a range was given) with attributes."""

    count: int
    most: int | None = None
    exclusive: bool = False
    siblings: Siblings = Siblings.ANY
    memory: MemoryAffinity = MemoryAffinity.NONE
    device: DeviceAffinity = DeviceAffinity.NONE
    device_numa: NumaSet = NO_NUMA  # where the container's devices sit; empty: no device, or nobody knows
    kind: CoreKind | None = None
    isolation: Isolation = Isolation.NO
    threads: bool = False
    """EXCLUSIVE owns single threads, where the machine's owner wants that; otherwise full cores (ruling 15)."""

    def contradictions(self) -> tuple[Violation, ...]:
        """What is wrong with the request itself, on any machine."""
        found = []
        if self.count < 1:
            found.append(Violation("cores", f"must be at least 1, not {self.count}"))
        if self.most is not None and self.most < self.count:
            found.append(Violation("cores", f"range {self.count}-{self.most} is empty"))
        if self.siblings is Siblings.DENIED and not self.exclusive:
            found.append(Violation(self.siblings.value, "keeps whole cores from others and needs EXCLUSIVE"))
        if self.isolation is Isolation.REQUIRED and not self.exclusive:
            found.append(Violation(self.isolation.value, "isolated CPUs are handed out only as EXCLUSIVE"))
        return tuple(found)


def eligible(machine: Machine, available: CpuSet, request: CpuRequest) -> CpuSet:
    """The available CPUs of the right kind and isolation, wherever they are."""
    cpus = available & machine.online
    if request.kind is not None:
        cpus &= machine.performance if request.kind is CoreKind.PERFORMANCE else machine.efficiency
    if request.isolation is Isolation.REQUIRED:
        return cpus & machine.isolated
    return cpus if request.isolation is Isolation.ALLOWED and request.exclusive else cpus - machine.isolated


def owned(machine: Machine, request: CpuRequest, cpus: CpuSet) -> CpuSet:
    """The CPUs that nobody else may use once the request holds `cpus`: full cores (KEP-3675, "Full cores")."""
    if not request.exclusive:
        return CpuSet()
    single = request.threads and request.siblings is not Siblings.DENIED
    return cpus if single else machine.touched_cores(cpus)


def violations(
    machine: Machine, available: CpuSet, request: CpuRequest, cpus: CpuSet
) -> tuple[Violation | Shortage, ...]:
    """Every hard promise that `cpus` would break as an answer to `request`."""
    found: list[Violation | Shortage] = []
    most = request.most or request.count
    if not request.count <= len(cpus) <= most:
        found.append(Shortage("cpus", request.count, len(cpus), "in the answer"))
    outside = cpus - eligible(machine, available, request)
    if outside:
        found.append(Violation("available cpus", f"{outside} may not be used"))
    if owned(machine, request, cpus) - available:
        rule = request.siblings.value or "EXCLUSIVE"
        found.append(Violation(rule, f"siblings of {cpus} are in use by others"))
    if request.siblings is Siblings.REQUIRED and machine.whole_cores(cpus) != cpus:
        found.append(Violation(request.siblings.value, f"{cpus} holds parts of cores"))
    if request.siblings is Siblings.DENIED and any(len(core & cpus) > 1 for core in machine.cores.values()):
        found.append(Violation(request.siblings.value, f"{cpus} holds two threads of one core"))
    nodes = machine.numa_of(cpus)
    if request.memory is MemoryAffinity.BIND_REQUIRED and len(nodes) > 1:
        found.append(Violation(request.memory.value, f"{cpus} spans NUMA nodes {nodes}"))
    if request.memory is MemoryAffinity.INTERLEAVE_REQUIRED and nodes != machine.cpu_numa:
        found.append(Violation(request.memory.value, f"{cpus} lacks NUMA nodes {machine.cpu_numa - nodes}"))
    if request.device is DeviceAffinity.REQUIRED and request.device_numa and not nodes <= request.device_numa:
        found.append(Violation(request.device.value, f"{cpus} is not on NUMA {request.device_numa}"))
    return tuple(found)
