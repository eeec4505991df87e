"""QoS classes by what they do: CPU time, bytes read, bytes kept and limits of processes, where pods compete."""

from __future__ import annotations

import pytest

from tests.vm.conftest import BOTH, STOCK
from tests.vm.node import SCRATCH, Node, pod

pytestmark = pytest.mark.vm
on_all = pytest.mark.parametrize("node", [*BOTH, STOCK], indirect=True)
on_one_and_stock = pytest.mark.parametrize("node", ["cgroupfs", STOCK], indirect=True)
on_cgroupfs = pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)

MIB = 1 << 20


def compete(node: Node, hog: tuple[str, ...], first: dict[str, str], second: dict[str, str]) -> tuple[str, str]:
    """Two pods, alike but for their classes; their containers' ids once both are at it."""
    for name, classes in (("first", first), ("second", second)):
        node.start_pod(node.asking(pod(name, "hog", *hog, resources={"requests": {"cpu": "100m"}}), classes))
    return node.container_id("first"), node.container_id("second")


@on_all
@pytest.mark.proves("class-cpu", on=("v2", "stock"))
def test_a_latency_pod_takes_the_cpu_from_a_batch_pod(node: Node) -> None:
    first, second = compete(node, ("cpu", "7"), {"cpu-class": "latency"}, {"cpu-class": "batch"})
    used = node.ask("rates", ids=[first, second], seconds=20)
    assert used[first]["cpuMicroseconds"] > 20 * used[second]["cpuMicroseconds"], used


@on_all
@pytest.mark.proves("class-memory", on=("v2", "stock"))
def test_protected_memory_is_kept_when_the_kernel_reclaims(node: Node) -> None:
    classes = {"low": {"memory": "protected"}, "min": {"memory": "guarded"}, "none": {}}
    files = f"for n in {' '.join(classes)}; do head -c 64M /dev/urandom > /var/tmp/$n; done; sync"
    node.vm.run("sh", "-c", f"{files}; echo 3 > /proc/sys/vm/drop_caches", seconds=120)  # who reads first is charged
    for name, asked in classes.items():
        node.start_pod(node.asking(pod(name, "hog", "cache", f"/var/tmp/{name}"), asked))
        node.says(name, "read")
    ids = {name: node.container_id(name) for name in classes}
    root = "/kubepods" if node.driver == "cgroupfs" else "/kubepods.slice"
    node.ask("reclaim", path=root, bytes=56 * MIB)  # no more than the last one has: beyond that, low is given up
    kept = node.ask("usage", ids=list(ids.values()))
    assert min(kept[ids[name]]["file"] for name in ("low", "min")) > 48 * MIB, kept
    assert kept[ids["none"]]["file"] < 16 * MIB, kept


@on_one_and_stock
@pytest.mark.proves("class-blockio", on=("v2", "stock"))
def test_a_slow_pod_reads_no_faster_than_its_class(node: Node) -> None:
    node.start_pod(node.asking(pod("slow", "hog", "read", f"{SCRATCH}/data"), {"blockio": "slow"}))
    node.says("slow", "reading")
    slow = node.container_id("slow")
    seconds = 10
    used = node.ask("rates", ids=[slow], seconds=seconds)[slow]["rbytes"]
    assert 0 < used <= 2 * MIB * (seconds + 2), used
    throttled = node.levels("slow")[0]["io.max"]
    node.ask("write", id=slow, file="io.max", text=f"{throttled.split()[0]} rbps=max")
    node.until("the class holds again", lambda: node.levels("slow")[0]["io.max"] == throttled, seconds=60)


DISK = "dev=$(cat /sys/block/vdd/dev)"
ARBITERS = {
    "bfq": ("echo bfq > /sys/block/vdd/queue/scheduler", "echo none > /sys/block/vdd/queue/scheduler"),
    # As if the disk gave half of what it does, so that both want more than there is.
    "iocost": (
        f"{DISK}; echo $dev ctrl=user model=linear rbps=4194304 rseqiops=32 rrandiops=32 wbps=4194304 "
        "wseqiops=32 wrandiops=32 > /sys/fs/cgroup/io.cost.model; "
        "echo $dev enable=1 ctrl=user min=100.00 max=100.00 > /sys/fs/cgroup/io.cost.qos",
        f"{DISK}; echo $dev enable=0 > /sys/fs/cgroup/io.cost.qos",
    ),
}
"""Who divides a disk by weights, and how that is switched on and off."""


@on_cgroupfs
@pytest.mark.slow
@pytest.mark.proves("class-blockio")
@pytest.mark.parametrize("arbiter", ARBITERS)
def test_a_heavy_pod_reads_more_than_a_light_one(node: Node, arbiter: str) -> None:
    switch_on, switch_off = ARBITERS[arbiter]
    node.vm.run("sh", "-c", switch_on)
    try:
        first, second = compete(node, ("read", f"{SCRATCH}/data"), {"blockio": "heavy"}, {"blockio": "light"})
        for name, bfq, unified in (("first", "800", "7980"), ("second", "50", "405")):  # of 10 to 1000, of 1 to 10000
            node.says(name, "reading")
            of_pod = node.levels(name)[1]
            assert [of_pod[one].split()[-1] for one in ("io.bfq.weight", "io.weight")] == [bfq, unified]
        used = node.ask("rates", ids=[first, second], seconds=20)
    finally:
        node.vm.run("sh", "-c", switch_off)
    heavy, light = used[first]["rbytes"], used[second]["rbytes"]
    print(f"{arbiter}: weights 800 and 50 read {heavy / MIB:.0f} and {light / MIB:.1f} MiB in 20 s")
    assert heavy > 4 * light > 0, used


@on_one_and_stock
@pytest.mark.proves("class-ulimits", on=("v2", "stock"))
def test_ulimits_reach_the_process(node: Node) -> None:
    node.start_pod(node.asking(pod("files"), {"ulimits": "few-files"}))
    assert node.process("files")["limits"]["Max open files"] == ["64", "128"]
