"""What came of a simulation, as data: measures, the rows of a comparison, charts. For `kubeqos simulate` and the
dashboard."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kubeqos.model.timestamps import human_duration
from kubeqos.simulation.measures import Outcome, quantile
from kubeqos.simulation.run import reasons
from kubeqos.simulation.scenario import Scenario
from kubeqos.views.chart import Chart

Measure = tuple[str, Callable[[Outcome], str]]


def charts(results: Sequence[Outcome], *, evictions: bool = False) -> list[Chart]:
    """CPU requested, pods pending and pods evicted so far over time; the last only where there are any, or if asked."""
    duration = results[0].duration
    cpu = {result.name: [(sample.at, sample.cpu * 100) for sample in result.samples] for result in results}
    pending = {result.name: [(sample.at, float(sample.pending)) for sample in result.samples] for result in results}
    most = max((value for points in pending.values() for _, value in points), default=0.0)
    found = [
        Chart("CPU requested", cpu, duration, 100.0, "%"),
        Chart("pods pending", pending, duration, _round_top(most)),
    ]
    gone = {result.name: _evicted(result) for result in results}
    most = max(points[-1][1] for points in gone.values())
    return [*found, Chart("pods evicted", gone, duration, _round_top(most))] if most or evictions else found


def _round_top(most: float) -> float:
    return 10.0 * max(1, math.ceil(most / 10))


def _evicted(result: Outcome) -> list[tuple[float, float]]:
    """How many were evicted up to each moment."""
    moments = sorted(pod.ended for pod in result.pods if pod.fate == "evicted" and pod.ended is not None)
    return [(0.0, 0.0), *((at, float(count)) for count, at in enumerate(moments, 1))]


WORKLOAD_COLUMNS = ("workload", "pods", "placed", "finished", "evicted", "rejected", "pending", "mean wait", "p95 wait")


def workloads(result: Outcome) -> list[list[str]]:
    """What became of each workload's pods, in the order of `WORKLOAD_COLUMNS`."""
    rows = []
    for name in dict.fromkeys(pod.workload for pod in result.pods):
        pods = [pod for pod in result.pods if pod.workload == name]
        waits = sorted(pod.pending(result.duration) for pod in pods)
        counts = (
            len(pods),
            sum(1 for pod in pods if pod.started is not None and pod.fate != "rejected"),
            *(result.count(fate, name) for fate in ("finished", "evicted", "rejected")),
            sum(1 for pod in pods if pod.started is None),
        )
        rows.append([name, *map(str, counts), mean_wait(waits), human_duration(quantile(waits, 0.95))])
    return rows


def nodes_of(result: Outcome, workload: str) -> dict[str, int]:
    """The nodes that a workload's pods were given, most of them first."""
    found = Counter(pod.node for pod in result.pods if pod.workload == workload and pod.node)
    return dict(found.most_common())


def heading(policy: str, scenario: Scenario) -> dict[str, Any]:
    """As data, what is known before it is played; times are virtual seconds."""
    return {"policy": policy, "durationSeconds": scenario.duration}


def measures(result: Outcome) -> dict[str, Any]:
    """What came out."""
    waits = result.pending_seconds()
    return {
        "pods": {
            "submitted": len(result.pods),
            "placed": _placed(result),
            "finished": result.count("finished"),
            "evicted": result.count("evicted"),
            "rejected": result.count("rejected"),
            "pending": _pending(result),
        },
        "pendingSeconds": {
            "mean": _rounded(sum(waits) / len(waits) if waits else 0.0),
            "p95": _rounded(quantile(waits, 0.95)),
            "max": _rounded(waits[-1] if waits else 0.0),
        },
        "cpu": {"mean": _rounded(result.cpu.mean), "peak": _rounded(result.cpu.peak)},
        "memory": {"mean": _rounded(result.memory.mean), "peak": _rounded(result.memory.peak)},
        "fragmentation": {
            "nodes": _rounded(result.scattered_nodes),
            "numa": None if result.scattered_numa is None else _rounded(result.scattered_numa),
        },
        "classes": {
            name: {"mean": _rounded(use.mean), "peak": _rounded(use.peak)} for name, use in result.classes.items()
        },
        "preemptions": result.preemptions,
        "reasons": [{"count": count, "because": because} for because, count in reasons(result)],
    }


def compared(results: Sequence[Outcome]) -> list[Measure]:
    """What is compared, in the order of the table."""
    found: list[Measure] = [
        ("pods placed", lambda r: f"{_placed(r)}/{len(r.pods)}"),
        ("finished", lambda r: str(r.count("finished"))),
        ("evicted", lambda r: str(r.count("evicted"))),
        ("rejected by nodes", lambda r: str(r.count("rejected"))),
        ("pending at the end", lambda r: str(_pending(r))),
        ("pending time, mean", lambda r: mean_wait(r.pending_seconds())),
        ("pending time, p95", lambda r: human_duration(quantile(r.pending_seconds(), 0.95))),
        ("CPU requested, mean", lambda r: f"{r.cpu.mean:.1%}"),
        ("CPU requested, peak", lambda r: f"{r.cpu.peak:.1%}"),
        ("memory requested, mean", lambda r: f"{r.memory.mean:.1%}"),
        ("fragmentation over nodes", lambda r: f"{r.scattered_nodes:.2f}"),
    ]
    if any(result.scattered_numa is not None for result in results):
        found.append(("fragmentation over NUMA nodes", lambda r: f"{r.scattered_numa or 0:.2f}"))
    found += [(f"class {name}, mean (peak)", _class_measure(name)) for name in results[0].classes]
    return [*found, ("preemptions", lambda r: str(r.preemptions))]


def _class_measure(name: str) -> Callable[[Outcome], str]:
    return lambda result: f"{result.classes[name].mean:.1%} ({result.classes[name].peak:.0%})"


def _placed(result: Outcome) -> int:
    return sum(1 for pod in result.pods if pod.started is not None and pod.fate != "rejected")


def _pending(result: Outcome) -> int:
    return sum(1 for pod in result.pods if pod.started is None)


def mean_wait(waits: Sequence[float]) -> str:
    return human_duration(sum(waits) / len(waits)) if waits else "0s"


def _rounded(value: float) -> float:
    return round(value, 4)
