"""The loop that keeps a node from running out: sample, decide (`node.pressure`), carry out.

Carries out what the decisions ask for: conditions into the Node's status, dead containers and unused images out of the
runtime, one pod told to end. Nothing is decided here. The last sample is what stats, metrics and `kubectl top` show.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.node.pressure import (
    CONTAINERS,
    IMAGES,
    ActivePod,
    Conditions,
    Effect,
    EvictPod,
    NodeEvent,
    Pressure,
    Reclaim,
    SetConditions,
)
from kubeqos.node.samples import NodeSample
from kubeqos.node.usage import UsageCollector

SHOWN_SECONDS = 2.0  # `kubectl top` right after a start shows what runs

log = logging.getLogger("kubeqos.node.housekeeping")


class Household(Protocol):
    """The agent, as this loop needs it."""

    def active_pods(self) -> Iterable[ActivePod]:
        """Pods that hold resources here and are not over."""

    def containers_in_use(self) -> set[str]:
        """Containers that must stay even though they ended: the last of each name, for their logs."""

    def evict(self, effect: EvictPod) -> None:
        """End a pod for good."""

    async def show_conditions(self, conditions: Conditions) -> None:
        """Write the node's pressure conditions."""

    def record_node(self, reason: str, message: str) -> None:
        """An event about the node."""


@dataclass(slots=True)
class Reclaimed:
    """What was freed so far."""

    containers: int = 0
    images: int = 0


class Housekeeper:
    """One node's loop."""

    def __init__(
        self,
        pressure: Pressure,
        collector: UsageCollector,
        runtime: Runtime,
        household: Household,
        now: Callable[[], float],
    ) -> None:
        self.pressure = pressure
        self.last: NodeSample | None = None
        self.freed = Reclaimed()
        self._collector = collector
        self._runtime = runtime
        self._household = household
        self._now = now

    async def run(self, sleep: Callable[[float], Awaitable[None]], interval_seconds: float) -> None:
        """Look at the node every so often until cancelled."""
        while True:
            try:
                await self.turn()
            except Exception:  # a bug in one turn must not leave the node without its defence
                log.exception("housekeeping")
            await sleep(interval_seconds)

    async def turn(self) -> None:
        """One look at the node and what follows from it."""
        try:
            self.last = await self._collector.sample()
            effects = self.pressure.step(self.last, self._household.active_pods(), self._now())
            for effect in effects:
                await self._perform(effect)
        except CallError as error:
            log.warning("cannot measure what runs: %s", error)

    async def latest(self) -> NodeSample | None:
        """A sample that is young enough to show; the last one when the runtime does not answer."""
        if self.last is None or self._now() - self.last.at > SHOWN_SECONDS:
            try:
                self.last = await self._collector.sample()
            except CallError as error:
                log.warning("cannot measure what runs: %s", error)
        return self.last

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case SetConditions():
                await self._household.show_conditions(effect.conditions)
            case NodeEvent():
                self._household.record_node(effect.reason, effect.message)
            case EvictPod():
                self._household.evict(effect)
            case Reclaim():
                await self._reclaim(effect)

    async def _reclaim(self, effect: Reclaim) -> None:
        for step in effect.steps:
            if step == CONTAINERS:
                await self.remove_dead_containers()
            elif step == IMAGES:
                await self.remove_unused_images()
        self.last = await self._collector.sample()
        pods = self._household.active_pods()
        for following in self.pressure.reclaimed(effect, self.last, pods, self._now()):
            await self._perform(following)

    async def remove_dead_containers(self) -> None:
        """Remove what ended and nobody asks about any more."""
        kept = self._household.containers_in_use()
        for container in await self._runtime.list_containers():
            if container.state == cri.CONTAINER_EXITED and container.id not in kept:
                await self._runtime.remove_container(container.id)
                self.freed.containers += 1

    async def remove_unused_images(self) -> None:
        """Remove images that no container was made from."""
        containers = await self._runtime.list_containers()
        used = {name for one in containers for name in (one.image.image, one.image_ref, one.image_id) if name}
        for image in await self._runtime.list_images():
            if image.pinned or used & {image.id, *image.repo_tags, *image.repo_digests}:
                continue
            await self._runtime.remove_image(image.id)
            self.freed.images += 1
