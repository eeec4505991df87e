"""The hooked CRI calls: what they say goes to the keeper, what it answers into the call; undone if the runtime fails.

The state is the keeper's. A class is reserved before the runtime is called and saved before the client has its answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from kubeqos.cri.classes import decisions, enforce
from kubeqos.cri.classes.decisions import Denied, Wish
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import Holder
from kubeqos.cri.providers.protocol import Level, Place, Subject, SubjectGone
from kubeqos.cri.relay import messages, undo
from kubeqos.cri.relay.keeper import Keeper
from kubeqos.cri.relay.proxy import CallDenied, Forward, Hooks, RuntimeFailed
from kubeqos.cri.relay.starting import Starts, denying, until_ready
from kubeqos.cri.status import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    NOT_FOUND,
    UNAVAILABLE,
)
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger

CUT_OFF = (CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE)
"""Ends of a call that leave open what the runtime has done."""
Remove = Callable[[str], Awaitable[None]]
log = logger("kubeqos.relay")


class ClassService:
    """QoS-class resources for one runtime."""

    def __init__(self, keeper: Keeper, host: Host, *, require_hook: bool = False) -> None:
        self.keeper = keeper
        self.host = host
        self.starts = Starts(keeper, require_hook=require_hook)
        self.holders = keeper.holders
        self.runtime = keeper.runtime
        self._tickets = itertools.count(1)
        self._told: dict[str, set[str]] = {}
        """By sandbox: the annotations that nobody answers and that we have told of."""

    @property
    def catalog(self) -> Catalog:
        """What is in force now; a reload may change it between two steps of a call."""
        return self.keeper.catalog

    def hooks(self) -> Hooks:
        def path(method: str) -> bytes:
            return f"/runtime.v1.RuntimeService/{method}".encode()

        def patched(patch: messages.Patch) -> Callable[[bytes], bytes]:
            def offered(data: bytes) -> bytes:
                # A node without classes is as if there were no relay.
                return patch(data, self.catalog.offers, self.holders.get) if self.catalog.offers else data

            return offered

        def status(data: bytes) -> bytes:
            catalog = self.catalog
            known = catalog.offers or catalog.absent
            return messages.patch_status(data, catalog.offers, catalog.absent) if known else data

        return Hooks(
            patches={
                path("Status"): status,
                path("ContainerStatus"): patched(messages.patch_container_status),
                path("PodSandboxStatus"): patched(messages.patch_sandbox_status),
                path("GetContainerEvents"): patched(messages.patch_event),
            },
            handlers={
                path("RunPodSandbox"): self.run_pod_sandbox,
                path("CreateContainer"): self.create_container,
                path("StartContainer"): self.starts.start_container,
                path("UpdateContainerResources"): self.update_container_resources,
                path("UpdatePodSandboxResources"): self.update_pod_sandbox_resources,
                path("StopContainer"): self.stop_container,
                path("RemoveContainer"): self.remove_container,
                path("StopPodSandbox"): self.stop_pod_sandbox,
                path("RemovePodSandbox"): self.remove_pod_sandbox,
            },
            endless=frozenset({path("GetContainerEvents")}),
        )

    # ---- creating

    async def run_pod_sandbox(self, data: bytes, forward: Forward) -> bytes:
        request = cri.RunPodSandboxRequest.FromString(data)
        subject = messages.sandbox_subject(request)
        asked = self._asked(subject, request.config.annotations)
        ticket, holder = await self._reserve(subject, messages.wishes_of(request.config.qos_resources), asked)
        if not holder.classes:
            return await forward(data)
        with self._released_on_failure(ticket):
            messages.edit_sandbox(request, await self.keeper.edits(holder), holder)
            answer = await forward(request.SerializeToString())
        sandbox_id = cri.RunPodSandboxResponse.FromString(answer).pod_sandbox_id
        holder = self.keeper.table.made(ticket, sandbox_id)
        with denying():
            try:
                if enforce.acts_in_place(self.catalog, holder.classes):
                    await self.starts.enter(sandbox_id, holder.subject)
                else:
                    await self.keeper.save()
            except KubeqosError:
                await self._undo(sandbox_id, self._remove_sandbox)
                raise
        return answer

    async def create_container(self, data: bytes, forward: Forward) -> bytes:
        request = cri.CreateContainerRequest.FromString(data)
        offers = self.catalog.offers
        subject = messages.container_subject(request, await self._handler(request.pod_sandbox_id))
        annotations, of_pod = request.config.annotations, request.sandbox_config.annotations
        fallback: Sequence[Wish] | Denied = self._asked(subject, of_pod)
        if self.keeper.table.asks is None and not messages.knows_classes(request):
            fallback = decisions.annotation_wishes(offers, subject.container_name, annotations, of_pod)
            self._tell_unanswered(subject, decisions.unanswered(offers, annotations, of_pod))
        if isinstance(fallback, Denied):
            raise CallDenied(fallback.code, fallback.message)
        ticket, holder = await self._reserve(subject, messages.wishes_of(request.config.qos_resources), fallback)
        if not holder.classes:
            return await forward(data)
        with self._released_on_failure(ticket):
            messages.edit_container(request, await self.keeper.edits(holder), holder, offers)
            answer = await forward(request.SerializeToString())
        container_id = cri.CreateContainerResponse.FromString(answer).container_id
        self.keeper.table.made(ticket, container_id)
        with denying():
            try:
                await self.keeper.save()
            except KubeqosError:
                await self._undo(container_id, self.runtime.remove_container)
                raise
        return answer

    def _asked(self, subject: Subject, pod_annotations: Mapping[str, str]) -> Sequence[Wish]:
        with denying():
            return self.keeper.asked(subject, pod_annotations)

    def _tell_unanswered(self, subject: Subject, found: Sequence[tuple[str, str]]) -> None:
        """A pod that asked in vain runs all the same; its owner should hear of it, once."""
        told = self._told.setdefault(subject.sandbox_id, set()) if found else set()
        for key, why in found:
            if key not in told:
                told.add(key)
                self.keeper.unanswered += 1
                pod = f"{subject.pod_namespace}/{subject.pod_name}"
                log.warning("an annotation asks for a class in vain", pod=pod, annotation=key, reason=why)

    async def _handler(self, sandbox_id: str) -> str:
        """The runtime handler of a container's pod; asked for where a class depends on it."""
        if not any(offer.handlers for offer in self.catalog.offers.values()):
            return ""
        known = self.holders.get(sandbox_id)
        if known is not None:
            return known.subject.runtime_handler
        try:
            return (await self.runtime.pod_sandbox_status(sandbox_id)).status.runtime_handler
        except CallError as error:
            raise CallDenied(NOT_FOUND if error.code is Code.NOT_FOUND else UNAVAILABLE, error.details) from error

    async def _reserve(self, subject: Subject, wishes: Sequence[Wish], fallback: Sequence[Wish]) -> tuple[str, Holder]:
        if self.catalog.offers or wishes:
            await until_ready(self.keeper)
        ticket = f"reserved:{next(self._tickets)}"
        with denying():
            return ticket, await self.keeper.reserve(ticket, subject, wishes, fallback)

    @contextlib.contextmanager
    def _released_on_failure(self, ticket: str) -> Iterator[None]:
        """Room that was reserved for a create is free again when the create fails."""
        try:
            with denying(), self.keeper.released_on_failure(ticket):
                yield
        except RuntimeFailed as error:
            self.keeper.doubtful |= error.code in CUT_OFF
            raise

    # ---- running

    async def update_container_resources(self, data: bytes, forward: Forward) -> bytes:
        request = cri.UpdateContainerResourcesRequest.FromString(data)
        key, linux = request.container_id, request.linux
        wishes = messages.wishes_of(request.qos_resources)
        holder = self.holders.get(key)
        if holder is None and not wishes:
            return await forward(data)
        await until_ready(self.keeper)
        async with self.keeper.lock(key):
            holder = self.holders.get(key) or Holder(Subject(Level.CONTAINER, key))
            if holder.place is None:
                holder = await self._located(holder)
            subject = decisions.resized(holder.subject, linux.cpu_shares, linux.memory_limit_in_bytes)
            request.ClearField("qos_resources")
            with denying():
                change = await self.keeper.agreed_change(key, holder, wishes, subject)
                async with self.keeper.changing(change, holder) as way_back:
                    return await self._forward_update(request, change.holder, holder, forward, way_back)

    async def update_pod_sandbox_resources(self, data: bytes, forward: Forward) -> bytes:
        """Classes of a whole pod are moved here; the runtime hears of what else there is (KEP-3008, Beta)."""
        request = cri.UpdatePodSandboxResourcesRequest.FromString(data)
        key, wishes = request.pod_sandbox_id, messages.wishes_of(request.qos_resources)
        if not wishes:
            return await forward(data)
        request.ClearField("qos_resources")
        await until_ready(self.keeper)
        async with self.keeper.lock(key):
            holder = self.holders.get(key) or Holder(Subject(Level.POD, key))
            if holder.place is None:
                holder = dataclasses.replace(holder, place=await self._place(holder.subject) or Place())
            with denying():
                change = await self.keeper.agreed_change(key, holder, wishes, holder.subject)
                async with self.keeper.changing(change, holder):
                    only_classes = request == cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id=key)
                    return b"" if only_classes else await forward(request.SerializeToString())

    async def _forward_update(
        self,
        request: cri.UpdateContainerResourcesRequest,
        holder: Holder,
        before: Holder,
        forward: Forward,
        way_back: contextlib.AsyncExitStack,
    ) -> bytes:
        """The runtime hears of an update only if there is something in it for the runtime."""
        if request == cri.UpdateContainerResourcesRequest(container_id=request.container_id):
            return b""
        if not request.HasField("linux"):
            return await forward(request.SerializeToString())
        messages.edit_resources(request.linux, await self.keeper.edits(holder))
        previous = await self._taken_back(request, holder)
        try:
            answer = await forward(request.SerializeToString())
        except RuntimeFailed as error:
            if error.code in CUT_OFF:  # nobody knows whether the runtime has done it
                way_back.push_async_callback(self._take_back, previous, before)
            raise
        way_back.push_async_callback(self._take_back, previous, before)
        if holder.place:
            # The runtime wrote its own values; those of the classes stand above them.
            await enforce.enter(self.catalog, holder, holder.place)
        return answer

    async def _taken_back(
        self, request: cri.UpdateContainerResourcesRequest, holder: Holder
    ) -> cri.UpdateContainerResourcesRequest:
        """The update that undoes an update."""
        try:
            had = undo.in_status(await self.runtime.container_status(request.container_id))
            if had is None:
                had = undo.in_spec(await self.runtime.container_status(request.container_id, verbose=True))
        except CallError as error:
            raise CallDenied(NOT_FOUND if error.code is Code.NOT_FOUND else UNAVAILABLE, error.details) from error
        host, place = self.host, holder.place

        def read(controller: str, file: str) -> str:
            return host.read(place, controller, file) if place else ""

        linux = undo.taken_back(request.linux, had, read)
        return cri.UpdateContainerResourcesRequest(container_id=request.container_id, linux=linux)

    async def _take_back(self, previous: cri.UpdateContainerResourcesRequest, before: Holder) -> None:
        try:
            await self.runtime.update_container_resources(previous)
        except KubeqosError as error:
            log.error("an update could not be taken back", subject=before.subject.describe(), error=error.what)
        if before.place:
            await enforce.enter_again(self.catalog, before, before.place)

    async def _located(self, holder: Holder) -> Holder:
        """The holder with its place, if it runs."""
        place = await self._place(holder.subject)
        return dataclasses.replace(holder, place=place if place and place.pid else None)

    async def _place(self, subject: Subject) -> Place | None:
        """Where a subject runs. An unknown id is the runtime's to refuse."""
        try:
            return await self.keeper.place(subject)
        except CallError as error:
            raise CallDenied(NOT_FOUND if error.code is Code.NOT_FOUND else UNAVAILABLE, error.details) from error
        except SubjectGone:
            return None

    # ---- ending

    async def stop_container(self, data: bytes, forward: Forward) -> bytes:
        answer = await forward(data)
        await self.keeper.ended(cri.StopContainerRequest.FromString(data).container_id)
        return answer

    async def remove_container(self, data: bytes, forward: Forward) -> bytes:
        answer = await forward(data)
        await self.keeper.forget(cri.RemoveContainerRequest.FromString(data).container_id)
        return answer

    async def stop_pod_sandbox(self, data: bytes, forward: Forward) -> bytes:
        answer = await forward(data)
        sandbox_id = cri.StopPodSandboxRequest.FromString(data).pod_sandbox_id
        for key in [sandbox_id, *self._containers_of(sandbox_id)]:
            await self.keeper.ended(key)
        return answer

    async def remove_pod_sandbox(self, data: bytes, forward: Forward) -> bytes:
        answer = await forward(data)
        sandbox_id = cri.RemovePodSandboxRequest.FromString(data).pod_sandbox_id
        self._told.pop(sandbox_id, None)
        for key in [*self._containers_of(sandbox_id), sandbox_id]:
            await self.keeper.forget(key)
        return answer

    def _containers_of(self, sandbox_id: str) -> list[str]:
        return [key for key, holder in self.holders if holder.subject.sandbox_id == sandbox_id]

    # ---- helpers

    async def _undo(self, key: str, remove: Remove) -> None:
        """Leave nothing behind of a create that failed after the runtime had done its part."""
        try:
            await remove(key)
        except RemoteError as error:
            log.error("cannot undo a create", id=key, error=error.what)
        await self.keeper.forget(key)

    async def _remove_sandbox(self, sandbox_id: str) -> None:
        await self.runtime.stop_pod_sandbox(sandbox_id)
        await self.runtime.remove_pod_sandbox(sandbox_id)
