"""What calls itself pure is, and the check would notice if it were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import purity


def test_everything_that_calls_itself_pure_is() -> None:
    found = purity.modules(purity.SOURCE)
    assert purity.findings(found) == []
    assert found["kubeqos.cri.classes.decisions"].claims and found["kubeqos.qrm.answers"].claims  # both ways to say it


def tree(folder: Path, **files: str) -> list[str]:
    """What is found wrong with modules of a package `house`, given by name."""
    (folder / "house").mkdir()
    for name, text in {"__init__": "", **files}.items():
        (folder / "house" / f"{name}.py").write_text(text)
    return purity.findings(purity.modules(folder))


@pytest.mark.parametrize("claim", ['"""Decides. Pure."""', '"""What it means: pure."""', '"""Pure, over values."""'])
@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("import time", "imports time"),
        ("def f():\n    import grpc.aio", "imports grpc.aio"),
        ("from asyncio import sleep", "imports asyncio"),
        ("async def f(): ...", "awaits"),
        ("from house import shell", "imports house.shell → socket"),
        ("from house.shell import send", "imports house.shell → socket"),
        ("from house.between import send", "imports house.between → house.shell → socket"),
    ],
)
def test_a_false_claim_is_found(tmp_path: Path, claim: str, code: str, finding: str) -> None:
    shell, between = "import socket\ndef send(): ...\n", "from house.shell import send\n"
    found = tree(tmp_path, core=f"{claim}\n{code}\n", between=between, shell=shell)
    assert found == [f"house.core calls itself pure, and {finding}"]


def test_a_package_speaks_for_what_is_in_it(tmp_path: Path) -> None:
    assert tree(tmp_path, __init__='"""Pure: no I/O."""', core="import random\n") == [
        "house.core calls itself pure, and imports random"
    ]


@pytest.mark.parametrize(
    "text",
    [
        '"""Moves bytes; `core` is pure."""\nimport socket\n',
        '"""Decides. Pure."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio\n',
        '"""Decides. Pure."""\nimport datetime, math\n',
    ],
)
def test_what_is_said_of_others_and_types_alone_do_not_count(tmp_path: Path, text: str) -> None:
    assert tree(tmp_path, core=text) == []


def test_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "core.py").write_text('"""Pure."""\nimport time\n')
    monkeypatch.setattr(purity, "SOURCE", tmp_path)
    assert purity.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "core calls itself pure, and imports time",
        "take out what is not pure, or the word from the prologue",
    ]
