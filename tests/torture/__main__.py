"""`python -m tests.torture [SEEDS]`: run seeds, each in a process of its own; print what they broke, shrunk."""

from __future__ import annotations

import argparse
import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
    os.execve(
        sys.executable, [sys.executable, "-m", "tests.torture", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
    )

from tests.torture import virtualtime  # noqa: F401 - before kubeqos
from tests.torture.campaign import Wishes, campaign
from tests.torture.planted import PLANTED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="0-19", help="such as 7, 0-99 or 3,7,100-120")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-shrink", action="store_true", help="print a failing seed as it is")
    parser.add_argument("--story", action="store_true", help="print what happened in each run")
    parser.add_argument("--json", default="", help="write the figures of the campaign to this file")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no further seed after so long")
    parser.add_argument("--first", action="store_true", help="start no further seed after one that violates a law")
    parser.add_argument("--plant", default="", choices=PLANTED, help="put a defect in, which is to be found")
    given = parser.parse_args()
    if given.plant:
        PLANTED[given.plant]()
    seeds = [seed for part in given.seeds.split(",") for seed in _range(part)]
    wishes = Wishes(given.jobs, not given.no_shrink, given.story, given.json, given.minutes, given.record, given.first)
    return campaign(seeds, wishes)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
