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

from kubeqos.model.hardware.layout import Layout
from kubeqos.topology.packed import sorted_numas, take_in_steps, take_packed

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
    """The share of every node, then the extra groups; nodes are independent, so their turns do not matter."""
    taken = 0
    extra = dict(plan.extra)
    for position, node in enumerate(nodes):
        inside = free & layout.numas[node]
        share = take_packed(layout, inside, plan.share, spread=spread)
        taken |= share | take_in_steps(layout, inside & ~share, extra.get(position, 0), group, spread=spread)
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
        self._bounds: dict[tuple[int, ...], int | None] = {}

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
        """The combination with the lowest score, the first one among equals; one socket beats any score.

        Combinations are planned in the order of what they could score at best, until no better one can follow.
        """
        promising = []
        for index, combo in enumerate(self._combinations(size)):
            bound = self._bound(tuple([self.frees[i] for i in combo]))
            if bound is not None:
                promising.append((self.by_socket and not self._one_socket(combo), bound, index, combo))
        best: tuple[tuple[bool, int, int], tuple[int, ...], _Plan] | None = None
        for crosses, bound, index, combo in sorted(promising):
            if best and (crosses, bound, index) > best[0]:
                break
            plan = self._plan(tuple([self.frees[i] for i in combo]))
            if plan and (best is None or (crosses, plan.score, index) < best[0]):
                best = ((crosses, plan.score, index), combo, plan)
        return best[1:] if best else None

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

    def _share(self, frees: tuple[int, ...]) -> int | None:
        """The even share of nodes with these free counts, or None when they cannot serve the request in groups."""
        whole = [have // self.group for have in frees]
        share = self.count // len(frees) // self.group * self.group
        if self.by_socket:
            share = min(share, min(whole) * self.group)
        return None if sum(whole) * self.group < self.count or min(frees) < share else share

    def _bound(self, frees: tuple[int, ...]) -> int | None:
        """A score that no way to serve the request from these nodes can beat: the remainder levels the fullest."""
        if frees not in self._bounds:
            self._bounds[frees] = self._make_bound(frees)
        return self._bounds[frees]

    def _make_bound(self, frees: tuple[int, ...]) -> int | None:
        share = self._share(frees)
        if share is None:
            return None
        after = sorted([have - share for have in frees], reverse=True)
        left = self.count - share * len(frees)
        others = self._squares - sum([have * have for have in frees])
        for width, (high, low) in enumerate(zip(after, [*after[1:], 0], strict=True), start=1):
            if left <= (high - low) * width:
                level = high - left / width
                lower = sum([have * have for have in after[width:]])
                return self._score(others + lower + width * level * level, 0.499999)
            left -= (high - low) * width
        return None

    def _plan(self, frees: tuple[int, ...]) -> _Plan | None:
        """The best way to serve the request from nodes with these free counts, if there is one."""
        if frees not in self._plans:
            self._plans[frees] = self._make_plan(frees)
        return self._plans[frees]

    def _make_plan(self, frees: tuple[int, ...]) -> _Plan | None:
        group, share = self.group, self._share(frees)
        if share is None:
            return None
        squares = self._squares + sum([share * share - 2 * share * have for have in frees])
        left = self.count // group - share // group * len(frees)
        if not left:
            return _Plan(self._score(squares), share, ())
        best: _Plan | None = None
        after = [have - share for have in frees]
        for extra in _extras([(i, have // group) for i, have in enumerate(after) if have >= group], left):
            change = sum([given * group * (given * group - 2 * after[i]) for i, given in extra])
            score = self._score(squares + change)
            if best is None or score < best.score:
                best = _Plan(score, share, extra)
        return best

    def _score(self, squares: float, half: float = 0.5) -> int:
        """Standard deviation of what stays free, in thousandths: Kubernetes compares three decimals."""
        nodes = len(self.frees)
        variance = max(0.0, squares * nodes - self._left * self._left)
        return math.floor(math.sqrt(variance) / nodes * 1000 + half)


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
