"""`python tools/install.py -r FILE …`: pip install, with one line at a terminal that says how far it is.

Called by the Makefile, before anything is installed: the standard library is all there is. What pip says is shown only
when it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

FOUND = ("Collecting", "Processing", "Requirement")
"""How pip's lines begin: one per package, whether it is fetched, lies in a folder or is there already."""
SATISFIED = "already satisfied: "
LAST_LINES = 20
COLUMNS = 60


def main(arguments: list[str]) -> int:
    """Run pip; its exit code."""
    total = sum(packages(Path(file)) for option, file in pairwise(arguments) if option == "-r")
    words = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *arguments]
    said: list[str] = []
    found = 0
    told_at_once = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, env=told_at_once, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            begins, _, rest = line.partition(" ")
            if begins in FOUND:
                found += 1
                show(f"{found} of {total}: {rest.removeprefix(SATISFIED).split()[0].rpartition('/')[2]}")
            elif begins == "Installing":
                show("unpacking")
    show("")
    if pip.returncode:
        sys.stderr.writelines(said[-LAST_LINES:])
    return pip.returncode


def packages(requirements: Path) -> int:
    """How many packages a file of locked versions names."""
    return sum("==" in line.partition("#")[0] for line in requirements.read_text().splitlines())


def show(text: str) -> None:
    """Replace the line, where somebody looks at it."""
    if sys.stdout.isatty():
        print(f"\r  {text[:COLUMNS]:{COLUMNS}}" + ("" if text else "\r"), end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
