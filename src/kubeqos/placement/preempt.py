"""Preemption: which lower-priority pods would have to go so that a pod fits, and from which node.

As Kubernetes does it: on each candidate node remove every pod of lower priority, see whether the pod fits,
then reprieve victims one by one, the most important first. Among nodes: fewest disruption budgets violated,
lowest highest victim, lowest sum of priorities, fewest victims, latest start. A class slot is freed like any
other resource; the QoS class of a pod is not considered (pod-qos).
"""

from __future__ import annotations

import contextlib
import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kubeqos.model.objects import LabelSelectorView
from kubeqos.placement.cluster import Cluster, Column
from kubeqos.placement.fit import NO_LABELS, Explanation, counted_message, feasible
from kubeqos.placement.nodes import PlacedPod, class_use
from kubeqos.placement.published.pools import pool_use, pool_wants
from kubeqos.placement.selectors import NamespaceLabels, labels_predicate
from kubeqos.placement.shape import Shape

_LEAST_CANDIDATES = 100
_CANDIDATE_SHARE = 10
_KEPT_SHAPES = 64
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many more pods of a selection may be disrupted."""

    namespace: str
    selector: LabelSelectorView | None
    allowed: int


@dataclass(frozen=True, slots=True)
class Preemption:
    """The node to free, whom to evict, the most important first, and how many budgets that violates."""

    node: str
    victims: tuple[PlacedPod, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Why evicting pods does not help, counted over nodes."""

    message: str


