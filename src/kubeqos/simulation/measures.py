"""What a simulation measures: waiting, use, scattering, classes; averages are weighted by time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kubeqos.model.objects import NodeView
from kubeqos.placement.shape import Shape
from kubeqos.rules.qos.classes import ClassKey, catalog
from kubeqos.scheduler.effects import Counters

if TYPE_CHECKING:
    from kubeqos.simulation.scenario import Scenario


@dataclass(slots=True)
class PodRecord:
    """One pod's life, in virtual seconds."""

    name: str
    workload: str
    arrived: float
    node: str = ""
    started: float | None = None
    ended: float | None = None
    fate: str = ""
    """`finished`, `evicted` or `rejected` (by its node); empty while it waits or runs."""
    because: str = ""

    def pending(self, end: float) -> float:
        """How long it waited for a node, up to the end."""
        return (end if self.started is None else self.started) - self.arrived


@dataclass(frozen=True, slots=True)
class Average:
    """A quantity over time, as a share of what there is."""

    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The state from this moment on."""

    at: float
    cpu: float
    memory: float
    pending: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario."""

    name: str
    duration: float
    pods: list[PodRecord]
    cpu: Average
    memory: Average
    scattered_nodes: float
    """How far the free CPU is scattered over nodes: 0 when the largest free piece is as large as it could be."""
    scattered_numa: float | None
    """The same inside machines, over NUMA nodes; None where no machine has a static CPU manager."""
    classes: dict[str, Average]
    samples: list[Sample]
    preemptions: int
    attempts: int

    def pending_seconds(self) -> list[float]:
        """Every pod's time without a node, ascending."""
        return sorted(pod.pending(self.duration) for pod in self.pods)

    def count(self, fate: str, workload: str | None = None) -> int:
        """Pods that ended so."""
        return sum(1 for pod in self.pods if pod.fate == fate and workload in (None, pod.workload))


def quantile(ascending: list[float], share: float) -> float:
    """The value below which this share lies; 0 of nothing."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0.0


@dataclass(slots=True)
class _Weighted:
    """A sum of value × time, and the highest value."""

    total: float = 0.0
    peak: float = 0.0

    def add(self, value: float, seconds: float) -> None:
        self.total += value * seconds
        if seconds > 0:
            self.peak = max(self.peak, value)

    def average(self, seconds: float) -> Average:
        return Average(self.total / seconds if seconds else 0.0, self.peak)


@dataclass(slots=True)
class Measures:
    """The state between two events, and its sums."""

    scenario: Scenario
    pending: int = 0
    now: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    _rows: dict[str, int] = field(init=False)
    _size: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = field(init=False)
    _used: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = field(init=False)
    _all_size: dict[str, int] = field(init=False, default_factory=dict)
    _all_used: dict[str, int] = field(init=False, default_factory=dict)
    _class_size: dict[ClassKey, int] = field(init=False)
    _class_used: dict[ClassKey, int] = field(init=False)
    _sums: dict[str, _Weighted] = field(init=False)
    _class_sums: dict[ClassKey, _Weighted] = field(init=False)

    def __post_init__(self) -> None:
        views = [NodeView.of(node.raw) for node in self.scenario.nodes]
        self._rows = {node.name: row for row, node in enumerate(self.scenario.nodes)}
        self._size, self._used, self._class_size = {}, {}, {}
        for name in ("cpu", "memory"):
            found = [view.status.allocatable.get(name) for view in views]
            amounts = [0 if one is None else one.milli() if name == "cpu" else one.value() for one in found]
            self._size[name] = np.array(amounts, dtype=np.int64)
            self._used[name] = np.zeros(len(views), dtype=np.int64)
            self._all_size[name], self._all_used[name] = sum(amounts), 0
        for view in views:
            for kind in catalog(view.status.qos_resources).types.values():
                for cls, capacity in kind.classes.items():
                    if capacity:
                        key = (kind.level, kind.name, cls)
                        self._class_size[key] = self._class_size.get(key, 0) + capacity
        self._class_used = dict.fromkeys(self._class_size, 0)
        self._sums = {name: _Weighted() for name in ("cpu", "memory", "nodes", "numa")}
        self._class_sums = {key: _Weighted() for key in self._class_size}

    def placed(self, node: str, shape: Shape, classes: Iterable[tuple[ClassKey, int]], sign: int) -> None:
        """A pod got a node (+1) or left it (-1)."""
        row = self._rows[node]
        for name, used in self._used.items():
            amount = sign * shape.requests.get(name, 0)
            used[row] += amount
            self._all_used[name] += amount
        for key, count in classes:
            if key in self._class_used:
                self._class_used[key] += sign * count

    def advance(self, now: float, scattered: Collection[float]) -> None:
        """Time passed in the present state; `scattered` is that of every machine with a static CPU manager."""
        seconds = now - self.now
        share = {name: self._share(name) for name in ("cpu", "memory")}
        if seconds > 0:
            self.samples.append(Sample(self.now, share["cpu"], share["memory"], self.pending))
        self._sums["cpu"].add(share["cpu"], seconds)
        self._sums["memory"].add(share["memory"], seconds)
        self._sums["nodes"].add(self._scattered(), seconds)
        self._sums["numa"].add(sum(scattered) / len(scattered) if scattered else 0.0, seconds)
        for key, weighted in self._class_sums.items():
            weighted.add(self._class_used[key] / self._class_size[key], seconds)
        self.now = now

    def outcome(self, name: str, pods: list[PodRecord], counters: Counters) -> Outcome:
        """The result, once time has reached the end."""
        spent = self.now
        has_hosts = any(node.machine is not None and node.static_cpus for node in self.scenario.nodes)
        return Outcome(
            name,
            spent,
            pods,
            self._sums["cpu"].average(spent),
            self._sums["memory"].average(spent),
            self._sums["nodes"].average(spent).mean,
            self._sums["numa"].average(spent).mean if has_hosts else None,
            {
                f"{resource}={cls}": weighted.average(spent)
                for (_, resource, cls), weighted in sorted(self._class_sums.items())
            },
            self.samples,
            counters.preemptions,
            sum(counters.attempts.values()),
        )

    def _share(self, name: str) -> float:
        return self._all_used[name] / self._all_size[name] if self._all_size[name] else 0.0

    def _scattered(self) -> float:
        free = self._size["cpu"] - self._used["cpu"]
        possible = min(self._all_size["cpu"] - self._all_used["cpu"], int(self._size["cpu"].max(initial=0)))
        return 1 - int(free.max(initial=0)) / possible if possible > 0 else 0.0
