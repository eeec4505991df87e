"""The examples of docs/topology.md run and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeqos.document import parse_document
from kubeqos.errors import InputError
from kubeqos.model.hardware.machinefile import machine_from_doc

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("40-44 1\n")
    assert "A default/hpc     6  40-45" in printed


def test_the_machine_can_be_read() -> None:
    machine = machine_from_doc(parse_document(block("yaml"), "machine", InputError))
    assert len(machine.online) == 8 and machine.devices[0].numa == 1
