"""Where the real kubectl is found, and what is said where it can neither be found nor built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import kubectl


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on PATH and an empty cache."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def program(path: Path, script: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


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
    assert said.startswith("kubectl is not on PATH, and neither is Go to build it: install Go ")


def test_an_old_go_is_named(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", "echo go1.19.8")
    assert kubectl.main() == 1
    assert "go1.19.8 is too old to build it" in capsys.readouterr().err


def test_a_build_is_all_or_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", 'if [ "$1" = env ]; then echo go1.99.0; else exit 3; fi')
    assert kubectl.main() == 1
    assert "building kubectl failed" in capsys.readouterr().err
    assert kubectl.find_kubectl() is None
    working = 'if [ "$1" = env ]; then echo go1.99.0; exit; fi\nwhile [ "$1" != -o ]; do shift; done\n'
    program(bare / "go", working + 'echo "#!/bin/sh" > "$2"; /bin/chmod 755 "$2"')
    assert kubectl.main() == 0
    assert capsys.readouterr().out.strip() == str(kubectl.built()) == kubectl.find_kubectl()
    assert [path.name for path in kubectl.built().parent.iterdir()] == ["kubectl"]
