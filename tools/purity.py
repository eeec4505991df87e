"""Sees that what calls itself pure is pure: `python -m tools.purity`, part of `make check`.

A module claims it with the word "Pure" (or ": pure") in its prologue; the prologue of a package speaks for everything
in it. Then neither the module nor any module of ours that it imports may reach for I/O, a clock, chance, threads or a
log, and the module itself waits for nothing. Imports for the type checker alone do not count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
CLAIM = re.compile(r"\bPure\b|: pure\b")
IMPURE = frozenset(
    (
        *("asyncio", "socket", "time", "random", "threading", "subprocess", "logging", "structlog"),
        *("grpc", "httpx2", "uvicorn", "starlette", "apsw"),
    )
)


@dataclass(frozen=True, slots=True)
class Module:
    """What a module says of itself, and what it does."""

    claims: bool
    imports: frozenset[str]
    waits: bool


def modules(source: Path) -> dict[str, Module]:
    """Every module under a source tree by its dotted name."""
    files = {_name(path.relative_to(source)): path for path in source.rglob("*.py")}
    return {name: _read(ast.parse(path.read_text()), files) for name, path in sorted(files.items())}


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _read(tree: ast.Module, known: Mapping[str, Path]) -> Module:
    imports: set[str] = set()
    waits = False
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imports.add(inner if inner in known else node.module)
        waits |= isinstance(node, ast.AsyncFunctionDef | ast.Await)
    return Module(bool(CLAIM.search(ast.get_docstring(tree) or "")), frozenset(imports), waits)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only the type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _executed(child)


def findings(found: Mapping[str, Module]) -> list[str]:
    """One line for each module that is not what it says."""
    out = []
    for name, module in found.items():
        if not _claimed(name, found):
            continue
        if module.waits:
            out.append(f"{name} calls itself pure, and awaits")
        way = _way_out(name, found)
        if way:
            out.append(f"{name} calls itself pure, and imports {' → '.join(way)}")
    return out


def _claimed(name: str, found: Mapping[str, Module]) -> bool:
    """By the module itself, or by a package around it."""
    parts = name.split(".")
    around = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return any(each in found and found[each].claims for each in around)


def _way_out(name: str, found: Mapping[str, Module]) -> list[str]:
    """How a module comes to something impure, from its first import on; empty if it does not."""
    ways: dict[str, list[str]] = {name: []}
    for current in (queue := [name]):
        for wanted in sorted(found[current].imports):
            way = [*ways[current], wanted]
            if wanted.partition(".")[0] in IMPURE:
                return way
            if wanted in found and wanted not in ways:
                ways[wanted] = way
                queue.append(wanted)
    return []


def main() -> int:
    found = modules(SOURCE)
    wrong = findings(found)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        print("take out what is not pure, or the word from the prologue", file=sys.stderr)
        return 1
    print(f"{sum(_claimed(name, found) for name in found)} modules call themselves pure, and are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
