"""A whole node on a real API server: pods are created by a client, run in the simulated runtime, and go away."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import LEASES, NODES, PODS
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.machines import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.settings import NodeSettings
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import container, pod


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


@contextlib.asynccontextmanager
async def running_agent(server: LiveServer, folder: Path, **settings: Any) -> AsyncIterator[tuple[NodeAgent, HttpApi]]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    runtime = SimulatedRuntime(laptop8(), logs=False)
    agent = NodeAgent(
        NodeSettings("n1", folder / "state", log_dir=folder / "logs", **settings), runtime, laptop8(), api=api
    )
    task = asyncio.create_task(agent.run())
    try:
        await asyncio.wait_for(agent.ready.wait(), 20)
        yield agent, api
        assert agent.validate() == []
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runtime.close()
        await api.close()


async def until(what: str, question: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        answer = await question()
        if answer:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


async def get_or_none(api: HttpApi, name: str) -> Any:
    from kubeqos.client.errors import ApiError

    try:
        return await api.get(PODS, name, "default")
    except ApiError as error:
        if error.not_found:
            return None
        raise


def bound(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = pod(name, *containers, **spec)
    for key in ("uid", "generation"):
        del made["metadata"][key]
    return made


async def test_a_pod_runs_and_is_deleted_gracefully(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):
        await api.create(PODS, bound("web", container(), container("side")))

        async def running() -> Any:
            found = await api.get(PODS, "web", "default")
            return found if (found.get("status") or {}).get("phase") == "Running" else None

        found = (await until("pod runs", running))["status"]
        ready = {one["type"]: one["status"] for one in found["conditions"]}
        assert ready == {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
            "PodScheduled": "True",
        }
        assert found["podIP"].startswith("10.88.") and found["hostIP"] == "127.0.0.1"
        assert [one["ready"] for one in found["containerStatuses"]] == [True, True]
        kubectl = ["kubectl", "--kubeconfig", server.kubeconfig, "get", "pod", "web", "--no-headers"]
        listed = await asyncio.to_thread(subprocess.run, kubectl, capture_output=True, text=True, check=True)
        assert listed.stdout.split()[:4] == ["web", "2/2", "Running", "0"]

        await api.delete(PODS, "web", "default")

        async def gone() -> bool:
            return await get_or_none(api, "web") is None

        await until("pod is gone", gone)


async def test_the_node_registers_itself_and_keeps_a_lease(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):

        async def registered() -> Any:
            node = await api.get(NODES, "n1")
            return node if (node.get("status") or {}).get("allocatable") else None

        node = await until("node registers", registered)
        assert node["status"]["capacity"]["cpu"] == "8"
        assert node["status"]["capacity"]["memory"] == "16Gi"
        assert node["status"]["allocatable"]["memory"] == "16284Mi"
        ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
        lease = await api.get(LEASES, "n1", "kube-node-lease")
        assert lease["spec"]["holderIdentity"] == "n1"
