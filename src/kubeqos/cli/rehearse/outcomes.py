"""Printing what came of a simulation: tables, plain-text charts, SVG."""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.cli.output import columns, table
from kubeqos.simulation.measures import Outcome
from kubeqos.simulation.run import reasons
from kubeqos.views.chart import svg_charts, text_chart
from kubeqos.views.outcomes import WORKLOAD_COLUMNS, charts, compared, workloads

_WIDEST = 120
_MOST_REASONS = 5


def one(result: Outcome) -> str:
    """A run: per workload, the cluster, two charts, why pods wait."""
    measured = [[title, measure(result)] for title, measure in compared([result])]
    parts = [
        table(list(WORKLOAD_COLUMNS), workloads(result)),
        table(["measure", "value"], measured),
        *(text_chart(chart, min(columns(), _WIDEST)) for chart in charts([result])),
    ]
    told = [[count, because] for because, count in list(reasons(result))[:_MOST_REASONS]]
    if told:
        parts.append(table(["pods", "because"], told))
    return "\n\n".join(parts)


def several(results: Sequence[Outcome]) -> str:
    """A comparison: one row per measure, one column per policy, and both in one chart."""
    rows = [[title, *(measure(result) for result in results)] for title, measure in compared(results)]
    parts = [table(["measure", *(result.name for result in results)], rows)]
    parts += [text_chart(chart, min(columns(), _WIDEST)) for chart in charts(results)]
    return "\n\n".join(parts)


def svg(results: Sequence[Outcome]) -> str:
    """The charts as a drawing."""
    return svg_charts(charts(results))
