"""How scattered the free CPUs of a machine are, and the fewest moves that make a request fit again.

`fragmentation` measures the largest aligned blocks that are still free. `plan_moves` looks for the smallest
set of exclusive tenants that, placed elsewhere under their own attributes, make room; used by rebalancing and
by `kubeqos why` ("would fit if pod X moved"). The order of the actual writes is
`topology.changes.plan_changes`' work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Refused, Violation
from kubeqos.topology.attributes import CpuRequest
from kubeqos.topology.compute import allocate


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The largest number of free CPUs that lie together in one unit of each kind."""

    free: int
    in_whole_cores: int
    largest_uncore: int
    largest_numa: int
    largest_socket: int
    score: float  # 0: as compact as this many free CPUs can be; towards 1: scattered

    def __str__(self) -> str:
        return (
            f"{self.free} free, {self.in_whole_cores} in whole cores; "
            f"largest block {self.largest_uncore} in one cache, {self.largest_numa} in one NUMA node, "
            f"{self.largest_socket} in one socket; fragmentation {self.score:.2f}"
        )


def fragmentation(machine: Machine, free: CpuSet) -> Fragmentation:
    """Measure; the score compares the largest block in one NUMA node with the best that was possible."""

    def largest(units: Mapping[int, CpuSet]) -> int:
        return max((len(cpus & free) for cpus in units.values()), default=0)

    together = largest(machine.numa_cpus)
    possible = min(len(free), max(map(len, machine.numa_cpus.values()), default=0))
    return Fragmentation(
        free=len(free),
        in_whole_cores=len(machine.whole_cores(free)),
        largest_uncore=largest(machine.uncores),
        largest_numa=together,
        largest_socket=largest(machine.sockets),
        score=1 - together / possible if possible else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """Someone who holds CPUs exclusively and may be moved, under the attributes it was admitted with."""

    name: str
    cpus: CpuSet  # all that it owns, idle siblings included
    request: CpuRequest


@dataclass(frozen=True, slots=True)
class Move:
    """Place this tenant elsewhere."""

    tenant: str
    before: CpuSet
    after: Allocated


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The moves, and what the request gets after them. `fewest` is false when the search was cut short."""

    moves: tuple[Move, ...]
    answer: Allocated
    fewest: bool = True


def plan_moves(
    machine: Machine, available: CpuSet, tenants: Sequence[Tenant], request: CpuRequest, *, tries: int = 2000
) -> Rebalanced | Refused:
    """The fewest tenants to move so that `request` fits, or why it does not fit however they are moved.

    Sets of tenants are tried by size; after `tries` of them, nodes are emptied greedily instead.
    """
    answer = allocate(machine, available, request)
    if isinstance(answer, Allocated):
        return Rebalanced((), answer)
    everything = available
    for tenant in tenants:
        everything |= tenant.cpus
    ideal = allocate(machine, everything, request)
    if isinstance(ideal, Refused):
        return ideal  # not even an empty machine would do
    for number, movers in enumerate(_by_size(tenants)):
        if number >= tries:
            break
        found = _relocate(machine, available, movers, request)
        if found:
            return found
    else:
        return Refused((Violation("rebalance", "no set of moves makes room: the tenants fit nowhere else"),))
    for movers in _greedy(machine, tenants):
        found = _relocate(machine, available, movers, request)
        if found:
            return Rebalanced(found.moves, found.answer, fewest=False)
    return Refused((Violation("rebalance", f"no moves found in {tries} tries"),))


def _by_size(tenants: Sequence[Tenant]) -> Iterator[tuple[Tenant, ...]]:
    """Every set of tenants, smallest first; among equals those who own little come first."""
    cheap = sorted(tenants, key=lambda t: (len(t.cpus), t.name))
    for size in range(1, len(cheap) + 1):
        yield from combinations(cheap, size)


def _greedy(machine: Machine, tenants: Sequence[Tenant]) -> Iterator[tuple[Tenant, ...]]:
    """For each NUMA node, more and more of the tenants that sit on it, small ones first."""
    for cpus in machine.numa_cpus.values():
        here = sorted((t for t in tenants if t.cpus & cpus), key=lambda t: (len(t.cpus & cpus), t.name))
        for size in range(1, len(here) + 1):
            yield tuple(here[:size])


def _relocate(machine: Machine, available: CpuSet, movers: Sequence[Tenant], request: CpuRequest) -> Rebalanced | None:
    """Lift these tenants, place the request, then place them again, the largest first."""
    room = available
    for tenant in movers:
        room |= tenant.cpus
    answer = allocate(machine, room, request)
    if isinstance(answer, Refused):
        return None
    room -= answer.whole or answer.cpus
    moves = []
    for tenant in sorted(movers, key=lambda t: (-len(t.cpus), t.name)):
        placed = allocate(machine, room, tenant.request)
        if isinstance(placed, Refused):
            return None
        room -= placed.whole
        moves.append(Move(tenant.name, tenant.cpus, placed))
    return Rebalanced(tuple(moves), answer)
