"""Whatever calls itself pure in its prologue is: it waits for nothing, asks no clock, and touches no file or wire."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kubeqos"
# "Pure." and its like say it of the whole module; "`resolve` is pure" says it of a function, which its readers can see.
CLAIM = re.compile(r"(?:^|[.:;,] )pure(?:[.:;,]| (?:functions|data|decisions|policies|bookkeeping)\b)", re.IGNORECASE)
IMPORTS = {"asyncio", "grpc", "logging", "random", "socket", "structlog", "subprocess", "threading", "time"}
CALLS = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "unlink",
    "iterdir",
    "exists",
    "is_file",
}


def claiming() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        prologue = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if CLAIM.search(" ".join(prologue.split())):
            yield str(path.relative_to(SOURCE))


def impurities(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {alias.name}" for alias in node.names if alias.name.partition(".")[0] in IMPORTS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in IMPORTS:
            yield f"imports {node.module}"
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield "waits"
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLS:
                yield f"calls {name}"


@pytest.mark.parametrize("module", [*claiming()])
def test_what_calls_itself_pure_is(module: str) -> None:
    assert list(impurities(ast.parse((SOURCE / module).read_text(encoding="utf-8")))) == []
