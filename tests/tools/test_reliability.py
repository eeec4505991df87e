"""What campaigns record: parts add up, are counted once, and say which commit they ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools import reliability


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(f"above\n{reliability.BEGIN}\n{reliability.END}\nbelow\n")
    return file


def part(run: str, seeds: str, commit: str = "abc", violations: int = 0, **done: Any) -> dict[str, Any]:
    told = {name.replace("_", " "): value for name, value in done.items()}
    return {"run": run, "seeds": seeds, "done": told, "violations": violations, "commit": commit, "day": "2026-11-16"}


def rows(page: Path) -> list[str]:
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("\nbelow\n")
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def test_parts_add_up_and_name_their_commits(page: Path) -> None:
    first = part("drawn", "0-9", runs=10, hours=0.5, most_MiB=7)
    reliability.take([first, part("drawn", "10-19", runs=10, hours=0.75, most_MiB=5)], page)
    reliability.take([part("drawn", "20", "def", runs=1, hours=0.25, most_MiB=6)], page)
    assert rows(page) == ["| drawn | 21 runs, 1.5 hours, 7 MiB | 0 | abc (seeds 0-19), def (seeds 20) | 2026-11-16 |"]


def test_what_is_done_again_is_counted_once(page: Path) -> None:
    reliability.take([part("drawn", "0-9", runs=10, violations=1), part("drawn", "10-19", runs=10)], page)
    again = part("drawn", "3-9", "def", runs=7)
    reliability.take([again], page)
    reliability.take([again], page)
    assert rows(page) == ["| drawn | 17 runs | 0 | abc (seeds 10-19), def (seeds 3-9) | 2026-11-16 |"]


def test_runs_without_seeds_are_counted(page: Path) -> None:
    reliability.record("kills", {"kills": 1_000}, 0, page=page)
    reliability.take([part("kills", "", "abc", kills=500), part("kills", "", "abc", violations=2, kills=500)], page)
    (row,) = rows(page)
    assert row.startswith("| kills | 2,000 kills | 2 | ")
    assert reliability.commit() in row
    assert "abc (2 runs)" in row


@pytest.mark.parametrize(("seeds", "told"), [([], ""), ([5], "5"), ([3, 1, 2, 7, 8, 10], "1-3, 7-8, 10")])
def test_ranges_are_read_as_they_are_written(seeds: list[int], told: str) -> None:
    assert reliability.ranges(seeds) == told
    assert reliability._numbers(told) == set(seeds)
