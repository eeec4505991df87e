"""The two lock files agree, and what a disagreement looks like."""

from __future__ import annotations

from tools import locks


def test_the_test_tools_change_nothing_that_runs() -> None:
    assert locks.disagreements((locks.FOLDER / "run.lock").read_text(), (locks.FOLDER / "dev.lock").read_text()) == []


def test_a_version_that_the_test_tools_change_is_named() -> None:
    run = "a==1\n    # via b==2\nb==2\nc==3  # why\n"
    assert locks.disagreements(run, "a==1\nb==3\nd==4\n") == [
        "b: run.lock has 2, dev.lock has 3",
        "c: run.lock has 3, dev.lock has none",
    ]
