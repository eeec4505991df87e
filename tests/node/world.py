"""One node in virtual time: the real agent on the simulated runtime, with pods from a table in this process.

Every step validates the invariants of the core, the ledger, the managers and the runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubeqos.clock import NS
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.cri.simulated.state import Container, State
from kubeqos.gates import FeatureGates
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.machine import Machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.run import serve_node

CLASSES_ON = FeatureGates.parse("QOSResources=true")


class World:
    """A node and its time."""

    def __init__(
        self, folder: Path, machine: Machine | None = None, offers: Iterable[Advertisement] = (), **settings: Any
    ) -> None:
        self.clock = VirtualClock()
        self.machine = machine or laptop8()
        self.runtime = SimulatedRuntime(self.machine, offers, clock=self.clock, logs=False)
        self.pods = LocalPods()
        settings.setdefault("gates", CLASSES_ON)
        self.settings = NodeSettings("n1", folder / "state", log_dir=folder / "logs", **settings)
        self.managers: list[Any] = []
        self.cgroup_version = 2
        self.events: list[tuple[str, str]] = []

    async def __aenter__(self) -> World:
        await self.boot()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.halt()
        await self.runtime.close()

    async def boot(self) -> None:
        """Start an agent on what is there."""
        hosting = Hosting(
            pods=self.pods,
            clock=self.clock,
            on_event=lambda reason, message: self.events.append((reason, message)),
        )
        parts = assemble(self.settings, self.runtime, self.machine, hosting, managers=self.managers)
        context = replace(parts.context, cgroup_version=self.cgroup_version)
        self.agent = NodeAgent(replace(parts, context=context))
        self._task = asyncio.create_task(self.agent.run())
        await self.settle()

    async def halt(self) -> None:
        """The agent dies; its containers live on."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def settle(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, in steps short enough that tasks keep up."""
        await self.settle()
        end = self.clock.now_ns() + round(seconds * NS)
        while self.clock.now_ns() < end:
            await self.clock.advance(min(1.0, (end - self.clock.now_ns()) / NS))
            await self.settle(30)
        self.validate()

    def validate(self) -> None:
        assert self.agent.validate() == []
        self.runtime.core.validate()

    async def start(self, raw: dict[str, Any]) -> str:
        uid = self.pods.set(raw)
        await self.settle()
        self.validate()
        return uid

    async def end(self, uid: str, grace: int | None = None) -> None:
        self.pods.end(uid, self.agent.now(), grace)
        await self.settle()

    def status(self, uid: str) -> dict[str, Any]:
        found: dict[str, Any] = self.pods.pods[uid].get("status") or {}
        return found

    def container(self, uid: str, name: str = "main") -> dict[str, Any]:
        status = self.status(uid)
        everyone = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
        found: dict[str, Any] = next(one for one in everyone if one["name"] == name)
        return found

    def conditions(self, uid: str) -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.status(uid)["conditions"]}

    def running(self, uid: str) -> dict[str, Container]:
        """The pod's running containers in the runtime, by name."""
        core = self.runtime.core
        return {
            one.name: one
            for one in core.containers.values()
            if one.state is State.RUNNING and core.sandboxes[one.sandbox_id].config.metadata.uid == uid
        }

    async def metrics(self) -> str:
        """What the agent tells Prometheus."""
        async with serve_node(self.agent) as services:
            return services.server.metrics().decode()

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]
