"""What a container may not take: huge pages that nobody gave it, swap; and who is told when memory ran out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.enforcing.host import counts_swap, hugepage_sizes
from kubeqos.model.hardware.named import MACHINES
from kubeqos.model.machine import Machine
from tests.node.cgroups.test_cgroups import read
from tests.node.pods import container, pod
from tests.node.world import World

MIB = 1 << 20
PAGES = {"hugepages-2Mi": "16Mi", "cpu": "1", "memory": "64Mi"}


def paged() -> Machine:
    """A machine with huge pages of 2 MiB."""
    return next(made for make in MACHINES.values() if 2 * MIB in (made := make()).nodes[0].hugepages)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory hugetlb")
    return root


def pages_of(node: World, uid: str) -> dict[str, int]:
    return {one.page_size: one.limit for one in node.running(uid)["main"].resources.hugepage_limits}


@pytest.mark.proves("pod-cgroups")
async def test_huge_pages_are_for_those_who_ask(tmp_path: Path, tree: Path) -> None:
    async with World(tmp_path, paged(), cgroup_fs=tree) as node:
        asks = await node.start(pod("asks", container(resources={"requests": PAGES, "limits": PAGES}), uid="g"))
        takes = await node.start(pod("takes", container(), uid="e"))
        assert pages_of(node, asks)["2MB"] == 16 * MIB and set(pages_of(node, takes).values()) == {0}
        assert read(tree, "kubepods/podg/hugetlb.2MB.max") == str(16 * MIB)
        assert read(tree, "kubepods/besteffort/pode/hugetlb.2MB.max") == "0"


@pytest.mark.parametrize(("system", "sizes"), [("cpu hugetlb", (2 * MIB, 1 << 30)), ("cpu memory", ())])
def test_sizes_of_huge_pages_that_cgroups_know(tmp_path: Path, system: str, sizes: tuple[int, ...]) -> None:
    (tmp_path / "cgroup.controllers").write_text(system)
    for name in ("hugepages-2048kB", "hugepages-1048576kB"):
        (tmp_path / "kernel/mm/hugepages" / name).mkdir(parents=True)
    assert hugepage_sizes(tmp_path, tmp_path) == sizes


def test_swap_is_refused_where_the_kernel_counts_it(tmp_path: Path) -> None:
    assert not counts_swap(tmp_path)
    (tmp_path / "system.slice").mkdir()
    (tmp_path / "system.slice/memory.swap.max").write_text("max")
    assert counts_swap(tmp_path)


@pytest.mark.parametrize(("settings", "group"), [({}, "1"), ({"single_process_oom_kill": True}, None)])
async def test_a_container_out_of_memory_goes_as_a_whole(tmp_path: Path, settings: Any, group: str | None) -> None:
    async with World(tmp_path, **settings) as node:
        uid = await node.start(pod("web"))
        assert node.running(uid)["main"].resources.unified.get("memory.oom.group") == group


@pytest.mark.proves("oom")
async def test_a_child_that_is_killed_for_memory_is_told(tmp_path: Path, tree: Path) -> None:
    async with World(tmp_path, cgroup_fs=tree) as node:
        await node.start(pod("web", uid="e"))
        events = tree / "kubepods/besteffort/pode/memory.events"
        events.write_text("low 0\noom 1\noom_kill 2\noom_group_kill 0\n")
        await node.advance(65)
        await node.advance(65)
        told = [message for reason, message in node.events if reason == "OOMKilling"]
        assert told == ["memory ran out: 2 processes of the pod killed"]


@pytest.mark.proves("oom")
async def test_on_the_older_version_every_container_counts_for_itself(tmp_path: Path) -> None:
    """A container that is started again has a new cgroup, whose count starts from nothing: its first kill is news."""
    tree = tmp_path / "older"
    (tree / "memory").mkdir(parents=True)
    async with World(tmp_path, cgroup_fs=tree) as node:
        await node.start(pod("web", uid="e"))
        for life in ("first", "second"):
            counter = tree / "memory/kubepods/besteffort/pode" / life / "memory.oom_control"
            counter.parent.mkdir(parents=True)
            counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
            await node.advance(65)
            counter.unlink()
            counter.parent.rmdir()
        told = [message for reason, message in node.events if reason == "OOMKilling"]
        assert told == ["memory ran out: 1 process of the pod killed"] * 2


@pytest.mark.proves("oom")
async def test_a_kill_that_ends_the_pod_is_told_before_its_cgroup_goes(tmp_path: Path, tree: Path) -> None:
    async with World(tmp_path, cgroup_fs=tree) as node:
        uid = await node.start(pod("web", uid="e"))
        (tree / "kubepods/besteffort/pode/memory.events").write_text("oom_kill 1\n")
        await node.end(uid)
        assert not (tree / "kubepods/besteffort/pode").exists()
        told = [message for reason, message in node.events if reason == "OOMKilling"]
        assert told == ["memory ran out: 1 process of the pod killed"]


async def test_tiers_are_empty_as_soon_as_their_last_pod_has_gone(tmp_path: Path, tree: Path) -> None:
    async with World(tmp_path, cgroup_fs=tree) as node:
        uid = await node.start(pod("web", container(resources={"requests": {"memory": "64Mi"}}), uid="b"))
        assert read(tree, "kubepods/memory.min") == str(64 * MIB)
        await node.end(uid, 0)
        await node.advance(2)
        assert uid not in node.agent.core.pods
        assert read(tree, "kubepods/memory.min") == "0" == read(tree, "kubepods/burstable/memory.min")
