"""A driver that hangs, a container that cannot be told or does not start: who needs it waits, everybody else goes on.

Nothing is measured: deadlines are endless, so whoever waited at all would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.drivers import Deadlines
from kubeqos.cci.manager import CciSettings
from kubeqos.cci.sdk import Ask, End, Start
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.updates import updater
from tests.cci.test_agent import AgentNode, agent_node, claiming
from tests.cci.world import cpus, exclusive

ENDLESS = 600.0
SLOW, PROMPT = "slow.example.com", "prompt.example.com"


class Hanging(Reference):
    """Hangs in one of its calls until it is freed."""

    def __init__(self, where: str) -> None:
        super().__init__(laptop8(), SLOW)
        self.where = where
        self.entered, self.freed = asyncio.Event(), asyncio.Event()

    async def _stop(self, where: str) -> None:
        if where == self.where and not self.freed.is_set():
            self.entered.set()
            await self.freed.wait()

    async def admit(self, ask: Ask) -> Any:  # type: ignore[override]
        found = super().admit(ask)
        await self._stop("admit")
        return found

    async def add(self, _start: Start) -> None:
        await self._stop("add")

    async def remove(self, _end: End) -> None:
        await self._stop("remove")


@contextlib.asynccontextmanager
async def two_drivers(slow: Hanging) -> AsyncIterator[AgentNode]:
    settings = CciSettings(several_drivers=True, deadlines=Deadlines(call=ENDLESS))
    machine = laptop8()
    runtime, prompt = SimulatedRuntime(machine, logs=False), Reference(machine, PROMPT)
    async with agent_node(machine, runtime, drivers=(slow, prompt), cci=settings) as node:
        yield node
        slow.freed.set()


async def others_go_on(node: AgentNode, slow: Hanging) -> None:
    """Pods without a claim and with one of the other driver come, run and go."""
    node.pods.set(claiming("other", exclusive(1), PROMPT))
    await node.until("other runs", lambda: len(node.cpus("other") or ()) == 1)
    node.pods.set(claiming("bare"))
    await node.until("bare runs", lambda: node.cpus("bare") is not None)
    for name in ("other", "bare"):
        node.pods.end(f"uid-{name}", node.agent.now(), 0)
        await node.until(f"{name} is gone", lambda name=name: f"uid-{name}" not in node.pods.pods)  # type: ignore[misc]
    assert slow.entered.is_set() and not slow.freed.is_set()
    assert node.agent.validate() == []


@pytest.mark.parametrize("where", ["admit", "add"])
async def test_pods_start_while_a_driver_hangs(where: str) -> None:
    slow = Hanging(where)
    async with two_drivers(slow) as node:
        node.pods.set(claiming("web"))
        await node.until("web runs", lambda: node.cpus("web") is not None)
        node.pods.set(claiming("stuck", exclusive(2), SLOW))
        await slow.entered.wait()
        await others_go_on(node, slow)
        assert node.cpus("stuck") is None
        slow.freed.set()
        await node.until("stuck runs", lambda: len(node.cpus("stuck") or ()) == 2)
        await node.until("web made room", lambda: node.cpus("web") == cpus("0-7") - (node.cpus("stuck") or cpus("")))


async def test_pods_come_and_go_while_a_driver_hangs_in_a_removal() -> None:
    slow = Hanging("remove")
    async with two_drivers(slow) as node:
        node.pods.set(claiming("first", exclusive(2), SLOW))
        await node.until("first runs", lambda: node.cpus("first") is not None)
        node.pods.end("uid-first", node.agent.now(), 0)
        await slow.entered.wait()
        await others_go_on(node, slow)
        assert len(node.manager.store.available_resources()) == 6, "its cores are held until it has heard"
        slow.freed.set()
        await node.until("first is gone", lambda: "uid-first" not in node.pods.pods)
        await node.until("all is free", lambda: node.manager.store.available_resources() == cpus("0-7"))


async def test_cores_that_another_driver_gave_away_meanwhile_are_not_given_twice() -> None:
    """The slow driver chose its cores before the other one gave the same to somebody else; it is asked again."""
    slow = Hanging("admit")
    async with two_drivers(slow) as node:
        node.pods.set(claiming("stuck", exclusive(2), SLOW))
        await slow.entered.wait()
        node.pods.set(claiming("other", exclusive(3), PROMPT))
        await node.until("other runs", lambda: len(node.cpus("other") or ()) == 3)
        slow.freed.set()
        await node.until("stuck runs", lambda: len(node.cpus("stuck") or ()) == 2)
        mine, theirs = node.cpus("stuck"), node.cpus("other")
        assert mine is not None and theirs is not None and not mine & theirs
        assert node.agent.validate() == []


# ---- Containers


class StuckRuntime(SimulatedRuntime):
    """Hangs in one call for the containers of one pod until it is freed; what comes during a start is lost."""

    def __init__(self, where: str, pod: str) -> None:
        super().__init__(laptop8(), logs=False)
        self.where, self.pod = where, pod
        self.entered, self.freed = asyncio.Event(), asyncio.Event()

    def _is_its(self, container_id: str) -> bool:
        container = self.core.containers[container_id]
        return self.core.sandboxes[container.sandbox_id].config.metadata.name == self.pod

    async def _stop(self, where: str, container_id: str) -> None:
        if where == self.where and self._is_its(container_id) and not self.freed.is_set():
            self.entered.set()
            await self.freed.wait()

    async def start_container(self, container_id: str) -> None:
        await super().start_container(container_id)
        container = self.core.containers[container_id]
        known = type(container.resources)()
        known.CopyFrom(container.resources)
        await self._stop("start", container_id)
        container.resources.CopyFrom(known)

    async def update_container_resources(self, request: cri.UpdateContainerResourcesRequest) -> None:
        await self._stop("update", request.container_id)
        await super().update_container_resources(request)


@pytest.mark.parametrize("where", ["start", "update"])
async def test_only_the_new_owner_waits_for_a_container_that_cannot_be_told(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`web` hangs as it starts, or as it is narrowed: the owner of its cores waits, and everybody else starts."""
    monkeypatch.setattr(updater, "ROOM_SECONDS", ENDLESS)
    runtime = StuckRuntime(where, "web")
    async with agent_node(laptop8(), runtime) as node:
        node.pods.set(claiming("web"))
        await node.until("web begins to run", lambda: node.cpus("web") is not None)
        if where == "start":
            await runtime.entered.wait()
        node.pods.set(claiming("early"))
        await node.until("early runs", lambda: node.cpus("early") is not None)
        node.pods.set(claiming("owner", exclusive(3)))
        await node.until("early made room", lambda: len(node.cpus("early") or ()) == 4)
        if where == "update":
            await runtime.entered.wait()
        for number in range(3):
            node.pods.set(claiming(f"other-{number}"))
            await node.until("another runs", lambda number=number: len(node.cpus(f"other-{number}") or ()) == 4)  # type: ignore[misc]
        node.pods.end("uid-early", node.agent.now(), 0)
        await node.until("early is gone", lambda: "uid-early" not in node.pods.pods)
        assert node.cpus("owner") is None and node.cpus("web") == cpus("0-7")
        assert node.agent.validate() == []
        runtime.freed.set()
        await node.until("owner runs", lambda: len(node.cpus("owner") or ()) == 3)
        assert node.cpus("web") == cpus("0-7") - laptop8().touched_cores(node.cpus("owner") or cpus(""))


async def test_a_pod_that_waits_for_cores_is_told_who_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "ROOM_SECONDS", 0.05)
    runtime = StuckRuntime("start", "web")
    async with agent_node(laptop8(), runtime) as node:
        node.pods.set(claiming("web"))
        await runtime.entered.wait()
        node.pods.set(claiming("owner", exclusive(3)))
        wanted = "container main of pod default/web has not left CPUs 0-2 yet"
        await node.until("told", lambda: any(wanted in line for line in node.agent.core.story("uid-owner")))
        assert node.cpus("owner") is None
        runtime.freed.set()
        await node.until("owner runs", lambda: len(node.cpus("owner") or ()) == 3)
