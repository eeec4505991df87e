"""Writes what a campaign found into docs/reliability.md: one row for each kind of run, with the commit that it ran on.

Called by the campaigns themselves, when they are told to record: `python -m tests.torture --record`, and by tests that
are run with `KUBEQOS_RECORD=1`. A row says what was done and how many violations there were; nobody writes one by hand.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: written by tools/reliability.py -->", "<!-- end of figures -->"
HEAD = "| run | what was done | violations | commit | day |\n|---|---|---|---|---|\n"
_ROW = re.compile(r"^\| (?P<run>[^|]+?) \|.*\|$", re.MULTILINE)


def record(run: str, done: Mapping[str, float | int], violations: int, page: Path = PAGE) -> None:
    """Make this the row of a kind of run."""
    told = ", ".join(f"{_number(value)} {what}" for what, value in done.items())
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    row = f"| {run} | {told} | {violations} | {commit()} | {day} |"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    rows = {found["run"]: found[0] for found in _ROW.finditer(table) if found["run"] not in ("run", "---")}
    rows[run] = row
    lines = "".join(f"{rows[name]}\n" for name in sorted(rows))
    page.write_text(f"{before}{BEGIN}\n\n{HEAD}{lines}\n{END}{after}")


def asked_for() -> bool:
    """Whether whoever runs the tests wants their figures written down."""
    return os.environ.get("KUBEQOS_RECORD", "") not in ("", "0")


def commit() -> str:
    """The commit, and whether files differ from it."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = any(
        line for line in _git("status", "--porcelain", "--untracked-files=no").splitlines() if PAGE.name not in line
    )
    return f"{head or 'unknown'}{' and changes' if changed else ''}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PAGE.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
