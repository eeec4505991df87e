"""Pods and the pools of a node: what the plugin would refuse is not sent there, in a whole cluster.

A real API server, the controllers, the scheduler, a node agent with a simulated runtime, and plugins behind sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import DEPLOYMENTS, NODES, PODS
from kubeqos.codec import decode_json
from kubeqos.controllers.manager import ControllerManager
from kubeqos.model.annotations.topologysummary import decode_topology
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.model.hardware.named import kep80
from kubeqos.plugins import REGISTRY
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.sdk import Allocation, Capacity, Options, Refuse, Request, running
from kubeqos.qrm.settings import QrmSettings
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import short_folder, until
from tests.qrm.test_node import scheduler, whole_node

POOLS = "pools: {online: {size: 16}, offline: {size: 4}}\nroles: {web: {pool: online}}"
IN_POOL = 'Insufficient cpu in pool "shared"'
LATELY = "node(s) refused equal pods lately (UnexpectedAdmissionError)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as live:
        yield live


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


@contextlib.asynccontextmanager
async def cluster(server: LiveServer, folder: Path, plugin: Any) -> AsyncIterator[HttpApi]:
    """One node with one plugin, and everything around it."""
    settings = QrmSettings(reconcile_seconds=0.5, expected=frozenset({plugin.resource}))
    async with whole_node(server, folder, settings) as (_, api), running(plugin, Options(folder / "s" / REGISTRY)):
        controllers = asyncio.create_task(ControllerManager(api).run())
        try:
            async with scheduler(api):
                yield api
        finally:
            controllers.cancel()
            await asyncio.gather(controllers, return_exceptions=True)


def deployment(replicas: int, marks: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    amounts = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    resources = {"requests": amounts, "limits": {name: each for name, each in amounts.items() if "/" in name}}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": marks or {}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


async def fates(api: HttpApi) -> Counter[str]:
    """Pods by phase; pods without a node by the first reason that concerns this test."""
    found: Counter[str] = Counter()
    for one in (await api.list(PODS, "default")).items:
        raw = decode_json(one)
        status = raw.get("status") or {}
        message = " ".join(each.get("message", "") for each in status.get("conditions") or ())
        waits = next((text for text in (IN_POOL, LATELY) if text in message), "Pending")
        found[waits if not raw["spec"].get("nodeName") else status.get("phase", "")] += 1
    return found


async def test_a_deployment_beyond_its_pool_waits_and_nothing_is_rejected(server: LiveServer, folder: Path) -> None:
    """60 replicas of 2 CPUs, of which the pool for pods without a role holds 30; the node itself would hold 40."""
    plugin = CpuPlugin(kep80(), read_config(POOLS, CpuConfig, "cpu.yaml"))
    async with cluster(server, folder, plugin) as api:

        async def told() -> bool:
            text = (await api.get(NODES, "n1"))["metadata"].get("annotations", {}).get(TOPOLOGY_ANNOTATION, "{}")
            return "cpu" in decode_topology(text).pools

        await until("the pools are told", told)
        await api.create(DEPLOYMENTS, deployment(60, cpu="2"), "default")

        async def settled(running_pods: int) -> bool:
            return await fates(api) == {"Running": running_pods, IN_POOL: 60 - running_pods}

        await until("30 run", lambda: settled(30))
        plugin.resize({"online": 8})
        await until("4 more run in the 8 CPUs that the pool got", lambda: settled(34))
        await asyncio.sleep(1.0)
        assert await settled(34)
        assert plugin.state.requested("shared") == 68.0


class Miser:
    """A plugin of another maker: says how much there is, and gives none of it."""

    resource = "example.com/slots"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.generous = False

    def allocate(self, request: Request) -> Allocation:
        self.asked.append(request.pod)
        if self.generous:
            return Allocation(quantity=request.quantity, scalar=True, node=True)
        raise Refuse("mine")

    def capacity(self) -> Capacity:
        return Capacity(1000, node=True)


async def test_a_plugin_that_always_refuses_is_not_asked_for_ever(server: LiveServer, folder: Path) -> None:
    plugin = Miser()
    async with cluster(server, folder, plugin) as api:

        async def counted() -> bool:
            status = (await api.get(NODES, "n1")).get("status") or {}
            return plugin.resource in (status.get("allocatable") or {})

        await until("capacity is told", counted)
        await api.create(DEPLOYMENTS, deployment(20, example_com__slots="1"), "default")

        async def all_wait() -> bool:
            return (await fates(api))[LATELY] == 20

        await until("all 20 wait for the node to change its mind", all_wait)
        asked = len(set(plugin.asked))
        assert asked <= 40  # those that were on their way before the first refusal was known, and no more
        plugin.generous = True

        async def all_run() -> bool:
            return (await fates(api))["Running"] == 20

        await until("one is let in, and then all", all_run)
        assert len(set(plugin.asked)) <= asked + 21
