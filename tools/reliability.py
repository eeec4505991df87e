"""Writes what campaigns found into docs/reliability.md: one row for each kind of run, the sum of its parts.

Called by the campaigns themselves, when they are told to record: `python -m tests.torture --record`, and by tests that
are run with `KUBEQOS_RECORD=1`. Hours of work are done in parts: each adds a line to docs/reliability.jsonl, with the
commit that it ran on, and the page tells the sums and which part ran where; nobody writes one by hand.
`python -m tools.reliability FILE…` takes in the lines of runs in other trees.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: written by tools/reliability.py -->", "<!-- end of figures -->"
HEAD = "| run | what was done | violations | on which commit | day |\n|---|---|---|---|---|\n"
MOST = re.compile(r"^most ")
"""Figures of which the largest is told, and not the sum."""

Part = dict[str, Any]


def record(
    run: str, done: Mapping[str, float | int], violations: int, *, seeds: Iterable[int] = (), page: Path = PAGE
) -> None:
    """Add a part of a kind of run. What is done again, by its seeds, takes the place of what was done before."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    part = {"run": run, "seeds": ranges(seeds), "done": dict(done), "violations": violations}
    take([{**part, "commit": commit(), "day": day}], page)


def take(parts: Iterable[Part], page: Path = PAGE) -> None:
    """Add parts to those that there are, and write the table anew. Two campaigns may end at once."""
    with page.with_suffix(".jsonl").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = [json.loads(line) for line in file]
        for part in parts:
            kept = [one for one in kept if one != part and not _overlap(one, part)] + [part]
        file.truncate(0)
        file.write("".join(json.dumps(one) + "\n" for one in kept))
        file.flush()
        text = page.read_text()
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        page.write_text(f"{before}{BEGIN}\n\n{HEAD}{table(kept)}\n{END}{after}")


def _overlap(one: Part, other: Part) -> bool:
    """Whether seeds would be counted twice."""
    return one["run"] == other["run"] and not _numbers(one["seeds"]).isdisjoint(_numbers(other["seeds"]))


def table(parts: Iterable[Part]) -> str:
    """One row for each kind of run."""
    runs: dict[str, list[Part]] = {}
    for part in parts:
        runs.setdefault(part["run"], []).append(part)
    return "".join(f"| {run} | {_row(runs[run])} |\n" for run in sorted(runs))


def _row(parts: list[Part]) -> str:
    done: dict[str, float | int] = {}
    for part in parts:
        for what, value in part["done"].items():
            done[what] = max(done.get(what, 0), value) if MOST.match(what) else done.get(what, 0) + value
    told = ", ".join(f"{_number(value)} {MOST.sub('', what)}" for what, value in done.items())
    days = sorted({part["day"] for part in parts})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{told} | {sum(part['violations'] for part in parts)} | {_commits(parts)} | {span}"


def _commits(parts: list[Part]) -> str:
    """Which commits, and what ran on each of them."""
    runs, seeds = Counter[str](), dict[str, set[int]]()
    for part in parts:
        runs[part["commit"]] += 1
        seeds.setdefault(part["commit"], set()).update(_numbers(part["seeds"]))
    return ", ".join(
        f"{name} ({f'seeds {ranges(seeds[name])}' if seeds[name] else f'{count} runs' if count > 1 else '1 run'})"
        for name, count in runs.items()
    )


def ranges(seeds: Iterable[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3 and 7."""
    found: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if found and found[-1][1] == seed - 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in found)


def _numbers(text: str) -> set[int]:
    """What `ranges` has written."""
    spans = (part.split("-") for part in text.split(", ") if part)
    return {seed for span in spans for seed in range(int(span[0]), int(span[-1]) + 1)}


def asked_for() -> bool:
    """Whether whoever runs the tests wants their figures written down."""
    return os.environ.get("KUBEQOS_RECORD", "") not in ("", "0")


def commit() -> str:
    """The commit, and whether files differ from it."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = any(
        line for line in _git("status", "--porcelain", "--untracked-files=no").splitlines() if PAGE.stem not in line
    )
    return f"{head or 'unknown'}{' and changes' if changed else ''}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PAGE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    take(json.loads(line) for file in sys.argv[1:] for line in Path(file).read_text().splitlines())
