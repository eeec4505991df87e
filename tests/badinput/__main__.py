"""`python -m tests.badinput`: bad requests to a real server; 1 if one of them found something."""

from __future__ import annotations

import argparse
import sys

from tests.badinput.campaign import Wishes, campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.badinput", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="which requests; the same are sent again with the same")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    given = parser.parse_args()
    return campaign(Wishes(given.requests, given.minutes, given.seed, given.record))


if __name__ == "__main__":
    sys.exit(main())
