"""Seeds that once broke a law, and the promise that a seed repeats. `make torture` runs others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import reliability

NAMED = {
    5: "bindings are lost on their way to the API server",
    6: "a runtime hangs while an agent takes over; a machine reboots before a container has started",
    265: "the answer to a creation is lost, and CPUs change hands until it is found out",
    898: "the clock is set back by an hour while the scheduler waits to bind a pod again",
    3169: "a driver is late with a removal, seems ill meanwhile and is well when it is asked",
    4334: "a node's clock is set back by an hour while it looks how its plugins are",
    4546: "news of a pod overtake the answer to what its agent wrote before",
    4596: "a server dies between a write and its sync, and the next one tells of it",
}
PLANTED = {
    "bindings that are lost are forgotten": (5, "it does not settle"),
    "writes are acknowledged before they are durable": (7, "was acknowledged at"),
    "the disk is not asked to sync": (4, "the store came back with another state"),
    "no quota is enforced": (0, "is overrun"),
    "exclusive CPUs are given away again": (3, "runs on CPUs"),
}
"""What `planted` can put in, the seed that is tried first, because it found it, and what the law says."""
CI_MINUTES = 4


def torture(folder: Path, *words: str) -> Any:
    """A campaign in a process of its own: it replaces clocks, gRPC and SQLite's files."""
    file = folder / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", *words, "--no-shrink", "--json", str(file)],
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert file.exists(), done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.mark.timeout(600)
def test_named_seeds_break_no_law_and_a_seed_is_the_same_run_twice(tmp_path: Path) -> None:
    first, *_ = seeds = list(NAMED)
    found = torture(tmp_path, ",".join(map(str, [first, *seeds])))
    assert [(run["seed"], run["violation"]) for run in found["runs"]] == [(seed, "") for seed in (first, *seeds)]
    one, again, *_ = (run["digest"] for run in found["runs"])
    assert one == again


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("defect", PLANTED)
def test_a_defect_that_is_put_in_is_found(tmp_path: Path, defect: str) -> None:
    seed, law = PLANTED[defect]
    found = torture(tmp_path, f"{seed},0-39", "--plant", defect, "--first", "--jobs", "1")
    assert law in found["runs"][-1]["violation"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_other_seeds_break_no_law(tmp_path: Path) -> None:
    more = ["--record"] if reliability.asked_for() else []
    found = torture(tmp_path, "100-299", "--minutes", str(CI_MINUTES), *more)
    assert [run for run in found["runs"] if run["violation"]] == []
    assert found["runs"], "not one run was done in time"
