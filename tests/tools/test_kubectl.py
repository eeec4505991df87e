"""Where the real kubectl is found, and what is said where it can neither be found nor built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.programs import GO_THAT_BUILDS, program
from tools import kubectl


def test_the_machines_own_comes_before_the_one_that_was_built(bare: Path) -> None:
    assert kubectl.find_kubectl() is None
    built = program(kubectl.built())
    assert kubectl.find_kubectl() == str(built)
    own = program(bare / "kubectl")
    assert kubectl.find_kubectl() == str(own)


def test_it_is_kept_by_version_outside_the_tree(bare: Path) -> None:
    assert re.fullmatch(r"v1\.\d+\.\d+", kubectl.version())
    assert kubectl.built() == bare.parent / "cache/kubeqos/bin" / kubectl.version() / "kubectl"


def test_without_go_it_says_so(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("kubectl is not on PATH, and cannot be built: Go is not on PATH: install Go ")


def test_an_old_go_is_named(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", "echo go1.19.8")
    assert kubectl.main() == 1
    assert "go1.19.8 is too old: install Go " in capsys.readouterr().err


def test_a_build_is_all_or_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", 'if [ "$1" = env ]; then echo go1.99.0; else exit 3; fi')
    assert kubectl.main() == 1
    assert "building kubectl failed" in capsys.readouterr().err
    assert kubectl.find_kubectl() is None
    program(bare / "go", GO_THAT_BUILDS)
    assert kubectl.main() == 0
    assert capsys.readouterr().out.strip() == str(kubectl.built()) == kubectl.find_kubectl()
    assert [path.name for path in kubectl.built().parent.iterdir()] == ["kubectl"]
