"""Charts: means per column are exact, and a drawing says what its series say."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.views.chart import Chart, buckets, svg_charts, text_chart


@given(
    st.lists(st.tuples(st.floats(0, 99), st.floats(0, 50)), min_size=1, max_size=20),
    st.integers(1, 200),
)
def test_means_keep_the_area(steps: list[tuple[float, float]], count: int) -> None:
    points = sorted(steps)
    points[0] = (0.0, points[0][1])
    ends = [*(at for at, _ in points[1:]), 100.0]
    area = sum(value * (end - at) for (at, value), end in zip(points, ends, strict=True))
    assert sum(buckets(points, 100.0, count)) * 100.0 / count == pytest.approx(area, abs=1e-6)


def test_one_series_is_an_area() -> None:
    chart = Chart("use", {"only": [(0.0, 50.0), (50.0, 100.0)]}, 100.0, 100.0, "%")
    assert text_chart(chart, 17, 4) == (
        "use\n"
        "100% |     #####\n"
        " 75% |     #####\n"
        " 50% |##########\n"
        " 25% |##########\n"
        "  0% |\n"
        "     +----------\n"
        "      0    1m40s"
    )


def test_several_series_have_marks_and_a_legend() -> None:
    series = {"a": [(0.0, 0.0), (5.0, 4.0)], "b": [(0.0, 0.0), (5.0, 2.0)]}
    assert text_chart(Chart("pending", series, 10.0, 4.0), 14, 2) == (
        "pending\n4 |     #####\n2 |     ooooo\n0 |*****\n  +----------\n   0      10s\n   # a   o b   * several"
    )


def test_the_drawing_is_well_formed_and_complete() -> None:
    chart = Chart("a < b & c", {"x": [(0.0, 1.0)], "<y>": [(0.0, 2.0)]}, 10.0, 4.0)
    root = ElementTree.fromstring(svg_charts([chart, chart]))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}polyline")) == 4
    texts = [each.text for each in root.iter(f"{space}text")]
    assert texts.count("a < b & c") == 2
    assert texts.count("<y>") == 2
