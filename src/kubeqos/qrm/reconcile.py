"""Bringing plugins and the allocations together: on every period, and when a plugin comes (back).

KEP-3461, Asynchronous Resource Adjustment. A plugin's report changes the allocations only as a whole: an answer that
gives one CPU to two owners is refused and the last good state stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.model.annotations.podmarks import DEDICATED_CORES, level_of
from kubeqos.model.machine import Machine
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, ContainerKind, ContainerRef
from kubeqos.qrm.allocations import Allocations, Findings, Holding, Report, clashes
from kubeqos.qrm.answers import Nonsense, cpus_of, own_of
from kubeqos.qrm.asking import (
    Placement,
    Question,
    is_shadow,
    pod_request_for,
    request_for,
    why_skipped,
    wire_kind,
)
from kubeqos.qrm.edge.messages import allocation_wrong, read_allocation, read_report
from kubeqos.qrm.endpoint import Endpoint, PluginFailure
from kubeqos.qrm.endpoints import Endpoints
from kubeqos.qrm.messages import Allocation, allocations_from_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.settings import Event, EventSink
from kubeqos.topology.changes import Held

log = logger("kubeqos.qrm")
PATIENCE_SECONDS = 1.0
REPORT = "GetResourcesAllocation"


class Reconciler:
    """Keeps the allocations equal to what plugins say, and plugins equal to the pods there are."""

    def __init__(
        self,
        allocations: Allocations,
        endpoints: Endpoints,
        pods: Mapping[str, AdmittedPod],
        machine: Machine | None,
        emit: EventSink,
        admitting: Callable[[], Iterable[str]],
    ) -> None:
        self.allocations = allocations
        self.endpoints = endpoints
        self.pods = pods
        self.machine = machine
        self.emit = emit
        self.admitting = admitting
        self._seen: dict[str, tuple[bytes, int]] = {}
        self._strangers: dict[tuple[str, str], float] = {}
        self._tending: dict[str, asyncio.Task[None]] = {}
        self._late: set[str] = set()
        """Plugins that were still busy when the last period was over: nobody waits for them until they are done."""
        self._said: dict[str, set[str]] = {}
        self._declined: set[tuple[str, ContainerKey]] = set()
        """Running containers that a plugin will not serve: asked again when it comes back, not every period."""
        self._unreported: set[tuple[str, ContainerKey]] = set()
        """What a plugin gave to a pod as a whole and gives again, but leaves out of its reports."""

    async def round(self) -> None:
        """One period: silent plugins are probed, missed releases sent, reports and capacities read, all at once.

        A plugin that takes longer is waited for once, and a silent one only while nobody else has news; what they say
        counts in a later period.
        """
        silent = {endpoint.name for endpoint in self.endpoints if endpoint.silent is not None}
        revision = self.allocations.revision
        for endpoint in self.endpoints:
            if endpoint.name not in self._tending:
                task = asyncio.create_task(self._tend(endpoint), name=f"tend {endpoint.name}")
                self._tending[endpoint.name] = task
                task.add_done_callback(partial(self._tended, endpoint.name))
        awaited = {name: task for name, task in self._tending.items() if name not in self._late}
        if prompt := [task for name, task in awaited.items() if name not in silent]:
            await asyncio.wait(prompt, timeout=PATIENCE_SECONDS)
        quiet = [task for name, task in awaited.items() if name in silent]
        if quiet and self.allocations.revision == revision:
            await asyncio.wait(quiet, timeout=PATIENCE_SECONDS)
        self._late |= self._tending.keys()

    def _tended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tending.pop(name, None)
        self._late.discard(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("reconcile failed", resource=name, exc_info=error)

    async def close(self) -> None:
        tasks = list(self._tending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self, plugins: Iterable[str]) -> None:
        """Read the reports of these plugins now; an admission waits for this, so whoever is slow is left for later."""
        asked = [endpoint for name in plugins if (endpoint := self.endpoints.get(name)) and endpoint.usable]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(self._collect(endpoint) for endpoint in asked))
        except TimeoutError:
            log.info("plugins do not report in time", resources=[endpoint.name for endpoint in asked])

    async def _tend(self, endpoint: Endpoint) -> None:
        if endpoint.live and not await (endpoint.probe() if endpoint.silent else endpoint.well()):
            return
        if not endpoint.usable:
            return
        await self.endpoints.tell_missed(endpoint)
        await self._collect(endpoint)
        await self.endpoints.read_capacity(endpoint)

    async def _collect(self, endpoint: Endpoint) -> None:
        try:
            await self.collect(endpoint)
        except RemoteError as error:
            self.endpoints.metrics.drift.labels(endpoint.name, "unanswered").inc()
            what = f"gave no report: {error.what}; the last good state stays"
            self._tell(endpoint, "ResourcePluginUnavailable", what)

    async def synchronise(self, endpoint: Endpoint) -> None:
        """A plugin has come (back): compare everything, whatever was known of it."""
        self._seen.pop(endpoint.name, None)
        for memory in (self._declined, self._unreported):
            memory -= {one for one in memory if one[0] == endpoint.name or one[1][0] not in self.pods}
        await self.collect(endpoint)
        await self._allocate_again(endpoint, self._open_unserved(endpoint))  # of a plugin that makes no reports

    async def collect(self, endpoint: Endpoint) -> None:
        """Read one plugin's report and bring the allocations in line with it."""
        if not endpoint.options.need_reconcile:
            return
        before = {_key(holding.ref) for holding in self.allocations}
        try:
            sent: bytes = await endpoint.call(REPORT, pb.GetResourcesAllocationRequest(), raw=True)
        except PluginFailure as error:
            if error.unimplemented:
                return  # it has no report to give, whatever its options say
            raise
        if self._seen.get(endpoint.name) == (sent, self.allocations.revision):
            return
        report = self._read(sent)
        if isinstance(report, Nonsense):
            self._drift(endpoint, "nonsense", str(report))
            return
        unserved = self._open_unserved(endpoint)
        findings = self.allocations.compare(endpoint.name, report, self.machine)
        for wrong in findings.nonsense:
            self._drift(endpoint, "nonsense", wrong)
        agreed = self._apply(endpoint, findings)
        lost = [
            ref
            for ref in findings.missing
            if _key(ref) in before and (endpoint.name, _key(ref)) not in self._unreported
        ]
        if lost:
            what = f"has lost what it gave to {len(lost)} containers and is asked for it again"
            self._tell(endpoint, "ResourcePluginForgot", what)
        await self._allocate_again(endpoint, [*lost, *(ref for ref in unserved if _key(ref) not in findings.changed)])
        await self._send_away(endpoint, findings.strangers)
        if agreed and not findings.nonsense and not findings.missing:
            self._said.pop(endpoint.name, None)
            self.endpoints.refused.accept(endpoint.name, REPORT)
            if not findings.strangers:
                self._seen[endpoint.name] = sent, self.allocations.revision

    def _read(self, sent: bytes) -> Report | Nonsense:
        answer = read_report(sent)
        if isinstance(answer, Nonsense):
            return answer
        return {
            uid: {
                name: exclusive_by_level(self.pods.get(uid), allocations_from_wire(given))
                for name, given in containers.container_resources.items()
            }
            for uid, containers in answer.pod_resources.items()
        }

    def _apply(self, endpoint: Endpoint, findings: Findings) -> bool:
        """Take over what changed, unless it breaks a promise of exclusivity; whether all of it was taken over."""
        agreed = True
        wrong = clashes(self._after(findings.changed)) if findings.changed else []
        known = set(self.allocations.validate()) if wrong else set()
        if set(wrong) - known:
            self._drift(endpoint, "overlap", "; ".join(sorted(set(wrong) - known)))
            return False
        for key, given in findings.changed.items():
            holding = self.allocations.get(*key)
            if holding is None:
                continue
            clash = self._put(holding, endpoint, given)
            if clash:
                self._drift(endpoint, "conflict", str(clash))
                agreed = False
        return agreed

    def _put(self, holding: Holding, endpoint: Endpoint, given: Mapping[str, Allocation]) -> Nonsense | None:
        """Let a running container have something else, unless that contradicts what it has from other plugins."""
        together = holding.grant_with(endpoint.name, given)
        if isinstance(together, Nonsense):
            return Nonsense(f"container {holding.ref.name}: {together}")
        clash = self.allocations.put(holding, endpoint.name, given)
        if clash is None:
            self.endpoints.metrics.updates.inc()
        return clash

    def _after(self, changed: Mapping[ContainerKey, Mapping[str, Allocation]]) -> dict[ContainerKey, Held]:
        held = self.allocations.cpus()
        for key, given in changed.items():
            found = cpus_of(given.values())
            if found:
                held[key] = Held(found[0], key[0] if found[1] else None)
        return held

    def _open_unserved(self, endpoint: Endpoint) -> list[ContainerRef]:
        """Containers that were admitted without this plugin: before it came, or while the gate was off.

        Their entries are made, so that they take over what the plugin reports, or are asked for like what it lost.
        """
        catalogue, busy = self.endpoints.catalogue(), set(self.admitting())
        found = []
        for uid, pod in self.pods.items():
            if uid in busy or is_shadow(pod) or why_skipped(pod, self.endpoints.settings.skip):
                continue
            for ref, _ in pod.containers():
                holding = self.allocations.get(uid, ref.name)
                done = holding is not None and endpoint.name in holding.asked
                if done or ref.kind is ContainerKind.INIT or (endpoint.name, (uid, ref.name)) in self._declined:
                    continue
                if any(question.plugin == endpoint.name for question in catalogue.questions(pod, ref)):
                    found.append(ref)
                    if holding is None:
                        self.allocations.open(ref, Placement())
        return found

    async def _allocate_again(self, endpoint: Endpoint, missing: Iterable[ContainerRef]) -> None:
        """A plugin has lost what it gave (it restarted with an empty state): ask again, under the same hints."""
        shared: dict[tuple[str, str], dict[str, Allocation] | Nonsense] = {}
        for ref in sorted(missing, key=self._owns):  # who shares first: pools are back in place before others are
            pod, holding = self.pods.get(ref.pod_uid), self.allocations.get(ref.pod_uid, ref.name)
            if pod is None or holding is None:
                continue
            asked = self.endpoints.catalogue().questions(pod, ref)
            try:
                for question in asked:
                    if question.plugin == endpoint.name:
                        self._take_back(endpoint, holding, await self._ask(endpoint, pod, holding, question, shared))
            except PluginFailure as error:
                if error.unreachable:
                    raise
                self._declined.add((endpoint.name, (ref.pod_uid, ref.name)))
                self._drift(endpoint, "refused", f"pod {ref.pod_uid} container {ref.name}: {error.what}")

    def _owns(self, ref: ContainerRef) -> bool:
        holding = self.allocations.get(ref.pod_uid, ref.name)
        held = holding.held() if holding is not None else None
        return held is not None and held.owner is not None

    async def _ask(
        self,
        endpoint: Endpoint,
        pod: AdmittedPod,
        holding: Holding,
        question: Question,
        shared: dict[tuple[str, str], dict[str, Allocation] | Nonsense],
    ) -> dict[str, Allocation] | Nonsense:
        """What the plugin gives now; for a pod as a whole it is asked once."""
        hint, key = holding.placement.of(question.resource), (pod.uid, question.resource)
        own = own_of(question, holding.resources)
        held = own.result if own is not None else ""
        if endpoint.name not in holding.whole:
            request = request_for(pod, holding.ref, question, hint, held)
            answer = await endpoint.call("Allocate", request)
            return judged(pod, request, question, answer, wire_kind(pod, holding.ref), self.machine)
        if key not in shared:
            asked = self.endpoints.catalogue().pod_questions(pod)
            whole = next((one for one in asked if one.resource == question.resource), question)
            asking = pod_request_for(pod, whole, hint, held)
            answer = await endpoint.call("AllocateForPod", asking)
            shared[key] = judged(pod, asking, whole, answer, pb.MAIN, self.machine)
        return shared[key]

    def _take_back(self, endpoint: Endpoint, holding: Holding, given: dict[str, Allocation] | Nonsense) -> None:
        """Enter what a plugin gave again, unless the container is gone or somebody else's promise would break."""
        uid, name = key = holding.ref.pod_uid, holding.ref.name
        if isinstance(given, Nonsense):
            self._drift(endpoint, "nonsense", f"pod {uid} container {name}: {given}")
        elif self.allocations.get(uid, name) is not holding:
            return
        elif not given:
            holding.asked |= {endpoint.name}
        elif endpoint.name in holding.whole and given == holding.of_plugin(endpoint.name):
            self._unreported.add((endpoint.name, key))
        else:
            wrong = set(clashes(self._after({key: given}))) - set(self.allocations.validate())
            clash = None if wrong else self._put(holding, endpoint, given)
            if wrong:
                self._drift(endpoint, "overlap", "; ".join(sorted(wrong)))
            elif clash:
                self._drift(endpoint, "conflict", str(clash))
            else:
                self.endpoints.metrics.drift.labels(endpoint.name, "lost").inc()

    async def _send_away(self, endpoint: Endpoint, strangers: frozenset[str]) -> None:
        """Release what a plugin holds for pods that nobody knows, once it is sure that nobody will admit them."""
        now = self.endpoints.clock()
        busy = set(self.admitting())
        current = {(endpoint.name, uid): self._strangers.get((endpoint.name, uid), now) for uid in strangers - busy}
        others = {key: since for key, since in self._strangers.items() if key[0] != endpoint.name}
        self._strangers = others | current
        for (_, uid), since in current.items():
            if now - since >= self.endpoints.settings.stranger_seconds and uid not in self.allocations:
                self.endpoints.metrics.drift.labels(endpoint.name, "stranger").inc()
                self.endpoints.release_later(endpoint.name, uid)
        await self.endpoints.tell_missed(endpoint)

    def _drift(self, endpoint: Endpoint, kind: str, message: str) -> None:
        """A report (or what a plugin gives again) that is not taken over; the last good state stays."""
        self.endpoints.metrics.drift.labels(endpoint.name, kind).inc()
        if kind in ("nonsense", "overlap", "conflict"):
            self.endpoints.refused.refuse(endpoint.name, REPORT, message)
        else:
            self._tell(endpoint, "ResourcePluginAnswer", f"is in the wrong: {message}; the last good state stays")

    def _tell(self, endpoint: Endpoint, reason: str, message: str) -> None:
        """Once, until something else is wrong or all is well again."""
        said = self._said.setdefault(endpoint.name, set())
        if message not in said:
            said.add(message)
            self.emit(Event(reason, f"plugin {endpoint.name} {message}"))


def _key(ref: ContainerRef) -> ContainerKey:
    return ref.pod_uid, ref.name


def judged(
    pod: AdmittedPod,
    asked: Any,
    question: Question,
    answer: pb.ResourceAllocationResponse | pb.PodResourceAllocationResponse,
    kind: pb.ContainerType.ValueType,
    machine: Machine | None,
) -> dict[str, Allocation] | Nonsense:
    """What a plugin gave, or what is wrong with it."""
    given = read_allocation(asked, question, answer, kind, machine)
    if isinstance(given, Nonsense):
        return given
    # Once more, as a promise: a dedicated container cannot be given no CPUs at all.
    given = exclusive_by_level(pod, given)
    return allocation_wrong(question, given, kind, machine) or given


def exclusive_by_level(pod: AdmittedPod | None, given: dict[str, Allocation]) -> dict[str, Allocation]:
    """Plugins of other makers cannot say that CPUs are exclusive; Katalyst's level of the pod says it for them."""
    if pod is None or level_of(pod.view.metadata) != DEDICATED_CORES:
        return given
    return {
        name: msgspec.structs.replace(one, exclusive=True) if one.property == "CpusetCpus" else one
        for name, one in given.items()
    }
