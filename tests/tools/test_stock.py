"""Where real Kubernetes is kept, what of it is built, and what is said where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.programs import GO_THAT_BUILDS, program
from tools import stock


def test_programs_are_kept_by_project_and_version_outside_the_tree(bare: Path) -> None:
    kept = bare.parent / "cache/kubeqos/stock"
    version = stock.PROJECTS[0].version
    assert stock.built()["kubelet"] == kept / f"kubernetes-{version}" / "kubelet"
    assert version.startswith("v1.")
    assert {path.parent.parent for path in stock.built().values()} == {kept}


def test_programs_are_found_together_or_not_at_all(bare: Path) -> None:
    etcd = program(stock.built()["etcd"])
    assert stock.find("etcd") == [etcd]
    assert stock.find("etcd", "kubelet") is None


def test_every_module_builds_with_libraries_of_its_own_release() -> None:
    """All that our go.mod for Kubernetes adds is where its staging modules are: the release of the same number."""
    text = (stock.SOURCE / "kubernetes" / "go.mod").read_text()
    released = stock.PROJECTS[0].version.replace("v1.", "v0.", 1)
    replaced = [line.split() for line in text.splitlines() if "=>" in line]
    assert replaced and all(words[0] == words[-2] and words[-1] == released for words in replaced)
    for project in stock.PROJECTS[1:]:
        assert "replace" not in (stock.SOURCE / project.folder / "go.mod").read_text()


def test_without_go_it_says_so(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stock.main() == 1
    assert capsys.readouterr().err.startswith("real Kubernetes cannot be built here: Go is not on PATH: install Go ")


def test_a_build_that_fails_names_itself_and_leaves_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", 'if [ "$1" = env ]; then echo go1.99.0; else exit 3; fi')
    assert stock.main() == 1
    said = capsys.readouterr().err
    assert "building kube-apiserver v1." in said and "building real Kubernetes failed" in said
    assert stock.find("kube-apiserver") is None


def test_only_what_is_missing_is_built(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare / "go", GO_THAT_BUILDS)
    own = program(stock.built()["kubelet"], "echo mine")
    program(stock.built()["etcd"])
    assert stock.main() == 0
    shown = capsys.readouterr()
    assert "building critest v1." in shown.err and "building kubelet" not in shown.err
    assert own.read_text().endswith("echo mine\n")
    assert f"kubelet\t{own}" in shown.out.splitlines()
    assert stock.find(*stock.built()) is not None
