"""Runs the benchmarks named on the command line, or all of them: every module here that has a `main`.

`python -m bench.soak` is no benchmark and runs by itself.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import bench
from bench.machine import describe


def described() -> dict[str, str]:
    """The benchmarks: modules with a `main`, and the first paragraph of what each says about itself."""
    found = {}
    for module in pkgutil.iter_modules(bench.__path__):
        if module.ispkg or module.name == "__main__":
            continue
        tree = ast.parse((Path(__file__).parent / f"{module.name}.py").read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[module.name] = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return found


def known() -> list[str]:
    """The names of the benchmarks."""
    return sorted(described())


def main(names: list[str]) -> int:
    """Run and print; the exit code tells whether every named benchmark exists."""
    unknown = [name for name in names if name not in known()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known())}", file=sys.stderr)
        return 1
    print(describe())
    for name in names or known():
        print(f"\n{name}", flush=True)
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
