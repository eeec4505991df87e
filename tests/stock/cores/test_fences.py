"""Tiers of pods keep off owned CPUs by themselves, on both versions of cgroups, wherever a kubelet keeps its pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import V1, V2, Host
from kubeqos.model.cpuset import CpuSet
from kubeqos.stock.cores.fences import Fences, pods_root, tier_of, tiers_in

ALL, REST = CpuSet.parse("0-7"), CpuSet.parse("0-3")
SLICES = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/cri-containerd-c1.scope"


class Tree:
    """A folder that looks like cgroups."""

    def __init__(self, folder: Path, version: int) -> None:
        self.root = folder / ("cpuset" if version == V1 else "")
        self.version = version
        self.fences = Fences(Host(folder, version=version), ALL)

    def make(self, cgroup: str, cpus: str = "") -> None:
        for part in (*reversed(Path(cgroup.lstrip("/")).parents), Path(cgroup.lstrip("/"))):
            (self.root / part).mkdir(parents=True, exist_ok=True)
            inherited = str(ALL) if self.version == V1 else ""
            if not (self.root / part / "cpuset.cpus").exists():
                (self.root / part / "cpuset.cpus").write_text(inherited)
        if cpus:
            (self.root / cgroup.lstrip("/") / "cpuset.cpus").write_text(cpus)
        self.fences.met(cgroup)

    def cpus(self, cgroup: str) -> str:
        return (self.root / cgroup.lstrip("/") / "cpuset.cpus").read_text()


@pytest.fixture(params=[V1, V2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path, request.param)


def test_names_of_both_drivers_of_cgroups() -> None:
    assert pods_root("/a/kubepods/besteffort/podu1/c1") == "/a/kubepods"
    assert tier_of("/a/kubepods/besteffort/podu1/c1") == "/a/kubepods/besteffort"
    assert tier_of("/a/kubepods/podu1/c1") == "", "a Guaranteed pod is in no tier"
    assert tier_of(SLICES) == "/kubepods.slice/kubepods-burstable.slice"
    assert tiers_in("/kubepods.slice")[0] == "/kubepods.slice/kubepods-besteffort.slice"
    assert tier_of("/system.slice/docker-1.scope") == ""


def test_a_tier_is_kept_to_its_cpus_and_let_out_again(tree: Tree) -> None:
    plain, owner = "/kubepods/besteffort/podu1/c1", "/kubepods/podu2/c2"
    tree.make(plain, "0-3")
    tree.make(owner, "4-7")
    wanted = dict.fromkeys(tree.fences.known(), REST)
    tree.fences.widen(wanted)
    tree.fences.narrow(wanted)
    assert tree.cpus("/kubepods/besteffort") == "0-3"
    assert tree.cpus(owner) == "4-7"
    if tree.version == V1:
        assert tree.cpus("/kubepods/besteffort/podu1") == "0-3", "nobody may have more than its parent"
    tree.fences.widen(dict.fromkeys(tree.fences.known(), ALL))
    assert tree.cpus("/kubepods/besteffort") == "0-7"
    if tree.version == V1:
        assert tree.cpus("/kubepods/besteffort/podu1") == "0-7"
    assert tree.cpus(plain) == "0-3", "containers are told by the runtime"


def test_who_is_about_to_get_cpus_is_allowed_to(tree: Tree) -> None:
    tree.make("/kubepods/burstable/podu1/c1")
    tree.fences.narrow(dict.fromkeys(tree.fences.known(), REST))
    tree.fences.allow("/kubepods/burstable/podu1/c1", CpuSet.parse("5"))
    assert tree.cpus("/kubepods/burstable") == "0-3,5"


def test_a_pod_is_kept_to_what_it_owns_before_it_has_a_container(tree: Tree) -> None:
    tree.make("/kubepods/podu1")
    tree.make("/kubepods/podu2")
    tree.fences.confine("u1", CpuSet.parse("6-7"))
    assert tree.cpus("/kubepods/podu1") == "6-7"
    assert tree.cpus("/kubepods/podu2") == (str(ALL) if tree.version == V1 else "")


def test_what_is_gone_is_nobodys_trouble(tree: Tree) -> None:
    tree.fences.met("/kubepods/besteffort/podu1/c1")
    tree.fences.widen(dict.fromkeys(tree.fences.known(), ALL))
    tree.fences.narrow(dict.fromkeys(tree.fences.known(), REST))
    tree.fences.allow("/kubepods/besteffort/podu1/c1", ALL)
    tree.fences.confine("u1", REST)
    assert not any(tree.root.rglob("cpuset.cpus"))
