"""A page that says where something is tested tells the truth: every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

NAMED = re.compile(r"`((?:tests/)?(?:[\w/]+/)?(?:test_\w+\.py)?)::(test_\w+)(…?)`|`(tests/[\w/]+(?:\.py)?)`")


def named(page: Path) -> list[tuple[str, str, bool]]:
    """File, test and whether the name is cut short; a name without a file is in the file named before it."""
    found, file = [], ""
    for match in NAMED.finditer(page.read_text()):
        file = match[4] or match[1] or file
        found.append((file, match[2] or "", bool(match[3])))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def where(page: Path, file: str) -> Path | None:
    """The file that a page means; one named without its folder is beside another that the page names whole."""
    if (ROOT / file).exists():
        return ROOT / file
    folders = {(ROOT / other).parent for other, _, _ in named(page) if other.startswith("tests/")}
    return next((folder / file for folder in sorted(folders) if (folder / file).exists()), None)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for file, test, short in named(page):
        path = where(page, file)
        assert path is not None, f"{page.name} names {file}, which is not there"
        if test:
            known = names_in(path)
            there = any(name.startswith(test) for name in known) if short else test in known
            assert there, f"{page.name} names {file}::{test}, which is not there"


def test_every_defect_of_the_list_has_a_row_with_a_test() -> None:
    """T01 to T40, none left out, and each row names at least one test."""
    text = (ROOT / "docs" / "qrm.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| T\d\d", line)]
    numbers = [number for row in rows for number in re.findall(r"T\d\d", row.split("|")[1])]
    assert sorted(numbers) == [f"T{number:02}" for number in range(1, 41)]
    for row in rows:
        assert NAMED.search(row), row


@pytest.mark.parametrize(("page", "letter", "count"), [("pod-qos.md", "P", 30), ("quota.md", "Q", 26)])
def test_every_statement_of_a_proposal_has_a_row_with_a_test(page: str, letter: str, count: int) -> None:
    rows = [line for line in (ROOT / "docs" / page).read_text().splitlines() if re.match(rf"\| {letter}\d\d \|", line)]
    assert [row.split("|")[1].strip() for row in rows] == [f"{letter}{number:02}" for number in range(1, count + 1)]
    for row in rows:
        assert NAMED.search(row.split("|")[3]), row
