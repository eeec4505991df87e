"""What plugins offer and give to a pod that is being admitted: asking them, judging the answers, noting them.

The manager's half that speaks to plugins during admission; `reconcile` is the other. Containers are asked for one by
one. In scope `pod` a plugin that knows how to is asked for hints and an allocation of the pod as a whole, which its
containers then share.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.plugins.managers import NOTHING, AdmittedPod, ContainerKey, ContainerRef, Grant, Refusal
from kubeqos.qrm.allocations import Holding, clashes
from kubeqos.qrm.answers import Nonsense, cpus_of, own_of, satisfies
from kubeqos.qrm.asking import Catalogue, Placement, Question, pod_request_for, request_for, wire_kind
from kubeqos.qrm.edge.messages import read_hints
from kubeqos.qrm.endpoint import Endpoint, PluginFailure, Unusable, WrongAnswer
from kubeqos.qrm.messages import WHOLE_POD, Allocation
from kubeqos.qrm.patience import Patience
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reconcile import Reconciler, judged
from kubeqos.qrm.settings import Event, OnError
from kubeqos.topology.alignment.hints import Offer, Scope
from kubeqos.topology.changes import Held

REASON = "UnexpectedAdmissionError"
Given = dict[str, Allocation]
Answer = Given | Refusal | None  # None where the settings let a failure pass
Shared = Mapping[str, Given]  # resource → what was given to the pod as a whole


@dataclass(frozen=True, slots=True)
class Unit:
    """The containers that share one merge, and where they are to be."""

    pod: AdmittedPod
    refs: Sequence[ContainerRef]
    placement: Placement
    scope: Scope = Scope.CONTAINER
    again: bool = False
    """Ask also for what they hold already: the pod changed its size."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One allocation to ask for: of a container, or of the pod as a whole."""

    ref: ContainerRef
    container: str
    question: Question
    endpoint: Endpoint
    method: str
    request: Any
    kind: pb.ContainerType.ValueType
    where: str


class ByContainer(enum.Enum):
    """The plugin knows containers only."""

    ASK = "ask"


