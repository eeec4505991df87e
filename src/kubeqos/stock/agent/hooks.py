"""The NRI plugin: what the runtime tells goes to the keeper of classes, what that answers into NRI's words.

A class is decided and its edits made when a container is created. It is enforced when the container is about to start:
the runtime has made its cgroup and its first process, which waits there, so nothing ever runs outside its class. A
refusal or a failure at either moment fails that request, with words that reach the pod's events.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from kubeqos.cri.classes.keeper import Broken, ClassKeeper
from kubeqos.cri.classes.table import ClassTable
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import ClassHolders, Holder
from kubeqos.cri.providers.protocol import Level, Place, Subject
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.nri.plugin import Plugin
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.agent.adjusting import (
    add_grant,
    adjustment,
    container_event,
    container_subject,
    found_container,
    found_pod,
    noted_shares,
    place_of,
    pod_event,
    pod_place,
    pod_subject,
)
from kubeqos.stock.agent.annotations import MARK, mark, wishes
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.quotas import NO_QUOTA
from kubeqos.stock.names import PLUGIN

INDEX = "90"
"""Late among plugins: classes are laid upon what others have set."""
RUNTIME_SECONDS = 2.0
"""What a runtime gives a plugin unless it says otherwise; then it works on without it, for everybody."""
OUR_PART = 0.75
"""Of that time may be spent on waiting for others."""
T = TypeVar("T")
log = logger("kubeqos.agent")


class NriKeeper(ClassKeeper):
    """The keeper of classes for a runtime that tells by itself what it has, keeps our notes, and waits for nobody."""

    hook_seconds = RUNTIME_SECONDS * OUR_PART

    async def in_time(self, call: Awaitable[T]) -> T:
        """The answer of others, in as much time as the runtime leaves them."""
        try:
            async with asyncio.timeout(self.hook_seconds):
                return await call
        except TimeoutError as error:
            raise RemoteError(
                "a provider, plugin or driver did not answer in the time that the runtime gives"
            ) from error

    async def let_in(self, key: str, told: Place | None = None, resources: Collection[str] | None = None) -> None:
        await self.in_time(super().let_in(key, told, resources))

    def located(self, place: Place) -> Place:
        """With its first process, which stands in its cgroup before the runtime tells of it, and with where that is.

        Until the runtime tells a process there is only the cgroup that it was asked for; where that is not what came of
        it, the process knows.
        """
        if not place.cgroup:
            return place
        if place.pid:
            there = self.pods.host.directory(place, "cpu").exists()
            return place if there else self.pods.host.located(place.pid)
        return Place(next(iter(self.pods.host.contained(place)), 0), place.cgroup)


class ClassHooks(Plugin):
    """Classes, and cores, for the pods of one node."""

    def __init__(
        self,
        catalog: Catalog,
        host: Host,
        broken: Broken,
        changed: Callable[[], None],
        cores: CoreKeeper | None = None,
    ) -> None:
        """`cores` is asked, too, on nodes that hand out cores."""
        super().__init__(PLUGIN, INDEX)
        self.cores = cores
        self.keeper = NriKeeper(catalog, ClassTable(catalog.offers, asks=wishes), PodCgroups(host), broken)
        self._host = host
        self._changed = changed
        self.runtimes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Names and versions of the runtimes that have taken us, one for every connection."""

    @property
    def holders(self) -> ClassHolders:
        return self.keeper.holders

    async def configure(self, request: nri.ConfigureRequest) -> None:
        self.keeper.hook_seconds = (request.request_timeout / 1000 or RUNTIME_SECONDS) * OUR_PART
        self.runtimes.put_nowait((request.runtime_name, request.runtime_version))

    # -- what runs already

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> Sequence[nri.ContainerUpdate]:
        by_id = {pod.id: pod for pod in pods}
        known = [one for one in containers if one.pod_sandbox_id in by_id]
        found = [*map(found_pod, pods), *(found_container(by_id[one.pod_sandbox_id], one) for one in known)]
        await self.keeper.synchronize(found, again=True)
        if self.cores is not None:
            sandboxes = {pod.id: pod_event(pod) for pod in pods}
            self.cores.synchronize([(sandboxes.get(one.pod_sandbox_id), container_event(one)) for one in containers])
        self._changed()
        return ()

    # -- what is about to run

    async def run_pod_sandbox(self, request: nri.RunPodSandboxRequest) -> None:
        subject = pod_subject(request.pod)
        holder = await self._reserved(subject, request.pod)
        if holder.classes:
            with self.keeper.released_on_failure(subject.id):
                await self._enter(subject.id, pod_place(request.pod))

    async def create_container(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse | None:
        subject = container_subject(request.pod, request.container)
        holder = await self._reserved(subject, request.pod)
        if not holder.classes and self.cores is None:
            return None
        with self.keeper.released_on_failure(subject.id):
            edit = await self.keeper.in_time(self.keeper.edits(holder))
            marks = {MARK: mark(holder.classes), **noted_shares(edit, subject)} if holder.classes else {}
            adjust = adjustment(edit, marks)
            if self.cores is not None:
                grant = await self.keeper.in_time(
                    self.cores.create(pod_event(request.pod), container_event(request.container))
                )
                add_grant(adjust, grant, self._host.version)
        self._changed()
        return nri.CreateContainerResponse(adjust=adjust)

    async def start_container(self, request: nri.StartContainerRequest) -> None:
        await self._enter(request.container.id, place_of(request.container))
        if self.cores is not None:
            await self.keeper.in_time(self.cores.start(pod_event(request.pod), container_event(request.container)))

    async def post_start_container(self, request: nri.PostStartContainerRequest) -> None:
        if self.cores is not None:
            self.cores.started(pod_event(request.pod), container_event(request.container))

    async def update_container(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse | None:
        """What a container asks for from now on; its classes scale that, and who owns its CPUs has no quota."""
        key, asked = request.container.id, request.linux_resources
        shares, limit = asked.cpu.shares.value, max(0, asked.memory.limit.value)
        await self.keeper.in_time(self.keeper.resize(key, cpu_shares=shares, memory_limit_bytes=limit))
        if self.cores is None or not self.cores.quotas.owns(key):
            return None
        answer = nri.UpdateContainerResponse()
        answer.update.add(container_id=key).linux.resources.cpu.quota.value = NO_QUOTA
        return answer

    async def post_update_container(self, request: nri.PostUpdateContainerRequest) -> None:
        """The runtime wrote its own values; those of the classes stand above them."""
        holder = self.holders.get(request.container.id)
        if holder is not None and holder.alive and holder.place is not None:
            await self._enter(request.container.id, holder.place)
        if self.cores is not None:
            self.cores.quotas.keep()

    async def post_update_pod_sandbox(self, _request: nri.PostUpdatePodSandboxRequest) -> None:
        """The kubelet has resized a pod, and written its own quota to the pod's cgroup."""
        if self.cores is not None:
            self.cores.quotas.keep()

    # -- what has ended

    async def stop_container(self, request: nri.StopContainerRequest) -> None:
        await self.keeper.ended(request.container.id)
        if self.cores is not None:
            self.cores.ended(request.container.id)
        self._changed()

    async def stop_pod_sandbox(self, request: nri.StopPodSandboxRequest) -> None:
        await self.keeper.ended(request.pod.id)
        self._changed()

    async def remove_container(self, request: nri.RemoveContainerRequest) -> None:
        if self.cores is not None:
            self.cores.ended(request.container.id)
        await self.keeper.forget(request.container.id)
        self._changed()

    async def remove_pod_sandbox(self, request: nri.RemovePodSandboxRequest) -> None:
        await self.keeper.forget(request.pod.id)
        self._changed()

    # -- helpers

    async def _reserved(self, subject: Subject, pod: nri.PodSandbox) -> Holder:
        asked = self.keeper.asked(subject, dict(pod.annotations))
        return await self.keeper.in_time(self.keeper.reserve(subject.id, subject, asked))

    async def _enter(self, key: str, place: Place) -> None:
        async def entered() -> None:
            async with self.keeper.lock(key):
                await self.keeper.enter(key, place)

        if self.holders.get(key) is not None:
            await self.keeper.in_time(entered())


async def without_unreachable(catalog: Catalog) -> Catalog:
    """The catalog without what NRI cannot give: a class of whole pods that changes how their sandbox is made."""
    reasons = {}
    offers, providers = dict(catalog.offers), dict(catalog.providers)
    for name, offer in catalog.offers.items():
        if offer.level is not Level.POD:
            continue
        probe = Subject(Level.POD)
        edits = [await catalog.providers[name].apply(probe, name, each.name) for each in offer.classes]
        if any(edits):
            reasons[name] = "its classes change how a pod's sandbox is made, which only the relay can do"
            del offers[name], providers[name]
    return dataclasses.replace(catalog, offers=offers, providers=providers, unreachable=reasons)
