"""Installing says how far it is at a terminal, nothing in a pipe, and what went wrong everywhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from tools import install


def test_locked_packages_are_counted(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("a==1\n    # via b==2\nb==2\n")
    assert install.packages(tmp_path / "lock") == 2


def test_a_failure_shows_what_pip_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lock").write_text("no-such-package-of-kubeqos==1\n")
    assert install.main(["--no-index", "-r", str(tmp_path / "lock")]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "No matching distribution found for no-such-package-of-kubeqos==1" in said.err


def test_at_a_terminal_it_says_how_far_it_is(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny")
    (tmp_path / "lock").write_text("tiny==1\n")
    words = [sys.executable, install.__file__, "--no-index", "--find-links", str(tmp_path)]
    words += ["--target", str(tmp_path / "into"), "-r", str(tmp_path / "lock")]
    ours, theirs = os.openpty()
    with subprocess.Popen(words, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
            while more := os.read(ours, 4096):
                said += more
    os.close(ours)
    assert process.returncode == 0, said
    assert "1 of 1: tiny-1-py3-none-any.whl" in click.unstyle(said.decode())
    assert (tmp_path / "into" / "tiny.py").exists()


def make_wheel(folder: Path, name: str) -> None:
    """A wheel of one empty module."""
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")
