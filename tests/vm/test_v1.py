"""Cgroup v1 with the systemd driver: systemd keeps the pods' slices there, too, and what is promised is kept as well.

Its effect on the machine that tests run on is measured beside: tests/node/test_containerd, tests/node/cgroups.
"""

from __future__ import annotations

import time

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import CLASSES, SCRATCH, Node, guaranteed, pod
from tests.vm.test_cgroups import names
from tests.vm.test_classes import ARBITERS, compete
from tests.vm.test_hugepages import PAGE

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.parametrize("node", ["systemd"], indirect=True)]

MIB = 1 << 20
HEAVY = {"requests": {"cpu": "800m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}
LIGHT = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}
CLASSES_V1 = "\n".join(line for line in CLASSES.splitlines() if "provider: memory" not in line)
"""This version has no protection of memory."""
FILES = ("cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "memory/memory.limit_in_bytes")


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    gates = {"QOSResources": True}
    reserved = {"memory": "128Mi"}
    return node_of(request.param, CLASSES_V1, machine="cgroup-v1", kubeReserved=reserved, featureGates=gates)


def cgroup(node: Node, name: str) -> str:
    """The pod's own cgroup."""
    found = node.pod(name)
    return names(node, found["status"]["qosClass"], found["metadata"]["uid"])[0]


def read(node: Node, name: str, *files: str) -> str:
    """What stands in the files (`controller/name`) of the pod's own cgroup."""
    parts = (file.partition("/") for file in files)
    own = cgroup(node, name)
    return node.vm.run("cat", *(f"/sys/fs/cgroup/{controller}{own}/{file}" for controller, _, file in parts))


def values(node: Node, name: str) -> list[int]:
    """The pod's shares, quota and limit of memory."""
    return [int(line) for line in read(node, name, *FILES).split()]


def cpu_ns(node: Node, name: str) -> int:
    return int(read(node, name, "cpuacct/cpuacct.usage"))


def read_bytes(node: Node, name: str) -> int:
    """What the pod's processes have read from disks, as the kernel counts it for each of them."""
    found = f"cat /sys/fs/cgroup/blkio{cgroup(node, name)}/*/cgroup.procs"
    lines = node.vm.run("sh", "-c", f"for one in $({found}); do cat /proc/$one/io; done").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


@pytest.mark.proves("systemd-driver", "pod-cgroups", on="v1")
def test_a_reload_of_systemd_takes_nothing_from_a_pod(node: Node) -> None:
    for name, resources in (("heavy", HEAVY), ("light", LIGHT)):
        node.start_pod(pod(name, "hog", "cpu", "3", resources=resources))
        node.says(name, "burning")
    expected = {"heavy": [819, 200_000, 128 * MIB], "light": [102, 200_000, 128 * MIB]}
    assert {name: values(node, name) for name in expected} == expected
    node.vm.run("systemctl", "daemon-reload")
    assert {name: values(node, name) for name in expected} == expected
    unit = cgroup(node, "heavy").rpartition("/")[2]
    shown = node.vm.run("systemctl", "show", unit, "-p", "CPUShares", "-p", "MemoryLimit").splitlines()
    assert sorted(shown) == ["CPUShares=819", f"MemoryLimit={128 * MIB}"]
    before = {name: cpu_ns(node, name) for name in expected}
    time.sleep(20)
    used = {name: cpu_ns(node, name) - before[name] for name in expected}
    assert used["heavy"] > 4 * used["light"] > 0, used
    node.delete("light")
    listing = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "kubepods*pod*.slice")
    node.until("its slice goes", lambda: len(node.vm.run(*listing).splitlines()) == 1, seconds=30)


@pytest.mark.proves("class-blockio", on="v1")
def test_a_heavy_pod_reads_more_than_a_light_one(node: Node) -> None:
    switch_on, switch_off = ARBITERS["bfq"]
    node.vm.run("sh", "-c", switch_on)
    try:
        compete(node, ("read", f"{SCRATCH}/data"), {"blockio": "heavy"}, {"blockio": "light"})
        for name, weight in (("first", "800"), ("second", "50")):
            node.says(name, "reading")
            assert read(node, name, "blkio/blkio.bfq.weight").split() == [weight]
        before = [read_bytes(node, name) for name in ("first", "second")]
        time.sleep(20)
        heavy, light = (read_bytes(node, name) - then for name, then in zip(("first", "second"), before, strict=True))
    finally:
        node.vm.run("sh", "-c", switch_off)
    print(f"bfq on cgroup v1: weights 800 and 50 read {heavy / MIB:.0f} and {light / MIB:.1f} MiB in 20 s")
    assert heavy > 4 * light > 0, (heavy, light)


@pytest.mark.proves("huge-pages", on="v1")
def test_huge_pages_go_to_who_asked(node: Node) -> None:
    asked = guaranteed("250m", "64Mi", **{"hugepages-2Mi": "8Mi"})
    node.start_pod(pod("greedy", "hog", "huge", PAGE, "24"))
    assert "got 0" in node.says("greedy", "got ")
    node.start_pod(pod("asked", "hog", "huge", PAGE, "8", resources=asked))
    assert "got 4" in node.says("asked", "got ")
    assert read(node, "asked", "hugetlb/hugetlb.2MB.limit_in_bytes").strip() == str(8 * MIB)
