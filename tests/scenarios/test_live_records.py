"""What is written down of a pod's life by those who really decide it: the taint controller and the node's agent.

A real API server, the controllers, the scheduler, and a node agent with a simulated runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kubeqos.client.api import PatchType
from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, POD_DECISIONS, PODS
from kubeqos.controllers.manager import ControllerManager
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model import decisions as d
from kubeqos.model.hardware.named import MACHINES
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import short_folder, until
from tests.qrm.test_node import scheduler


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("records")) as live:
        yield live


@contextlib.asynccontextmanager
async def cluster(server: LiveServer, name: str) -> AsyncIterator[HttpApi]:
    """One node of 8 CPUs, and everything around it."""
    api, machine = HttpApi.from_kubeconfig(server.kubeconfig), MACHINES["laptop8"]()
    runtime = SimulatedRuntime(machine, logs=False)
    with short_folder() as folder:
        settings = NodeSettings(name, folder / "s", log_dir=folder / "logs")
        agent = NodeAgent(assemble(settings, runtime, machine, Hosting(api), events=NodeEvents(api, name)))
        tasks = [asyncio.create_task(one) for one in (agent.run(), ControllerManager(api).run())]
        try:
            await asyncio.wait_for(agent.ready.wait(), 60)
            async with scheduler(api):
                yield api
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await api.delete(NODES, name)
            await runtime.close()
            await api.close()


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def runs(api: HttpApi, name: str) -> bool:
    return (await api.get(PODS, name, "default"))["status"].get("phase") == "Running"


async def told(api: HttpApi, name: str, kind: type[Any]) -> list[Any]:
    raw = await api.get(POD_DECISIONS, name, "default")
    return [one for one in d.PodDecisions.of(raw).decisions if isinstance(one, kind)]


async def test_whom_the_taint_controller_ends_is_told_which_taint(server: LiveServer) -> None:
    async with cluster(server, "tainted") as api:
        patient = {"key": "broken", "operator": "Exists", "effect": "NoExecute"}
        await api.create(PODS, pod("leaves", "1"), "default")
        await api.create(PODS, pod("stays", "1", tolerations=[patient]), "default")
        for name in ("leaves", "stays"):
            await until(f"{name} runs", lambda name=name: runs(api, name))
        taints = [{"key": "broken", "effect": "NoExecute"}, {"key": "shy", "effect": "NoSchedule"}]
        await api.patch(NODES, "tainted", {"spec": {"taints": taints}})

        async def written() -> bool:
            return bool(await told(api, "leaves", d.Disruption))

        await until("it is written down", written)
        (found,) = await told(api, "leaves", d.Disruption)
        assert (found.reason, found.taints, found.node) == ("DeletionByTaintManager", ("broken:NoExecute",), "tainted")
        assert found.by == "taint-eviction"
        assert await told(api, "stays", d.Disruption) == []
        await api.delete(PODS, "stays", "default", grace_seconds=0)


async def test_what_a_node_makes_of_a_resize_is_told_by_itself(server: LiveServer) -> None:
    async with cluster(server, "resizing") as api:
        await api.create(PODS, pod("grows", "1"), "default")
        await api.create(PODS, pod("other", "4"), "default")
        for name in ("grows", "other"):
            await until(f"{name} runs", lambda name=name: runs(api, name))

        async def resized(cpu: str, outcome: str) -> d.Resize:
            asked = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            await api.patch(PODS, "grows", asked, "default", type=PatchType.STRATEGIC, subresource="resize")

            async def last() -> bool:
                return (await told(api, "grows", d.Resize))[-1].outcome == outcome

            await until(f"{cpu} is {outcome}", last)
            found = await told(api, "grows", d.Resize)
            assert found[-2].outcome == "Asked" and found[-2].by == "apiserver"
            last_one: d.Resize = found[-1]
            return last_one

        given = await resized("2", "Given")
        assert (given.node, given.by) == ("resizing", "node resizing")
        later = await resized("6", "Deferred")
        assert "cpu" in later.message, later
        text = "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: "
        with pytest.raises(ApiError, match=text):  # which is for the server to say, so that no node is asked
            await resized("100", "Infeasible")
        assert (await told(api, "grows", d.Resize))[-1] == later
        for name in ("grows", "other"):
            await api.delete(PODS, name, "default", grace_seconds=0)
