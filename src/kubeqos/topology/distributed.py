"""Distributed CPU allocation: an even share from each of the fewest NUMA nodes that can give one.

Kubernetes' rule (KEP-2902): for k = fewest … most nodes, look at every combination of k nodes, give each an
even share in whole groups, hand the remainder out group by group to a subset, and keep the combination after
which the free CPUs of all nodes are most balanced (standard deviation to three decimals, first one wins). The
same answer is found here with integer sums of squares, by scoring each distinct tuple of free counts once,
and without looking at subsets of the remainder that give the same result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from kubeqos.model.layout import Layout
from kubeqos.topology.packed import sorted_numas, take_packed

MAX_COMBINATIONS = 20_000  # beyond this only the nodes with the most free CPUs are combined


@dataclass(frozen=True, slots=True)
class _Plan:
    """An even share for each node at these positions, and extra groups for some of them."""

    score: int
    share: int
    extra: tuple[tuple[int, int], ...]  # (position inside the combination, groups), in hand-out order


def take_distributed(
    layout: Layout, free: int, count: int, *, group: int = 1, spread: bool = False, by_socket: bool = False
) -> int:
    """Exactly `count` CPUs out of `free`, which must hold that many; packed where no even share exists."""
    if count % group == 0 and count > 0:
        nodes = sorted_numas(layout, free)
        frees = [(layout.numas[node] & free).bit_count() for node in nodes]
        chooser = _Chooser(layout, nodes, frees, count, group, by_socket)
        chosen = chooser.choose()
        if chosen:
            combo, plan = chosen
            return _hand_out(layout, free, [nodes[i] for i in combo], plan, group, spread)
    return take_packed(layout, free, count, spread=spread)


def _hand_out(layout: Layout, free: int, nodes: list[int], plan: _Plan, group: int, spread: bool) -> int:
    taken = 0

    def take(node: int, count: int) -> int:
        return take_packed(layout, free & layout.numas[node] & ~taken, count, spread=spread)

    for node in nodes:
        taken |= take(node, plan.share)
    left = dict(plan.extra)
    while any(left.values()):
        for position in left:
            if left[position]:
                left[position] -= 1
                taken |= take(nodes[position], group)
    return taken


class _Chooser:
    """The search for the best combination; positions index the sorted list of nodes with free CPUs."""

    def __init__(
        self, layout: Layout, nodes: list[int], frees: list[int], count: int, group: int, by_socket: bool
    ) -> None:
        self.layout = layout
        self.nodes = nodes
        self.frees = frees
        self.count = count
        self.group = group
        self.by_socket = by_socket
        self._squares = sum(have * have for have in frees)
        self._left = sum(frees) - count
        self._plans: dict[tuple[int, ...], _Plan | None] = {}

    def choose(self) -> tuple[tuple[int, ...], _Plan] | None:
        groups = self.count // self.group
        total_groups = -(-sum(mask.bit_count() for mask in self.layout.numas.values()) // self.group)
        per_node = -(-total_groups // len(self.layout.numas))
        for size in range(-(-groups // per_node), min(groups, len(self.nodes)) + 1):
            best = self._best_of(size)
            if best:
                return best
        return None

    def _best_of(self, size: int) -> tuple[tuple[int, ...], _Plan] | None:
        best: tuple[tuple[int, ...], _Plan] | None = None
        best_in_socket = False
        for combo in self._combinations(size):
            if best and best[1].score == 0 and (not self.by_socket or best_in_socket):
                break
            in_socket = self.by_socket and self._one_socket(combo)
            if best_in_socket and not in_socket:
                continue
            plan = self._plan(tuple([self.frees[i] for i in combo]))
            if plan is None:
                continue
            better = best is None or plan.score < best[1].score
            if in_socket != best_in_socket:
                better = in_socket
            if better:
                best, best_in_socket = (combo, plan), in_socket
        return best

    def _combinations(self, size: int) -> Iterator[tuple[int, ...]]:
        share = 1 if self.by_socket else self.count // size // self.group * self.group
        able = [i for i, have in enumerate(self.frees) if have >= share]
        if math.comb(len(able), size) <= MAX_COMBINATIONS:
            return combinations(able, size)
        pools = [able]
        if self.by_socket:
            inside = self.layout.numas_in_socket.values()
            pools = [*([i for i in able if self.nodes[i] in numas] for numas in inside), able]
        roomiest = [sorted(sorted(pool, key=lambda i: (-self.frees[i], i))[: size + 2]) for pool in pools]
        return chain.from_iterable(combinations(pool, size) for pool in roomiest)

    def _one_socket(self, combo: Sequence[int]) -> bool:
        return len({s for i in combo for s in self.layout.sockets_in_numa[self.nodes[i]]}) == 1

    def _plan(self, frees: tuple[int, ...]) -> _Plan | None:
        """The best way to serve the request from nodes with these free counts, if there is one."""
        if frees not in self._plans:
            self._plans[frees] = self._make_plan(frees)
        return self._plans[frees]

    def _make_plan(self, frees: tuple[int, ...]) -> _Plan | None:
        group = self.group
        whole = [have // group for have in frees]
        share = self.count // len(frees) // group * group
        if self.by_socket:
            share = min(share, min(whole) * group)
        if sum(whole) * group < self.count or min(frees) < share:
            return None
        squares = self._squares + sum(share * share - 2 * share * have for have in frees)
        left = self.count // group - share // group * len(frees)
        if not left:
            return _Plan(self._score(squares), share, ())
        best: _Plan | None = None
        after = [have - share for have in frees]
        for extra in _extras([(i, have // group) for i, have in enumerate(after) if have >= group], left):
            change = sum(given * group * (given * group - 2 * after[i]) for i, given in extra)
            score = self._score(squares + change)
            if best is None or score < best.score:
                best = _Plan(score, share, extra)
        return best

    def _score(self, squares: int) -> int:
        """Standard deviation of what stays free, in thousandths: Kubernetes compares three decimals."""
        nodes = len(self.frees)
        return math.floor(math.sqrt(squares * nodes - self._left * self._left) / nodes * 1000 + 0.5)


def _extras(room: list[tuple[int, int]], left: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ways to hand `left` groups round-robin to subsets of nodes (position, groups held), largest first.

    A subset with more nodes than groups serves only its first `left` nodes, so each such prefix is tried
    once, in the order in which the subsets that start with it would have come.
    """
    if left <= len(room):
        for last in range(left - 1, len(room)):
            for prefix in combinations(range(last), left - 1):
                yield tuple((room[i][0], 1) for i in (*prefix, last))
    for size in range(min(left - 1, len(room)), 0, -1):
        for subset in combinations(room, size):
            if sum(held for _, held in subset) >= left:
                yield _round_robin(subset, left)


def _round_robin(subset: Sequence[tuple[int, int]], left: int) -> tuple[tuple[int, int], ...]:
    """Groups that each node gives when they are handed out in turn and nodes drop out as they run empty."""
    level, active = 0, len(subset)  # every node that can has given `level` groups
    for held in sorted(held for _, held in subset):
        if (held - level) * active > left:
            break
        left -= (held - level) * active
        level, active = held, active - 1
    if active:
        level, left = level + left // active, left % active
    given = []
    for position, held in subset:
        one_more = left > 0 and held > level
        left -= one_more
        given.append((position, min(held, level) + one_more))
    return tuple(given)
