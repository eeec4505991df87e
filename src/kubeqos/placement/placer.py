"""The decision: the best node for a pod, or why there is none.

Pods of one shape share their work. For each shape the placer keeps a heap of the nodes that fit, ordered by
score; a change to a node invalidates that node's entry alone, so deciding for the next equal pod costs as
much as the nodes that changed since, not as much as the cluster is large. Pods that are spread by default (replicas)
have a heap for each group of nodes that spreading gives the same points. Shapes that look at other nodes in another way
(spread constraints of their own, affinity) are judged anew each time.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kubeqos.model.decisions import NodeScore
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.counted import counted_checks, has_room
from kubeqos.placement.domains import is_repelled
from kubeqos.placement.findings import Check
from kubeqos.placement.fit import NO_LABELS, STANDING, Explanation, feasible
from kubeqos.placement.indexes import Bools, Ints, Small
from kubeqos.placement.rows import OneRow
from kubeqos.placement.score import (
    DEFAULT_WEIGHTS,
    Weights,
    image_points,
    load_points,
    local_points,
    needs_relative,
    relative_points,
    score_parts,
)
from kubeqos.placement.selectors import NamespaceLabels, labels_predicate
from kubeqos.placement.shape import Shape
from kubeqos.placement.spreading import ZONE, Place, default_points, domain_pods

_KEPT_SHAPES = 512
_TOLD = 3  # the best nodes that an answer names
FEW_ROWS = 8  # from about there on the columns are faster than one row at a time


@dataclass(frozen=True, slots=True)
class Placed:
    """The node chosen and the points it won with."""

    node: str
    points: int
    uncontested: str = ""
    """Why no other node was looked at."""

    @property
    def brief(self) -> str:
        """Why this node, in a few words; `Placer.because` has more."""
        return self.uncontested or f"best of the nodes that fit, with {self.points} points"


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node fits, and why."""

    explanation: Explanation

    @property
    def message(self) -> str:
        """The reasons counted, as Kubernetes prints them."""
        return self.explanation.message


class Placer:
    """Decides for one cluster; keeps what it learned about each shape."""

    def __init__(
        self,
        cluster: Cluster,
        weights: Weights = DEFAULT_WEIGHTS,
        namespaces: NamespaceLabels = NO_LABELS,
        *,
        few_rows: int = FEW_ROWS,
    ) -> None:
        """`few_rows` changed ones are judged one at a time, more of them by columns; the answers are the same."""
        self.cluster = cluster
        self.weights = weights
        self.namespaces = namespaces
        self._few_rows = few_rows
        self._rankings: OrderedDict[Shape, _Ranking] = OrderedDict()
        self._compared: Ints | None = None
        """The points of all rows, where the last pod was decided by comparing them."""

    def place(self, shape: Shape) -> Placed | Unplaced:
        """Decide for a pod of this shape. Does not charge it: call `cluster.add_pod` with the answer."""
        self._compared = None
        if self._must_compare(shape):
            best = self._compare(shape)
            return self._unplaced(shape) if best is None else self._placed(*best)
        ranking = self._ranking(shape)
        best = ranking.best(self.cluster, shape, self.weights)
        if best is not None:
            return self._placed(*best)
        if ranking.unplaced is None:
            ranking.unplaced = self._unplaced(shape)
        return ranking.unplaced

    def because(self, shape: Shape, answer: Placed) -> str:
        """Why the node won, in points, and who came next: for the pod just placed, before it is charged."""
        return told(answer, self.best(shape, answer))

    def best(self, shape: Shape, answer: Placed) -> tuple[NodeScore, ...]:
        """The node of the pod just placed and the next ones, with the parts of their points."""
        row = self.cluster.row_of[answer.node]
        if self._compared is not None:
            leaders = _leaders(self._compared, _TOLD)
        else:
            leaders = self._rankings[shape].leaders(self.cluster, shape, self.weights)
        behind = [(other, points) for other, points in leaders if other != row][: _TOLD - 1]
        return tuple(
            NodeScore(
                self.cluster.node_name(each), points, score_parts(self.cluster, shape, each, self.weights, points)
            )
            for each, points in ((row, answer.points), *behind)
        )

    def _placed(self, row: int, points: int) -> Placed:
        return Placed(self.cluster.node_name(row), points)

    def _unplaced(self, shape: Shape) -> Unplaced:
        return Unplaced(Explanation(self.cluster, shape, self.namespaces))

    def _ranking(self, shape: Shape) -> _Ranking:
        """What is known of the nodes for this shape, up to date."""
        ranking = self._rankings.get(shape)
        if ranking is None:
            made = _SpreadRanking if shape.spread_by_default and self.weights.spread else _Ranking
            ranking = self._rankings[shape] = made(self._few_rows)
            if len(self._rankings) > _KEPT_SHAPES:
                self._rankings.popitem(last=False)
        else:
            self._rankings.move_to_end(shape)
        ranking.catch_up(self.cluster, shape, self.weights, self.namespaces)
        return ranking

    def _must_compare(self, shape: Shape) -> bool:
        if needs_relative(self.cluster, shape):
            return True
        return bool(self.cluster.groups.repelling) and is_repelled(self.cluster, shape, self.namespaces)

    def _compare(self, shape: Shape) -> tuple[int, int] | None:
        fits = feasible(self.cluster, shape, namespaces=self.namespaces)
        if not fits.any():
            return None
        points = local_points(self.cluster, shape, slice(None), self.weights)
        points += relative_points(self.cluster, shape, fits, self.weights, self.namespaces)
        self._compared = np.where(fits, points, -1)
        row = int(np.argmax(self._compared))
        return row, int(points[row])


