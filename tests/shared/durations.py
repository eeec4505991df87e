"""How long each file of tests takes, so that workers side by side begin with the long ones and end together.

Called by tests/conftest.py. `make durations` writes the list anew; a file that is not in it counts as short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("durations.txt")
WORTH_NOTING_SECONDS = 2.0


def recorded() -> dict[str, float]:
    """Seconds by file, as they were measured last."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return {file: float(seconds) for seconds, file in (line.split() for line in lines)}


def long_ones_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The same tests; files by how long they take, and within a file as they were written."""
    seconds = recorded()
    return sorted(items, key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Recorder:
    """A pytest plugin that adds up what the tests of each file took, and writes it down at the end."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """What ran replaces what was known of it; the rest is kept."""
        known = {**recorded(), **self.seconds}
        longest = sorted(((s, file) for file, s in known.items() if s >= WORTH_NOTING_SECONDS), reverse=True)
        LIST.write_text("".join(f"{seconds:.0f} {file}\n" for seconds, file in longest))
