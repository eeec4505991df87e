"""The two lock files agree, and what a disagreement looks like."""

from __future__ import annotations

import tomllib

from tools import locks


def test_the_test_tools_change_nothing_that_runs() -> None:
    assert locks.disagreements((locks.FOLDER / "run.lock").read_text(), (locks.FOLDER / "dev.lock").read_text()) == []


def test_a_version_that_the_test_tools_change_is_named() -> None:
    run = "a==1\n    # via b==2\nb==2\nc==3  # why\n"
    assert locks.disagreements(run, "a==1\nb==3\nd==4\n") == [
        "b: run.lock has 2, dev.lock has 3",
        "c: run.lock has 3, dev.lock has none",
    ]


def test_a_package_that_the_oldest_python_cannot_install_is_named() -> None:
    assert locks.too_new({"a": ">=3.11.5", "b": ">=3.8, !=3.9.*", "c": None}) == [
        "a: needs Python >=3.11.5, and 3.11.0 is to be enough"
    ]


def test_every_python_that_we_name_can_install_what_is_locked() -> None:
    assert tomllib.loads((locks.FOLDER.parent / "pyproject.toml").read_text())["project"]["requires-python"] == (
        f">={locks.OLDEST.removesuffix('.0')}"
    )
    assert locks.too_new(locks.required((locks.FOLDER / "dev.lock").read_text())) == []
