"""What classes do between pods on real containerd: CPU time counted by the kernel, not files read back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.gates import FeatureGates
from tests.cri.containerd import Containerd
from tests.cri.relay.processes import RelayProcess
from tests.node.pods import pod
from tests.node.test_containerd import RealNode, busybox, real_node
from tests.node.test_live import until
from tests.shared import cgroups

pytestmark = [pytest.mark.containerd, pytest.mark.proves("class-cpu")]

CLASSES = """
resources:
  cpu-class:
    provider: cpu
    classes:
      latency: {weight: 800}
      modest: {weight: 100}
      batch: {idle: true}
"""
BUSY = "exec taskset 1 sh -c 'while :; do :; done'"
"""Everybody wants all of CPU 0."""
TOGETHER = str(816 + 102) if cgroups.VERSION == 1 else str(cgroups.shares(32 + 4))
"""What two pods of 100m weigh together in their tier."""


@pytest.fixture
def relay(containerd: Containerd) -> Iterator[RelayProcess]:
    folder = Path(tempfile.mkdtemp(prefix="kq-"))
    process = RelayProcess(folder, containerd.socket, CLASSES)
    process.start()
    yield process
    process.stop()
    shutil.rmtree(folder, ignore_errors=True)


async def cpu_seconds(node: RealNode, parent: str, names: tuple[str, ...], seconds: float) -> list[float]:
    """CPU time of pods within a while."""

    def used() -> list[int]:
        return [int(cgroups.value(f"{parent}/kubepods/burstable/pod{name}", "cpu.usage_ns")) for name in names]

    before = used()
    await asyncio.sleep(seconds)
    return [(now - then) / 1e9 for now, then in zip(used(), before, strict=True)]


async def start(node: RealNode, name: str, **classes: str) -> str:
    held = [{"name": resource, "class": cls} for resource, cls in classes.items()]
    asked = {"requests": {"cpu": "100m"}}
    one = busybox("main", BUSY, resources={**asked, "qosResources": held} if held else asked)
    uid = node.pods.set(pod(name, one, uid=name, hostNetwork=True))
    await node.running(uid)
    return uid


async def test_a_cpu_class_decides_between_pods(containerd: Containerd, relay: RelayProcess, tmp_path: Path) -> None:
    gates = FeatureGates.parse("QOSResources=true")
    parent = containerd.cgroup_parent
    async with real_node(containerd, tmp_path, relay=relay.socket, gates=gates) as node:
        await start(node, "quick", **{"cpu-class": "latency"})
        await start(node, "slow", **{"cpu-class": "batch"})
        pods = f"{parent}/kubepods/burstable"
        assert cgroups.value(f"{pods}/podquick", "cpu.shares") == cgroups.scaled(102, 800)
        assert cgroups.value(f"{pods}/podslow", "cpu.idle") == "1"
        quick, slow = await cpu_seconds(node, parent, ("quick", "slow"), 6.0)
        assert quick > 20 * slow, (quick, slow)
        # Between two that are not idle it is the weights that count.
        await node.gone("slow")
        await start(node, "modest", **{"cpu-class": "modest"})
        quick, modest = await cpu_seconds(node, parent, ("quick", "modest"), 8.0)
        assert 4 < quick / modest < 16, (quick, modest)
        # The tier weighs what its pods do, and the node leaves what the relay has set.
        assert node.agent.cgroups is not None
        done = await node.agent.cgroups.reconcile()
        assert done.drifted == [] and done.problems == []
        assert cgroups.value(pods, "cpu.shares") == TOGETHER
        assert cgroups.value(f"{pods}/podquick", "cpu.shares") == cgroups.scaled(102, 800)
        await node.gone("quick")

        async def lighter() -> bool:
            assert node.agent.cgroups is not None
            await node.agent.cgroups.reconcile()
            return cgroups.value(pods, "cpu.shares") == cgroups.scaled(102, 100)

        await until("the tier has lost the weight of the pod that left", lighter)
