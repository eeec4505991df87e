"""The drawings of the documentation are what the code draws, and say what the code decides."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tools import diagrams


@pytest.mark.parametrize("name", diagrams.DRAWN)
def test_each_is_current_and_well_formed(name: str) -> None:
    drawn = diagrams.DRAWN[name]()
    assert (diagrams.FOLDER / f"{name}.svg").read_text() == drawn, "run python -m tools.diagrams"
    ElementTree.fromstring(drawn)


def test_best_effort_goes_before_burstable_and_guaranteed_stays() -> None:
    said = [part.text for part in diagrams.eviction().parts if isinstance(part, diagrams.Label)]
    gone = [text.split(": ")[1] for text in said if " goes: " in text]
    assert gone == ["BestEffort goes", "Burstable goes"]


def test_bars_are_the_figures_of_the_table() -> None:
    table = (
        "## Measured\n| | kubeqos | Kubernetes |\n|---|---|---|\n"
        "| creates ¹ | 4,000–6,000/s | 1,280/s |\n| lists | 0.1 s | 500 ms |\n| watchers | 500/s | |\n"
        "| merge | 0.34 ms; more | 4,700 ms |\n## Read on\n| later | 1 s | 2 s |\n"
    )
    assert list(diagrams.figures(table)) == [("creates", 5000.0, 1280.0, "/s"), ("merge", 0.34, 4700.0, "ms")]


def test_words_stay_on_their_paper() -> None:
    for draw in (diagrams.way, diagrams.classes, diagrams.eviction, diagrams.benchmarks):
        picture = draw()
        for part in picture.parts:
            if isinstance(part, diagrams.Label):
                width = len(part.text) * part.size * 0.56
                start = part.x - {"start": 0.0, "middle": width / 2, "end": width}[part.anchor]
                assert start >= 0 and start + width <= picture.width + 8, (picture.title, part.text)
