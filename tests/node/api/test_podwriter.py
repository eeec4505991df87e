"""What the API server refuses for good is dropped and told; a pod that has to go is never held up by its status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.api import PatchType
from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.cri.client import CriClient
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.podwriter import PodWriter
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod.effects import Raw, Record
from tests.apiserver.live import LiveServer, live_server
from tests.cri.containerd import CGROUPS, Containerd
from tests.node.api.test_api_outage import running
from tests.node.pods import container
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, running_agent, until

ENDED = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z", "containerID": "containerd://c1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


class Written:
    """A writer on a live server, and the events that it tells."""

    def __init__(self, api: HttpApi) -> None:
        self.api = api
        self.told: list[Record] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.writer = PodWriter(api, self._spawn, self._tell)

    def _spawn(self, work: Any) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def _tell(self, _raw: Raw, told: Record) -> None:
        self.told.append(told)

    async def idle(self) -> None:
        async def quiet() -> bool:
            return self.writer.idle

        await until("everything is written", quiet)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def api_of(server: LiveServer) -> AsyncIterator[HttpApi]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    try:
        yield api
    finally:
        await api.close()


@contextlib.asynccontextmanager
async def writing(server: LiveServer) -> AsyncIterator[Written]:
    async with api_of(server) as api:
        written = Written(api)
        try:
            yield written
        finally:
            await written.stop()


def status(state: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    one = {
        "name": "main",
        "state": state,
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    return {"phase": phase, "containerStatuses": [one]}


WAITING = status({"waiting": {"reason": "ContainerCreating"}}, "Failed")


async def ended_pod(written: Written, name: str, phase: str = "Failed") -> Raw:
    """A pod that never runs again, and whose container has ended as the server knows."""
    raw = await written.api.create(PODS, bound(name, restartPolicy="Never"))
    written.writer.write(raw, status({"terminated": ENDED}, phase))
    await written.idle()
    return raw


async def test_a_status_that_is_refused_for_good_is_dropped_and_told(server: LiveServer) -> None:
    async with writing(server) as written:
        raw = await ended_pod(written, "refused")
        written.writer.write(raw, WAITING)
        await written.idle()
        assert written.writer.refused == 1
        told = written.told[0]
        assert (told.type, told.reason) == ("Warning", "PodStatusRefused")
        assert "may not be transitioned to non-terminated state" in told.message
        # The next one is not held against it.
        written.writer.write(raw, {**status({"terminated": ENDED}, "Failed"), "message": "later"})
        await written.idle()
        assert (await written.api.get(PODS, "refused", "default"))["status"]["message"] == "later"
        await written.api.delete(PODS, "refused", "default", grace_seconds=0)


READY = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_what_others_say_of_a_pod_is_corrected_once_its_node_is_well(server: LiveServer) -> None:
    """A node that was not heard of is back: the controller has marked its pods, and only their node knows better."""
    marked = {**READY, "status": "False", "reason": "NodeNotReady", "message": "its node is not ready"}

    async def shown(written: Written) -> Raw:
        raw = await written.api.get(PODS, "back", "default")
        written.writer.heard(raw)
        written.writer.insist()
        await written.idle()
        return (await written.api.get(PODS, "back", "default"))["status"]["conditions"]

    async with writing(server) as written:
        raw = await written.api.create(PODS, bound("back"))
        written.writer.write(raw, {"phase": "Running", "conditions": [READY]})
        await written.idle()
        assert [one["status"] for one in await shown(written)] == ["True"]
        assert written.writer.written == 1, "nobody said otherwise"
        written.writer.heard(raw)  # late, and from before we wrote
        written.writer.insist()
        assert written.writer.idle
        await written.api.patch(
            PODS,
            "back",
            {"status": {"conditions": [marked]}},
            "default",
            type=PatchType.STRATEGIC,
            subresource="status",
        )
        [condition] = await shown(written)
        assert (condition["status"], condition.get("reason"), condition.get("message")) == ("True", None, None)
        assert written.writer.written == 2
        await written.api.delete(PODS, "back", "default", grace_seconds=0)


async def test_a_delete_does_not_wait_behind_a_refused_status(server: LiveServer) -> None:
    async with writing(server) as written:
        raw = await ended_pod(written, "held", "Running")
        await written.api.delete(PODS, "held", "default")  # asks the node; the object stays until that says so
        assert await get_or_none(written.api, "held") is not None
        written.writer.write(raw, WAITING)
        written.writer.delete(raw)
        await written.idle()
        assert await get_or_none(written.api, "held") is None and written.writer.refused == 1


async def run_and_delete(agent: NodeAgent, api: HttpApi, one: dict[str, Any], **spec: Any) -> None:
    """Six pods that are deleted in the middle of their work; the API sees every one of them end and go."""
    names = [f"once-{index}" for index in range(6)]
    for name in names:
        await api.create(PODS, bound(name, one, restartPolicy="Never", **spec))

    async def running() -> bool:
        found = [await api.get(PODS, name, "default") for name in names]
        return all((one.get("status") or {}).get("phase") == "Running" for one in found)

    async def gone() -> bool:
        return not [name for name in names if await get_or_none(api, name) is not None]

    await until("all run", running)
    for name in names:
        await api.delete(PODS, name, "default", grace_seconds=1)
    await until("all are gone", gone)
    assert agent.writer is not None and agent.writer.refused == 0


async def test_a_pod_that_never_restarts_is_deleted_while_it_runs(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (agent, api):
        await run_and_delete(agent, api, container())


@pytest.mark.containerd
async def test_a_pod_that_never_restarts_is_deleted_on_containerd(
    server: LiveServer, containerd: Containerd, tmp_path: Path
) -> None:
    """Between a container and its sandbox containerd takes its time to remove: long enough to say something wrong."""
    root = {"cgroup_root": containerd.cgroup_parent, "cgroup_fs": CGROUPS}
    own = NodeSettings("n1", tmp_path / "state", log_dir=tmp_path / "logs", **root)
    async with CriClient(containerd.endpoint, relist_seconds=0.1) as client, api_of(server) as api:
        agent = NodeAgent(assemble(own, client, read_machine(Path("/sys"), name="n1"), Hosting(api)))
        async with running(agent):
            await run_and_delete(agent, api, busybox("main", SLEEP), hostNetwork=True)
        assert agent.cgroups is not None
        agent.cgroups.files.remove(f"{containerd.cgroup_parent}/kubepods")  # tiers outlive agents


@pytest.mark.parametrize(
    ("code", "for_good", "passing"),
    [(400, True, False), (403, False, False), (422, True, False), (429, False, True), (500, False, True)],
)
def test_which_refusals_are_for_good(code: int, for_good: bool, passing: bool) -> None:
    error = ApiError(code, "", "no")
    assert (error.for_good, error.is_passing) == (for_good, passing)


async def test_news_that_overtake_the_answer_to_a_write_are_not_forgotten() -> None:
    """A node that is not heard of is said to be ill while its own word is on its way: the answer comes last."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    ill = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    metadata = {"namespace": "default", "name": "p", "uid": "u"}
    patched, answered = asyncio.Queue[Any](), asyncio.Event()

    class Slow:
        async def patch(self, _resource: Any, _name: str, body: Any, _namespace: str, **_: Any) -> Any:
            patched.put_nowait(body["status"]["conditions"])
            await answered.wait()
            return {"metadata": {**metadata, "resourceVersion": "5"}, "status": ready}

    tasks: set[asyncio.Task[None]] = set()
    writer = PodWriter(Slow(), lambda work: tasks.add(asyncio.ensure_future(work)), lambda *_: None)  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        writer.write({"metadata": metadata}, ready)
        await patched.get()
        writer.heard({"metadata": {**metadata, "resourceVersion": "6"}, "status": ill})
        answered.set()
        await asyncio.gather(*tasks)
        writer.insist()
        assert (await patched.get())[0]["status"] == "True", "it says again that it is well"
