"""What came of a simulation, as data: measures, the rows of a comparison, charts. For `kubeqos simulate` and the
dashboard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kubeqos.model.timestamps import human_duration
from kubeqos.simulation.measures import Outcome, quantile
from kubeqos.simulation.run import reasons
from kubeqos.simulation.scenario import Scenario
from kubeqos.views.chart import Chart

Measure = tuple[str, Callable[[Outcome], str]]


def charts(results: Sequence[Outcome]) -> list[Chart]:
    """CPU requested and pods pending over time."""
    duration = results[0].duration
    cpu = {result.name: [(sample.at, sample.cpu * 100) for sample in result.samples] for result in results}
    pending = {result.name: [(sample.at, float(sample.pending)) for sample in result.samples] for result in results}
    most = max((value for points in pending.values() for _, value in points), default=0.0)
    return [
        Chart("CPU requested", cpu, duration, 100.0, "%"),
        Chart("pods pending", pending, duration, 10.0 * max(1, math.ceil(most / 10))),
    ]


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
