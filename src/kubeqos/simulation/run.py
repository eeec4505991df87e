"""A scenario run on virtual time: the real scheduler core, queue and all, and the admission of real node agents.

`simulate` steps from event to event, so a day takes as long as its decisions. Two runs of one scenario with one
configuration are equal to the last number. Called by `kubeqos simulate run` and `kubeqos simulate compare`.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubeqos.codec import encode_json
from kubeqos.errors import InputError
from kubeqos.model.objects import LabelSelectorView, NodeView, PodView
from kubeqos.placement.nodes import class_use
from kubeqos.plugins.managers import AdmittedPod, Refusal
from kubeqos.rules.qos.classes import Catalog, catalog
from kubeqos.rules.qos.podqos import QosClass, effective_class
from kubeqos.scheduler.core import Profile, Scheduler
from kubeqos.scheduler.effects import Bind, Effect, Evict, Report
from kubeqos.scheduler.reading.claims import Claimed, claims_of
from kubeqos.simulation.measures import Measures, Outcome, PodRecord
from kubeqos.simulation.scenario import Arrival, Scenario, Workload

if TYPE_CHECKING:
    from kubeqos.simulation.nodes import NodeAdmission

GRACE_SECONDS = 30.0
"""Kubernetes' default: how long an evicted pod takes to leave."""
SPREAD = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Controllers whose pods the scheduler spreads by default."""
RETURN_SECONDS = 10.0
"""How long a controller takes to replace a pod that was evicted or rejected."""


@dataclass(slots=True)
class _Kind:
    """What all pods of one workload have in common."""

    workload: Workload
    spec: dict[str, Any]
    encoded_spec: bytes
    view: PodView
    qos: QosClass
    grace: float
    made: int = 0

    def metadata(self, uid: str) -> dict[str, Any]:
        known = self.view.metadata
        made = {"name": uid, "namespace": known.namespace, "uid": uid, "labels": known.labels}
        made |= {"annotations": known.annotations} if known.annotations else {}
        owners = self.workload.template["metadata"].get("ownerReferences")
        return {**made, "ownerReferences": owners} if owners else made

    def admitted(self, uid: str, claimed: Claimed) -> AdmittedPod:
        """One of its pods, as resource managers see it."""
        metadata = msgspec.structs.replace(self.view.metadata, name=uid, uid=uid)
        raw, view = (
            {"metadata": self.metadata(uid), "spec": self.spec},
            msgspec.structs.replace(self.view, metadata=metadata),
        )
        claims = claims_of(view, claimed) if view.spec.resource_claims else {}
        return AdmittedPod(view, raw, self.qos, claims)


@dataclass(slots=True)
class _Pod:
    record: PodRecord
    kind: _Kind
    runs: float | None
    leaving: bool = False


@dataclass(order=True, slots=True)
class _Event:
    """Something that will happen: a pod comes, or the one with this uid goes."""

    at: float
    order: int
    kind: _Kind = field(compare=False)
    runs: float | None = field(compare=False, default=None)
    uid: str = field(compare=False, default="")


def simulate(scenario: Scenario, profiles: tuple[Profile, ...] = (Profile(),)) -> Outcome:
    """Run it to its end and measure."""
    return Simulation(scenario, profiles).run()


class Simulation:
    """A scenario that is ready to be played: what is wrong with it was said when it was made."""

    def __init__(self, scenario: Scenario, profiles: tuple[Profile, ...]) -> None:
        self.scenario = scenario
        self.core = Scheduler(profiles)
        self.nodes: dict[str, NodeAdmission] = {}
        """Of those with a machine; any other takes what the scheduler gives it."""
        self.offered: dict[str, Catalog] = {}
        self._scattered: dict[str, float] = {}
        """Of every node with a static CPU manager; summed up after every event, so it is kept at hand."""
        self.pods: dict[str, _Pod] = {}
        self.measures = Measures(scenario)
        self._events: list[_Event] = []
        self._begun: list[tuple[_Kind, Arrival]] = []
        """Pods that are on their nodes before anything happens."""
        self._order = 0
        for node in scenario.nodes:
            self.offered[node.name] = catalog(NodeView.of(node.raw).status.qos_resources)
        for workload in scenario.workloads:
            kind = self._kind(workload)
            self._spread(kind)
            for arrival in workload.arrivals:
                if arrival.node:
                    self._begun.append((kind, arrival))
                else:
                    self._plan(arrival.at, kind, runs=arrival.runs)

    def run(self, name: str = "") -> Outcome:
        """Play it to its end and measure."""
        return asyncio.run(self._play(name))

    async def _play(self, name: str) -> Outcome:
        """Every event up to the end, and all decisions after each."""
        async with AsyncExitStack() as stack:
            await self._make_nodes(stack)
            for kind, arrival in self._begun:
                await self._begin(kind, arrival)
            while (now := self._next()) < self.scenario.duration:
                self.measures.advance(now, self._scattered.values())
                while self._events and self._events[0].at == now:
                    await self._happen(heapq.heappop(self._events), now)
                await self._decide(now)
        self.measures.advance(self.scenario.duration, self._scattered.values())
        return self.measures.outcome(name, [pod.record for pod in self.pods.values()], self.core.counters)

    async def _make_nodes(self, stack: AsyncExitStack) -> None:
        from kubeqos.simulation.nodes import (
            NodeAdmission,
        )  # takes its time to load; a command has said something by then

        for (kind, namespace, name), raw in self.scenario.claimed.items():
            self.core.claims.seen(kind, f"{namespace}/{name}" if namespace else name, raw)
        beside = any(node.programs for node in self.scenario.nodes)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kq-"))) if beside else Path()
        for number, node in enumerate(self.scenario.nodes):
            if node.machine is not None:
                made = self.nodes[node.name] = NodeAdmission(node, node.machine, folder / str(number))
                await made.start(stack)
                if node.static_cpus:
                    self._scattered[node.name] = 0.0
            known = self.nodes.get(node.name)
            self.core.node_changed(known.object() if known else encode_json(node.raw), node.name, 0.0)

    def _next(self) -> float:
        """When something happens, or the scheduler wants to look again."""
        due = self.core.next_wake
        return min(self._events[0].at if self._events else math.inf, math.inf if due is None else due)

    # -- events --------------------------------------------------------------------------------------------------------

    def _plan(self, at: float, kind: _Kind, *, runs: float | None = None, uid: str = "") -> None:
        self._order += 1
        heapq.heappush(self._events, _Event(at, self._order, kind, runs, uid))

    async def _happen(self, event: _Event, now: float) -> None:
        if event.uid:
            await self._leave(event.uid, now)
            return
        uid = self._made(event.kind, event.runs, now)
        self.core.pod_changed(_raw_pod(event.kind, uid), uid, now)

    def _made(self, kind: _Kind, runs: float | None, now: float) -> str:
        """Count a new pod among those that wait; its uid."""
        kind.made += 1
        uid = f"{kind.workload.name}-{kind.made}"
        self.pods[uid] = _Pod(PodRecord(uid, kind.workload.name, now), kind, runs)
        self.measures.pending += 1
        return uid

    async def _begin(self, kind: _Kind, arrival: Arrival) -> None:
        """A pod that runs when the scenario begins: no scheduler is asked, only its node."""
        uid = self._made(kind, arrival.runs, 0.0)
        spec = encode_json({**kind.spec, "nodeName": arrival.node})
        self.core.pod_changed(b'{"metadata":%b,"spec":%b}' % (encode_json(kind.metadata(uid)), spec), uid, 0.0)
        await self._bind(self.pods[uid], arrival.node, 0.0)

    async def _leave(self, uid: str, now: float) -> None:
        pod = self.pods[uid]
        if pod.record.ended is not None:
            return  # evicted before its time was up, or the other way round
        pod.record.ended = now
        pod.record.fate = "evicted" if pod.leaving else "finished"
        await self._give_back(pod, now)
        if pod.leaving:
            self._return(pod, now)

    async def _give_back(self, pod: _Pod, now: float, rejected: bytes | None = None) -> None:
        node, uid = pod.record.node, pod.record.name
        self._measure(uid, node, -1)
        made = self.nodes.get(node)
        if made is not None and rejected is None:
            await made.release(uid)
            self._publish(made, now)
        self.core.pod_changed(rejected, uid, now)

    def _return(self, pod: _Pod, now: float) -> None:
        if pod.kind.workload.replace:
            self._plan(now + RETURN_SECONDS, pod.kind, runs=pod.runs)

    # -- decisions -----------------------------------------------------------------------------------------------------

    async def _decide(self, now: float) -> None:
        """One decision at a time: a node's answer to one pod is known before the next is placed."""
        self.core.queue.flush(now)
        self.core.tick(now)
        while self.core.queue.has_work:
            for effect in list(self.core.step(now, limit=1)):
                await self._perform(effect, now)

    async def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case Bind():
                await self._bind(self.pods[effect.pod.uid], effect.node, now)
            case Report():
                self.pods[effect.pod.uid].record.because = effect.message
            case Evict():
                victim = self.pods[effect.victim.uid]
                victim.leaving = True
                victim.record.because = f"preempted by {effect.preemptor.name}"
                self._plan(now + victim.kind.grace, victim.kind, uid=effect.victim.uid)

    async def _bind(self, pod: _Pod, node: str, now: float) -> None:
        uid = pod.record.name
        pod.record.node, pod.record.started, pod.record.because = node, now, ""
        self.measures.pending -= 1
        self._measure(uid, node, +1)
        made = self.nodes.get(node)
        if made is not None:
            refused = await made.admit(pod.kind.admitted(uid, self.scenario.claimed))
            if refused is not None:
                pod.record.ended, pod.record.fate, pod.record.because = now, "rejected", refused.message
                await self._give_back(pod, now, _rejected_pod(uid, node, refused))
                self._return(pod, now)
                return
            self._publish(made, now)
        if pod.runs is not None:
            self._plan(now + pod.runs, pod.kind, uid=uid)

    def _measure(self, uid: str, node: str, sign: int) -> None:
        shape = self.core.cluster.rows[self.core.cluster.row_of[node]].pods[uid].shape
        self.measures.placed(node, shape, class_use(shape, self.offered[node]), sign)

    def _publish(self, made: NodeAdmission, now: float) -> None:
        if made.node.static_cpus:
            self._scattered[made.node.name] = made.scattered
        if made.news:
            self.core.node_changed(made.object(), made.node.name, now)

    def _spread(self, kind: _Kind) -> None:
        """Replicas of one controller are spread; it selects them by the labels that they have in common."""
        owner, metadata = kind.view.metadata.controller(), kind.view.metadata
        if owner is not None and owner.kind in SPREAD and metadata.labels:
            selector = LabelSelectorView(match_labels=metadata.labels)
            self.core.spreading.controller(owner.kind, f"{metadata.namespace}/{owner.name}", selector)

    def _kind(self, workload: Workload) -> _Kind:
        view = PodView.of(workload.template)
        if view.spec.scheduler_name not in self.core.profiles:
            raise InputError(
                f"no profile answers to schedulerName {view.spec.scheduler_name!r}",
                where=f"workload {workload.name}",
                remedy=f"the configuration has: {', '.join(self.core.profiles)}",
            )
        spec = {"schedulerName": "default-scheduler", **workload.template["spec"]}
        metadata = msgspec.structs.replace(view.metadata, namespace=view.metadata.namespace or "default")
        view = msgspec.structs.replace(view, metadata=metadata)
        grace = float(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS))
        return _Kind(workload, spec, encode_json(spec), view, effective_class(view), grace)


def _raw_pod(kind: _Kind, uid: str) -> bytes:
    return b'{"metadata":%b,"spec":%b}' % (encode_json(kind.metadata(uid)), kind.encoded_spec)


def _rejected_pod(uid: str, node: str, refused: Refusal) -> bytes:
    status = {"phase": "Failed", "reason": refused.reason, "message": f"Pod was rejected: {refused.message}"}
    return encode_json({"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node}, "status": status})


def reasons(outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Why pods still wait, were rejected or evicted, the most frequent first."""
    counted = Counter(f"{pod.workload}: {pod.because}" for pod in outcome.pods if pod.because)
    yield from counted.most_common()
