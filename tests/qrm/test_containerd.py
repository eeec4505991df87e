"""Pools on a real machine: a resize reaches the cpuset of containers that run in a real containerd."""

from __future__ import annotations

import asyncio
import contextlib
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


def runnable(name: str, role: str) -> dict[str, Any]:
    raw = pod(name, role, cpu="100m")
    [container] = raw["spec"]["containers"]
    container |= {"image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}
    raw["spec"]["hostNetwork"] = True
    return raw


def remove_empty_groups(parent: str) -> None:
    """The groups of pods, which the runtime makes for their containers and leaves when these are gone."""
    cgroups.remove(f"{parent}/kubepods")


@pytest.mark.proves("qrm-pools")
async def test_a_pool_resize_moves_running_containers(folder: Path, containerd: Containerd) -> None:
    machine = read_machine(Path("/sys"), name="local")
    if len(machine.online) < 2:
        pytest.skip("needs two CPUs")
    first, last = min(machine.online), max(machine.online)
    config = f"""
pools:
  online: {{cpus: "{first}"}}
  offline: {{cpus: "{last}"}}
roles:
  web: {{pool: online}}
  etl: {{pool: offline}}
"""
    cpu = PluginProcess(folder, "cpu", machine, config)
    manager = QosResourceManager(QrmSettings(reconcile_seconds=0.2), machine)
    runtime = CriClient(containerd.endpoint)
    settings = NodeSettings(
        "n1",
        folder / "node",
        log_dir=folder / "logs",
        cgroup_root=containerd.cgroup_parent,
        gates=FeatureGates.default().set({QRM: True}),
        topology_policy=Policy.RESTRICTED,
    )
    agent = NodeAgent(assemble(settings, runtime, machine, managers=[manager]))

    def cpuset(name: str) -> str:
        """What the kernel has for the pod's container."""
        seen = agent.core.pods[f"uid-{name}"].seen.newest("container0")
        if seen is None or not seen.live:
            return ""
        group = next((one for one in cgroups.below(containerd.cgroup_parent) if one.name == seen.id), None)
        pids = (group / "cgroup.procs").read_text().split() if group else []
        return cgroups.of_process(int(pids[0]), "cpuset.cpus") if pids else ""

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(registering(manager, watched=folder / "r", scan_seconds=0.05))
        stack.enter_context(plugin_processes(cpu))
        task = asyncio.create_task(agent.run())
        stack.callback(task.cancel)
        await asyncio.wait_for(agent.ready.wait(), 60)
        await until("plugin", lambda: (e := manager.endpoints.get("cpu")) and e.usable)
        for name, role in (("one", "web"), ("two", "etl")):
            agent.feed(fx.PodSet(runnable(name, role)))
        await until("both run", lambda: (cpuset("one"), cpuset("two")) == (str(first), str(last)))

        assert cpu.set_pool(f"online={last}-{last}", f"offline={first}-{first}").returncode == 0
        await until("both moved", lambda: (cpuset("one"), cpuset("two")) == (str(last), str(first)))

        for name in ("one", "two"):
            agent.feed(fx.PodGone(f"uid-{name}"))
        await until("both gone", lambda: not agent.core.pods)
        assert manager.allocations.pods == frozenset()
    await asyncio.wait([task])
    await manager.close()
    await runtime.close()
    remove_empty_groups(containerd.cgroup_parent)
