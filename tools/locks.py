"""`python -m tools.locks --check`: what is run and what is tested have the same versions, and every Python takes them.

requirements/dev.lock is installed over requirements/run.lock. Were one of its versions another, the tests would speak
of a program that nobody installs; were one only for newer Pythons, `make` would fail on the oldest that we name.
`make lock` makes both, `make check` looks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

OLDEST = "3.11.0"
"""The oldest Python that `requires-python` of pyproject.toml takes."""
FOLDER = Path(__file__).resolve().parent.parent / "requirements"


def versions(lock: str) -> dict[str, str]:
    """Name and version of every package of a lock file's text."""
    plain = (line.partition("#")[0].strip() for line in lock.splitlines())
    return {name: version for name, equal, version in (line.partition("==") for line in plain) if equal}


def disagreements(run: str, dev: str) -> list[str]:
    """One line per package that the test tools would change, or do not have."""
    tested = versions(dev)
    return [
        f"{name}: run.lock has {version}, dev.lock has {tested.get(name, 'none')}"
        for name, version in versions(run).items()
        if tested.get(name) != version
    ]


def too_new(required: Mapping[str, str | None]) -> list[str]:
    """One line per package whose `Requires-Python` leaves out the oldest Python."""
    return [
        f"{name}: needs Python {wanted}, and {OLDEST} is to be enough"
        for name, wanted in required.items()
        if not SpecifierSet(wanted or "").contains(OLDEST)
    ]


def required(lock: str) -> dict[str, str | None]:
    """What each package of a lock file's text, as it is installed here, asks of Python."""
    return {name: metadata.metadata(name).get("Requires-Python") for name in versions(lock)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", required=True, help="look, and change nothing")
    parser.parse_args()
    run, dev = (FOLDER / "run.lock").read_text(), (FOLDER / "dev.lock").read_text()
    found = [*disagreements(run, dev), *too_new(required(dev))]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("`make lock` mends both", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
