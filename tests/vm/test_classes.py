"""QoS classes by what they do: CPU time, bytes read, bytes kept and limits of processes, where pods compete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.conftest import BOTH
from tests.vm.node import SCRATCH, Node, pod

pytestmark = pytest.mark.vm
on_both = pytest.mark.parametrize("node", BOTH, indirect=True)
on_cgroupfs = pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)

MIB = 1 << 20


def asking(classes: dict[str, str], **amounts: Any) -> dict[str, Any]:
    return {**amounts, "qosResources": [{"name": name, "class": value} for name, value in classes.items()]}


def compete(node: Node, hog: tuple[str, ...], first: dict[str, str], second: dict[str, str]) -> tuple[str, str]:
    """Two pods, alike but for their classes; their containers' ids once both are at it."""
    for name, classes in (("first", first), ("second", second)):
        node.start_pod(pod(name, "hog", *hog, resources=asking(classes, requests={"cpu": "100m"})))
    return node.container_id("first"), node.container_id("second")


@on_both
@pytest.mark.proves("class-cpu")
def test_a_latency_pod_takes_the_cpu_from_a_batch_pod(node: Node) -> None:
    first, second = compete(node, ("cpu", "7"), {"cpu-class": "latency"}, {"cpu-class": "batch"})
    used = node.ask("rates", ids=[first, second], seconds=20)
    assert used[first]["cpuMicroseconds"] > 20 * used[second]["cpuMicroseconds"], used


@on_both
@pytest.mark.proves("class-memory")
def test_protected_memory_is_kept_when_the_kernel_reclaims(node: Node) -> None:
    files = "for n in first second; do head -c 64M /dev/urandom > /var/tmp/$n; done; sync"
    node.vm.run("sh", "-c", f"{files}; echo 3 > /proc/sys/vm/drop_caches", seconds=120)  # who reads first is charged
    for name, classes in (("first", {"memory": "protected"}), ("second", {})):
        node.start_pod(pod(name, "hog", "cache", f"/var/tmp/{name}", resources=asking(classes)))
        node.says(name, "read")
    first, second = node.container_id("first"), node.container_id("second")
    root = "/kubepods" if node.driver == "cgroupfs" else "/kubepods.slice"
    node.ask("reclaim", path=root, bytes=56 * MIB)  # no more than the second has: beyond that, low is given up
    kept = node.ask("usage", ids=[first, second])
    assert kept[first]["file"] > 48 * MIB, kept
    assert kept[second]["file"] < 16 * MIB, kept


@on_cgroupfs
@pytest.mark.proves("class-blockio")
def test_a_slow_pod_reads_no_faster_than_its_class(node: Node) -> None:
    node.start_pod(pod("slow", "hog", "read", f"{SCRATCH}/data", resources=asking({"blockio": "slow"})))
    node.says("slow", "reading")
    slow = node.container_id("slow")
    seconds = 10
    used = node.ask("rates", ids=[slow], seconds=seconds)[slow]["rbytes"]
    assert 0 < used <= 2 * MIB * (seconds + 2), used
    throttled = node.levels("slow")[0]["io.max"]
    node.ask("write", id=slow, file="io.max", text=f"{throttled.split()[0]} rbps=max")
    node.until("the class holds again", lambda: node.levels("slow")[0]["io.max"] == throttled, seconds=60)


@on_cgroupfs
@pytest.mark.proves("class-ulimits")
def test_ulimits_reach_the_process(node: Node) -> None:
    node.start_pod(pod("files", resources=asking({"ulimits": "few-files"})))
    assert node.process("files")["limits"]["Max open files"] == ["64", "128"]
