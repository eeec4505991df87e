"""Tells running containers what managers want of them now: each in a task of its own, as soon as `pending` says.

Nobody waits for a container that cannot be told, but who is to get its CPUs. Called by `node.runtime.executor`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import KubeqosError
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.pod.machine import Core
from kubeqos.node.runtime.criconfig import Context, apply_grant
from kubeqos.node.updates.pending import Key, Owed, OwedUpdates, cpus_of
from kubeqos.plugins.managers import ContainerRef, Grant, Update

log = logging.getLogger(__name__)
ROOM_SECONDS = 5.0
"""How long a pod waits for CPUs before it is told who has them."""
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Adjusting:
    """One node's updates of running containers."""

    def __init__(
        self, core: Core, runtime: Runtime, admission: Admission, context: Callable[[], Context], spawn: Spawn
    ) -> None:
        self._core = core
        self._runtime = runtime
        self._admission = admission
        self._context = context
        self._spawn = spawn
        self._made: dict[Key, str] = {}
        """The container that was made last, which the core may not have seen yet."""
        self._news: asyncio.Future[None] | None = None
        self.owed = OwedUpdates(admission.machine.online)

    # ---- Telling

    async def adjust(self) -> None:
        """Set off what containers are to be told now, and what failed before; nobody waits for the runtime."""
        retried = self.owed.retry() if self.owed else []
        self.owed.add(await self._admission.updates())  # no await between the two: nobody may miss them
        await self._record()
        self._push(retried)

    async def settle(self) -> None:
        """Adjust, and wait until everybody was told; what fails is kept, and raised."""
        await self.adjust()
        while self.owed:
            if not any(one.sending for one in self.owed):
                _raise_first(self.owed)
            await self._changed()

    async def tell(self, update: Update) -> None:
        """Let one container have what its managers take for told."""
        self.owed.add([update])
        await self._record()

    async def _record(self) -> None:
        """Nobody is told anything of which a restart would not know."""
        if fresh := self.owed.unrecorded():
            await self._admission.recorded()
            self._push(self.owed.record(fresh))

    def _push(self, keys: Iterable[Key]) -> None:
        for key in dict.fromkeys(keys):
            owed = self.owed.next(key)
            if owed is not None:
                self._spawn(self._send(owed))

    async def _send(self, owed: Owed) -> None:
        identity = self._live(owed.ref)
        try:
            if identity is not None:
                await self._update(identity, owed.grant)
                self._admission.applied(owed.ref, owed.grant)
        except KubeqosError as error:
            log.warning("cannot update container %s of pod %s: %s", owed.ref.name, owed.ref.pod_uid, error)
            self.owed.failed(owed, error)
        except Exception as error:  # those who wait for it must not wait for ever
            log.exception("update of container %s of pod %s", owed.ref.name, owed.ref.pod_uid)
            self.owed.failed(owed, error)
        else:
            self._push(self.owed.told(owed, alive=identity is not None))
        self._tell_news()

    async def _update(self, container_id: str, grant: Grant) -> None:
        request = cri.UpdateContainerResourcesRequest(container_id=container_id)
        apply_grant(request.linux, grant, self._context().cgroup_version)
        request.annotations.update(grant.annotations)
        try:
            await self._runtime.update_container_resources(request)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise

    def _live(self, ref: ContainerRef) -> str | None:
        """The container to be told, unless there is none."""
        pod = self._core.pods.get(ref.pod_uid)
        seen = pod.seen.newest(ref.name) if pod is not None else None
        made = self._made.get((ref.pod_uid, ref.name))
        if pod is not None and made is not None and all(one.id != made for one in pod.seen.containers):
            return made
        return seen.id if seen is not None and seen.live else None

    # ---- Containers that come and go

    async def made(self, ref: ContainerRef, container_id: str, grant: Grant) -> None:
        """A container was created with this grant; what changed meanwhile it hears before it starts."""
        key = ref.pod_uid, ref.name
        self._made[key] = container_id
        self.reached(ref, grant)
        now = self._admission.grant(ref)
        if now.properties != grant.properties:
            await self.tell(Update(ref, now))

    def reached(self, ref: ContainerRef, grant: Grant, void: Iterable[Owed] | None = None) -> None:
        """A container has this grant; `void` is what it was still to be told when that was decided, or all."""
        cpus = cpus_of(grant, self._admission.machine.online)
        self._admission.applied(ref, grant)
        self._push(self.owed.has((ref.pod_uid, ref.name), cpus, void))
        self._tell_news()

    def gone(self, pod_uid: str) -> None:
        """The pod's containers are no more."""
        for key in [key for key in self._made if key[0] == pod_uid]:
            del self._made[key]
        self._push(self.owed.gone(pod_uid))
        self._tell_news()

    @contextlib.asynccontextmanager
    async def alone(self, ref: ContainerRef) -> AsyncIterator[None]:
        """Nothing is told to a container for the duration of a block; what takes CPUs from it was told before.

        containerd applies an update that comes during StartContainer to what it has stored, not to the task that it is
        about to start; so it waits until the start is over, and those who are to get the CPUs wait with it.
        """
        key = ref.pod_uid, ref.name
        await self._cleared(lambda: self.owed.before_start(key), lambda one: f"is still to be told of CPUs {one.cpus}")
        self.owed.hold(key)
        try:
            yield
        finally:
            self.owed.let_go(key)
            self._push([key])

    async def room(self, pod_uid: str, cpus: CpuSet) -> None:
        """Wait until the containers of other pods have left these CPUs."""
        await self._cleared(
            lambda: self.owed.in_the_way(pod_uid, cpus), lambda one: f"has not left CPUs {one.gives_up & cpus} yet"
        )

    # ---- Waiting

    async def _cleared(self, first: Callable[[], list[Owed]], why: Callable[[Owed], str]) -> None:
        """Wait until there is nothing that has to be told first; after a while, say whom that depends on."""
        if not first():
            return
        self._push(self.owed.retry())
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                while found := first():
                    _raise_first(found)
                    await self._changed()
        except TimeoutError:
            ref = found[0].ref
            pod = self._core.pods.get(ref.pod_uid)
            whose = pod.key if pod is not None else ref.pod_uid
            raise KubeqosError(f"container {ref.name} of pod {whose} {why(found[0])}") from None

    async def _changed(self) -> None:
        """Wait until somebody was told something, or could not be."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _tell_news(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None


def _raise_first(owed: Iterable[Owed]) -> None:
    for one in owed:
        if one.error is not None:
            raise one.error