def told(answer: Placed, best: Sequence[NodeScore]) -> str:
    """Why a node won, as people read it."""
    listed = ", ".join(f"{name} {points}" for name, points in best[0].parts.items())
    after = f"; next {', '.join(f'{one.node} {one.points}' for one in best[1:])}" if best[1:] else ""
    return answer.brief + (f" ({listed})" if listed else "") + after


def _leaders(points: Ints, count: int) -> list[tuple[int, int]]:
    """The rows with the most points, the lowest among equals first; -1 does not fit."""
    left, found = points.copy(), []
    for _ in range(count):
        row = int(np.argmax(left))
        if left[row] < 0:
            break
        found.append((row, int(left[row])))
        left[row] = -1
    return found


def _first_of(heap: list[tuple[int, int]], count: int, is_valid: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The first entries of a heap that still hold, as rows and points. Those that do not are dropped on the way."""
    kept: list[tuple[int, int]] = []
    while heap and len(kept) < count:
        entry = heapq.heappop(heap)
        if is_valid(entry[1], -entry[0]) and entry not in kept:
            kept.append(entry)
    for entry in kept:
        heapq.heappush(heap, entry)
    return [(row, -negative) for negative, row in kept]


class _Ranking:
    """The nodes that fit one shape, best first. Entries of changed rows are left behind and skipped."""

    def __init__(self, few_rows: int) -> None:
        self._few_rows = few_rows
        self._checks: tuple[Check, ...] = ()
        self._divisions: tuple[int, int, bool] | None = None
        self._heap: list[tuple[int, int]] = []
        self._points: dict[int, int] = {}
        self._clock = -1
        self.unplaced: Unplaced | None = None
        """Why no node fits, once somebody asked: until something changes, every pod of the shape is told the same."""
        # What the node alone decides, as of the last time that it changed.
        self._standing: Bools = np.zeros(0, dtype=np.bool_)
        self._images: Ints = np.zeros(0, dtype=np.int64)

    def catch_up(self, cluster: Cluster, shape: Shape, weights: Weights, namespaces: NamespaceLabels) -> None:
        """Judge the rows that changed since the last time."""
        if self._clock == cluster.clock:
            return
        before, self._clock, self.unplaced = self._clock, cluster.clock, None
        changed = None if before < 0 else cluster.changed_since(before)
        if (
            changed is None
            or self._entries() > 4 * len(cluster.alive) + 64
            or len(cluster.alive) != len(self._standing)
        ):
            self._judge_all(cluster, shape, weights, namespaces)
        elif len(changed) > self._few_rows or self._nodes_changed(changed, cluster, before):
            self._judge(changed, cluster, shape, weights, namespaces)
        else:
            self._judge_one_by_one(changed, cluster, shape, weights)

    @staticmethod
    def _nodes_changed(changed: list[int], cluster: Cluster, before: int) -> bool:
        return cluster.facts_clock > before and any(cluster.facts_at.item(row) > before for row in changed)

    def _judge_one_by_one(self, changed: list[int], cluster: Cluster, shape: Shape, weights: Weights) -> None:
        """Pods came or went on a few nodes, which themselves are as they were."""
        if self._divisions != cluster.divisions:
            self._checks, self._divisions = counted_checks(cluster, shape), cluster.divisions
        for row in changed:
            at = OneRow(row)
            fits = self._standing.item(row) and has_room(self._checks, at)
            self._note(row, load_points(cluster, shape, at, weights) + self._images.item(row) if fits else None)

    def _entries(self) -> int:
        """How many entries are kept, those that were left behind included."""
        return len(self._heap)

    def _note(self, row: int, points: int | None) -> None:
        if points is None:
            self._points.pop(row, None)
        else:
            self._points[row] = points
            heapq.heappush(self._heap, (-points, row))

    def _judge(
        self, changed: list[int], cluster: Cluster, shape: Shape, weights: Weights, namespaces: NamespaceLabels
    ) -> None:
        rows = np.array(changed, dtype=np.int64)
        self._standing[rows] = feasible(cluster, shape, rows, namespaces, STANDING)
        self._images[rows] = image_points(cluster, shape, rows, weights)
        fits = feasible(cluster, shape, rows, namespaces).tolist()
        points = local_points(cluster, shape, rows, weights).tolist()
        for row, fit, value in zip(changed, fits, points, strict=True):
            self._note(row, value if fit else None)

    def _judge_all(self, cluster: Cluster, shape: Shape, weights: Weights, namespaces: NamespaceLabels) -> None:
        self._standing = feasible(cluster, shape, namespaces=namespaces, filters=STANDING)
        self._images = image_points(cluster, shape, slice(None), weights)
        fits = np.flatnonzero(feasible(cluster, shape, namespaces=namespaces))
        points = local_points(cluster, shape, fits, weights)
        self._fill(dict(zip(fits.tolist(), points.tolist(), strict=True)))

    def _fill(self, points: dict[int, int]) -> None:
        self._points = points
        self._heap = [(-value, row) for row, value in points.items()]
        heapq.heapify(self._heap)

    def best(self, cluster: Cluster, shape: Shape, weights: Weights) -> tuple[int, int] | None:
        """The row with the most points, the lowest row among equals."""
        while self._heap:
            negative, row = self._heap[0]
            if self._points.get(row) == -negative:
                return row, -negative
            heapq.heappop(self._heap)
        return None

    def leaders(self, cluster: Cluster, shape: Shape, weights: Weights) -> list[tuple[int, int]]:
        """The best rows and their points."""
        return _first_of(self._heap, _TOLD, lambda row, points: self._points.get(row) == points)


class _SpreadRanking(_Ranking):
    """The same for replicas: one heap for each place (pods of the selector on the node, zone), best first.

    Each pod that is placed changes the scale of all spreading points, but never which nodes have the same ones.
    """

    def __init__(self, few_rows: int) -> None:
        super().__init__(few_rows)
        self._heaps: dict[Place, list[tuple[int, int]]] = {}
        self._places: dict[int, Place] = {}
        self._sizes: Counter[Place] = Counter()
        self._pods: Ints = np.zeros(0, dtype=np.int64)
        self._zones: Small = np.zeros(0, dtype=np.int32)

    def catch_up(self, cluster: Cluster, shape: Shape, weights: Weights, namespaces: NamespaceLabels) -> None:
        matches = labels_predicate(shape.soft_spread[0].label_selector)
        pods = cluster.groups.followed(
            shape, lambda namespace, labels: namespace == shape.namespace and matches(labels)
        )
        if pods is not self._pods:  # counted anew: rows were added, or nobody had asked for long
            self._pods, self._clock = pods, -1
        self._zones = cluster.labels.column(ZONE)
        super().catch_up(cluster, shape, weights, namespaces)

    def _entries(self) -> int:
        return sum(map(len, self._heaps.values()))

    def _note(self, row: int, points: int | None) -> None:
        before = self._places.pop(row, None)
        if before is not None:
            self._sizes[before] -= 1
            if not self._sizes[before]:
                del self._sizes[before], self._heaps[before]
        if points is None:
            self._points.pop(row, None)
            return
        place = self._places[row] = self._pods.item(row), self._zones.item(row)
        self._sizes[place] += 1
        self._points[row] = points
        heapq.heappush(self._heaps.setdefault(place, []), (-points, row))

    def _fill(self, points: dict[int, int]) -> None:
        self._points, self._heaps, self._places, self._sizes = {}, {}, {}, Counter()
        for row, value in points.items():
            self._note(row, value)

    def best(self, cluster: Cluster, shape: Shape, weights: Weights) -> tuple[int, int] | None:
        if not self._sizes:
            return None
        found: list[tuple[int, int]] = []
        points = default_points(self._sizes, domain_pods(cluster, shape, ZONE, self._pods))
        for place, heap in self._heaps.items():
            while self._places.get(heap[0][1]) != place or self._points[heap[0][1]] != -heap[0][0]:
                heapq.heappop(heap)
            negative, row = heap[0]
            found.append((weights.spread * points[place] - negative, -row))
        most, row = max(found)
        return -row, most

    def leaders(self, cluster: Cluster, shape: Shape, weights: Weights) -> list[tuple[int, int]]:
        points = default_points(self._sizes, domain_pods(cluster, shape, ZONE, self._pods))
        found: list[tuple[int, int]] = []
        for place, heap in self._heaps.items():

            def holds(row: int, value: int, place: Place = place) -> bool:
                return self._places.get(row) == place and self._points[row] == value

            found += [(row, value + weights.spread * points[place]) for row, value in _first_of(heap, _TOLD, holds)]
        return sorted(found, key=lambda each: (-each[1], each[0]))[:_TOLD]
