"""Lets running containers have what managers say they should: each in a task of its own, as soon as `pending` says.

Nobody waits for a container that cannot be told, but who is to get its CPUs. Called by `node.runtime.executor`, which
creates and starts containers, and by the agent whenever managers may have changed their minds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import InputError, KubeqosError
from kubeqos.logs import logger
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.node.cri.configs import apply_grant, has_grant
from kubeqos.node.cri.context import Context
from kubeqos.node.pod.observed import SeenPod
from kubeqos.node.updates.pending import PendingUpdate, PendingUpdates
from kubeqos.node.updates.plan import Update, same_for_running
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, ContainerRef, Grant

log = logger(__name__)
ROOM_SECONDS = 5.0
"""How long a pod waits for CPUs before it is told who has them."""
Spawn = Callable[[Coroutine[Any, Any, None]], None]
RecordNode = Callable[[str, str], None]  # a reason and a message, for an event of the node


class DeclaresGrants(Protocol):
    """Admission, as far as updates ask it: what containers should have, and whether the ledger knows of it."""

    @property
    def machine(self) -> Machine: ...

    @property
    def entries(self) -> Mapping[str, object]: ...

    def grant(self, container: ContainerRef) -> Grant: ...

    def grants(self) -> Mapping[ContainerKey, Grant]: ...

    def retry_releases(self) -> None: ...

    async def recorded(self) -> None: ...


class FollowedPod(Protocol):
    """A pod of this node: who it is, and what the runtime has of it."""

    @property
    def key(self) -> str: ...

    @property
    def admitted(self) -> AdmittedPod: ...

    @property
    def seen(self) -> SeenPod: ...


class FollowsPods(Protocol):
    """Who knows the pods of this node: the machine of its agent, or the table of one beside a kubelet."""

    @property
    def pods(self) -> Mapping[str, FollowedPod]: ...


class ContainerUpdater:
    """One node's updates of running containers."""

    def __init__(
        self,
        core: FollowsPods,
        runtime: Runtime,
        admission: DeclaresGrants,
        context: Context,
        spawn: Spawn,
        record_node: RecordNode,
    ) -> None:
        self._core = core
        self._runtime = runtime
        self._admission = admission
        self._context = context
        self._spawn = spawn
        self.record_node = record_node
        self._conflict = ""
        self._created: dict[ContainerKey, str] = {}
        """The container that was created last, which the core may not have seen yet."""
        self._found: dict[ContainerKey, cri.LinuxContainerResources] = {}
        """What the runtime said when the agent started, of containers whose managers have not spoken yet."""
        self._news: asyncio.Future[None] | None = None
        self.pending = PendingUpdates(admission.machine.online)

    # ---- Telling

    async def reconcile(self) -> None:
        """Set off what containers should have and do not, and what failed before; nobody waits for the runtime."""
        self._admission.retry_releases()
        retried = self.pending.retry() if self.pending else []
        wanted = self._admission.grants()
        self._recognise(wanted)
        self._report(self.pending.require(wanted))
        await self._recorded()
        self._push(retried)

    def _report(self, refused: object | None) -> None:
        """Managers that want what cannot be are told of once, not every period."""
        conflict = str(refused) if refused is not None else ""
        if conflict and conflict != self._conflict:
            self.record_node("ResourceConflict", f"running containers stay as they are: {conflict}")
        self._conflict = conflict

    async def _recorded(self) -> None:
        """Nobody is told anything of which a restart would not know."""
        if fresh := self.pending.unrecorded():
            await self._admission.recorded()
            self._push(self.pending.record(fresh))

    def _push(self, keys: Iterable[ContainerKey]) -> None:
        for key in dict.fromkeys(keys):
            update = self.pending.next(key)
            if update is not None:
                self._spawn(self._send(update))

    async def _send(self, update: PendingUpdate) -> None:
        (uid, name), identity = update.key, self._live(update.key)
        try:
            if identity is not None:
                await self._update(identity, update.grant)
        except KubeqosError as error:
            log.warning("cannot update container %s of pod %s: %s", name, uid, error)
            self.pending.failed(update, error)
        except Exception as error:  # those who wait for it must not wait for ever
            log.exception("update of container %s of pod %s", name, uid)
            self.pending.failed(update, error)
        else:
            self._push(self.pending.made(update, alive=identity is not None))
        self._tell_news()

    async def _update(self, container_id: str, grant: Grant) -> None:
        request = cri.UpdateContainerResourcesRequest(container_id=container_id)
        apply_grant(request.linux, grant, self._context.cgroup_version)
        request.annotations.update(grant.annotations)
        try:
            await self._runtime.update_container_resources(request)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise

    def _live(self, key: ContainerKey) -> str | None:
        """The container to be told, unless there is none."""
        pod = self._core.pods.get(key[0])
        seen = pod.seen.newest(key[1]) if pod is not None else None
        created = self._created.get(key)
        if pod is not None and created is not None and all(one.id != created for one in pod.seen.containers):
            return created
        return seen.id if seen is not None and seen.live else None

    # ---- Containers that come and go

    def found(self, key: ContainerKey, resources: cri.LinuxContainerResources) -> None:
        """A container runs since an earlier life of the agent, with these resources as the runtime says.

        It is told what it should have, once that is known, unless it has that already.
        """
        self._found[key] = resources
        self.pending.found(key, _cpus_of(resources))

    def up_to_date(self, key: ContainerKey, grant: Grant) -> str | None:
        """The container that should have this, and was told so; None while something is under way.

        A pod's admission changes the grants of others at once; that these are to be told is known a moment later.
        """
        if key in self._found or self.pending.of(key) or self.pending.is_paused(key):
            return None
        if not self.pending.was_told(key, grant):
            return None
        return self._live(key)

    def as_found(self) -> Mapping[ContainerKey, cri.LinuxContainerResources]:
        """What the runtime said of those that were found, as long as nobody has said what they should have."""
        return self._found

    def _recognise(self, wanted: Mapping[ContainerKey, Grant]) -> None:
        """Who was found with what it should have need not be told."""
        for key in self._found.keys() & wanted.keys():
            resources = self._found.pop(key)
            same = has_grant(resources, wanted[key], self._context.cgroup_version)
            self.pending.found(key, _cpus_of(resources), wanted[key], same=same)

    async def created(self, ref: ContainerRef, container_id: str, grant: Grant) -> None:
        """A container was created with this grant; what changed meanwhile it hears before it starts."""
        key = ref.pod_uid, ref.name
        self._created[key] = container_id
        self.updated(ref, grant)
        now = self._admission.grant(ref)
        if not same_for_running(grant, now):
            self.pending.add([Update(key, now)])
            await self._recorded()

    async def before_start(self, ref: ContainerRef, container_id: str) -> None:
        """Tell a container what it should have whose creation was never answered: until it starts nobody told it
        anything, and what it was created with may be another's by now."""
        if self._created.get((ref.pod_uid, ref.name)) != container_id:
            grant = self._admission.grant(ref)
            await self._update(container_id, grant)
            await self.created(ref, container_id, grant)

    def updated(self, ref: ContainerRef, grant: Grant, void: Iterable[PendingUpdate] | None = None) -> None:
        """A container has this grant; `void` is what was still pending for it when that was decided, or all."""
        key = ref.pod_uid, ref.name
        self._found.pop(key, None)
        self._push(self.pending.has(key, grant, void))
        self._tell_news()

    def outstanding(self, key: ContainerKey) -> Iterable[PendingUpdate]:
        """What a container is still to be told."""
        return self.pending.of(key)

    def removed(self, pod_uid: str) -> None:
        """The pod's containers are no more."""
        tables: tuple[dict[ContainerKey, Any], ...] = self._created, self._found
        for table in tables:
            for key in [key for key in table if key[0] == pod_uid]:
                del table[key]
        self._push(self.pending.removed(pod_uid))
        self._tell_news()

    @contextlib.asynccontextmanager
    async def paused(self, ref: ContainerRef) -> AsyncIterator[None]:
        """Nothing is told to a container for the duration of a block; what takes CPUs from it was told before.

        containerd applies an update that comes during StartContainer to what it has stored, not to the task that it is
        about to start; so it waits until the start is over, and those who are to get the CPUs wait with it.
        """
        key = ref.pod_uid, ref.name
        await self._wait(lambda: self.pending.before_start(key), lambda one: f"is still to be told of CPUs {one.cpus}")
        self.hold(ref)
        try:
            yield
        finally:
            self.resume(ref)

    def hold(self, ref: ContainerRef) -> None:
        """Tell a container nothing until `resume`: the runtime is about to start it."""
        self.pending.pause((ref.pod_uid, ref.name))

    def resume(self, ref: ContainerRef) -> None:
        key = ref.pod_uid, ref.name
        self.pending.resume(key)
        self._push([key])

    async def room(self, ref: ContainerRef, cpus: CpuSet) -> None:
        """Wait until the containers of other pods have left these CPUs of a container."""
        await self._wait(lambda: self.in_the_way(ref, cpus), lambda one: f"has not left CPUs {one.gives_up & cpus} yet")

    def in_the_way(self, ref: ContainerRef, cpus: CpuSet) -> list[PendingUpdate]:
        """Who is to own CPUs waits also for those whose pods are to be admitted again: only then they make room."""
        found = self.pending.in_the_way(ref.pod_uid, cpus)
        if not self._found:
            return found
        unknown = self.pending.unknown(own) if (own := self._admission.grant(ref).exclusive) else ()
        return found + [one for one in unknown if one.key[0] not in {ref.pod_uid, *self._admission.entries}]

    # ---- Waiting

    async def _wait(self, first: Callable[[], list[PendingUpdate]], why: Callable[[PendingUpdate], str]) -> None:
        """Wait until there is nothing that has to be told first; after a while, say whom that depends on."""
        if not first():
            return
        self._push(self.pending.retry())
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                while found := first():
                    _raise_first(found)
                    await self._changed()
        except TimeoutError:
            uid, name = found[0].key
            pod = self._core.pods.get(uid)
            whose = pod.key if pod is not None else uid
            raise KubeqosError(f"container {name} of pod {whose} {why(found[0])}") from None

    async def _changed(self) -> None:
        """Wait until somebody was told something, or could not be."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _tell_news(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None


def _cpus_of(resources: cri.LinuxContainerResources) -> CpuSet | None:
    """Where the runtime lets a container run; None when it does not say."""
    try:
        return CpuSet.parse(resources.cpuset_cpus) or None
    except InputError:
        return None


def _raise_first(updates: Iterable[PendingUpdate]) -> None:
    for one in updates:
        if one.error is not None:
            raise one.error
