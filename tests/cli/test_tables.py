"""Tables on a line of 80 columns, and options that are offered only where they act."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.cli.main import COMMANDS, TASKS
from kubeqos.cli.output import table

GOLDEN = Path(__file__).parents[1] / "scenarios/golden"
HEADER = re.compile(r"[A-Z][A-Z0-9()/=%.-]*( [A-Z0-9()/=%.-]+)*(  +[A-Z0-9(][A-Z0-9()/=%. -]*)+")
PAINT = re.compile("\u241b\\[[0-9;]*m")
CELLS = st.text(st.sampled_from("ab c-,"), max_size=60)


def tables_of(text: str) -> Iterator[list[str]]:
    """The tables in what a command printed: a line in capitals, and all up to the next empty one."""
    found: list[str] = []
    for line in [*PAINT.sub("", text).splitlines(), ""]:
        if found and line.strip():
            found.append(line)
        elif found:
            yield found
            found = []
        elif HEADER.fullmatch(line.strip()):
            found = [line]


def narrow(file: Path) -> Iterator[list[str]]:
    for part in file.read_text().split("\n=== ")[1:]:
        heading, _, text = part.partition("\n")
        if "80 terminal" in heading:
            yield from tables_of(text)


FILES = [file for file in sorted(GOLDEN.glob("*.txt")) if any(narrow(file))]


def test_there_are_tables_to_look_at() -> None:
    assert {"classes", "check", "quota", "top-nodes", "top-pods", "simulate-run", "defrag"} <= {
        one.stem for one in FILES
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_table_that_a_command_prints_fits_80_columns(file: Path) -> None:
    assert [line for found in narrow(file) for line in found if len(line) > 80] == []


@pytest.fixture
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("eighty")
def test_prose_gives_way_before_names() -> None:
    name, why = "a-pod-with-a-rather-long-name-7c9d", "because it is as it is, and that for quite a while already"
    lines = table(["pod", "why"], [[name, why]]).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith(name) and " ".join(line[len(name) :].strip() for line in lines[1:]) == why


@pytest.mark.usefixtures("eighty")
def test_names_break_at_their_seams() -> None:
    """As `describe node` has them, with a column that takes its room."""
    names = [
        "KubeletHasSufficientMemory",
        "kube-system/coredns-5d78c9869d-abcde",
        "cpu=requests.nvidia.com/gpu",
        "0-7,40-47",
    ]
    lines = table(["reason", "name"], [[name, "x" * 60] for name in names]).splitlines()
    told = [line.split()[0] for line in lines[1:]]
    assert told == [
        "KubeletHas", "SufficientMemory",
        "kube-system/", "coredns-", "5d78c9869d-abcde",
        "cpu=requests.", "nvidia.com/gpu",
        "0-7,40-47",
    ]  # fmt: skip


@pytest.mark.usefixtures("eighty")
def test_many_columns_come_closer_and_headers_break() -> None:
    headers = [f"header {number}" for number in range(9)]
    lines = table(headers, [range(9)]).splitlines()
    assert max(map(len, lines)) <= 80 and lines[0].split().count("HEADER") == 9


def test_in_a_pipe_a_row_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(table(["a", "b"], [["x" * 200, "y " * 100]]).splitlines()) == 2


@pytest.mark.usefixtures("eighty")
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4))
def test_no_word_is_lost(rows: list[tuple[str, str, str]]) -> None:
    lines = table(["one", "two", "three"], rows).splitlines()
    assert all(len(line) <= 80 for line in lines)
    told = sorted("".join(lines[1:]).replace("<none>", "").replace(" ", ""))
    assert told == sorted("".join(cell for row in rows for cell in row).replace(" ", ""))


def commands() -> Iterator[tuple[str, click.Command]]:
    waiting = [(name, importlib.import_module(module).command) for name, (module, _) in COMMANDS.items()]
    while waiting:
        name, found = waiting.pop()
        yield name, found
        if isinstance(found, click.Group):
            waiting += [(f"{name} {inner}", one) for inner, one in found.commands.items()]


def having(option: str) -> set[str]:
    return {name for name, found in commands() for one in found.params if option in one.opts}


def test_selectors_and_all_namespaces_are_offered_where_they_act() -> None:
    assert having("--all-namespaces") == {"quota", "top pods"}
    assert having("--selector") == {"quota", "top pods", "top nodes", "classes", "map"}


def test_every_command_has_its_task() -> None:
    told = [name for names in TASKS.values() for name in names]
    assert sorted(told) == sorted(COMMANDS) and len(set(told)) == len(told)
