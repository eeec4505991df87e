"""The page of what is proven where cannot lie: it says what the marks say, and nothing for tests that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.proven import FEATURES, Proof, WrongMark, proofs, proven_on
from tools.vm.machines import NOT_SHOWN

ROOT = Path(__file__).parents[2]
HEAD = "import pytest\n"


def tree(folder: Path, **files: str) -> Path:
    tests = folder / "tests"
    for name, text in files.items():
        path = tests / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + text)
    return tests


PROVEN = '@pytest.mark.proves("oom")\ndef test_one(): ...\n'


@pytest.mark.parametrize(
    ("file", "text", "places"),
    [
        ("node__test_a", PROVEN, ["simulated"]),
        ("node__test_a", f"pytestmark = pytest.mark.containerd\n{PROVEN}", ["v1"]),
        ("node__test_a", f"pytestmark = [pytest.mark.slow, pytest.mark.containerd]\n{PROVEN}", ["v1"]),
        ("node__test_a", f"@pytest.mark.containerd\n{PROVEN}", ["v1"]),
        ("vm__test_a", PROVEN, ["v2"]),
        ("stock__test_a", f"from tests.stock.kubelet import NODE\n{PROVEN}", ["stock"]),
        ("vm__test_a", PROVEN.replace('"oom"', '"oom", on=("v2", "stock")'), ["v2", "stock"]),
        ("node__test_a", PROVEN.replace('"oom"', '"oom", on=("simulated", "v1")'), ["simulated", "v1"]),
        ("node__test_a", "def test_one(): ...\n", []),
    ],
)
def test_where_a_test_runs_is_where_it_proves(tmp_path: Path, file: str, text: str, places: list[str]) -> None:
    name = f"tests/{file.replace('__', '/')}.py::test_one"
    assert proofs(tree(tmp_path, **{file: text})) == [Proof("oom", place, name) for place in places]


def test_what_no_machine_shows_is_said_with_the_test_that_stands_for_it(tmp_path: Path) -> None:
    page = proven_on(tree(tmp_path, node__test_a=PROVEN), lambda _, rows: "")
    assert NOT_SHOWN
    for what, why in NOT_SHOWN.items():
        assert f"- {what}: {why}" in page
        [(file, name)] = re.findall(r"`(tests/\S+)::(\w+)`", why)
        assert f"def {name}(" in (ROOT / file).read_text()


def test_what_is_expected_to_fail_is_not_counted(tmp_path: Path) -> None:
    waiting = '@pytest.mark.xfail(strict=True, reason="pods compete one level up")\n'
    page = proven_on(tree(tmp_path, vm__test_a=waiting + PROVEN), lambda _, rows: "\n".join("|".join(r) for r in rows))
    assert f"`oom`|{FEATURES['oom']}||| (1 not yet)|" in page
    assert "pods compete one level up (`tests/vm/test_a.py::test_one`)" in page and "### oom" not in page


def test_what_runs_without_a_kubelet_proves_nothing_of_one(tmp_path: Path) -> None:
    with pytest.raises(WrongMark, match="no kubelet runs there"):
        proofs(tree(tmp_path, stock__test_a=PROVEN))


def test_a_feature_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongMark, match="'omo'"):
        proofs(tree(tmp_path, node__test_a=PROVEN.replace("oom", "omo")))
