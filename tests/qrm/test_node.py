"""QRM inside a whole node: resources and health in the Node object, told by kubectl's own API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, NODES, PODS
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.hardware.named import kep80
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.plugins import plugin_managers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.run import running_plugins
from kubeqos.plugins import REGISTRY
from kubeqos.qrm.sdk import Allocation, Capacity, Options, Refuse, Request, running
from kubeqos.qrm.settings import QrmSettings
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from kubeqos.topology.alignment.hints import Policy
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import container, pod_of, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as live:
        yield live


@contextlib.asynccontextmanager
async def whole_node(
    server: LiveServer, folder: Path, qrm: QrmSettings | None = None, **more: Any
) -> AsyncIterator[tuple[NodeAgent, HttpApi]]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    machine = kep80()
    runtime = SimulatedRuntime(machine, logs=False)
    gates = FeatureGates.default().set({QRM: True})
    settings = NodeSettings(
        "n1", folder / "s", log_dir=folder / "logs", gates=gates, topology_policy=Policy.BEST_EFFORT, **more
    )
    events = NodeEvents(api, "n1")
    plugins = plugin_managers(settings, machine, events, qrm=qrm)
    agent = NodeAgent(assemble(settings, runtime, machine, Hosting(api), events=events, plugins=plugins))
    task = asyncio.create_task(agent.run())
    try:
        async with running_plugins(agent):
            await asyncio.wait_for(agent.ready.wait(), 60)
            yield agent, api
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runtime.close()
        await api.close()


class Bandwidth:
    resource = "example.com/bandwidth"

    def allocate(self, request: Request) -> Allocation:
        if request.quantity > 10:
            raise Refuse("10 is all there is")
        return Allocation(
            quantity=request.quantity, scalar=True, node=True, envs={"BANDWIDTH": f"{request.quantity:g}"}
        )

    def capacity(self) -> Capacity:
        return Capacity(40, 38, node=True)


def asking(name: str, amount: str) -> dict[str, Any]:
    limits = {"example.com/bandwidth": amount}
    raw = pod_of(name, [container("main") | {"resources": {"requests": limits, "limits": limits}}])
    for key in ("uid", "generation"):
        del raw["metadata"][key]
    return raw


async def test_the_node_tells_at_once_who_came_and_who_went(server: LiveServer, folder: Path) -> None:
    """Nobody waits for the next status, which is a day away."""

    async with whole_node(server, folder, status_seconds=86_400.0) as (_, api):

        async def condition() -> str:
            told = (await api.get(NODES, "n1")).get("status", {}).get("conditions", [])
            return next((one["message"] for one in told if one["type"] == "ResourcePluginsReady"), "")

        async def allocatable() -> bool:
            return "example.com/bandwidth" in (await api.get(NODES, "n1"))["status"]["allocatable"]

        async def says(words: str) -> bool:
            return words in await condition()

        async with running(Bandwidth(), Options(folder / "s" / REGISTRY)):
            await until("it is told", lambda: says("plugins answer: example.com/bandwidth"))
            assert await allocatable()
        await until("it is told again", lambda: says("plugin example.com/bandwidth is not connected"))


async def test_a_plugins_resource_and_health_are_in_the_node_object(server: LiveServer, folder: Path) -> None:
    async with whole_node(server, folder) as (_, api):

        async def shown(key: str, wanted: Any) -> Any:
            try:
                status = (await api.get(NODES, "n1")).get("status") or {}
            except ApiError as error:
                if not error.not_found:
                    raise
                return False
            facts = {
                "capacity": (status.get("capacity") or {}).get("example.com/bandwidth"),
                "allocatable": (status.get("allocatable") or {}).get("example.com/bandwidth"),
                **{one["type"]: one["status"] for one in status.get("conditions") or ()},
            }
            return facts.get(key) == wanted

        async with running(Bandwidth(), Options(folder / "s" / REGISTRY)):
            await until("capacity", lambda: shown("capacity", "40"))
            await until("allocatable", lambda: shown("allocatable", "38"))
            await until("healthy", lambda: shown("ResourcePluginsReady", "True"))

            await api.create(PODS, asking("fits", "8"))
            await until("runs", lambda: phase(api, "fits", "Running"))
            await api.create(PODS, asking("greedy", "20"))
            await until("refused", lambda: phase(api, "greedy", "Failed"))
            status = (await api.get(PODS, "greedy", "default"))["status"]
            assert "10 is all there is" in status["message"]

            async def told() -> bool:
                events = [json.loads(one) for one in (await api.list(EVENTS, "default")).items]
                return any(
                    one["involvedObject"]["name"] == "greedy"
                    and one["reason"] == "UnexpectedAdmissionError"
                    and "10 is all there is" in one["message"]
                    for one in events
                )

            await until("an event", told)
        await until("sick", lambda: shown("ResourcePluginsReady", "False"))
        assert await shown("capacity", "40")


async def phase(api: HttpApi, name: str, wanted: str) -> bool:
    found = await api.get(PODS, name, "default")
    return (found.get("status") or {}).get("phase") == wanted


class Plenty(Bandwidth):
    left = True

    def capacity(self) -> Any:
        return super().capacity() if self.left else {}

    def allocate(self, request: Request) -> Allocation:
        return Allocation(quantity=request.quantity, scalar=True, node=True)


@contextlib.asynccontextmanager
async def scheduler(api: HttpApi) -> AsyncIterator[None]:
    service = SchedulerService(api, Scheduler())
    task = asyncio.create_task(service.run())
    try:
        await asyncio.wait_for(service.ready.wait(), 60)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def unbound(name: str, amount: str) -> dict[str, Any]:
    raw = asking(name, amount)
    del raw["spec"]["nodeName"]
    return raw


def described(server: LiveServer) -> str:
    command = [sys.executable, "-m", "kubeqos.cli.main", "describe", "node", "n1"]
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


async def test_what_a_plugin_has_is_counted_and_comes_and_goes(server: LiveServer, folder: Path) -> None:
    """GetCapacity → Node status → scheduler and the node's own admission; 0 after the grace, back with the plugin."""
    resource, options = Bandwidth.resource, Options(folder / "s" / REGISTRY)
    async with (
        whole_node(server, folder, QrmSettings(stop_grace_seconds=1.0, capacity_seconds=0.1)) as (agent, api),
        scheduler(api),
    ):
        await until("the node", lambda: _node(api))
        await api.patch(NODES, "n1", {"spec": {"taints": None}})

        async def has(amount: str | None) -> bool:
            status = (await api.get(NODES, "n1")).get("status") or {}
            return bool((status.get("capacity") or {}).get(resource) == amount)

        async def waits(name: str) -> bool:
            conditions = ((await api.get(PODS, name, "default")).get("status") or {}).get("conditions") or ()
            return any(f"Insufficient {resource}" in one.get("message", "") for one in conditions)

        async with running(Plenty(), options):
            await until("capacity", lambda: has("40"))
            await api.create(PODS, unbound("large", "30"))
            await until("runs", lambda: phase(api, "large", "Running"))
            await api.create(PODS, unbound("more", "9"))
            await until("does not fit", lambda: waits("more"))
            await api.create(PODS, asking("pushed", "9"))  # bound by hand, past the scheduler
            await until("refused", lambda: phase(api, "pushed", "Failed"))
            status = (await api.get(PODS, "pushed", "default"))["status"]
            assert status["reason"] == f"OutOf{resource}"
            assert "requested: 9, used: 30, capacity: 38" in status["message"]
            text = await asyncio.to_thread(described, server)
            assert re.search(r"ResourcePluginsReady\s+True\s+ResourcePluginsReady\s+plugins answer: ", text)
            assert re.search(rf"{resource}\s+40\s+38\s+3\d\n", text)
            assert f'kubeqos_qrm_plugin_up{{plugin="{resource}"}} 1.0' in _metrics(agent)
        await until("nothing", lambda: has("0"))
        assert await phase(api, "large", "Running")
        text = await asyncio.to_thread(described, server)
        assert re.search(rf"ResourcePluginsReady\s+False\s.*plugin {resource} is not connected", text)
        assert f'kubeqos_qrm_plugin_up{{plugin="{resource}"}} 0.0' in _metrics(agent)
        await api.create(PODS, unbound("small", "2"))
        await until("does not fit", lambda: waits("small"))
        back = Plenty()
        async with running(back, options):
            await until("capacity", lambda: has("40"))
            await until("runs", lambda: phase(api, "small", "Running"))
            back.left = False
            await until("it is not listed any more", lambda: has(None))


async def _node(api: HttpApi) -> bool:
    try:
        return bool((await api.get(NODES, "n1")).get("status"))
    except ApiError as error:
        if not error.not_found:
            raise
        return False


def _metrics(agent: NodeAgent) -> str:
    [manager] = [one for one in agent.managers if one.name == "qrm"]
    return generate_latest(manager.metrics.registry).decode()  # type: ignore[attr-defined]
