"""Keeps the core's picture of the runtime current: events, looks at single pods, comparison of everything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kubeqos.clock import Clock
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relist import Seen
from kubeqos.cri.runtime import Runtime
from kubeqos.logs import logger
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.machine import Core
from kubeqos.node.pod.observed import SeenPod
from kubeqos.node.runtime.executor import Executor

log = logger(__name__)
RETRY_SECONDS = 1.0

_NO_NEWS: dict[int, frozenset[str | None]] = {
    cri.CONTAINER_CREATED_EVENT: frozenset({"created", "running", "exited", "True", "False"}),
    cri.CONTAINER_STARTED_EVENT: frozenset({"running", "exited", "True", "False"}),
    cri.CONTAINER_STOPPED_EVENT: frozenset({"exited", "False"}),
    cri.CONTAINER_DELETED_EVENT: frozenset({None}),
}
"""What the core must know of a container or sandbox for an event of this kind to be no news."""


def known_stages(seen: SeenPod) -> dict[str, str]:
    """How far each sandbox and container is, as `Executor.stages` says it."""
    known = {one.id: str(one.ready) for one in seen.sandboxes}
    return known | {one.id: one.stage.value for one in seen.containers}


class RuntimeWatch:
    """What the runtime does, told to the core."""

    def __init__(
        self,
        core: Core,
        executor: Executor,
        feed: Callable[[fx.Stimulus], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        clock: Clock,
    ) -> None:
        self._core = core
        self._executor = executor
        self._feed = feed
        self._spawn = spawn
        self._clock = clock
        self._looking: set[str] = set()
        self._again: set[str] = set()
        self.looks = 0

    async def follow(self, runtime: Runtime, since: Seen) -> None:
        """Look at every pod of which an event tells something new; `since` is a look from before we looked at pods."""
        async for event in runtime.events(since):
            uid = event.pod_sandbox_status.metadata.uid or self._whose(event.container_id)
            if uid is None:
                await self._compare_quietly()
            elif not self._is_known(uid, event):
                self.look(uid)

    async def _compare_quietly(self) -> None:
        try:
            await self.compare()
        except CallError as error:
            log.warning("cannot list what runs: %s", error)

    def _whose(self, identity: str) -> str | None:
        return next((uid for uid, pod in self._core.pods.items() if identity in known_stages(pod.seen)), None)

    def _is_known(self, uid: str, event: cri.ContainerEventResponse) -> bool:
        """Whether the event only tells what we did ourselves."""
        pod = self._core.pods.get(uid)
        stage = known_stages(pod.seen).get(event.container_id) if pod is not None else None
        return stage in _NO_NEWS[event.container_event_type]

    def look(self, uid: str) -> None:
        """Ask the runtime about a pod; at most one question per pod at a time."""
        if uid in self._looking:
            self._again.add(uid)
        else:
            self._looking.add(uid)
            self._spawn(self._look_now(uid))

    async def _look_now(self, uid: str) -> None:
        try:
            while True:
                self._again.discard(uid)
                pod = self._core.pods.get(uid)
                since = pod.serial if pod is not None else 0
                self.looks += 1
                try:
                    seen = await self._executor.look(uid)
                except CallError as error:
                    log.warning("cannot look at pod %s: %s", uid, error)
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                self._feed(fx.Observed(seen, since))
                if uid not in self._again:
                    return
        finally:
            self._looking.discard(uid)

    async def compare(self) -> None:
        """Look at every pod of which the runtime and the core say different things."""
        stages = await self._executor.stages()
        for uid in {*stages, *self._core.pods}:
            pod = self._core.pods.get(uid)
            known = known_stages(pod.seen) if pod is not None else {}
            if known != stages.get(uid, {}):
                self.look(uid)
