"""The reference page of decision records: every type and field from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

Table = Callable[[list[str], list[list[str]]], str]
BEFORE = """\
# Decision records

The types of `decisions.kubeqos.io/v1`; [what they are for](../decisions.md). `type` in each decision says which one it
is. Fields that are empty are left out, and readers skip what they do not know.

"""


def decisions(source: Path, table: Table) -> str:
    """The whole page."""
    tree = ast.parse(source.read_text())
    parts = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            rows = [[f"`{name}`", f"`{kind}`", about] for name, kind, about in _fields(node)]
            base = " A decision." if _is_decision(node) and node.name != "Decision" else ""
            parts.append(f"## {node.name}\n\n{_prose(ast.get_docstring(node) or '')}{base}")
            if rows:
                parts.append(table(["field", "of type", "about"], rows))
    return BEFORE + "\n\n".join(parts)


def _is_decision(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Decision" for base in node.bases)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    body = [*node.body, None]
    for one, after in zip(node.body, body[1:], strict=True):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield _spelled(one.target.id), ast.unparse(one.annotation), _prose(str(text))


def _spelled(name: str) -> str:
    return "class" if name == "cls" else re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _prose(text: str) -> str:
    return " ".join(text.split())
