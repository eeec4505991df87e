"""QRM inside a whole node: resources and health in the Node object, told by kubectl's own API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.machines import kep80
from kubeqos.node.agent import NodeAgent
from kubeqos.node.extensions import REGISTRY, extensions
from kubeqos.node.settings import NodeSettings
from kubeqos.qrm.sdk import Allocation, Capacity, Options, Refuse, Request, running
from kubeqos.topology.hints import Policy
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import container, pod_of, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


@contextlib.asynccontextmanager
async def whole_node(server: LiveServer, folder: Path) -> AsyncIterator[tuple[NodeAgent, HttpApi]]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    machine = kep80()
    runtime = SimulatedRuntime(machine, logs=False)
    gates = FeatureGates.default().set({QRM: True})
    settings = NodeSettings(
        "n1", folder / "s", log_dir=folder / "logs", gates=gates, topology_policy=Policy.BEST_EFFORT
    )
    extra = extensions(settings, machine, api)
    agent = NodeAgent(settings, runtime, machine, api=api, managers=extra.managers)
    task = asyncio.create_task(agent.run())
    try:
        async with extra.running(agent):
            await asyncio.wait_for(agent.ready.wait(), 20)
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
        await until("sick", lambda: shown("ResourcePluginsReady", "False"))
        assert await shown("capacity", "40")


async def phase(api: HttpApi, name: str, wanted: str) -> bool:
    found = await api.get(PODS, name, "default")
    return (found.get("status") or {}).get("phase") == wanted
