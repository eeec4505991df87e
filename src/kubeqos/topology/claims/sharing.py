"""Who runs where: what a new exclusive owner means for everybody else, and what each container should have.

Standard containers run on the pool: what is available, without kernel-isolated CPUs. Shared groups of claims keep
their number of cores and their attributes when an exclusive claim takes some of their CPUs: they get others. Pure
functions on entries of the store; called by the manager and, for nodes far away, by placement.
"""

from __future__ import annotations

from dataclasses import replace

from kubeqos.model.cpuset import NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable, Violation
from kubeqos.topology.attributes import violations
from kubeqos.topology.claims.holdings import Holding, Holdings, Key, ResourceSet, StoredContainer
from kubeqos.topology.claims.parameters import Group, Parameters
from kubeqos.topology.compute import allocate


def pool_of(machine: Machine, available: CpuSet) -> CpuSet:
    """Where standard containers run; isolated CPUs only when there is nothing else."""
    return available - machine.isolated or available


def offered(machine: Machine, parameters: Parameters, available: CpuSet) -> CpuSet:
    """What a driver may choose from: who owns full cores cannot be on a core that others use."""
    full = all(group.exclusive and not group.threads for group in parameters.groups) and not parameters.policy
    return machine.whole_cores(available) if full else available


def place(store: Holdings, entry: StoredContainer, minimum: int) -> tuple[StoredContainer, ...] | Unsatisfiable:
    """The entries to write when `entry` joins: itself, and shared holders that had to make room for it."""
    available = store.available_resources() - entry.whole
    pool = pool_of(store.machine, available)
    if len(pool) < minimum and entry.whole:
        detail = f"{len(pool)} cpus would be left for pods without claims, at least {minimum} must stay"
        return Unsatisfiable((Violation("standard pods", detail),))
    moved = []
    taken = entry.whole
    for other in store.entries.values() if taken else ():
        if other.holdings and other.pod != entry.pod and other.cpus & taken:
            answer = _make_room(store.machine, available, other, taken)
            if isinstance(answer, Unsatisfiable):
                return answer
            moved.append(answer)
    return (*moved, entry)


def _make_room(
    machine: Machine, available: CpuSet, entry: StoredContainer, taken: CpuSet
) -> StoredContainer | Unsatisfiable:
    """The entry with each shared set moved off the CPUs that were taken, of the same size and attributes."""
    holdings = []
    used = entry.whole
    for holding in entry.holdings:
        sets = []
        for group, held in holding.pairs():
            found: ResourceSet | Unsatisfiable = held
            if not held.exclusive and held.cpus & taken:
                found = _elsewhere(machine, available - used, holding, group, held.cpus, taken)
            if isinstance(found, Unsatisfiable):
                who = f"{entry.label}/{entry.container}"
                return Unsatisfiable((Violation("shared cores", f"{who} could not keep its shared cores: {found}"),))
            used |= found.cpus
            sets.append(found)
        holdings.append(replace(holding, sets=tuple(sets)))
    return replace(entry, holdings=tuple(holdings))


def _elsewhere(
    machine: Machine, available: CpuSet, holding: Holding, group: Group | None, cpus: CpuSet, taken: CpuSet
) -> ResourceSet | Unsatisfiable:
    """A shared set that keeps what it can of the old one."""
    size = len(cpus)
    asked = group or Group(size, size)
    request = replace(asked.request(holding.parameters.device_numa), count=size, most=None)
    available &= asked.region(machine)
    keep = cpus - taken
    near = available & machine.cpus_in(machine.numa_of(keep)) - keep
    for spare in (near, pool_of(machine, available) - keep):
        candidate = keep | spare.lowest(size - len(keep))
        if not violations(machine, available, request, candidate):
            return ResourceSet(candidate)
    answer = allocate(machine, available, request)
    return ResourceSet(answer.cpus) if isinstance(answer, Allocated) else answer


def running_on(store: Holdings) -> dict[Key, CpuSet]:
    """The cpuset that each container should have now."""
    pool = pool_of(store.machine, store.available_resources())
    return {key: pool if entry.standard else entry.cpus for key, entry in store.entries.items()}


def memory_nodes(machine: Machine, entry: StoredContainer) -> NumaSet:
    """The NUMA nodes that its memory should come from, as far as its groups say; only nodes that have memory."""
    mask = 0
    for holding in entry.holdings:
        for group, held in holding.pairs():
            if group is not None and group.memory.interleave:
                mask |= machine.numa.mask
            elif group is not None and group.memory.bind:
                mask |= machine.numa_of(held.cpus).mask
    if not mask:
        return NO_NUMA
    return NumaSet(mask) & NumaSet.from_ids(node.id for node in machine.nodes if node.memory_bytes)


def because(entry: StoredContainer) -> str:
    """Why a container has the CPUs that it has."""
    if entry.ignored:
        return f"its claim was not served and it runs without, on all CPUs that nobody owns: {entry.ignored}"
    if entry.standard:
        return "no claim: all CPUs that nobody holds exclusively"
    return "; ".join(
        f"claim {one.claim_name} by driver {one.driver}: {' and '.join(map(said, one.sets))}" for one in entry.holdings
    )


def said(held: ResourceSet) -> str:
    """One set of CPUs, for people."""
    return f"{'exclusive' if held.exclusive else 'shared'} {held.cpus}"
