"""No task of the agent dies unnoticed: each is killed, starts again, is counted and told, and the node goes on."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubeqos import supervision
from kubeqos.clock import VirtualClock
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import FeatureGates
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.plugins import plugin_managers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.run import running_node
from kubeqos.supervision import Supervisor
from kubeqos.topology.alignment.hints import Policy

EVERYWHERE = {"pods", "events", "runtime events", "relist", "node status", "plugins' changes", "static pods"}
AROUND = {"housekeeping", "plugin watcher", "plugin publisher"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kq-") as name:  # a socket's path is short, a test's folder is not
        yield Path(name)


@contextlib.asynccontextmanager
async def node(folder: Path, events: list[tuple[str, str]], gate: str, policy: Policy) -> AsyncIterator[NodeAgent]:
    (folder / "static").mkdir()
    settings = NodeSettings(
        "n1",
        folder / "state",
        log_dir=folder / "logs",
        gates=FeatureGates.parse(f"{gate}=true"),
        topology_policy=policy,
        static_pod_dir=folder / "static",
    )
    hosting = Hosting(pods=LocalPods())
    told = NodeEvents(None, "n1", lambda reason, message: events.append((reason, message)))
    plugins = plugin_managers(settings, laptop8(), told)
    runtime = SimulatedRuntime(laptop8(), logs=False)
    parts = assemble(settings, runtime, laptop8(), hosting, plugins=plugins, events=told)
    async with running_node(parts) as (agent, _):
        running = asyncio.create_task(agent.run())
        await agent.ready.wait()
        try:
            yield agent
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("gate", "policy", "own"),
    [
        ("QoSResourceManager", Policy.BEST_EFFORT, {"reconcile qrm"}),
        ("CCIResourceManager", Policy.NONE, {"driver health", "driver removals"}),
    ],
)
async def test_every_task_of_the_agent_outlives_its_death(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gate: str, policy: Policy, own: set[str]
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.01)
    events: list[tuple[str, str]] = []
    async with node(folder, events, gate, policy) as agent:
        tasks = agent.supervisor.tasks
        for _ in range(1000):
            if tasks.keys() >= (EVERYWHERE | AROUND | own) - {"events"}:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # nobody keeps cgroups or writes events on this node: these tasks are done at once
        killed = dict(tasks)
        assert killed.keys() | {"events"} == EVERYWHERE | AROUND | own  # nobody writes events without an API server
        for task in killed.values():
            task.cancel()
        for _ in range(1000):
            if killed.keys() == {name for name, one in tasks.items() if one is not killed[name] and not one.done()}:
                break
            await asyncio.sleep(0.01)
        assert {name for name, task in tasks.items() if task is not killed[name] and not task.done()} == killed.keys()
        assert agent.supervisor.restarts == dict.fromkeys(killed, 1)
        told = [message for reason, message in events if reason == "NodeTaskFailed"]
        assert sorted(message.partition(" failed and starts again in ")[0] for message in told) == sorted(killed)


async def test_what_fails_again_and_again_waits_ever_longer() -> None:
    clock, told, runs = VirtualClock(), [], []

    async def work() -> None:
        runs.append(clock.now_ns())
        raise ValueError("no")

    supervisor = Supervisor(clock, lambda reason, message: told.append((reason, message)))
    task = asyncio.create_task(supervisor.keep("broken", work))
    for _ in range(3600):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await clock.advance(1.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 60 <= len(runs) <= 70  # once a minute in the end
    assert told[0] == ("NodeTaskFailed", "broken failed and starts again in 0.5 s: ValueError: no")
    assert told[-1][1].endswith("starts again in 60 s: ValueError: no")
    assert supervisor.restarts["broken"] == len(told)


async def test_what_is_done_is_not_started_again_and_what_is_cancelled_ends_with_its_keeper() -> None:
    supervisor, ended = Supervisor(), []

    async def short() -> None:
        ended.append("short")

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    await supervisor.keep("short", short)
    task = asyncio.create_task(supervisor.keep("endless", endless))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ended == ["short", "endless"] and not supervisor.restarts
