"""Exclusive CPUs as partitions of the kernel: what is written where, and the reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.model.cpuset import CpuSet
from kubeqos.node.cgroups.partitions import (
    EXCLUSIVE,
    OLD_KERNEL,
    OLD_VERSION,
    PARTITION,
    Owner,
    Partitions,
    exclusive_above,
)

ABOVE = ("/kubepods", "/kubepods/burstable", "/kubepods/podg")
MAIN, BESIDE = "/kubepods/podg/main", "/kubepods/podg/beside"


def owner(cgroup: str, cpus: str) -> Owner:
    return Owner(("g", cgroup.rpartition("/")[2]), cgroup, CpuSet.parse(cpus))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files as Linux 6.7 has them; what the kernel makes of them is seen in a guest."""
    for path in (*ABOVE, MAIN, BESIDE):
        folder = tmp_path / path.strip("/")
        folder.mkdir(parents=True)
        (folder / EXCLUSIVE).write_text("\n")
        (folder / PARTITION).write_text("member\n")
    return tmp_path


def said(tree: Path, path: str) -> tuple[str, str]:
    folder = tree / path.strip("/")
    return (folder / EXCLUSIVE).read_text().strip(), (folder / PARTITION).read_text().strip()


def test_every_cgroup_above_hands_down_what_is_owned_below() -> None:
    found = exclusive_above([owner(MAIN, "2-3"), owner(BESIDE, "6")])
    assert found == {"/kubepods": CpuSet.parse("2-3,6"), "/kubepods/podg": CpuSet.parse("2-3,6")}


def test_owned_cpus_become_a_partition_and_go_back(tree: Path) -> None:
    partitions = Partitions(tree, version=2)
    partitions.reconcile([owner(MAIN, "2-3"), owner(BESIDE, "6")], ABOVE)
    assert partitions.reasons == {("g", "main"): "", ("g", "beside"): ""}
    assert said(tree, MAIN) == ("2-3", "root") and said(tree, BESIDE) == ("6", "root")
    assert said(tree, "/kubepods") == ("2-3,6", "member") and said(tree, "/kubepods/burstable") == ("", "member")
    # One takes more, the other owns nothing any more: also for an agent that knows nothing of before.
    again = Partitions(tree, version=2)
    again.reconcile([owner(MAIN, "2-5")], ABOVE)
    assert said(tree, MAIN) == ("2-5", "root") and said(tree, BESIDE) == ("", "member")
    assert said(tree, "/kubepods/podg")[0] == "2-5" and said(tree, "/kubepods")[0] == "2-5"
    again.reconcile([], ABOVE)
    assert again.reasons == {} and {said(tree, path) for path in (*ABOVE, MAIN)} == {("", "member")}


def test_what_is_so_already_is_not_written_again(tree: Path) -> None:
    partitions = Partitions(tree, version=2)
    partitions.reconcile([owner(MAIN, "2-3")], ABOVE)
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("cpuset.*")}
    partitions.reconcile([owner(MAIN, "2-3")], ABOVE)
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("cpuset.*")} == before


@pytest.mark.parametrize(("version", "reason"), [(1, OLD_VERSION), (2, OLD_KERNEL)])
def test_a_kernel_without_them_is_the_reason(tmp_path: Path, version: int, reason: str) -> None:
    (tmp_path / MAIN.strip("/")).mkdir(parents=True)
    partitions = Partitions(tmp_path, version)
    partitions.reconcile([owner(MAIN, "2-3")], ABOVE)
    assert partitions.reasons == {("g", "main"): reason}
