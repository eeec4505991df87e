"""The reference pages are what the code says."""

from __future__ import annotations

import pytest
from tools.docgen import FOLDER, PAGES, written

from kubeqos.cli.main import COMMANDS
from kubeqos.gates import GATES
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.metrics import Metrics


@pytest.mark.parametrize("page", PAGES)
def test_page_is_up_to_date(page: str) -> None:
    assert (FOLDER / f"{page}.md").read_text() == written(page), "run python -m tools.docgen"


def test_nothing_is_missing() -> None:
    assert all(f"| `{name}` |" in written("gates") for name in GATES)
    assert all(f"## kubeqos {name}\n" in written("cli") for name in COMMANDS)


def test_metrics_found_in_the_source_are_those_that_are_served() -> None:
    listed = written("metrics")
    for family in Metrics(Scheduler()).registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| scheduler | `{name}` | {family.type} | {family.documentation} |" in listed
