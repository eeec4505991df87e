"""The systemd driver on cgroup v1: there, too, systemd keeps the pods' slices and writes its own values to them."""

from __future__ import annotations

import time

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import Node, pod
from tests.vm.test_cgroups import names

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.parametrize("node", ["systemd"], indirect=True)]

MIB = 1 << 20
HEAVY = {"requests": {"cpu": "800m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}
LIGHT = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}
FILES = ("cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "memory/memory.limit_in_bytes")


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    return node_of(request.param, machine="cgroup-v1", kubeReserved={"memory": "128Mi"})


def cgroup(node: Node, name: str) -> str:
    """The pod's own cgroup."""
    return names(node, "Burstable", node.pod(name)["metadata"]["uid"])[0]


def values(node: Node, name: str) -> list[int]:
    """The pod's shares, quota and limit of memory."""
    paths = [f"/sys/fs/cgroup/{controller}{cgroup(node, name)}/{file}" for controller, file in map(split, FILES)]
    return [int(line) for line in node.vm.run("cat", *paths).split()]


def split(file: str) -> tuple[str, str]:
    controller, _, name = file.partition("/")
    return controller, name


def cpu_ns(node: Node, name: str) -> int:
    return int(node.vm.run("cat", f"/sys/fs/cgroup/cpuacct{cgroup(node, name)}/cpuacct.usage"))


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
