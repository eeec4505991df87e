"""The QoS Resource Manager: hands out whatever plugins manage, through the contract of `plugins.managers`.

The node agent owns the transaction: when a container is refused it releases the whole pod, which reaches every plugin.
A grant may rest on changes of other containers that `updates` tells next; the agent applies these before it starts the
new container. The agent calls `reconcile` every period (KEP-3461: 3 s), outside of its lock, and `updates` when that
found something.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.managers import (
    NOTHING,
    AdmittedPod,
    ContainerRef,
    CpuHolding,
    Grant,
    NodeResource,
    Refusal,
    Update,
)
from kubeqos.qrm.answers import CPUS, Nonsense, cpus_of, grant_of, satisfies
from kubeqos.qrm.asking import (
    Question,
    marks_of,
    request_for,
    why_skipped,
    wire_kind,
    with_marks,
    wrong_annotation,
)
from kubeqos.qrm.endpoint import Capacity, PluginFailure, Unusable
from kubeqos.qrm.endpoints import Endpoints
from kubeqos.qrm.ledger import Holding, Ledger
from kubeqos.qrm.messages import Allocation, hints_from_wire
from kubeqos.qrm.metrics import Metrics
from kubeqos.qrm.ordering import Key, clashes, order
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reconcile import Reconciler, ask
from kubeqos.qrm.settings import Event, EventSink, OnError, Settings
from kubeqos.topology.answers import Refused
from kubeqos.topology.changes import Held
from kubeqos.topology.hints import Hint, Offer

REASON = "UnexpectedAdmissionError"
CONDITION = "ResourcePluginsReady"
Answer = dict[str, Allocation] | Refusal | None


class QosResourceManager:
    """All resource plugins of one node as one manager."""

    name = "qrm"

    def __init__(
        self,
        settings: Settings | None = None,
        machine: Machine | None = None,
        *,
        metrics: Metrics | None = None,
        emit: EventSink = lambda _event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or Settings()
        self.machine = machine
        self.metrics = metrics or Metrics()
        self.emit = emit
        self.reconcile_seconds = self.settings.reconcile_seconds
        self.endpoints = Endpoints(self.settings, self.metrics, clock)
        self.ledger = Ledger()
        self._pods: dict[str, AdmittedPod] = {}
        self._told: dict[Key, tuple[Grant, Held | None]] = {}
        self._told_at = -1
        self._resume: list[Update] = []
        self._conflict = ""
        self._admitting: dict[str, int] = {}
        self._unheard: dict[tuple[str, str, str], RemoteError] = {}
        """Why a plugin gave no hints, by pod, container and resource, until its allocation is asked for."""
        self.reconciler = Reconciler(
            self.ledger, self.endpoints, self._pods, machine, lambda event: self.emit(event), self._admitting.keys
        )

    # ---- Admission

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        if why_skipped(pod, self.settings.skip) or wrong_annotation(pod):
            return ()
        catalogue = self.endpoints.catalogue()
        asked = [q for q in catalogue.questions(pod, container) if catalogue.served[q.plugin].aligned]
        return await asyncio.gather(*(self._offer(pod, container, question) for question in asked))

    def _awaited(self, pod: AdmittedPod, container: ContainerRef) -> list[str]:
        """What the container asks for of plugins that have yet to come: without them it would run unpinned."""
        view = next(view for ref, view in pod.containers() if ref == container)
        asked = {self.settings.names.get(name, name) for name in view.resources.requests}
        return sorted(name for name in asked & self.settings.expected if self.endpoints.get(name) is None)

    async def _offer(self, pod: AdmittedPod, ref: ContainerRef, question: Question) -> Offer:
        holding = self.ledger.get(pod.uid, ref.name)
        held = holding.resources.get(question.resource) if holding else None
        if holding and held and satisfies(question, held, wire_kind(pod, ref)):
            hints = tuple(hint.value for hint in held.hints) or (holding.hint,)
            return Offer(self.name, question.resource, hints)
        endpoint = self.endpoints.get(question.plugin)
        assert endpoint is not None
        failure = pod.uid, ref.name, question.resource
        self._unheard.pop(failure, None)
        try:
            answer = await endpoint.call("GetTopologyHints", request_for(pod, ref, question, None))
        except RemoteError as error:
            # Only `allocate` can say why, and that it may be tried again; so there is no opinion until then.
            if not (isinstance(error, PluginFailure) and error.unimplemented):
                self._unheard[failure] = error
            return Offer(self.name, question.resource, None)
        found = hints_from_wire(answer.resource_hints, question.resource, question.spelled)
        return Offer(self.name, question.resource, self._possible(found))

    def _possible(self, hints: tuple[Hint, ...] | None) -> tuple[Hint, ...] | None:
        """Without placements on NUMA nodes that this machine does not have."""
        if hints is None or self.machine is None:
            return hints
        return tuple(hint for hint in hints if hint.numa is None or hint.numa <= self.machine.numa)

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        return await self._take(pod, container, hint, again=False)

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Ask plugins for what a changed pod needs, where it is; a refusal leaves everything as it was."""
        holdings = [holding for ref, _ in new.containers() if (holding := self.ledger.get(new.uid, ref.name))]
        for done, holding in enumerate(holdings):
            outcome = await self._take(new, holding.ref, holding.hint, again=True)
            if isinstance(outcome, Refusal):
                for changed in holdings[: done + 1]:
                    await self._take(old, changed.ref, changed.hint, again=True)
                return Refusal("Deferred" if outcome.retry else "Infeasible", outcome.message, outcome.retry)
        return None

    async def _take(self, pod: AdmittedPod, container: ContainerRef, hint: Hint, *, again: bool) -> Grant | Refusal:
        """Allocate one container; `again` asks for what it holds already, too."""
        if why_skipped(pod, self.settings.skip):
            return NOTHING
        wrong = wrong_annotation(pod)
        if wrong:
            return Refusal(REASON, wrong)
        awaited = self._awaited(pod, container)
        if awaited:
            return Refusal(REASON, f"the resource plugin for {', '.join(awaited)} is not registered yet", retry=True)
        self._pods[pod.uid] = pod
        self._admitting[pod.uid] = self._admitting.get(pod.uid, 0) + 1
        before = self.ledger.copy_of(container)
        try:
            outcome = await self._allocate(pod, container, hint, again)
        finally:
            self._admitting[pod.uid] -= 1
            if not self._admitting[pod.uid]:
                del self._admitting[pod.uid]
        if isinstance(outcome, Refusal):
            self.ledger.reset(container, before)
            return outcome
        holding = self.ledger.get(pod.uid, container.name)
        if not again:  # a running container is told by `updates`
            self._told[pod.uid, container.name] = outcome, holding.held() if holding else None
        return outcome

    async def _allocate(self, pod: AdmittedPod, ref: ContainerRef, hint: Hint, again: bool) -> Grant | Refusal:
        asked = self.endpoints.catalogue().questions(pod, ref)
        if not asked:
            return NOTHING
        known = self.ledger.get(pod.uid, ref.name)
        kind = wire_kind(pod, ref)
        fresh = [q for q in asked if again or not (known and _serves(known, q, kind))]
        answers = await asyncio.gather(*(self._answer(pod, ref, question, hint) for question in fresh))
        for question, answer in zip(fresh, answers, strict=True):
            outcome = "refused" if isinstance(answer, Refusal) else "allocated"
            self.metrics.allocations.labels(question.resource, outcome).inc()
        refusal = next((answer for answer in answers if isinstance(answer, Refusal)), None)
        if refusal:
            return refusal
        by_plugin: dict[str, dict[str, Allocation]] = {}
        for question, answer in zip(fresh, answers, strict=True):
            if answer is not None:
                assert not isinstance(answer, Refusal)
                by_plugin.setdefault(question.plugin, {}).update(answer)
        return await self._record(ref, hint, by_plugin)

    async def _record(
        self, ref: ContainerRef, hint: Hint, by_plugin: Mapping[str, dict[str, Allocation]]
    ) -> Grant | Refusal:
        """Enter the answers into the ledger, if they agree with each other and with what others hold."""
        busy = await self._make_room(ref, by_plugin)
        if busy:
            return Refusal(REASON, busy, retry=True)
        holding = self.ledger.open(ref, hint)
        for plugin, given in by_plugin.items():
            clash = self.ledger.put(holding, plugin, given)
            if clash:
                return Refusal(REASON, str(clash))
        grant = holding.grant()
        return Refusal(REASON, f"container {ref.name}: {grant}") if isinstance(grant, Nonsense) else grant

    async def _answer(self, pod: AdmittedPod, ref: ContainerRef, question: Question, hint: Hint) -> Answer:
        """What a plugin gives; None where the settings let a failure pass."""
        endpoint = self.endpoints.get(question.plugin)
        assert endpoint is not None
        where = f"container {ref.name}: {question.resource}"
        try:
            unheard = self._unheard.pop((pod.uid, ref.name, question.resource), None)
            if unheard is not None:
                raise unheard
            if endpoint.trouble:
                raise Unusable(endpoint.name, endpoint.trouble)
            given = await ask(endpoint, pod, ref, question, hint, self.machine)
            if endpoint.options.pre_start_required:
                await endpoint.call("PreStartContainer", _pre_start(pod, ref))
        except RemoteError as error:
            retry = not isinstance(error, PluginFailure) or error.unreachable
            refusal = Refusal(REASON, f"{where}: {error.what}", retry)
        else:
            if not isinstance(given, Nonsense):
                return given
            refusal = Refusal(REASON, f"{where}: plugin {endpoint.name} gave a wrong answer: {given}")
        return self._let_pass(ref, question, refusal)

    def _let_pass(self, ref: ContainerRef, question: Question, refusal: Refusal) -> Answer:
        known = self.ledger.get(ref.pod_uid, ref.name)
        policy = self.settings.on_error.get(question.resource, OnError.FAIL)
        if policy is OnError.LAST_KNOWN_GOOD and known and _held(known, question):
            self.emit(Event("ResourceKept", f"{refusal.message}; what it held stays", ref.pod_uid))
            return known.of_plugin(question.plugin)
        if policy is OnError.IGNORE:
            self.emit(Event("ResourceIgnored", f"{refusal.message}; it starts without", ref.pod_uid))
            self.metrics.allocations.labels(question.resource, "ignored").inc()
            return None
        return refusal

    async def _make_room(self, ref: ContainerRef, by_plugin: Mapping[str, dict[str, Allocation]]) -> str | None:
        """Whether the CPUs are free of others. The plugins that gave them to others until now are asked again first."""
        found = cpus_of(one for given in by_plugin.values() for one in given.values())
        if not found:
            return None
        key = ref.pod_uid, ref.name
        mine = Held(found[0], ref.pod_uid if found[1] else None)
        if not (wrong := _clashes_of(key, mine, self.ledger.cpus())):
            return None
        await self.reconciler.refresh(name for name, given in by_plugin.items() if cpus_of(given.values()))
        wrong = _clashes_of(key, mine, self.ledger.cpus())
        return f"container {ref.name}: {wrong[0]}" if wrong else None

    async def release(self, pod_uid: str) -> None:
        self.ledger.drop(pod_uid)
        self._pods.pop(pod_uid, None)
        self._unheard = {key: error for key, error in self._unheard.items() if key[0] != pod_uid}
        for key in [key for key in self._told if key[0] == pod_uid]:
            del self._told[key]
        await self.endpoints.release(pod_uid)

    def grant(self, container: ContainerRef) -> Grant | None:
        holding = self.ledger.get(container.pod_uid, container.name)
        if holding is None:
            return None
        grant = holding.grant()
        if isinstance(grant, Nonsense):
            return self._told.get((container.pod_uid, container.name), (None, None))[0]
        self._told[container.pod_uid, container.name] = grant, holding.held()
        return grant

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        holding = self.ledger.get(container.pod_uid, container.name)
        held = holding.held() if holding is not None else None
        return None if held is None else CpuHolding(held.cpus, held.cpus if held.owner else NO_CPUS)

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        return {}  # a plugin's pools are its own affair; `kubeqos plugin cpu pools` shows them

    # ---- Adjustment of running containers

    async def reconcile(self) -> bool:
        """Ask every plugin how things stand; whether there is something to tell containers. Runs beside admissions."""
        with self.metrics.reconciles.time():
            await self.reconciler.round()
        return bool(self._resume) or self.ledger.revision != self._told_at

    async def updates(self) -> Sequence[Update]:
        told = [*self._resume, *self._changes()]
        self._resume = []
        self.metrics.updates.inc(len(told))
        return told

    def _changes(self) -> list[Update]:
        """The difference between the ledger and what containers were told, in a safe order."""
        if self.ledger.revision == self._told_at:
            return []
        after = {key: held for key, held in self.ledger.cpus().items() if key in self._told}
        before = {key: held for key in after if (held := self._told[key][1]) is not None}
        steps = order(before, after, self.machine)
        if isinstance(steps, Refused):
            if self._conflict != str(steps):  # told once, not every period
                self._conflict = str(steps)
                self.emit(Event("ResourceConflict", f"running containers stay as they are: {steps}"))
            return []
        self._conflict = ""
        changes = self._cpu_changes(steps, after) + self._other_changes()
        self._told_at = self.ledger.revision
        return changes

    def _cpu_changes(self, steps: Sequence[tuple[Key, Any]], after: Mapping[Key, Held]) -> list[Update]:
        changes = []
        written = {key for key, _ in steps}
        for holding in self.ledger:
            key = holding.ref.pod_uid, holding.ref.name
            told = self._told.get(key)
            holding.was = told[1].cpus if key in written and told and told[1] else None
        for key, cpus in steps:
            changing = self.ledger.get(*key)
            grant = changing.grant() if changing else None
            if changing is None or grant is None or isinstance(grant, Nonsense):
                continue
            step = replace(grant, properties={**grant.properties, CPUS: str(cpus)})
            changes.append(Update(changing.ref, step))
            self._told[key] = step, after[key]
        return changes

    def _other_changes(self) -> list[Update]:
        changes = []
        for holding in self.ledger:
            key = holding.ref.pod_uid, holding.ref.name
            grant = holding.grant()
            if key not in self._told or isinstance(grant, Nonsense):
                continue
            told = self._told[key][0]
            if (grant.properties, grant.unified) != (told.properties, told.unified):
                changes.append(Update(holding.ref, grant))
                self._told[key] = grant, holding.held()
        return changes

    # ---- State

    def save(self) -> Any:
        return {
            "pods": self.ledger.entries(),
            "marks": {uid: marks_of(self._pods[uid].view.metadata) for uid in self.ledger.pods if uid in self._pods},
            "owed": self.endpoints.owed,
            "plugins": {
                endpoint.name: {
                    name: [one.capacity, one.allocatable, one.shown] for name, one in endpoint.capacity.items()
                }
                for endpoint in self.endpoints
            },
        }

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        state = state if isinstance(state, dict) else {}
        repaired = self.ledger.load(state.get("pods"))
        for name, capacities in (state.get("plugins") or {}).items():
            if name not in self.settings.built_in:
                self.endpoints.expect(name, {res: Capacity(*one) for res, one in capacities.items()})
        for name, pods in (state.get("owed") or {}).items():
            for uid in pods:
                self.endpoints.owe(name, uid)
        for uid in sorted(self.ledger.pods - running.keys()):
            repaired.append(f"pod {uid} is gone; what it held is given back")
            await self.release(uid)
        marks = state.get("marks") or {}
        self._pods.update({uid: with_marks(running[uid], marks.get(uid, {})) for uid in self.ledger.pods})
        for holding in self.ledger:
            grant = holding.grant()
            if not isinstance(grant, Nonsense):
                self._told[holding.ref.pod_uid, holding.ref.name] = grant, holding.held()
        self._resume = list(self._unfinished())
        return repaired

    def _unfinished(self) -> list[Update]:
        """Changes that a crash may have cut short: everybody keeps what is old and new, then takes the new."""
        narrow, final = [], []
        for holding in self.ledger:
            held, grant = holding.held(), grant_of(holding.resources)
            if holding.was is None or held is None or isinstance(grant, Nonsense):
                continue
            both = holding.was & held.cpus
            if both and both != held.cpus:
                narrow.append(Update(holding.ref, replace(grant, properties={**grant.properties, CPUS: str(both)})))
            final.append(Update(holding.ref, grant))
        return narrow + final

    def node_resources(self) -> Sequence[NodeResource]:
        return self.endpoints.node_resources()

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The health of all plugins as one condition of the Node: type → (status, reason, message)."""
        known = list(self.endpoints)
        if not known:
            return {}
        sick = [f"plugin {endpoint.name} {endpoint.trouble}" for endpoint in known if endpoint.trouble]
        if sick:
            return {CONDITION: ("False", "ResourcePluginNotReady", "; ".join(sick))}
        names = ", ".join(sorted(endpoint.name for endpoint in known))
        return {CONDITION: ("True", "ResourcePluginsReady", f"plugins answer: {names}")}

    def validate(self) -> list[str]:
        return self.ledger.validate()

    async def close(self) -> None:
        await self.reconciler.close()
        await self.endpoints.close()


def _clashes_of(key: Key, mine: Held, others: Mapping[Key, Held]) -> list[str]:
    """What is wrong between one container and the others."""
    rest = {other: held for other, held in others.items() if other != key}
    near = {other: held for other, held in rest.items() if held.cpus & mine.cpus}
    return clashes({key: mine} | {other: held for other, held in near.items() if held.owner or mine.owner})


def _held(holding: Holding, question: Question) -> bool:
    return question.resource in holding.resources


def _serves(holding: Holding, question: Question, kind: pb.ContainerType.ValueType) -> bool:
    """Whether what a container holds still does."""
    held = holding.resources.get(question.resource)
    return held is not None and satisfies(question, held, kind)


def _pre_start(pod: AdmittedPod, ref: ContainerRef) -> pb.PreStartContainerRequest:
    meta = pod.view.metadata
    return pb.PreStartContainerRequest(
        pod_uid=meta.uid, pod_namespace=meta.namespace, pod_name=meta.name, container_name=ref.name
    )
