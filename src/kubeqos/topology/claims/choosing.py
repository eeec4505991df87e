"""How drivers choose cores for a claim: by its attributes alone, or with a preference that a driver is known for. Pure.

The built-in drivers choose by it on their node, and placement by what the node publishes of its drivers and of what
they gave, so that both say the same. A driver of another maker that chooses in one of these ways may say so (`Driver`
of the SDK); of all others placement assumes that attributes alone decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kubeqos.model.cpuset import NO_CPUS, NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable, Violation
from kubeqos.topology.attributes import Siblings
from kubeqos.topology.claims.parameters import Group, Parameters
from kubeqos.topology.compute import allocate, allocate_claim

BY_ATTRIBUTES, FRUGAL, WHOLE_NODES = "", "frugal", "whole-numa-nodes"

Chosen = tuple[Allocated, ...] | Unsatisfiable
"""What each group of a claim gets, or why not."""


def choose(way: str, machine: Machine, available: CpuSet, parameters: Parameters, owned: CpuSet = NO_CPUS) -> Chosen:
    """Cores for a claim. `owned` is what the driver has given to others for their own; a way nobody knows is plain."""
    # What may be given again is nobody's any more: an init container lends its cores to those that come after it.
    return _WAYS.get(way, _plainly)(machine, available, parameters, owned - available)


def by_attributes(machine: Machine, available: CpuSet, parameters: Parameters) -> Chosen:
    """As the reference driver chooses."""
    regions = [group.region(machine) for group in parameters.groups]
    return allocate_claim(machine, available, parameters.requests(), regions)


def _plainly(machine: Machine, available: CpuSet, parameters: Parameters, _owned: CpuSet) -> Chosen:
    return by_attributes(machine, available, parameters)


# ---- Efficiency cores first, on NUMA nodes that are awake


def _frugally(machine: Machine, available: CpuSet, parameters: Parameters, owned: CpuSet) -> Chosen:
    """The first of ever less frugal attempts that succeeds; the last one is the plain claim."""
    awake = available & machine.cpus_in(machine.numa_of(owned))
    answer: Chosen = Unsatisfiable(())
    for attempt in _ever_less_frugal(machine, parameters):
        for region in (awake, available):
            answer = by_attributes(machine, region, attempt)
            if not isinstance(answer, Unsatisfiable):
                return answer
    return answer


def _ever_less_frugal(machine: Machine, parameters: Parameters) -> Iterator[Parameters]:
    """The claim with efficiency cores for all groups that do not say, then for fewer and fewer of them."""
    open_groups = [index for index, group in enumerate(parameters.groups) if group.kind is None]
    for number in range(len(open_groups) if machine.efficiency else 0, -1, -1):
        groups = tuple(
            replace(group, kind=CoreKind.EFFICIENCY) if index in open_groups[:number] else group
            for index, group in enumerate(parameters.groups)
        )
        yield replace(parameters, groups=groups)


# ---- Whole NUMA nodes


def _in_whole_nodes(machine: Machine, available: CpuSet, parameters: Parameters, owned: CpuSet) -> Chosen:
    """Exclusive groups on NUMA nodes that no other claim of the driver is on, shared ones where there is room then."""
    answers: dict[int, Allocated] = {}
    taken, mine = NO_CPUS, NO_NUMA
    order = sorted(range(len(parameters.groups)), key=lambda index: not parameters.groups[index].exclusive)
    for index in order:
        group = parameters.groups[index]
        rest = available - taken
        answer: Allocated | Unsatisfiable
        if group.exclusive:
            free = ((machine.cpu_numa - machine.numa_of(owned)) & machine.numa_of(rest)) | mine
            answer = _on_nodes(machine, rest, group, parameters.device_numa, free, mine)
        else:
            answer = allocate(machine, rest & group.region(machine), group.request(parameters.device_numa))
        if isinstance(answer, Unsatisfiable):
            return answer
        answers[index] = answer
        taken |= answer.cpus | answer.whole
        mine |= machine.numa_of(answer.whole)
    return tuple(answers[index] for index in range(len(parameters.groups)))


def _on_nodes(
    machine: Machine, available: CpuSet, group: Group, device_numa: NumaSet, free: NumaSet, mine: NumaSet
) -> Allocated | Unsatisfiable:
    """The fewest nodes that serve the group, nearest together, with one thread of each core if it may be so."""
    alone = replace(group, siblings=Siblings.DENIED) if group.siblings is Siblings.ANY else group
    inside = available & group.region(machine)
    for attempt in dict.fromkeys((alone, group)):
        for nodes in _neighbourhoods(machine, free, mine):
            answer = allocate(machine, inside & machine.cpus_in(nodes), attempt.request(device_numa))
            if isinstance(answer, Allocated):
                return answer
    detail = f"nodes {free or 'none'} are free, {group.cores} cores wanted"
    return Unsatisfiable((Violation("whole NUMA nodes", detail),))


def _neighbourhoods(machine: Machine, free: NumaSet, mine: NumaSet) -> Iterator[NumaSet]:
    """Free nodes around each free node, small circles first; the claim's own nodes come before others."""
    near = {start: sorted(free, key=lambda node: (machine.distance(start, node), node)) for start in free}
    for size in range(1, len(free) + 1):
        for start in sorted(free, key=lambda node: (node not in mine, node)):
            yield NumaSet.from_ids(near[start][:size])


_WAYS: Mapping[str, Callable[[Machine, CpuSet, Parameters, CpuSet], Chosen]] = {
    BY_ATTRIBUTES: _plainly,
    FRUGAL: _frugally,
    WHOLE_NODES: _in_whole_nodes,
}
WAYS = tuple(_WAYS)
