"""Which owners of CPUs to move, so that those that nobody owns lie closer together. Pure.

One owner at a time moves to where the free CPUs become better than they are: first a larger block in one NUMA node,
then more whole cores, a larger block in one cache, and fewer NUMA nodes under owners. So a plan that is stopped half
way has helped too. No owner ends on more NUMA nodes than it had, and one that had whole cores has whole cores again.
Called by `views.defrag`; the order of the writes is that of `topology.changes`, at the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.cpus import CpuOptions, allocate_cpus
from kubeqos.topology.fragmentation import Fragmentation, fragmentation

_Quality = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Move:
    """One owner from some CPUs to as many others."""

    owner: str
    before: CpuSet
    after: CpuSet


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """The moves in the order in which they help, and how scattered the free CPUs are before and after them."""

    moves: tuple[Move, ...]
    before: Fragmentation
    after: Fragmentation


def defragment(
    machine: Machine, owners: Mapping[str, CpuSet], free: CpuSet, movable: Mapping[str, CpuSet]
) -> Defragmentation:
    """A plan for `owners`, whose CPUs are disjoint from each other and from `free`.

    `movable` says who may move, and inside which CPUs: the machine's, or those of the NUMA nodes that it is bound to.
    """
    now, first = dict(owners), free
    order: list[str] = []
    for _ in range(2 * len(movable)):  # every move helps, so it ends; this only bounds how long it may take
        best = _best(machine, now, free, movable)
        if best is None:
            break
        free = (free | best.before) - best.after
        now[best.owner] = best.after
        order = [one for one in order if one != best.owner] + [best.owner]
    moves = tuple(Move(name, owners[name], now[name]) for name in order if owners[name] != now[name])
    return Defragmentation(moves, fragmentation(machine, first), fragmentation(machine, free))


def _best(machine: Machine, owners: Mapping[str, CpuSet], free: CpuSet, movable: Mapping[str, CpuSet]) -> Move | None:
    """The move after which the free CPUs are best, if better than now; of equal ones that of the fewest CPUs."""
    spans = sum(_span(machine, cpus) for cpus in owners.values())
    kept = _quality(machine, free, spans)
    found: list[tuple[_Quality, int, str, Move]] = []
    for name, inside in movable.items():
        for move in _moves(machine, name, owners[name], free, inside):
            after = spans - _span(machine, move.before) + _span(machine, move.after)
            quality = _quality(machine, (free | move.before) - move.after, after)
            if quality > kept:
                found.append((quality, len(move.after - move.before), name, move))
    return min(found, key=lambda one: ([-part for part in one[0]], one[1], one[2]))[3] if found else None


def _moves(machine: Machine, name: str, held: CpuSet, free: CpuSet, inside: CpuSet) -> Iterator[Move]:
    """Where it could be: in one NUMA node each, and packed anew over all that it may use."""
    options = CpuOptions(full_pcpus_only=machine.whole_cores(held) == held)
    for region in (*machine.numa_cpus.values(), machine.online):
        answer = allocate_cpus(machine, (free | held) & inside & region, len(held), options)
        if isinstance(answer, Unsatisfiable) or answer.cpus == held:
            continue
        if _span(machine, answer.cpus) <= _span(machine, held):
            yield Move(name, held, answer.cpus)


def _span(machine: Machine, cpus: CpuSet) -> int:
    return len(machine.numa_of(cpus))


def _quality(machine: Machine, free: CpuSet, spans: int) -> _Quality:
    found = fragmentation(machine, free)
    return found.largest_numa, found.in_whole_cores, found.largest_uncore, -spans
