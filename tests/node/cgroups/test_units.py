"""Slices through systemd, over a real message bus: values from the first moment, kept over reloads, gone with pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.enforcing.systemd import Systemd
from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.cgroups.plan import plan
from kubeqos.node.cgroups.units import SystemdUnits, units_of
from kubeqos.rules.qos.cgroups import CgroupSettings
from tests.cri.systemd import simulated_systemd
from tests.node.cgroups.test_cgroups import GIB, NODE, read, three

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"


class Node:
    """What a keeper does, without the pods."""

    def __init__(self, tree: Path, systemd: Systemd, version: int = 2) -> None:
        self.files = CgroupFiles(tree, version)
        self.units = SystemdUnits(systemd, tree)
        self.problems: list[str] = []

    async def reconcile(self, **settings: object) -> list[str]:
        """The values that had to be written to files, because systemd has no property for them."""
        wanted = plan(three()[1:2], NODE, 4000, CgroupSettings(), driver="systemd", **settings)  # type: ignore[arg-type]
        contents, self.problems = await self.units.tell(self.files.contents(wanted))
        before = {file: file.read_text() for file in self.files.root.rglob("*.*") if file.is_file()}
        self.files.write(contents)
        return sorted(
            file.name
            for file in self.files.root.rglob("*.*")
            if file.is_file() and before.get(file) != file.read_text()
        )


@pytest.mark.proves("systemd-driver")
async def test_a_slice_starts_with_its_values_and_a_reload_keeps_them(tmp_path: Path) -> None:
    async with simulated_systemd(tmp_path) as (peer, systemd):
        node = Node(peer.root, systemd)
        beside = await node.reconcile(hugepage_sizes=(1 << 21,))
        assert node.problems == []
        assert set(beside) == {"cpu.max", "hugetlb.2MB.max"}  # cpu.max is none of those the simulated one keeps
        assert peer.units["kubepods-burstable-podb.slice"]["CPUQuotaPerSecUSec"] == 1_000_000
        assert read(peer.root, f"{POD}/memory.max") == str(2 * GIB)
        assert read(peer.root, "kubepods.slice/memory.min") == str(GIB)
        assert [unit for method, unit in peer.calls if method == "StartTransientUnit"] == [
            "kubepods.slice",
            "kubepods-burstable.slice",
            "kubepods-besteffort.slice",
            "kubepods-burstable-podb.slice",
        ]
        peer.reload()
        await node.units.reloaded()
        assert read(peer.root, f"{POD}/memory.max") == str(2 * GIB)


@pytest.mark.proves("systemd-driver")
async def test_only_what_is_new_is_told_and_the_slice_of_a_pod_that_is_gone_is_stopped(tmp_path: Path) -> None:
    async with simulated_systemd(tmp_path) as (peer, systemd):
        node = Node(peer.root, systemd)
        await node.reconcile()
        peer.calls.clear()
        await node.reconcile()
        assert peer.calls == [], "an unchanged plan costs nothing"
        await node.reconcile(spare_bytes=GIB)
        assert peer.calls == [("SetUnitProperties", "kubepods.slice")]
        assert read(peer.root, "kubepods.slice/memory.max") == str(8 * GIB)
        assert await node.units.stop(f"/{POD}") == ""
        assert not (peer.root / POD).exists() and "kubepods-burstable-podb.slice" not in peer.units
        assert await node.units.stop(f"/{POD}") == "", "what is gone may be stopped again"
        await node.reconcile()
        assert read(peer.root, f"{POD}/memory.max") == str(2 * GIB)


@pytest.mark.proves("systemd-driver")
async def test_slices_of_an_earlier_life_are_taken_over(tmp_path: Path) -> None:
    async with simulated_systemd(tmp_path) as (peer, systemd):
        await Node(peer.root, systemd).reconcile()
        peer.reload()
        peer.units["kubepods.slice"]["MemoryMax"] = 1
        later = Node(peer.root, systemd)
        await later.reconcile()
        assert later.problems == []
        assert read(peer.root, "kubepods.slice/memory.max") == str(7 * GIB)


@pytest.mark.proves("systemd-driver")
async def test_slices_of_cgroup_v1_are_systemds_too(tmp_path: Path) -> None:
    async with simulated_systemd(tmp_path) as (peer, systemd):
        peer.v1 = True
        for controller in ("systemd", "cpu", "memory", "hugetlb"):
            (peer.root / controller).mkdir(parents=True)
        node = Node(peer.root, systemd, version=1)
        beside = await node.reconcile(hugepage_sizes=(1 << 21,))
        assert node.problems == []
        assert set(beside) == {"cpu.cfs_period_us", "cpu.cfs_quota_us", "hugetlb.2MB.limit_in_bytes"}
        unit = peer.units["kubepods-burstable-podb.slice"]
        assert (unit["CPUQuotaPerSecUSec"], unit["MemoryLimit"]) == (1_000_000, 2 * GIB)
        before = read(peer.root, f"cpu/{POD}/cpu.shares")
        assert before == str(unit["CPUShares"]) != "1024"
        peer.reload()
        await node.units.reloaded()
        assert read(peer.root, f"cpu/{POD}/cpu.shares") == before
        assert read(peer.root, f"memory/{POD}/memory.limit_in_bytes") == str(2 * GIB)
        peer.calls.clear()
        await node.reconcile(hugepage_sizes=(1 << 21,))
        assert peer.calls == [], "an unchanged plan costs nothing"


async def test_without_a_bus_the_values_are_in_the_files_and_the_reason_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path, Systemd(f"unix:path={tmp_path}/nobody"))
    await node.reconcile()
    assert len(node.problems) == 1 and "systemd cannot be reached at unix:path=" in node.problems[0]
    assert read(tmp_path, f"{POD}/memory.max") == str(2 * GIB)


def test_a_tree_that_is_not_systemds_has_no_units(tmp_path: Path) -> None:
    assert units_of("systemd", tmp_path) is None
