"""The keeper of classes behind the relay: its file, and its agreement with a runtime that has to be asked.

Restores after a crash (checkpoint first, then what the runtime itself remembers) and finds the ends of containers that
nobody told us about. All else is that of every home (`cri.classes.keeper`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from kubeqos.checkpoint import Checkpoint
from kubeqos.cri.classes.keeper import Broken, ClassKeeper
from kubeqos.cri.classes.table import ClassTable, Found
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.protocol import Level, Place, Subject
from kubeqos.cri.relay import messages, undo
from kubeqos.cri.runtime import Runtime


class Keeper(ClassKeeper):
    """The relay's state and how it lasts."""

    def __init__(
        self,
        catalog: Catalog,
        table: ClassTable,
        checkpoint: Checkpoint,
        runtime: Runtime,
        pods: PodCgroups,
        broken: Broken | None = None,
    ) -> None:
        super().__init__(catalog, table, pods, broken)
        self.checkpoint = checkpoint
        self.runtime = runtime
        self.ready = asyncio.Event()
        """Set when the holders agree with what the runtime has; classes are given out only then."""
        self._saved = 0
        self._saving = asyncio.Lock()
        self.unanswered = 0
        """How many annotations asked for a class that nobody here gives."""
        self.doubtful = False
        """A call was cut off and the runtime may have done more than we know: look again soon."""

    # ---- the file

    async def save(self) -> None:
        """Return when the table as it is now is on disk. Callers that wait together share one write.

        What need not be waited for (resync finds an end again) is written soon after.
        """
        wanted = self.table.version
        async with self._saving:
            if self._saved >= wanted:
                return
            version, data = self.table.version, self.table.dump()
            await asyncio.to_thread(self.checkpoint.save, data)
            self._saved = version

    # ---- the runtime

    async def place(self, subject: Subject) -> Place | None:
        """Where a subject runs, or None when it does not run yet; raises SubjectGone when it has just ended."""
        if subject.level is Level.POD:
            place = messages.place_of((await self.runtime.pod_sandbox_status(subject.id, verbose=True)).info)
            return self._whole(place)
        place = messages.place_of((await self.runtime.container_status(subject.id, verbose=True)).info)
        return self._whole(place) if place.pid or place.cgroup else None

    def _whole(self, place: Place) -> Place:
        """With the cgroup, which the process knows."""
        return self.pods.host.located(place.pid) if place.pid and not place.cgroup else place

    async def held_back(self, subject: Subject, pid: int) -> Place:
        """Where a container is that the OCI hook holds back; the runtime may not know its first process yet."""
        told = messages.place_of((await self.runtime.container_status(subject.id, verbose=True)).info)
        return self._whole(dataclasses.replace(told, pid=pid))

    async def resync(self) -> None:
        """Make the table agree with what the runtime has: exits we did not see, creates we did not save."""
        self.doubtful = False
        known = self.table.known()
        sandboxes, containers = await self.runtime.list_pod_sandboxes(), await self.runtime.list_containers()
        pods = {sandbox.id: sandbox for sandbox in sandboxes}
        found = [_found_sandbox(sandbox) for sandbox in sandboxes]
        found += [await self._found_container(item, pods) for item in containers]
        await self.synchronize(found, known)
        await self.save()
        self.ready.set()

    async def restore(self) -> None:
        """After a start: agree with the runtime, then enforce again what running subjects were promised."""
        await self.resync()
        for key in self.table.known():
            await self.enforce_found(key)
        await self.save()

    async def _found_container(self, item: cri.Container, pods: Mapping[str, cri.PodSandbox]) -> Found:
        pod = pods.get(item.pod_sandbox_id, cri.PodSandbox())
        subject = _container_subject(item, pod)
        noted = messages.holder_from_mark(item.annotations, subject)
        if self.holders.get(item.id) is None and self.catalog.offers and not (noted and noted.subject.cpu_shares):
            subject = await self._learned(subject)
            noted = dataclasses.replace(noted, subject=subject) if noted else None
        alive, running = item.state != cri.CONTAINER_EXITED, item.state == cri.CONTAINER_RUNNING
        return Found(subject, dict(pod.annotations), noted, alive, running, item.created_at)

    async def _learned(self, subject: Subject) -> Subject:
        """With what a container has that was made without us: classes go from there."""
        try:
            response = await self.runtime.container_status(subject.id, verbose=True)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return subject
            raise
        had = undo.in_status(response) or undo.in_spec(response)
        limit = max(had.memory_limit_in_bytes, 0)
        return dataclasses.replace(subject, cpu_shares=had.cpu_shares, memory_limit_bytes=limit)


def _found_sandbox(item: cri.PodSandbox) -> Found:
    meta, alive = item.metadata, item.state == cri.SANDBOX_READY
    subject = Subject(Level.POD, item.id, "", meta.uid, meta.namespace, meta.name, runtime_handler=item.runtime_handler)
    annotations = dict(item.annotations)
    noted = messages.holder_from_mark(annotations, subject)
    return Found(subject, annotations, noted, alive, alive, item.created_at)


def _container_subject(item: cri.Container, pod: cri.PodSandbox) -> Subject:
    meta, name, handler = pod.metadata, item.metadata.name, pod.runtime_handler
    return Subject(
        Level.CONTAINER,
        item.id,
        item.pod_sandbox_id,
        meta.uid,
        meta.namespace,
        meta.name,
        name,
        runtime_handler=handler,
    )
