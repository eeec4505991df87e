"""Who owns its CPUs has no quota, on both versions of cgroups, whoever writes one; everybody else keeps his."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.enforcing.host import V1, V2, Host
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.cri.context import Context
from kubeqos.node.pod.observed import Stage
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.plugins.managers import ContainerKey, Grant
from kubeqos.rules.qos.cgroups import NodeMemory
from kubeqos.stock.agent.adjusting import add_grant
from kubeqos.stock.cores.pods import PodTable
from kubeqos.stock.cores.quotas import Quotas

OWN = Grant({"cpuset_cpus": "2-3"}, exclusive=CpuSet.parse("2-3"), unthrottled=True)
SHARED = Grant({"cpuset_cpus": "0-1"})
POD, MAIN, HELPER = "/kubepods/podu1", "/kubepods/podu1/c-main", "/kubepods/podu1/c-helper"
KUBELETS = {POD: 160_000, MAIN: 110_000, HELPER: 50_000}
"""What the kubelet writes for the pod below."""


def of(name: str, cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return {"name": name, "image": "a", "resources": {"requests": amounts, "limits": amounts}}


class Tree:
    """A pod with two containers, of which the first may own CPUs, in a folder that looks like cgroups."""

    def __init__(self, folder: Path, version: int) -> None:
        self.root, self.version = folder / ("cpu" if version == V1 else ""), version
        self.table = PodTable()
        spec = {"containers": [of("main", "1100m"), of("helper", "500m")], "nodeName": "n1"}
        row = self.table.bind({"metadata": {"name": "p", "namespace": "team", "uid": "u1"}, "spec": spec})
        for name, cgroup in (("main", MAIN), ("helper", HELPER)):
            self.table.container(row, f"c-{name}", name, Stage.RUNNING, cgroup)
        self.grants: dict[ContainerKey, Grant] = {("u1", "main"): OWN, ("u1", "helper"): SHARED}
        context = Context(folder, folder, NodeMemory(8 << 30, 8 << 30), cgroup_version=version)
        self.told: list[tuple[str, str, str]] = []
        host = Host(folder, version=version)
        host.written = lambda *words: self.told.append(words)
        self.host, self.context = host, context
        self.quotas = Quotas(host, self.table, lambda: self.grants, context)
        for cgroup, quota_us in KUBELETS.items():
            self.write(cgroup, quota_us)

    def file(self, cgroup: str) -> Path:
        return self.root / cgroup.lstrip("/") / ("cpu.cfs_quota_us" if self.version == V1 else "cpu.max")

    def write(self, cgroup: str, quota_us: int) -> None:
        self.file(cgroup).parent.mkdir(parents=True, exist_ok=True)
        self.file(cgroup).write_text(str(quota_us) if self.version == V1 else f"{quota_us} 100000")

    def has(self) -> dict[str, int]:
        """The quota of each; -1 for none."""
        words = {cgroup: self.file(cgroup).read_text().split() for cgroup in KUBELETS}
        assert all(one[1:] == ([] if self.version == V1 else ["100000"]) for one in words.values()), words
        return {cgroup: -1 if one[0] == "max" else int(one[0]) for cgroup, one in words.items()}


@pytest.fixture(params=[V1, V2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path, request.param)


LIFTED = {POD: -1, MAIN: -1, HELPER: 50_000}


def test_an_owner_and_its_pod_have_no_quota_and_its_neighbour_keeps_it(tree: Tree) -> None:
    tree.quotas.keep()
    assert tree.has() == LIFTED
    assert [cgroup for cgroup, _, _ in tree.told] == [POD, MAIN], "systemd hears of it"
    assert tree.quotas.owns("c-main") and not tree.quotas.owns("c-helper")
    tree.quotas.keep()
    assert len(tree.told) == 2, "nothing is written twice"


@pytest.mark.parametrize("cgroup", [POD, MAIN])
def test_what_the_kubelet_writes_again_is_lifted_again(tree: Tree, cgroup: str) -> None:
    tree.quotas.keep()
    tree.write(cgroup, 200_000)
    tree.quotas.keep()
    assert tree.has() == LIFTED


def test_who_owns_nothing_any_more_is_held_to_its_limit_again(tree: Tree) -> None:
    tree.quotas.keep()
    tree.grants["u1", "main"] = SHARED
    tree.quotas.keep()
    assert tree.has() == KUBELETS
    tree.write(POD, 170_000)
    tree.quotas.keep()
    assert tree.has()[POD] == 170_000, "from then on it is the kubelet's again"


@pytest.mark.parametrize(("grant", "quota_us"), [(OWN, -1), (SHARED, None)])
def test_an_owner_is_created_without_a_quota(grant: Grant, quota_us: int | None) -> None:
    out = nri.ContainerAdjustment()
    add_grant(out, grant, V2)
    cpu = out.linux.resources.cpu
    assert (cpu.quota.value if cpu.HasField("quota") else None) == quota_us


def test_an_agent_that_leaves_gives_quotas_back(tree: Tree) -> None:
    tree.quotas.keep()
    tree.quotas.leave()
    assert tree.has() == KUBELETS


def successor(tree: Tree, told_us: int) -> Quotas:
    """Of an agent that comes after another one, and hears from the runtime what runs."""
    tree.quotas = Quotas(tree.host, tree.table, lambda: tree.grants, tree.context)
    for cgroup in (MAIN, HELPER):
        tree.quotas.found(cgroup, told_us)
    return tree.quotas


@pytest.mark.parametrize("told_us", [-1, 110_000])
def test_who_lost_its_cpus_while_the_agent_was_away_is_held_to_its_limit_again(tree: Tree, told_us: int) -> None:
    """Runtimes tell what they were told: no quota, of one that was made as an owner, and the kubelet's of another."""
    tree.quotas.keep()
    tree.grants["u1", "main"] = SHARED
    quotas = successor(tree, told_us)
    quotas.keep()
    assert tree.has() == LIFTED, "nobody knows yet who owns what"
    quotas.take_over()
    quotas.keep()
    assert tree.has() == KUBELETS


def test_who_owns_its_cpus_still_when_the_agent_is_back_has_no_quota(tree: Tree) -> None:
    tree.quotas.keep()
    quotas = successor(tree, -1)
    quotas.take_over()
    quotas.keep()
    assert tree.has() == LIFTED
    quotas.leave()
    assert tree.has() == KUBELETS


def test_where_kubelets_give_no_quota_none_is_made(tree: Tree) -> None:
    tree.grants.clear()
    for cgroup in KUBELETS:
        tree.file(cgroup).write_text("-1" if tree.version == V1 else "max 100000")
    quotas = successor(tree, 0)
    quotas.take_over()
    quotas.keep()
    assert set(tree.has().values()) == {-1} and not tree.told


def test_who_never_owned_anything_is_left_alone(tree: Tree) -> None:
    tree.grants.clear()
    tree.write(POD, 170_000)
    tree.quotas.keep()
    tree.quotas.leave()
    assert tree.has() == {**KUBELETS, POD: 170_000} and not tree.told


def test_what_is_not_there_yet_or_gone_is_nobodys_trouble(tree: Tree) -> None:
    for cgroup in KUBELETS:
        tree.file(cgroup).unlink()
    tree.quotas.keep()
    tree.quotas.leave()
    assert not tree.told
