"""`python -m tools.locks --check`: what is run and what is tested have the same versions.

requirements/dev.lock is installed over requirements/run.lock. Were one of its versions another, the tests would speak
of a program that nobody installs. `make lock` makes both, `make check` looks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", required=True, help="look, and change nothing")
    parser.parse_args()
    found = disagreements((FOLDER / "run.lock").read_text(), (FOLDER / "dev.lock").read_text())
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("`make lock` makes both agree", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