class Preemptor:
    """Plans preemptions for one cluster. Like the placer it keeps, per shape, what it learned about unchanged nodes."""

    def __init__(self, cluster: Cluster, namespaces: NamespaceLabels = NO_LABELS) -> None:
        self.cluster = cluster
        self.namespaces = namespaces
        self.budgets: Sequence[DisruptionBudget] = ()
        self._trials: OrderedDict[Shape, _Trials] = OrderedDict()
        self._next = 0

    def preempt(self, shape: Shape, explanation: Explanation) -> Preemption | NoPreemption:
        """Find room for a pod that fits nowhere, as the explanation says."""
        trials = self._kept(shape)
        if trials.hopeless is not None:
            return trials.hopeless
        nodes = explanation.nodes
        hopeful = np.flatnonzero(explanation.resolvable)
        if not shape.may_preempt or not len(hopeful):
            trials.hopeless = NoPreemption(counted_message({_NOT_HELPFUL: nodes}, nodes))
            return trials.hopeless
        wanted = min(len(hopeful), max(_LEAST_CANDIDATES, len(hopeful) // _CANDIDATE_SHARE))
        start = self._next % len(hopeful)
        for row in (*hopeful[start:].tolist(), *hopeful[:start].tolist()):
            if trials.enough(wanted):
                break
            if row not in trials.tried:
                self._next += 1
                trials.add(row, dry_run(self.cluster, row, shape, self.budgets, self.namespaces))
        best = trials.best()
        if best is None:
            counts = {_NO_VICTIMS: len(hopeful), _NOT_HELPFUL: nodes - len(hopeful)}
            told = counted_message({text: count for text, count in counts.items() if count}, nodes)
            trials.hopeless = NoPreemption(told)
            return trials.hopeless
        return best

    def _kept(self, shape: Shape) -> _Trials:
        if self.budgets or shape.looks_at_other_nodes:
            return _Trials(self.cluster.clock)  # what was learned may no longer hold
        trials = self._trials.setdefault(shape, _Trials(self.cluster.clock))
        self._trials.move_to_end(shape)
        if len(self._trials) > _KEPT_SHAPES:
            self._trials.popitem(last=False)
        changed = self.cluster.changed_since(trials.clock)
        if changed is None:
            trials = self._trials[shape] = _Trials(self.cluster.clock)
        else:
            trials.forget(changed, self.cluster.clock)
        return trials


class _Trials:
    """The outcome of the dry runs for one shape, best candidate first."""

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.tried: dict[int, Preemption | None] = {}
        self.hopeless: NoPreemption | None = None
        """That evicting does not help, once found out; until something changes."""
        self._heap: list[tuple[tuple[float, ...], int]] = []
        self._found = 0
        self._harmless = 0

    def add(self, row: int, outcome: Preemption | None) -> None:
        self.tried[row] = outcome
        if outcome is not None:
            heapq.heappush(self._heap, (_preference(outcome), row))
            self._found += 1
            self._harmless += outcome.violations == 0

    def forget(self, rows: Iterable[int], clock: int) -> None:
        if self.clock == clock:
            return
        self.clock, self.hopeless = clock, None
        for row in rows:
            outcome = self.tried.pop(row, None)
            if outcome is not None:
                self._found -= 1
                self._harmless -= outcome.violations == 0

    def enough(self, wanted: int) -> bool:
        return self._found >= wanted and self._harmless > 0

    def best(self) -> Preemption | None:
        while self._heap:
            preference, row = self._heap[0]
            outcome = self.tried.get(row)
            if outcome is not None and _preference(outcome) == preference:
                return outcome
            heapq.heappop(self._heap)
        return None


def _preference(candidate: Preemption) -> tuple[float, ...]:
    """Smaller is better; Kubernetes' order of criteria."""
    priorities = [victim.shape.priority for victim in candidate.victims]
    highest = max(priorities, default=-(1 << 31))
    earliest = min((v.started for v in candidate.victims if v.shape.priority == highest), default=0.0)
    return (
        candidate.violations,
        highest,
        sum(priority + (1 << 31) for priority in priorities),
        len(priorities),
        -earliest,
    )


def dry_run(
    cluster: Cluster, row: int, shape: Shape, budgets: Sequence[DisruptionBudget], namespaces: NamespaceLabels
) -> Preemption | None:
    """Whom to evict from one node, or None when even evicting all lower pods is not enough."""
    lower = [pod for pod in cluster.rows[row].pods.values() if pod.shape.priority < shape.priority and pod.preemptible]
    if not lower:
        return None
    with (
        cluster.without([pod.uid for pod in lower]),
        contextlib.closing(_Trial(cluster, row, shape, namespaces)) as trial,
    ):
        if not trial.fits():
            return None
        protected, free = split_by_budget(lower, budgets)
        keeps = _Reprieve(trial)
        violators = [pod for pod in _important_first(protected) if not keeps(pod)]
        victims = violators + [pod for pod in _important_first(free) if not keeps(pod)]
        keeps.restore()
    if not victims:
        return None
    return Preemption(cluster.node_name(row), tuple(_important_first(victims)), len(violators))


def _important_first(pods: Iterable[PlacedPod]) -> list[PlacedPod]:
    return sorted(pods, key=lambda pod: (-pod.shape.priority, pod.started))


def split_by_budget(
    pods: Sequence[PlacedPod], budgets: Sequence[DisruptionBudget]
) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Pods whose eviction would violate a budget, and the others; each budget is spent in order of importance."""
    left = [budget.allowed for budget in budgets]
    matchers = [labels_predicate(budget.selector) for budget in budgets]
    violating: list[PlacedPod] = []
    free: list[PlacedPod] = []
    for pod in _important_first(pods):
        over = False
        for index, budget in enumerate(budgets):
            if budget.namespace == pod.shape.namespace and pod.shape.labels and matchers[index](pod.shape.labels):
                left[index] -= 1
                over = over or left[index] < 0
        (violating if over else free).append(pod)
    return violating, free


class _Trial:
    """One node on which a pod is tried. CPUs that claims kept idle are allocatable again once their pods are gone."""

    def __init__(self, cluster: Cluster, row: int, shape: Shape, namespaces: NamespaceLabels) -> None:
        self.cluster, self.row, self.shape = cluster, row, shape
        self.computes = row in cluster.computing
        self._namespaces = namespaces
        self._allocatable = cluster.cpu.capacity.item(row)

    def fits(self) -> bool:
        cpu = self.cluster.cpu.capacity
        if self.computes:
            cpu[self.row] = self._allocatable - min(0, self.cluster.rows[self.row].unforeseen())
        return bool(feasible(self.cluster, self.shape, np.array([self.row]), self._namespaces)[0])

    def close(self) -> None:
        self.cluster.cpu.capacity[self.row] = self._allocatable


class _Reprieve:
    """Puts victims back one at a time while the preemptor still fits.

    Amounts are compared by arithmetic on what is left; only pods whose company matters (ports, affinity, spreading) are
    tried by really putting them back. Where claims hold cores all are: which ones, and what they keep, no sum tells.
    """

    def __init__(self, trial: _Trial) -> None:
        self._trial = trial
        self._cluster, self._row, self._shape = trial.cluster, trial.row, trial.shape
        self._left = self._room()
        self._returned: list[str] = []

    def __call__(self, pod: PlacedPod) -> bool:
        needs = self._needs(pod.shape, pod.uid)
        if not self._trial.computes and any(
            amount > self._left[key] for key, amount in needs.items() if key in self._left
        ):
            return False
        if self._company_matters(pod.shape):
            self._cluster.add_pod(self._cluster.node_name(self._row), pod)
            if not self._trial.fits():
                self._cluster.remove_pod(pod.uid)
                return False
            self._returned.append(pod.uid)
        for key, amount in needs.items():
            if key in self._left:
                self._left[key] -= amount
        return True

    def restore(self) -> None:
        """Take back what was really put back, so that the simulation ends as it began."""
        for uid in self._returned:
            self._cluster.remove_pod(uid)

    def _company_matters(self, other: Shape) -> bool:
        mine = self._shape
        aligns = bool(mine.aligned) and self._row in self._cluster.aligning
        company = mine.host_ports or mine.volume_claims or mine.looks_at_other_nodes or other.anti_affinity
        return bool(self._trial.computes or aligns or company)

    def _needs(self, shape: Shape, uid: str = "") -> dict[object, int]:
        needs: dict[object, int] = {name: amount for name, amount in shape.requests.items() if amount}
        needs["pods"] = 1
        held = self._cluster.rows[self._row]
        needs.update(class_use(shape, held.classes))
        needs.update(pool_use(shape, held.facts.topology, held.rules, uid))
        return needs

    def _room(self) -> dict[object, int]:
        """What is left of each limited thing the preemptor wants, once it is there."""
        cluster, shape, row = self._cluster, self._shape, self._row
        held = cluster.rows[row]
        wanted: list[tuple[object, Column, int]] = [
            (name, cluster.column(name), amount)
            for name, amount in (*shape.requests.items(), ("pods", 1))
            if amount and name not in shape.ignored
        ]
        for key, count in class_use(shape, held.classes):
            if cluster.classes[key].capacity[row] != 0:
                wanted.append((key, cluster.classes[key], count))
        wanted += [(pool, cluster.pool_column(pool), amount) for pool, amount in pool_wants(shape, held.rules)]
        return {key: int(column.capacity[row] - column.used[row]) - amount for key, column, amount in wanted}
