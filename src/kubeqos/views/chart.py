"""Charts of values over time: plain text for a screen, SVG for a page. Pure.

A series is a list of (time, value) pairs, each value holding until the next. Used by `kubeqos simulate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

MARKS = "#o+x=%@&"
_SHARED = "*"
_WIDTH, _HEIGHT = 860, 240
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22")


@dataclass(frozen=True, slots=True)
class Chart:
    """One or more series over the same time. `top` is the highest value of the scale, `unit` follows its numbers."""

    title: str
    series: Mapping[str, Points]
    duration: float
    top: float
    unit: str = ""


def text_chart(chart: Chart, width: int, height: int = 10) -> str:
    """Rows of characters: one mark per series, `*` where several meet; an area for a single series."""
    scale = [f"{_number(chart.top * row / height)}{chart.unit}" for row in range(height + 1)]
    pad = max(map(len, scale))
    plot = max(10, width - pad - 3)
    grid = [[" "] * plot for _ in range(height + 1)]
    for mark, points in zip(MARKS, chart.series.values(), strict=False):
        for column, value in enumerate(buckets(points, chart.duration, plot)):
            level = min(height, round(value / chart.top * height)) if chart.top else 0
            for row in range(1, level + 1) if len(chart.series) == 1 else [level]:
                grid[row][column] = mark if grid[row][column] == " " else _SHARED
    lines = [chart.title]
    lines += [f"{scale[row]:>{pad}} |{''.join(grid[row])}".rstrip() for row in range(height, -1, -1)]
    lines.append(f"{'':>{pad}} +{'-' * plot}")
    end = f"{clock(chart.duration)}"
    lines.append(f"{'':>{pad}}  0{end:>{plot - 1}}")
    if len(chart.series) > 1:
        told = [f"{mark} {name}" for mark, name in zip(MARKS, chart.series, strict=False)]
        lines.append(f"{'':>{pad}}  {'   '.join([*told, f'{_SHARED} several'])}")
    return "\n".join(lines)


def svg_charts(charts: Sequence[Chart]) -> str:
    """One drawing with the charts below each other; needs no script and no font of its own."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT * len(charts)}" '
        f'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, chart in enumerate(charts):
        parts.append(f'<g transform="translate(0 {index * _HEIGHT})">')
        parts += _svg(chart)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg(chart: Chart) -> list[str]:
    left, right, top, bottom = 60, _WIDTH - 160, 30, _HEIGHT - 30

    def x(time: float) -> float:
        return round(left + (right - left) * time / chart.duration, 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - top) * min(1.0, value / chart.top if chart.top else 0.0), 1)

    parts = [f'<text x="{left}" y="18" font-weight="bold">{escape(chart.title)}</text>']
    for step in range(5):
        value = chart.top * step / 4
        parts.append(f'<line x1="{left}" y1="{y(value)}" x2="{right}" y2="{y(value)}" stroke="#dddddd"/>')
        label = f"{_number(value)}{chart.unit}"
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4}" text-anchor="end">{escape(label)}</text>')
    parts.append(f'<text x="{left}" y="{bottom + 16}">0</text>')
    parts.append(f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{clock(chart.duration)}</text>')
    for index, (name, points) in enumerate(chart.series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        corners = []
        for (time, value), end in zip(points, [*(at for at, _ in points[1:]), chart.duration], strict=True):
            corners += [f"{x(time)},{y(value)}", f"{x(end)},{y(value)}"]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(corners)}"/>')
        parts.append(f'<text x="{right + 12}" y="{top + 16 * index + 4}" fill="{colour}">{escape(name)}</text>')
    return parts


def buckets(points: Points, duration: float, count: int) -> list[float]:
    """The mean of each of `count` equal spans of time."""
    span = duration / count if count else 0.0
    if not span or not points:
        return [0.0] * count
    sums = [0.0] * count
    for (start, value), end in zip(points, [*(at for at, _ in points[1:]), duration], strict=True):
        for column in range(min(count - 1, int(start / span)), min(count, int(end / span) + 1)):
            overlap = min(end, (column + 1) * span) - max(start, column * span)
            sums[column] += value * max(0.0, overlap)
    return [total / span for total in sums]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def clock(seconds: float) -> str:
    """A length of time as people write it."""
    whole = round(seconds)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
