"""The loop that keeps a node from running out: sample, decide (`node.pressure.thresholds`), carry out.

Carries out what the decisions ask for: conditions into the Node's status, dead containers and unused images out of the
runtime (images also as a matter of routine, `node.pressure.imagegc`), one pod told to end. Nothing is decided here. The
last sample is what stats, metrics and `kubectl top` show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kubeqos.codec import JsonError, decode_json
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.logs import logger
from kubeqos.node.pressure.imagegc import Image, ImageGc, Removal
from kubeqos.node.pressure.samples import NodeSample
from kubeqos.node.pressure.thresholds import (
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
from kubeqos.node.pressure.usage import UsageCollector

IMAGES_SECONDS = 300.0  # how often unused images are looked for
SHOWN_SECONDS = 2.0  # `kubectl top` right after a start shows what runs

log = logger("kubeqos.node.pressure.housekeeping")


class Household(Protocol):
    """The agent, as this loop needs it."""

    def active_pods(self) -> Iterable[ActivePod]:
        """Pods that hold resources here and are not over."""

    def containers_in_use(self) -> set[str]:
        """Containers that must stay even though they ended: the last of each name, for their logs."""

    def images_in_use(self) -> set[str]:
        """Images that pods of this node are made from, or will be in a moment."""

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
    images: Counter[str] = field(default_factory=Counter)
    """By reason: `space` or `age`."""


class Housekeeper:
    """One node's loop."""

    def __init__(
        self,
        pressure: Pressure,
        collector: UsageCollector,
        runtime: Runtime,
        household: Household,
        now: Callable[[], float],
        images: ImageGc | None = None,
    ) -> None:
        self.pressure = pressure
        self.images = images or ImageGc()
        self.last: NodeSample | None = None
        self.freed = Reclaimed()
        self._collector = collector
        self._runtime = runtime
        self._household = household
        self._now = now
        self._images_due = float("-inf")
        self._sandbox_image: str | None = None

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
            if self._now() >= self._images_due:
                self._images_due = self._now() + IMAGES_SECONDS
                await self.collect_images()
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
                await self._look_at_images()
                await self._remove_images(self.images.reclaim(self._now()))
                self._images_due = self._now() + IMAGES_SECONDS
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

    # ---- Images

    async def collect_images(self) -> None:
        """Remove images that are of no use, if the disk is too full or they are too old."""
        await self._look_at_images()
        levels = self.last.levels if self.last is not None else {}
        found = self.images.collect(levels.get("imagefs.available") or levels.get("nodefs.available"), self._now())
        await self._remove_images(found)
        if found.shortfall:
            self._household.record_node("FreeDiskSpaceFailed", found.shortfall)

    async def _look_at_images(self) -> None:
        containers = await self._runtime.list_containers()
        used = {name for one in containers for name in (one.image.image, one.image_ref, one.image_id) if name}
        used |= self._household.images_in_use() | {await self._image_of_sandboxes()}
        images = [
            Image(one.id, one.size, frozenset({*one.repo_tags, *one.repo_digests}), one.pinned)
            for one in await self._runtime.list_images()
        ]
        self.images.look(images, used, self._now())

    async def _image_of_sandboxes(self) -> str:
        """What sandboxes are made from: no container names it, and older runtimes do not pin it."""
        if self._sandbox_image is None:
            info = (await self._runtime.status(verbose=True)).info
            try:
                self._sandbox_image = str(decode_json(info.get("config", "{}").encode()).get("sandboxImage", ""))
            except (JsonError, AttributeError):
                self._sandbox_image = ""
        return self._sandbox_image

    async def _remove_images(self, removal: Removal) -> None:
        for image, why in removal.images:
            try:
                await self._runtime.remove_image(image.id)
            except CallError as error:
                log.warning("cannot remove image %s: %s", image.id, error)
                continue
            self.freed.images[why] += 1
