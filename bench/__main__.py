"""Runs the benchmarks named on the command line, or all of them: every module here that has a `main`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench
from bench.machine import describe


def main(names: list[str]) -> int:
    """Run and print; the exit code tells whether every named benchmark exists."""
    known = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__")
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 1
    print(describe())
    for name in names or known:
        run = getattr(importlib.import_module(f"bench.{name}"), "main", None)
        if run is not None:
            print(f"\n{name}")
            run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
