"""Memory by what the kernel does with it: who is throttled, who is killed, and whose cache stays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import SCRATCH, Node, pod

pytestmark = [pytest.mark.vm, pytest.mark.slow]
on_cgroupfs = pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)

MIB = 1 << 20
ABOVE = "/machine"
"""The cgroup above kubepods."""


def amounts(request: str, limit: str = "") -> dict[str, Any]:
    return {"requests": {"memory": request}, **({"limits": {"memory": limit}} if limit else {})}


def events(node: Node, name: str) -> dict[str, int]:
    lines = node.levels(name)[0]["memory.events"].splitlines()
    return {key: int(count) for key, count in (line.split() for line in lines)}


def kills(node: Node, name: str) -> list[str]:
    """What is told of the pod's processes that ran out of memory."""
    uid = node.pod(name)["metadata"]["uid"]
    items = node.get("/api/v1/namespaces/default/events")["items"]
    return [one["message"] for one in items if one["reason"] == "OOMKilling" and one["involvedObject"]["uid"] == uid]


@on_cgroupfs
@pytest.mark.proves("memory-qos")
def test_who_comes_near_its_limit_is_throttled_before_it_is_killed(node: Node) -> None:
    """memory.high stands at the request and nine tenths of the way to the limit: 148 of 160 MiB."""
    node.start_pod(pod("greedy", "hog", "memory", "148", resources=amounts("40Mi", "160Mi")))
    node.until("the kernel throttles it", lambda: events(node, "greedy")["high"] > 0)
    assert events(node, "greedy")["oom_kill"] == 0
    assert node.phase("greedy") == "Running"


@on_cgroupfs
@pytest.mark.proves("oom")
def test_a_child_that_runs_out_of_memory_takes_its_container_along_and_that_is_told(node: Node) -> None:
    """The container's first process only waits, and would go on as if nothing had happened.

    The request is the limit: otherwise the child would be throttled before it, and would take very long to die.
    """
    child = "(head -c 200m /dev/zero | tail -c 200m > /dev/null); echo survived; sleep 1000"
    node.create(pod("parent", child, resources=amounts("64Mi", "64Mi"), restartPolicy="Never"))
    node.until("the container ends", lambda: node.phase("parent") == "Failed")
    ended = node.pod("parent")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "OOMKilled", ended
    assert "survived" not in node.container_log("parent")
    node.until("the kill is told", lambda: kills(node, "parent"))


@on_cgroupfs
@pytest.mark.proves("memory-qos")
def test_nobody_is_swapped_out_although_it_has_no_limit(node: Node) -> None:
    """There is swap, and the kernel is to take memory back; what it may not swap out, it leaves where it is."""
    swap = f"{SCRATCH}/swap"
    made = f"dd if=/dev/zero of={swap} bs=1M count=64 status=none && chmod 600 {swap} && mkswap -q {swap}"
    node.vm.run("sh", "-c", f"{made} && swapon {swap}", seconds=120)
    try:
        node.start_pod(pod("holder", "hog", "memory", "48"))
        node.says("holder", "holds 48")
        holder = node.container_id("holder")

        def swapped_out() -> int:
            own = next(iter(node.ask("files", id=holder)))
            node.ask("reclaim", path=own, bytes=32 * MIB)
            return int(node.levels("holder")[0]["memory.swap.current"])

        assert swapped_out() == 0
        node.ask("write", id=holder, file="memory.swap.max", text="max")
        assert swapped_out() > 16 * MIB, "as it would be if it were not refused"
        node.delete("holder")
    finally:
        node.vm.run("sh", "-c", f"swapoff {swap} && rm {swap}", seconds=120)


def left_of_cache(node: Node) -> int:
    """What of 64 MiB that a BestEffort pod has read stays in memory when 56 MiB are wanted back.

    They are asked for above kubepods, in a cgroup that has nothing else in it: protection holds against those above.
    """
    node.vm.run("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")  # who reads first is charged
    node.start_pod(pod("reader", "hog", "cache", "/var/tmp/cached"))
    node.says("reader", "read")
    reader = node.container_id("reader")
    node.ask("reclaim", path=ABOVE, bytes=56 * MIB)
    kept = int(node.ask("usage", ids=[reader])[reader]["file"])
    node.delete("reader")
    return kept


@pytest.mark.proves("memory-qos")
@pytest.mark.parametrize(("policy", "keeps"), [("Reserve", True), ("TieredReservation", True), ("None", False)])
def test_a_request_that_nobody_uses_keeps_the_cache_of_others(node_of: NodeMaker, policy: str, keeps: bool) -> None:
    """The price of ruling 20, measured: kubepods' memory.min keeps what nobody claims for whoever uses memory there."""
    reserved = {"memory": "256Mi"}
    node = node_of("cgroupfs", memoryReservationPolicy=policy, kubeReserved=reserved, cgroupRoot=ABOVE)
    assert "memory_recursiveprot" in node.vm.run("cat", "/proc/mounts")
    node.vm.run("sh", "-c", "head -c 64M /dev/urandom > /var/tmp/cached; sync", seconds=120)
    node.start_pod(pod("idle", resources=amounts("512Mi")))
    kept = left_of_cache(node)
    node.delete("idle")
    without = left_of_cache(node)
    print(
        f"{policy}: of 64 MiB of cache stay {kept >> 20} MiB beside an unused request, {without >> 20} MiB without it"
    )
    assert (kept > 48 * MIB) is keeps and without < 16 * MIB, (kept, without)
