"""A page that says where something is tested tells the truth: every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

NAMED = re.compile(
    r"`((?:tests/)?(?:[\w/]+/)?(?:test_\w+\.py)?)::((?:Test\w+::)?test_\w+)(…?)`|`(tests/[\w/]+(?:\.py)?)`"
)


def named(page: Path) -> list[tuple[str, str, bool]]:
    """File, test and whether the name is cut short; a name without a file is in the file named before it."""
    found, file = [], ""
    for match in NAMED.finditer(page.read_text()):
        file = match[4] or match[1] or file
        found.append((file, match[2] or "", bool(match[3])))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Tests of a file; those of a class with its name before theirs."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(found)


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


KEP_3008 = """
Summary; Motivation; Goals; Non-Goals; Implementation phases; Phase 1; Future work; In-place pod vertical scaling;
Access control; Scheduler improvements; Kubelet-initiated pod eviction; Default and limits; Cluster autoscaler;
API objects for resources and classes; Proposal; User Stories; Possible future scenarios; Notes/Constraints/Caveats;
Risks and Mitigations; Design Details; CRI API; Implicit defaults; ContainerConfig; UpdateContainerResourcesRequest;
PodSandboxConfig; PodSandboxStatus; ContainerStatus; RuntimeStatus; Kubernetes API; PodSpec; PodStatus; NodeStatus;
Consts; Kubelet; API server; Scheduler; Kubectl; Container runtimes; Test Plan; Graduation Criteria; Beta; GA;
Upgrade / Downgrade Strategy; Version Skew Strategy; Production Readiness Review Questionnaire;
Feature Enablement and Rollback; Rollout, Upgrade and Rollback Planning; Monitoring Requirements; Dependencies;
Scalability; Troubleshooting; Implementation History; Drawbacks; Alternatives; Infrastructure Needed
"""
"""The proposal's own headings, in its order."""


def test_every_section_of_kep_3008_is_walked_and_every_statement_answered() -> None:
    lines = (ROOT / "docs" / "kep-3008.md").read_text().splitlines()
    headings = [line.lstrip("#").strip() for line in lines if line.startswith("##")]
    assert headings == [" ".join(one.split()) for one in KEP_3008.split(";")]
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| the proposal says")]
    assert len(rows) > 100
    for row in rows:
        statement, answer = (cell.strip() for cell in row.strip("|").split(" | "))
        assert statement and len(answer) > 10, row
        named_in_row = [part for part in answer.split("`")[1::2] if "::" in part or part.startswith("tests/")]
        assert all(NAMED.fullmatch(f"`{part}`") for part in named_in_row), row  # nothing escapes the check above