class Allocator:
    """Asks plugins on behalf of pods."""

    def __init__(self, name: str, reconciler: Reconciler) -> None:
        self.name = name
        self.reconciler = reconciler
        self.machine, self.allocations, self.emit = reconciler.machine, reconciler.allocations, reconciler.emit
        self.endpoints = endpoints = reconciler.endpoints
        self.settings, self.metrics = endpoints.settings, endpoints.metrics
        self.patience = Patience(endpoints)
        self._unheard: dict[tuple[str, str, str], RemoteError] = {}
        """Why a plugin gave no hints, by pod, container and resource, until its allocation is asked for."""

        self._heard: dict[str, dict[str, int]] = {}
        """Pods whose hints are being merged: how many gifts each plugin had made when it was asked."""
        self._asked: dict[str, set[str]] = {}
        """The plugins that were asked to give something to a pod, whatever they said."""

    def forget(self, pod_uid: str) -> set[str]:
        """The pod is over; returns the plugins that may have given it something."""
        self._unheard = {key: error for key, error in self._unheard.items() if key[0] != pod_uid}
        self._heard.pop(pod_uid, None)
        return self._asked.pop(pod_uid, set())

    # ---- Hints

    async def offers(self, pod: AdmittedPod, ref: ContainerRef) -> list[Offer]:
        catalogue = self.endpoints.catalogue()
        asked = [q for q in catalogue.questions(pod, ref) if catalogue.served[q.plugin].aligned]
        return await asyncio.gather(*(self._offer(pod, ref, question) for question in asked))

    async def pod_offers(self, pod: AdmittedPod) -> list[Offer]:
        """Hints for the pod as a whole; of plugins that do not know such a thing, for its containers one by one."""
        catalogue = self.endpoints.catalogue()
        whole = {q.resource: q for q in catalogue.pod_questions(pod) if catalogue.served[q.plugin].aligned}
        found = await asyncio.gather(*(self._pod_offer(pod, question) for question in whole.values()))
        offers = [offer for offer in found if offer is not None]
        heard = {offer.resource for offer in offers}
        single = [
            self._offer(pod, ref, question)
            for ref, _ in pod.containers()
            for question in catalogue.questions(pod, ref)
            if catalogue.served[question.plugin].aligned and question.resource not in heard
        ]
        return [*offers, *await asyncio.gather(*single)]

    def offers_stand(self, pod_uid: str) -> bool:
        """Whether the hints heard for a pod since it was last asked are still of use."""
        heard = self._heard.pop(pod_uid, {})
        return all((one := self.endpoints.get(name)) is None or one.gifts == gifts for name, gifts in heard.items())

    async def _offer(self, pod: AdmittedPod, ref: ContainerRef, question: Question) -> Offer:
        holding = self.allocations.get(pod.uid, ref.name)
        if holding and _serves(holding, question, wire_kind(pod, ref)):
            return self._offer_again(holding, question)
        offer = await self._hints(pod.uid, ref.name, question, request_for(pod, ref, question, None))
        return offer or Offer(self.name, question.resource, None, question.plugin)

    async def _pod_offer(self, pod: AdmittedPod, question: Question) -> Offer | None:
        holdings = [one for one in self.allocations.of_pod(pod.uid) if question.plugin in one.whole]
        if holdings and all(_serves(one, question, pb.MAIN) for one in holdings):
            return self._offer_again(holdings[0], question)
        return await self._hints(pod.uid, WHOLE_POD, question, pod_request_for(pod, question, None))

    def _offer_again(self, holding: Holding, question: Question) -> Offer:
        """What is held already stays where it is."""
        held = own_of(question, holding.resources)
        hints = tuple(hint.value for hint in held.hints) if held else ()
        at = hints or (holding.placement.of(question.resource),)
        return Offer(self.name, question.resource, at, question.plugin)

    async def _hints(self, uid: str, container: str, question: Question, request: Any) -> Offer | None:
        """One plugin's hints; None when it does not know such a call."""
        endpoint = self._endpoint(question)
        method = "GetPodTopologyHints" if container == WHOLE_POD else "GetTopologyHints"
        self._unheard.pop((uid, container, question.resource), None)
        if method in endpoint.lacks:
            return None
        self._heard.setdefault(uid, {}).setdefault(endpoint.name, endpoint.gifts)
        try:
            answer = await self.patience.call(endpoint, method, request)
        except RemoteError as error:
            if isinstance(error, PluginFailure) and error.unimplemented:
                endpoint.lacks.add(method)
                return None
            # Only `allocate` can say why, and that it may be tried again; so there is no opinion until then.
            self._unheard[uid, container, question.resource] = error
            return Offer(self.name, question.resource, None, question.plugin)
        found = read_hints(request, question, answer, self.machine)
        if isinstance(found, Nonsense):
            self.endpoints.refused.refuse(endpoint.name, method, str(found))
            self._unheard[uid, container, question.resource] = WrongAnswer(endpoint.name, found)
            return Offer(self.name, question.resource, None, question.plugin)
        self.endpoints.refused.accept(endpoint.name, method)
        return Offer(self.name, question.resource, found, question.plugin)

    # ---- Allocation

    async def allocate(self, unit: Unit) -> dict[str, Grant] | Refusal:
        """Grants by container; after a refusal the allocations are as they were."""
        before = [(ref, self.allocations.copy_of(ref)) for ref in unit.refs]
        catalogue = self.endpoints.catalogue()
        asked = {q.plugin: self._endpoint(q) for ref in unit.refs for q in catalogue.questions(unit.pod, ref)}
        self._outdate(asked.values())  # before anything is awaited: who has hints by now must hear new ones
        try:
            outcome = await self._allocate(unit, catalogue)
        finally:
            self._outdate(asked.values())
        if isinstance(outcome, Refusal):
            for ref, held in before:
                self.allocations.reset(ref, held)
        return outcome

    @staticmethod
    def _outdate(endpoints: Iterable[Endpoint]) -> None:
        for endpoint in endpoints:
            endpoint.gifts += 1

    async def _allocate(self, unit: Unit, catalogue: Catalogue) -> dict[str, Grant] | Refusal:
        shared = await self._for_pod(unit, catalogue) if unit.scope is Scope.POD else {}
        if isinstance(shared, Refusal):
            return shared
        grants: dict[str, Grant] = {}
        for ref in unit.refs:
            granted = await self._for_container(unit, ref, catalogue.questions(unit.pod, ref), shared)
            if isinstance(granted, Refusal):
                return granted
            grants[ref.name] = granted
        return grants

    async def _for_pod(self, unit: Unit, catalogue: Catalogue) -> Shared | Refusal:
        """Ask the plugins that can for the pod as a whole."""
        asked = [q for q in catalogue.pod_questions(unit.pod) if unit.again or not self._pod_served(unit.pod, q)]
        answers = await asyncio.gather(*(self._answer(unit, self._pod_call(unit, question)) for question in asked))
        shared: dict[str, Given] = {}
        for question, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Refusal):
                return answer
            if answer is not ByContainer.ASK:
                shared[question.resource] = answer or {}
        return shared

    def _pod_served(self, pod: AdmittedPod, question: Question) -> bool:
        """Whether what the pod holds as a whole still does."""
        holdings = [one for one in self.allocations.of_pod(pod.uid) if question.plugin in one.whole]
        return bool(holdings) and all(_serves(one, question, pb.MAIN) for one in holdings)

    def _pod_call(self, unit: Unit, question: Question) -> _Call:
        request = pod_request_for(unit.pod, question, unit.placement.of(question.resource))
        where = f"pod {unit.pod.view.metadata.name}: {question.resource}"
        endpoint = self._endpoint(question)
        return _Call(unit.refs[0], WHOLE_POD, question, endpoint, "AllocateForPod", request, pb.MAIN, where)

    async def _for_container(
        self, unit: Unit, ref: ContainerRef, asked: Sequence[Question], shared: Shared
    ) -> Grant | Refusal:
        if not asked:
            return NOTHING
        known = self.allocations.get(unit.pod.uid, ref.name)
        kind = wire_kind(unit.pod, ref)
        single = [question for question in asked if question.resource not in shared]
        fresh = [q for q in single if unit.again or not (known and _serves(known, q, kind))]
        answers = await asyncio.gather(*(self._answer(unit, self._call(unit, ref, question)) for question in fresh))
        by_plugin: dict[str, Given] = {}
        for question, answer in zip(fresh, answers, strict=True):
            if isinstance(answer, Refusal):
                return answer
            if isinstance(answer, dict):
                by_plugin.setdefault(question.plugin, {}).update(answer)
        whole = [question for question in asked if question.resource in shared]
        for question in whole:
            by_plugin.setdefault(question.plugin, {}).update(shared[question.resource])
        return await self._record(ref, unit.placement, by_plugin, {question.plugin for question in whole})

    def _call(self, unit: Unit, ref: ContainerRef, question: Question) -> _Call:
        request = request_for(unit.pod, ref, question, unit.placement.of(question.resource))
        where = f"container {ref.name}: {question.resource}"
        kind = wire_kind(unit.pod, ref)
        return _Call(ref, ref.name, question, self._endpoint(question), "Allocate", request, kind, where)

    async def _answer(self, unit: Unit, call: _Call) -> Answer | ByContainer:
        """What a plugin gives, judged."""
        endpoint, resource = call.endpoint, call.question.resource
        unheard = self._unheard.pop((unit.pod.uid, call.container, resource), None)
        if unheard is None and call.method in endpoint.lacks:
            return ByContainer.ASK
        try:
            if unheard is not None:
                raise unheard
            if endpoint.trouble:
                raise Unusable(endpoint.name, endpoint.trouble)
            self.endpoints.withdraw(endpoint.name, unit.pod.uid)
            self._asked.setdefault(unit.pod.uid, set()).add(endpoint.name)
            sent = await self.patience.call(endpoint, call.method, call.request)
        except RemoteError as error:
            if isinstance(error, PluginFailure) and error.unimplemented and call.container == WHOLE_POD:
                endpoint.lacks.add(call.method)
                return ByContainer.ASK
            final = isinstance(error, WrongAnswer) or (isinstance(error, PluginFailure) and not error.unreachable)
            refusal = Refusal(REASON, f"{call.where}: {error.what}", retry=not final)
        else:
            given = judged(unit.pod, call.request, call.question, sent, call.kind, self.machine)
            if not isinstance(given, Nonsense):
                self.endpoints.refused.accept(endpoint.name, call.method)
                self.metrics.allocations.labels(resource, "allocated").inc()
                return given
            self.endpoints.refused.refuse(endpoint.name, call.method, str(given))
            refusal = Refusal(REASON, f"{call.where}: {WrongAnswer(endpoint.name, given).what}")
        return self._let_pass(call.ref, call.question, refusal)

    async def _record(
        self, ref: ContainerRef, placement: Placement, by_plugin: Mapping[str, Given], whole: set[str]
    ) -> Grant | Refusal:
        """Enter the answers into the allocations, if they agree with each other and with what others hold."""
        busy = await self._make_room(ref, by_plugin)
        if busy:
            return Refusal(REASON, busy, retry=True)
        holding = self.allocations.open(ref, placement)
        holding.whole = (holding.whole - by_plugin.keys()) | whole
        holding.asked |= by_plugin.keys()
        for plugin, given in by_plugin.items():
            clash = self.allocations.put(holding, plugin, given)
            if clash:
                return Refusal(REASON, str(clash))
        grant = holding.grant()
        return Refusal(REASON, f"container {ref.name}: {grant}") if isinstance(grant, Nonsense) else grant

    def _let_pass(self, ref: ContainerRef, question: Question, refusal: Refusal) -> Answer:
        known = self.allocations.get(ref.pod_uid, ref.name)
        policy = self.settings.on_error.get(question.resource, OnError.FAIL)
        if policy is OnError.LAST_KNOWN_GOOD and known and own_of(question, known.resources):
            self.emit(Event("ResourceKept", f"{refusal.message}; what it held stays", ref.pod_uid))
            return known.of_plugin(question.plugin)
        if policy is OnError.IGNORE:
            self.emit(Event("ResourceIgnored", f"{refusal.message}; it starts without", ref.pod_uid))
            self.metrics.allocations.labels(question.resource, "ignored").inc()
            return None
        self.metrics.allocations.labels(question.resource, "refused").inc()
        return refusal

    async def _make_room(self, ref: ContainerRef, by_plugin: Mapping[str, Given]) -> str | None:
        """Whether the CPUs are free of others. The plugins that gave them to others until now are asked again first."""
        found = cpus_of(one for given in by_plugin.values() for one in given.values())
        if not found:
            return None
        key = ref.pod_uid, ref.name
        mine = Held(found[0], ref.pod_uid if found[1] else None)
        if not (wrong := _clashes_of(key, mine, self.allocations.cpus())):
            return None
        await self.reconciler.refresh(name for name, given in by_plugin.items() if cpus_of(given.values()))
        wrong = _clashes_of(key, mine, self.allocations.cpus())
        return f"container {ref.name}: {wrong[0]}" if wrong else None

    def _endpoint(self, question: Question) -> Endpoint:
        endpoint = self.endpoints.get(question.plugin)
        assert endpoint is not None
        return endpoint


def _clashes_of(key: ContainerKey, mine: Held, others: Mapping[ContainerKey, Held]) -> list[str]:
    """What is wrong between one container and the others."""
    rest = {other: held for other, held in others.items() if other != key}
    near = {other: held for other, held in rest.items() if held.cpus & mine.cpus}
    return clashes({key: mine} | {other: held for other, held in near.items() if held.owner or mine.owner})


def _serves(holding: Holding, question: Question, kind: pb.ContainerType.ValueType) -> bool:
    """Whether what a container holds still does."""
    held = own_of(question, holding.resources)
    return held is not None and satisfies(question, held, kind)
