"""Pools on a real machine: a resize reaches containers that run in a real containerd, and owners have no quota."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.client import CriClient
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod import effects as fx
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.registry import registering
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import Policy
from tests.cri.containerd import Containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.qrm.harness import PluginProcess, plugin_processes, pod, until
from tests.shared import cgroups

pytestmark = pytest.mark.containerd


def runnable(name: str, role: str, script: str = "sleep 1000", **amounts: Any) -> dict[str, Any]:
    raw = pod(name, role, cpu="100m")
    [container] = raw["spec"]["containers"]
    container |= {"image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", f"exec {script}"]}
    container["resources"] |= amounts
    raw["spec"] |= {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
    return raw


@dataclass
class PoolNode:
    """A node of this machine with a CPU plugin beside it."""

    agent: NodeAgent
    plugin: PluginProcess
    parent: str

    def cgroup(self, name: str) -> str:
        """That of the pod's container; none while it does not run."""
        seen = self.agent.core.pods[f"uid-{name}"].seen.newest("container0")
        if seen is None or not seen.live:
            return ""
        group = next((one for one in cgroups.below(self.parent) if one.name == seen.id), None)
        inner = str(group).partition(self.parent)[2] if group and (group / "cgroup.procs").read_text() else ""
        return f"{self.parent}{inner}" if inner else ""

    def cpuset(self, name: str) -> str:
        """What the kernel has for the pod's container."""
        found = self.cgroup(name)
        return cgroups.value(found, "cpuset.cpus") if found else ""

    async def gone(self, *names: str) -> None:
        for name in names:
            self.agent.feed(fx.PodGone(f"uid-{name}"))
        await until("they are gone", lambda: not self.agent.core.pods)


@contextlib.asynccontextmanager
async def pool_node(folder: Path, containerd: Containerd, config: str, **more: Any) -> AsyncIterator[PoolNode]:
    machine = read_machine(Path("/sys"), name="local")
    manager = QosResourceManager(QrmSettings(reconcile_seconds=0.2), machine)
    runtime = CriClient(containerd.endpoint)
    settings = NodeSettings(
        "n1",
        folder / "node",
        log_dir=folder / "logs",
        cgroup_root=containerd.cgroup_parent,
        gates=FeatureGates.default().set({QRM: True}),
        topology_policy=Policy.RESTRICTED,
        **more,
    )
    cpu = PluginProcess(folder, "cpu", machine, config)
    agent = NodeAgent(assemble(settings, runtime, machine, managers=[manager]))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(registering(manager, watched=folder / "r", scan_seconds=0.05))
        stack.enter_context(plugin_processes(cpu))
        task = asyncio.create_task(agent.run())
        stack.callback(task.cancel)
        await asyncio.wait_for(agent.ready.wait(), 60)
        await until("plugin", lambda: (e := manager.endpoints.get("cpu")) and e.usable)
        yield PoolNode(agent, cpu, containerd.cgroup_parent)
        assert manager.allocations.pods == frozenset()
    await asyncio.wait([task])
    await manager.close()
    await runtime.close()
    cgroups.remove(f"{containerd.cgroup_parent}/kubepods")  # of pods, which the runtime leaves when these are gone


def ends() -> tuple[int, int]:
    """The first and the last CPU of this machine."""
    online = read_machine(Path("/sys")).online
    if len(online) < 2:
        pytest.skip("needs two CPUs")
    return min(online), max(online)


@pytest.mark.proves("qrm-pools")
async def test_a_pool_resize_moves_running_containers(folder: Path, containerd: Containerd) -> None:
    first, last = ends()
    config = f"""
pools:
  online: {{cpus: "{first}"}}
  offline: {{cpus: "{last}"}}
roles:
  web: {{pool: online}}
  etl: {{pool: offline}}
"""
    async with pool_node(folder, containerd, config) as node:
        for name, role in (("one", "web"), ("two", "etl")):
            node.agent.feed(fx.PodSet(runnable(name, role)))
        await until("both run", lambda: (node.cpuset("one"), node.cpuset("two")) == (str(first), str(last)))
        assert node.plugin.set_pool(f"online={last}-{last}", f"offline={first}-{first}").returncode == 0
        await until("both moved", lambda: (node.cpuset("one"), node.cpuset("two")) == (str(last), str(first)))
        await node.gone("one", "two")


async def used(cgroup: str, seconds: float) -> float:
    """How much of a CPU a container used while some seconds went by."""
    before, begun = int(cgroups.value(cgroup, "cpu.usage_ns")), time.monotonic()
    await asyncio.sleep(seconds)
    return (int(cgroups.value(cgroup, "cpu.usage_ns")) - before) / 1e9 / (time.monotonic() - begun)


@pytest.mark.proves("qrm-pools")
async def test_who_has_cores_of_its_own_uses_all_of_them_whatever_its_limit(
    folder: Path, containerd: Containerd
) -> None:
    """A tenth of a CPU is asked for and is the limit; a whole one is its own, and it may use all of that."""
    first, last = ends()
    config = f"""
pools:
  online: {{cpus: "{first}"}}
roles:
  web: {{pool: online}}
  storage: {{dedicated: true}}
"""
    amounts = {"cpu": "100m", "memory": "32Mi"}
    async with pool_node(folder, containerd, config, cgroup_fs=cgroups.CGROUPS) as node:
        cgroups.file(node.parent, "cpu.shares").write_text("10000")  # whatever else is done here meanwhile
        for name, role in (("own", "storage"), ("held", "web")):
            node.agent.feed(fx.PodSet(runnable(name, role, "yes >/dev/null", requests=amounts, limits=amounts)))
        await until("both run", lambda: (node.cpuset("own"), node.cpuset("held")) == (str(last), str(first)))
        own, held = node.cgroup("own"), node.cgroup("held")
        quotas = [cgroups.value(one, "cpu.quota") for one in (own, str(Path(own).parent), held, str(Path(held).parent))]
        assert quotas == ["-1", "-1", "10000", "10000"]

        async def is_free() -> bool:
            """A quota would let it have a tenth, however idle the machine is."""
            return await used(own, 2) > 0.2

        assert await used(held, 2) < 0.15, "who shares is held to its limit"
        await until("it uses more than its limit", is_free)
        await node.gone("own", "held")
