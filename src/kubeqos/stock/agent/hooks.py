"""The NRI plugin: answers the runtime about pods and containers, and lets the class providers act.

A class is decided and its edits made when a container is created. It is enforced when the container is about to start:
the runtime has made its cgroup and its first process, which waits there, so nothing ever runs outside its class. A
refusal or a failure at either moment fails that request, with words that reach the pod's events.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import ClassHolders, Holder
from kubeqos.cri.providers.protocol import ClassRefusal, Level, Place, Subject
from kubeqos.cri.relay import enforce
from kubeqos.cri.relay.core import Denied
from kubeqos.errors import InputError, KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.nri.plugin import Plugin
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.agent.adjusting import (
    add_grant,
    adjustment,
    container_subject,
    found_container,
    found_pod,
    noted_shares,
    place_of,
    pod_place,
    pod_subject,
)
from kubeqos.stock.agent.core import MARK, decide, mark, take
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


class ClassRefused(InputError):
    """A pod or container that cannot have what it asked for."""


Broken = Callable[[Subject, str], None]
"""Told of a running pod that does not have what it asked for, and why."""


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
        self.catalog = catalog
        self.holders = ClassHolders()
        self._host = host
        self._pods = PodCgroups(host)
        self._broken = broken
        self._changed = changed
        self.hook_seconds = RUNTIME_SECONDS * OUR_PART

    async def configure(self, request: nri.ConfigureRequest) -> None:
        self.hook_seconds = (request.request_timeout / 1000 or RUNTIME_SECONDS) * OUR_PART

    # -- what runs already

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> Sequence[nri.ContainerUpdate]:
        by_id = {pod.id: pod for pod in pods}
        known = [one for one in containers if one.pod_sandbox_id in by_id]
        found = [*map(found_pod, pods), *(found_container(by_id[one.pod_sandbox_id], one) for one in known)]
        taken = take(self.catalog.offers, found)
        self.holders = taken.holders
        places = {one.id: place_of(one) for one in known} | {pod.id: pod_place(pod) for pod in pods}
        for key, holder in self.holders:
            if not holder.alive:
                continue
            try:
                # A container that is made and not started has no process yet; its start is still to come.
                place = self._located(places[key])
                if place.pid:
                    await self._enter(key, holder, place)
            except KubeqosError as error:
                self._broken(holder.subject, error.what)
        for subject, reason in taken.broken:
            self._broken(subject, reason)
        if self.cores is not None:
            self.cores.synchronize(pods, containers)
        self._changed()
        return ()

    # -- what is about to run

    async def run_pod_sandbox(self, request: nri.RunPodSandboxRequest) -> None:
        subject = pod_subject(request.pod)
        holder = await self._decided(subject, dict(request.pod.annotations))
        if not holder.classes:
            return
        self.holders.put(subject.id, holder)
        try:
            await self._enter(subject.id, holder, pod_place(request.pod))
        except BaseException:
            self.holders.remove(subject.id)
            raise

    async def create_container(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse | None:
        subject = container_subject(request.pod, request.container)
        holder = await self._decided(subject, dict(request.pod.annotations))
        if not holder.classes and self.cores is None:
            return None
        if holder.classes:
            self.holders.put(subject.id, holder)
        try:
            edit = await self._in_time(enforce.edits(self.catalog, subject, holder.classes))
            marks = {MARK: mark(holder.classes), **noted_shares(edit, subject)} if holder.classes else {}
            adjust = adjustment(edit, marks)
            if self.cores is not None:
                grant = await self._in_time(self.cores.create(request.pod, request.container))
                add_grant(adjust, grant, self._host.version)
        except BaseException:
            self.holders.remove(subject.id)
            raise
        self._changed()
        return nri.CreateContainerResponse(adjust=adjust)

    async def start_container(self, request: nri.StartContainerRequest) -> None:
        holder = self.holders.get(request.container.id)
        if holder is not None:
            await self._enter(request.container.id, holder, place_of(request.container))
        if self.cores is not None:
            await self._in_time(self.cores.start(request.pod, request.container))

    async def post_start_container(self, request: nri.PostStartContainerRequest) -> None:
        if self.cores is not None:
            self.cores.started(request.pod, request.container)

    async def update_container(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse | None:
        """What a container asks for from now on; its classes scale that, and who owns its CPUs has no quota."""
        holder, shares = self.holders.get(request.container.id), request.linux_resources.cpu.shares.value
        if holder is not None and shares:
            subject = dataclasses.replace(holder.subject, cpu_shares=shares)
            self.holders.put(request.container.id, dataclasses.replace(holder, subject=subject))
        if self.cores is None or not self.cores.quotas.owns(request.container.id):
            return None
        answer = nri.UpdateContainerResponse()
        answer.update.add(container_id=request.container.id).linux.resources.cpu.quota.value = NO_QUOTA
        return answer

    async def post_update_container(self, request: nri.PostUpdateContainerRequest) -> None:
        """The runtime wrote its own values; those of the classes stand above them."""
        holder = self.holders.get(request.container.id)
        if holder is not None and holder.alive and holder.place is not None:
            await self._enter(request.container.id, holder, holder.place)
        if self.cores is not None:
            self.cores.quotas.keep()

    async def post_update_pod_sandbox(self, _request: nri.PostUpdatePodSandboxRequest) -> None:
        """The kubelet has resized a pod, and written its own quota to the pod's cgroup."""
        if self.cores is not None:
            self.cores.quotas.keep()

    # -- what has ended

    async def stop_container(self, request: nri.StopContainerRequest) -> None:
        self._ended(request.container.id)
        if self.cores is not None:
            self.cores.ended(request.container.id)

    async def stop_pod_sandbox(self, request: nri.StopPodSandboxRequest) -> None:
        self._ended(request.pod.id)

    async def remove_container(self, request: nri.RemoveContainerRequest) -> None:
        if self.cores is not None:
            self.cores.ended(request.container.id)
        await self._forgotten(request.container.id)

    async def remove_pod_sandbox(self, request: nri.RemovePodSandboxRequest) -> None:
        await self._forgotten(request.pod.id)

    # -- tending

    async def tend(self) -> None:
        """Put back what another agent took away, and bring processes that came from outside into their groups."""
        if self.catalog.repair():
            log.warning("resctrl groups had been removed by another agent and were made again")
            await self.enforce_all()
        self.catalog.gather([holder for _, holder in self.holders])

    async def enforce_all(self) -> None:
        """Write again what classes promise to whoever runs: somebody has written his own to all of them."""
        for key, holder in self.holders:
            if holder.alive and holder.place is not None:
                await self._enter(key, holder, holder.place)

    async def put_right(self) -> None:
        """Look whether everybody's values are still those of their classes, and write them again where they are not."""
        for key, holder in self.holders:
            if not holder.alive or holder.place is None:
                continue
            if changed := await enforce.drifted(self.catalog, holder, holder.place):
                log.warning("a class was changed by others", subject=holder.subject.describe(), files=changed)
                await self._enter(key, holder, holder.place)

    # -- helpers

    async def _decided(self, subject: Subject, annotations: dict[str, str]) -> Holder:
        decided = decide(self.catalog.offers, self.holders, subject, annotations)
        if isinstance(decided, Denied):
            raise ClassRefused(f"{subject.describe()}: {decided.message}")
        agreed = await self._in_time(enforce.check(self.catalog, subject, decided))
        if isinstance(agreed, ClassRefusal):
            raise ClassRefused(f"{subject.describe()}: {agreed}")
        return Holder(subject, agreed)

    async def _enter(self, key: str, holder: Holder, place: Place) -> None:
        if enforce.needs_place(self.catalog, holder.classes):
            place = self._located(place)
            await self._in_time(enforce.enter(self.catalog, holder, place))
        self.holders.put(key, dataclasses.replace(holder, place=place))
        self._weigh(holder.subject)

    def _located(self, place: Place) -> Place:
        """With its first process, which stands in its cgroup before the runtime tells of it, and with where that is.

        Until the runtime tells a process there is only the cgroup that it was asked for; where that is not what came of
        it, the process knows.
        """
        if not place.cgroup:
            return place
        if place.pid:
            return place if self._host.directory(place, "cpu").exists() else self._host.located(place.pid)
        return Place(next(iter(self._host.contained(place)), 0), place.cgroup)

    def _weigh(self, subject: Subject) -> None:
        mates = [one for _, one in self.holders if one.subject.sandbox_id == subject.sandbox_id]
        enforce.weigh(self.catalog, self._pods, subject, mates)

    def _ended(self, key: str) -> None:
        holder = self.holders.get(key)
        if holder is None or not holder.alive:
            return
        self.holders.put(key, dataclasses.replace(holder, alive=False, place=None))
        self._left(holder.subject)

    async def _forgotten(self, key: str) -> None:
        holder = self.holders.remove(key)
        if holder is not None:
            await enforce.withdraw(self.catalog, holder)
            self._left(holder.subject)

    def _left(self, subject: Subject) -> None:
        """Those who are left weigh what they weigh; the runtime does not wait for it."""
        try:
            self._weigh(subject)
        except (KubeqosError, OSError) as error:
            log.error("cannot weigh a pod", subject=subject.describe(), error=str(error))
        self._changed()

    async def _in_time(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.hook_seconds):
                return await call
        except TimeoutError as error:
            raise RemoteError(
                "a provider, plugin or driver did not answer in the time that the runtime gives"
            ) from error


async def without_unreachable(catalog: Catalog) -> tuple[Catalog, list[str]]:
    """The catalog without what NRI cannot give: a class of whole pods that changes how their sandbox is made."""
    reasons = []
    offers, providers = dict(catalog.offers), dict(catalog.providers)
    for name, offer in catalog.offers.items():
        if offer.level is not Level.POD:
            continue
        probe = Subject(Level.POD)
        edits = [await catalog.providers[name].apply(probe, name, each.name) for each in offer.classes]
        if any(edits):
            reasons.append(f"{name}: its classes change how a pod's sandbox is made, which only the relay can do")
            del offers[name], providers[name]
    return dataclasses.replace(catalog, offers=offers, providers=providers), reasons
