"""The API server is killed under a running node and comes back: nothing restarts, and everything catches up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.kubeconfig import load
from kubeqos.client.resources import EVENTS, LEASES, NODES, PODS
from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from tests.cri.containerd import CGROUPS, Containerd
from tests.node.pods import container
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until

Names = dict[str, str]


class ApiProcess:
    """`kubeqos apiserver` on one data directory; it can be killed and started again, here or elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, elsewhere: bool = False) -> HttpApi:
        """Serve on the port of the first start, or on another one that nobody else knows."""
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.unlink(missing_ok=True)
        port = 0 if elsewhere else self.port
        words = ["apiserver", "--data-dir", str(self.folder), "--port", str(port)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kubeqos.cli.main", *words, stdout=subprocess.DEVNULL
        )

        async def answers() -> Any:
            if not kubeconfig.exists():
                return None
            api = HttpApi.from_kubeconfig(kubeconfig)
            with contextlib.suppress(Unreachable):
                await api.list(NODES)
                return api
            await api.close()
            return None

        api: HttpApi = await until("the API server answers", answers)
        if not elsewhere:
            self.port = int(load(kubeconfig).cluster.server.rpartition(":")[2])
        return api

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


@contextlib.asynccontextmanager
async def api_process(folder: Path) -> AsyncIterator[ApiProcess]:
    process = ApiProcess(folder)
    try:
        yield process
    finally:
        await process.kill()


@contextlib.asynccontextmanager
async def running(agent: NodeAgent) -> AsyncIterator[None]:
    task = asyncio.create_task(agent.run())
    try:
        await asyncio.wait_for(agent.ready.wait(), 60)
        yield
        assert agent.validate() == []
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def containers(api: HttpApi, names: Iterable[str]) -> Names | None:
    """The container of every pod, once all of them run."""
    found = {}
    for name in names:
        status = (await get_or_none(api, name) or {}).get("status") or {}
        one = (status.get("containerStatuses") or [{}])[0]
        if status.get("phase") != "Running" or not one.get("ready"):
            return None
        found[name] = one["containerID"]
    return found


async def lease_time(api: HttpApi) -> str:
    try:
        return str((await api.get(LEASES, "n1", "kube-node-lease"))["spec"]["renewTime"])
    except ApiError:
        return ""


async def an_outage(server: ApiProcess, agent: NodeAgent, api: HttpApi, made: dict[str, Any], fall: Any) -> HttpApi:
    """Pods run, the server dies; while it is away one container ends, one pod is deleted, one removed, one added."""
    for name in ("calm", "faller", "leaver", "removed"):
        await api.create(PODS, bound(name, made["container"], **made["spec"]))
    before: Names = await until("all pods run", lambda: containers(api, ("calm", "faller", "leaver", "removed")))
    leased = await until("the lease is there", lambda: lease_time(api))
    await server.kill()
    await fall(before["faller"].rpartition("/")[2])

    async def restarted() -> bool:
        pod = next(one for one in agent.core.pods.values() if one.view.metadata.name == "faller")
        newest = pod.seen.newest("main")
        return newest is not None and newest.attempt == 1 and newest.live

    await until("the node restarts the container without its API server", restarted)
    # Behind the node's back: the same data, served where the node does not look.
    hidden = await server.start(elsewhere=True)
    await hidden.delete(PODS, "leaver", "default", grace_seconds=1)
    await hidden.delete(PODS, "removed", "default", grace_seconds=0)
    await hidden.create(PODS, bound("newcomer", made["container"], **made["spec"]))
    await hidden.close()
    await server.kill()
    assert sorted(pod.view.metadata.name for pod in agent.core.pods.values()) == [
        "calm", "faller", "leaver", "removed"
    ]  # fmt: skip
    back = await server.start()

    async def caught_up() -> Names | None:
        """What is to run runs, and the server knows of the container that was started while it was away."""
        found: Names | None = await containers(back, ("calm", "faller", "newcomer"))
        return found if found and found["faller"] != before["faller"] else None

    after: Names = await until("the server has caught up", caught_up)
    assert after["calm"] == before["calm"]

    async def counted() -> bool:
        statuses = [(await back.get(PODS, name, "default"))["status"] for name in ("calm", "faller", "newcomer")]
        return [one["containerStatuses"][0]["restartCount"] for one in statuses] == [0, 1, 0]

    await until("the statuses catch up", counted)

    async def gone() -> bool:
        left = {pod.view.metadata.name for pod in agent.core.pods.values()}
        return left == {"calm", "faller", "newcomer"} and await get_or_none(back, "leaver") is None

    await until("what was deleted meanwhile is torn down", gone)

    async def renewed() -> bool:
        return await lease_time(back) > leased

    await until("the lease is renewed", renewed)

    async def told() -> bool:
        events = [decode_json(one) for one in (await back.list(EVENTS, "default")).items]
        mine = [one for one in events if one["involvedObject"]["name"] == "faller" and one["reason"] == "Started"]
        return sum(one["count"] for one in mine) == 2

    await until("what happened meanwhile is told", told)
    return back


def settings(folder: Path, **more: Any) -> NodeSettings:
    return NodeSettings("n1", folder / "state", log_dir=folder / "logs", status_seconds=0.5, lease_seconds=2, **more)


async def test_a_simulated_node_outlives_its_api_server(tmp_path: Path) -> None:
    async with api_process(tmp_path / "api") as server:
        api = await server.start()
        runtime = SimulatedRuntime(laptop8(), logs=False)
        agent = NodeAgent(assemble(settings(tmp_path), runtime, laptop8(), Hosting(api)))
        made = {"container": container(), "spec": {"annotations": {"simulate.kubeqos.io/stop": "after=0s code=0"}}}

        async def fall(identity: str) -> None:
            await runtime.stop_container(identity, grace_seconds=0)

        async with running(agent):
            back = await an_outage(server, agent, api, made, fall)
            live = [one for one in await runtime.list_containers() if one.state == 1]
            assert len(live) == 3
            await back.close()
        await api.close()
        await runtime.close()


@pytest.mark.containerd
async def test_a_node_on_containerd_outlives_its_api_server(containerd: Containerd, tmp_path: Path) -> None:
    async with api_process(tmp_path / "api") as server, CriClient(containerd.endpoint, relist_seconds=0.1) as runtime:
        api = await server.start()
        own = settings(tmp_path, cgroup_root=containerd.cgroup_parent, cgroup_fs=CGROUPS)
        agent = NodeAgent(assemble(own, runtime, read_machine(Path("/sys"), name="n1"), Hosting(api)))
        made = {"container": busybox("main", SLEEP), "spec": {"hostNetwork": True}}

        async def fall(identity: str) -> None:
            await runtime.stop_container(identity, grace_seconds=0)

        async with running(agent):
            back = await an_outage(server, agent, api, made, fall)
            await _remove_all(back, runtime)
            await back.close()
        await api.close()
        assert agent.cgroups is not None
        agent.cgroups.files.remove(f"{containerd.cgroup_parent}/kubepods")


async def _remove_all(api: HttpApi, runtime: Runtime) -> None:
    for name in ("calm", "faller", "newcomer"):
        await api.delete(PODS, name, "default", grace_seconds=1)

    async def empty() -> bool:
        return not await runtime.list_pod_sandboxes()

    await until("nothing is left in the runtime", empty)
