"""Cgroups above containers: QoS tiers and pods, on v2 and v1, kept right against whoever changes them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.cgroups.plan import plan
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.qos.cgroups import CgroupSettings, MemoryPolicy, NodeMemory
from tests.node.pods import container, pod, resources
from tests.node.world import World

GIB = 1 << 30
NODE = NodeMemory(8 * GIB, 7 * GIB)
BURSTABLE = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}


def admitted(raw: dict[str, object]) -> AdmittedPod:
    return AdmittedPod.of(raw)


def three() -> list[AdmittedPod]:
    return [
        admitted(pod("g", container(resources=resources(cpu="2", memory="2Gi")), uid="g")),
        admitted(pod("b", container(resources=BURSTABLE), uid="b")),
        admitted(pod("e", uid="e")),
    ]


def read(root: Path, path: str) -> str:
    return (root / path).read_text()


@pytest.mark.proves("pod-cgroups", "memory-qos")
def test_a_unified_hierarchy_gets_tiers_and_pods(tmp_path: Path) -> None:
    files = CgroupFiles(tmp_path, version=2)
    wanted = plan(three(), NODE, 4000, CgroupSettings(), spare_bytes=GIB)
    assert list(wanted)[:3] == ["/kubepods", "/kubepods/burstable", "/kubepods/besteffort"]
    assert files.reconcile(wanted).problems == []
    assert read(tmp_path, "kubepods/memory.max") == str(8 * GIB)
    assert read(tmp_path, "kubepods/memory.min") == str(3 * GIB)
    assert read(tmp_path, "kubepods/burstable/memory.min") == str(GIB)
    assert read(tmp_path, "kubepods/besteffort/cpu.weight") == "1"
    assert read(tmp_path, "kubepods/podg/cpu.max") == "200000 100000"
    assert read(tmp_path, "kubepods/podg/memory.max") == str(2 * GIB)
    assert read(tmp_path, "kubepods/burstable/podb/memory.min") == str(GIB)
    assert read(tmp_path, "kubepods/burstable/podb/cpu.max") == "100000 100000"
    assert not (tmp_path / "kubepods/besteffort/pode/memory.max").exists()


@pytest.mark.proves("pod-cgroups")
def test_the_older_hierarchies_get_shares_and_limits(tmp_path: Path) -> None:
    for controller in ("cpu", "memory", "pids"):
        (tmp_path / controller).mkdir()
    CgroupFiles(tmp_path, version=1).reconcile(plan(three(), NODE, 4000, CgroupSettings(), prefix="/root"))
    assert read(tmp_path, "cpu/root/kubepods/burstable/cpu.shares") == "512"
    assert read(tmp_path, "cpu/root/kubepods/podg/cpu.cfs_quota_us") == "200000"
    assert read(tmp_path, "memory/root/kubepods/burstable/podb/memory.limit_in_bytes") == str(2 * GIB)
    assert not list(tmp_path.rglob("memory.min"))


@pytest.mark.parametrize(
    ("policy", "root", "burstable"),
    [
        (MemoryPolicy.RESERVE, {"memory.min": 3 * GIB}, {"memory.min": GIB}),
        (MemoryPolicy.TIERED, {"memory.min": 3 * GIB, "memory.low": GIB}, {"memory.low": GIB}),
        (MemoryPolicy.NONE, {"memory.min": 0, "memory.low": 0}, {"memory.min": 0, "memory.low": 0}),
        (MemoryPolicy.OFF, {}, {}),
    ],
)
@pytest.mark.proves("memory-qos")
def test_tiers_sum_up_the_protection_of_their_pods(
    policy: MemoryPolicy, root: dict[str, int], burstable: dict[str, int]
) -> None:
    wanted = plan(three(), NODE, 4000, CgroupSettings(memory_policy=policy))
    assert {name: int(value) for name, value in wanted["/kubepods"].unified.items()} == root
    assert {name: int(value) for name, value in wanted["/kubepods/burstable"].unified.items()} == burstable


def test_an_unchanged_plan_writes_nothing_and_drift_is_repaired_and_counted(tmp_path: Path) -> None:
    files = CgroupFiles(tmp_path, version=2)
    wanted = plan(three(), NODE, 4000, CgroupSettings())
    assert files.reconcile(wanted).written > 10
    again = files.reconcile(wanted)
    assert (again.written, again.drifted) == (0, [])
    (tmp_path / "kubepods/podg/memory.max").write_text("max")
    repaired = files.reconcile(wanted)
    assert repaired.written == 1 and "max instead of" in repaired.drifted[0]
    assert files.drifts == 1 and read(tmp_path, "kubepods/podg/memory.max") == str(2 * GIB)


@pytest.mark.proves("pod-cgroups")
def test_cgroups_of_pods_that_are_gone_are_found_and_removed(tmp_path: Path) -> None:
    files = CgroupFiles(tmp_path, version=2)
    files.reconcile(plan(three(), NODE, 4000, CgroupSettings()))
    left = plan(three()[:1], NODE, 4000, CgroupSettings())
    assert files.orphans(left) == ["/kubepods/besteffort/pode", "/kubepods/burstable/podb"]
    assert all(files.remove(path) for path in files.orphans(left))
    assert files.orphans(left) == [] and (tmp_path / "kubepods/podg").is_dir()


def test_a_process_that_the_runtime_lost_sight_of_ends_with_its_pod(tmp_path: Path) -> None:
    """Only who is listed is ended; 0 stands for a process of another PID namespace."""
    files = CgroupFiles(tmp_path, version=2)
    files.reconcile(plan(three(), NODE, 4000, CgroupSettings()))
    lost, other = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        inner = tmp_path / "kubepods/podg/c1"
        inner.mkdir()
        (inner / "cgroup.procs").write_text(f"0\n{lost.pid}\n")
        (tmp_path / "kubepods/burstable/podb/cgroup.procs").write_text(f"{other.pid}\n")
        files.end("/kubepods/podg")
        assert lost.wait(60) == -signal.SIGKILL and other.poll() is None
    finally:
        for one in (lost, other):
            one.kill()
            one.wait()


@pytest.mark.proves("systemd-driver")
def test_systemd_names_its_slices(tmp_path: Path) -> None:
    wanted = plan(three()[1:2], NODE, 4000, CgroupSettings(), driver="systemd")
    assert "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice" in wanted


async def test_a_node_keeps_the_cgroups_of_its_pods(tmp_path: Path) -> None:
    tree = tmp_path / "cgroup"
    tree.mkdir()
    (tree / "cgroup.controllers").write_text("cpu memory")
    async with World(tmp_path, cgroup_fs=tree) as node:
        uid = await node.start(pod("web", container(resources=BURSTABLE), uid="b"))
        assert read(tree, "kubepods/burstable/podb/memory.max") == str(2 * GIB)
        assert read(tree, "kubepods/burstable/memory.min") == str(GIB)
        (tree / "kubepods/burstable/podb/memory.max").write_text("1")
        await node.advance(65)
        assert read(tree, "kubepods/burstable/podb/memory.max") == str(2 * GIB)
        assert "kubeqos_node_cgroup_drifts_total 1.0" in await node.metrics()
        told = [message for reason, message in node.events if reason == "CgroupDrift"]
        assert len(told) == 1 and told[0].endswith(f"podb/memory.max: 1 instead of {2 * GIB}; written again")
        await node.end(uid)
        await node.advance(65)
        assert not (tree / "kubepods/burstable/podb").exists()
        assert read(tree, "kubepods/burstable/memory.min") == "0"
