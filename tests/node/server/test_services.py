"""A node under memory pressure, end to end: API server, controllers, agent and simulated runtime."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, NODES, PODS, REPLICATION_CONTROLLERS
from kubeqos.codec import decode_json
from kubeqos.controllers.manager import ControllerManager
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.node.run import NodeServices, serve_node
from kubeqos.node.server.podresources import SERVICE
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins.sockets import call, dial
from kubeqos.rules.qos.eviction import thresholds
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import container, pod, resources
from tests.node.test_live import until

LOAD = "simulate.kubeqos.io/load"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api") as live:
        yield live


@contextlib.asynccontextmanager
async def node(
    server: LiveServer,
    folder: Path,
    services: ServiceSettings,
    pressure: PressureSettings | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[NodeAgent, NodeServices, HttpApi]]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    runtime = SimulatedRuntime(laptop8(), logs=False)
    own = NodeSettings("n1", folder / "state", log_dir=folder / "logs", **settings)
    agent = NodeAgent(assemble(own, runtime, laptop8(), Hosting(api), pressure=pressure, services=services))
    controllers = ControllerManager(api)
    async with serve_node(agent) as running:
        tasks = [asyncio.create_task(agent.run()), asyncio.create_task(controllers.run())]
        try:
            await asyncio.wait_for(agent.ready.wait(), 60)
            yield agent, running, api
            assert agent.validate() == [] and running.housekeeper.pressure.validate() == []
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runtime.close()
            await api.close()


def unnamed(made: dict[str, Any]) -> dict[str, Any]:
    for key in ("uid", "generation"):
        made["metadata"].pop(key, None)
    return made


async def test_pressure_evicts_in_the_documented_order_and_the_controller_replaces_the_pod(
    server: LiveServer, tmp_path: Path
) -> None:
    """16 GiB: a BestEffort hog, a Burstable one over its request, and Guaranteed pods within theirs."""
    pressure = PressureSettings(thresholds({"memory.available": "4Gi"}), transition_seconds=1.0)
    settings = ServiceSettings(housekeeping_seconds=0.1)
    async with node(server, tmp_path, settings, pressure) as (_agent, running, api):
        await api.create(
            PODS,
            unnamed(
                pod("sure", container(resources=resources(cpu="1", memory="4Gi")), annotations={LOAD: "memory=3900Mi"})
            ),
        )
        burst = container(resources={"requests": {"memory": "1Gi"}})
        await api.create(PODS, unnamed(pod("burst", burst, annotations={LOAD: "memory=2Gi"})))
        template = unnamed(pod("x", annotations={LOAD: "memory=4Gi"}))
        template["metadata"] |= {"labels": {"app": "hog"}}
        template["metadata"].pop("name")
        await api.create(REPLICATION_CONTROLLERS, {
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "hog", "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"app": "hog"}, "template": template},
        })  # fmt: skip

        async def hogs() -> list[dict[str, Any]]:
            found = await api.list(PODS, "default")
            pods = [decode_json(one) for one in found.items]
            return [one for one in pods if one["metadata"]["name"].startswith("hog-")]

        # 3.9 + 2 + 4 GiB leave 6.1: nobody goes. Then the hog grows (a second pod) and someone has to.
        await until("hog runs", lambda: _phase(api, hogs, "Running"))
        [hog] = await hogs()

        async def evicted() -> Any:
            """The hog that ran; its replacement is refused by the pressure, for the same reason."""
            found = await api.get(PODS, hog["metadata"]["name"], "default")
            return found if found["status"].get("reason") == "Evicted" else None

        assert await evicted() is None
        await api.create(PODS, unnamed(pod("more", burst, annotations={LOAD: "memory=3Gi"})))
        first = await until("the BestEffort pod is evicted", evicted)
        status = first["status"]
        assert status["phase"] == "Failed"
        assert status["message"].startswith(
            "The node was low on resource: memory. Threshold quantity: 4Gi, available: "
        )
        assert "Container main was using 4Gi, request is 0, has larger consumption of memory. " in status["message"]
        (target,) = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
        assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")

        async def replaced() -> bool:
            return len(await hogs()) >= 2

        await until("the controller makes another", replaced)
        for name in ("sure", "burst", "more"):
            await runs_on(api, name)
        told = await until("an event tells it", lambda: _event(api, "Evicted", first["metadata"]["uid"]))
        assert told["message"] == status["message"] and told["type"] == "Warning"
        assert told["metadata"]["annotations"] == {
            "starved_resource": "memory",
            "offending_containers": "main",
            "offending_containers_usage": "4Gi",
        }
        assert running.housekeeper.pressure.evictions["memory.available"] >= 1


async def runs_on(api: HttpApi, name: str) -> None:
    """Its status may still be on its way, but it never becomes that of an evicted pod."""

    async def running() -> bool:
        phase = (await api.get(PODS, name, "default"))["status"]["phase"]
        assert phase in ("Pending", "Running")
        return bool(phase == "Running")

    await until(f"{name} runs on", running)


async def _event(api: HttpApi, reason: str, uid: str) -> Any:
    events = [decode_json(one) for one in (await api.list(EVENTS, "default")).items]
    return next((e for e in events if e["reason"] == reason and e["involvedObject"].get("uid") == uid), None)


async def _phase(api: HttpApi, pods: Any, phase: str) -> bool:
    found = await pods()
    return bool(found) and all((one.get("status") or {}).get("phase") == phase for one in found)


async def test_a_short_node_says_so_and_refuses_best_effort_pods(server: LiveServer, tmp_path: Path) -> None:
    pressure = PressureSettings(thresholds({"memory.available": "8Gi"}), transition_seconds=60.0)
    settings = ServiceSettings(housekeeping_seconds=0.1)
    async with node(server, tmp_path, settings, pressure, status_seconds=0.2) as (_agent, _running, api):
        big = container(resources=resources(cpu="1", memory="10Gi"))
        await api.create(PODS, unnamed(pod("big", big, annotations={LOAD: "memory=9Gi"})))

        async def pressed() -> Any:
            found = await api.get(NODES, "n1")
            conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()}
            one = conditions.get("MemoryPressure", {})
            return one if one.get("status") == "True" else None

        found = await until("MemoryPressure", pressed)
        assert found["reason"] == "KubeletHasInsufficientMemory"

        async def tainted() -> bool:
            taints = ((await api.get(NODES, "n1")).get("spec") or {}).get("taints") or ()
            return any(one["key"] == "node.kubernetes.io/memory-pressure" for one in taints)

        await until("the node is tainted", tainted)
        await api.create(PODS, unnamed(pod("late")))

        async def refused() -> Any:
            status = (await api.get(PODS, "late", "default")).get("status") or {}
            return status if status.get("phase") == "Failed" else None

        status = await until("the BestEffort pod is refused", refused)
        assert (status["reason"], status["message"]) == (
            "Evicted",
            "Pod was rejected: The node had condition: [MemoryPressure]. ",
        )
        await runs_on(api, "big")


async def test_the_pod_resources_socket_shows_exclusive_cpus(server: LiveServer, tmp_path: Path) -> None:
    from kubeqos.model.cpuset import CpuSet

    settings = ServiceSettings(pod_resources_socket=tmp_path / "pr" / "kubelet.sock")
    own = {"cpu_manager_policy": "static", "reserved_cpus": CpuSet.parse("0")}
    async with node(server, tmp_path, settings, **own) as (_agent, _running, api):
        await api.create(PODS, unnamed(pod("pinned", container(resources=resources(cpu="2", memory="1Gi")))))

        async def runs() -> bool:
            return ((await api.get(PODS, "pinned", "default")).get("status") or {}).get("phase") == "Running"

        await until("pod runs", runs)
        async with dial(tmp_path / "pr" / "kubelet.sock") as channel:
            path, request = f"/{SERVICE}/List", pb.ListPodResourcesRequest()
            answer = await call(channel, path, request, pb.ListPodResourcesResponse, seconds=5)
            (found,) = answer.pod_resources
            assert len(found.containers[0].cpu_ids) == 2 and 0 not in found.containers[0].cpu_ids
            path, wanted = f"/{SERVICE}/GetAllocatableResources", pb.AllocatableResourcesRequest()
            node_wide = await call(channel, path, wanted, pb.AllocatableResourcesResponse, seconds=5)
            assert list(node_wide.cpu_ids) == [1, 2, 3, 4, 5, 6, 7]
