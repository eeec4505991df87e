"""A scenario run on virtual time: the real scheduler core, queue and all, against nodes that exist only here.

`simulate` steps from event to event, so a day takes as long as its decisions. Two runs of one scenario with one
configuration are equal to the last number. Called by `kubeqos simulate run` and `kubeqos simulate compare`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kubeqos.codec import encode_json
from kubeqos.errors import InputError
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import class_use
from kubeqos.placement.shape import compile_shape
from kubeqos.rules.classes import Catalog, catalog
from kubeqos.scheduler.core import Bind, Effect, Evict, Profile, Report, Scheduler
from kubeqos.simulation.hosts import Host
from kubeqos.simulation.measures import Measures, Outcome, PodRecord
from kubeqos.simulation.scenario import Scenario, Workload

GRACE_SECONDS = 30.0
"""Kubernetes' default: how long an evicted pod takes to leave."""
RETURN_SECONDS = 10.0
"""How long a controller takes to replace a pod that was evicted or rejected."""


@dataclass(slots=True)
class _Kind:
    """What all pods of one workload have in common."""

    workload: Workload
    spec: bytes
    labels: dict[str, str]
    namespace: str
    whole_cpus: tuple[int, ...]
    grace: float
    made: int = 0


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


def simulate(scenario: Scenario, profiles: tuple[Profile, ...] = (Profile(),), *, name: str = "") -> Outcome:
    """Run it to its end and measure."""
    return Simulation(scenario, profiles).run(name)


class Simulation:
    """A scenario that is ready to be played: what is wrong with it was said when it was made."""

    def __init__(self, scenario: Scenario, profiles: tuple[Profile, ...]) -> None:
        self.scenario = scenario
        self.core = Scheduler(profiles)
        self.hosts: dict[str, Host] = {}
        self.offered: dict[str, Catalog] = {}
        self.pods: dict[str, _Pod] = {}
        self.measures = Measures(scenario)
        self._events: list[_Event] = []
        self._order = 0
        for node in scenario.nodes:
            self.offered[node.name] = catalog(NodeView.of(node.raw).status.qos_resources)
            if node.machine is not None and node.static_cpus:
                self.hosts[node.name] = Host(node, node.machine)
            host = self.hosts.get(node.name)
            self.core.node_changed(host.object() if host else encode_json(node.raw), node.name, 0.0)
        for workload in scenario.workloads:
            kind = self._kind(workload)
            for arrival in workload.arrivals:
                self._plan(arrival.at, kind, runs=arrival.runs)

    def run(self, name: str) -> Outcome:
        """Every event up to the end, and all decisions after each."""
        while (now := self._next()) < self.scenario.duration:
            self.measures.advance(now, self.hosts.values())
            while self._events and self._events[0].at == now:
                self._happen(heapq.heappop(self._events), now)
            self._decide(now)
        self.measures.advance(self.scenario.duration, self.hosts.values())
        return self.measures.outcome(name, [pod.record for pod in self.pods.values()], self.core.counters)

    def _next(self) -> float:
        """When something happens, or the scheduler wants to look again."""
        due = self.core.next_wake
        return min(self._events[0].at if self._events else math.inf, math.inf if due is None else due)

    # -- events --------------------------------------------------------------------------------------------------------

    def _plan(self, at: float, kind: _Kind, *, runs: float | None = None, uid: str = "") -> None:
        self._order += 1
        heapq.heappush(self._events, _Event(at, self._order, kind, runs, uid))

    def _happen(self, event: _Event, now: float) -> None:
        if event.uid:
            self._leave(event.uid, now)
            return
        kind = event.kind
        kind.made += 1
        uid = f"{kind.workload.name}-{kind.made}"
        self.pods[uid] = _Pod(PodRecord(uid, kind.workload.name, now), kind, event.runs)
        self.measures.pending += 1
        self.core.pod_changed(_raw_pod(kind, uid), uid, now)

    def _leave(self, uid: str, now: float) -> None:
        pod = self.pods[uid]
        if pod.record.ended is not None:
            return  # evicted before its time was up, or the other way round
        pod.record.ended = now
        pod.record.fate = "evicted" if pod.leaving else "finished"
        self._give_back(pod, now)
        if pod.leaving:
            self._return(pod, now)

    def _give_back(self, pod: _Pod, now: float, rejected: bytes | None = None) -> None:
        node, uid = pod.record.node, pod.record.name
        self._measure(uid, node, -1)
        host = self.hosts.get(node)
        if host is not None and uid in host.held:
            host.release(uid)
            self._publish(host, now)
        self.core.pod_changed(rejected, uid, now)

    def _return(self, pod: _Pod, now: float) -> None:
        if pod.kind.workload.replace:
            self._plan(now + RETURN_SECONDS, pod.kind, runs=pod.runs)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        """One decision at a time: a node's answer to one pod is known before the next is placed."""
        self.core.queue.flush(now)
        self.core.tick(now)
        while self.core.queue.has_work:
            for effect in list(self.core.step(now, limit=1)):
                self._perform(effect, now)

    def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case Bind():
                self._bind(self.pods[effect.pod.uid], effect.node, now)
            case Report():
                self.pods[effect.pod.uid].record.because = effect.message
            case Evict():
                victim = self.pods[effect.victim.uid]
                victim.leaving = True
                victim.record.because = f"preempted by {effect.preemptor.name}"
                self._plan(now + victim.kind.grace, victim.kind, uid=effect.victim.uid)

    def _bind(self, pod: _Pod, node: str, now: float) -> None:
        uid = pod.record.name
        pod.record.node, pod.record.started, pod.record.because = node, now, ""
        self.measures.pending -= 1
        self._measure(uid, node, +1)
        host = self.hosts.get(node)
        if host is not None and pod.kind.whole_cpus:
            refused = host.admit(uid, pod.kind.whole_cpus)
            if refused is not None:
                pod.record.ended, pod.record.fate, pod.record.because = now, "rejected", refused
                self._give_back(pod, now, _rejected_pod(uid, node, refused))
                self._return(pod, now)
                return
            self._publish(host, now)
        if pod.runs is not None:
            self._plan(now + pod.runs, pod.kind, uid=uid)

    def _measure(self, uid: str, node: str, sign: int) -> None:
        shape = self.core.cluster.rows[self.core.cluster.row_of[node]].pods[uid].shape
        self.measures.placed(node, shape, class_use(shape, self.offered[node]), sign)

    def _publish(self, host: Host, now: float) -> None:
        if host.publishes:
            self.core.node_changed(host.object(), host.node.name, now)

    def _kind(self, workload: Workload) -> _Kind:
        view = PodView.of(workload.template)
        if view.spec.scheduler_name not in self.core.profiles:
            raise InputError(
                f"no profile answers to schedulerName {view.spec.scheduler_name!r}",
                where=f"workload {workload.name}",
                remedy=f"the configuration has: {', '.join(self.core.profiles)}",
            )
        # A static CPU manager hands on what init containers had, so only the others count.
        alone = msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, init_containers=[]))
        grace = workload.template["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
        return _Kind(
            workload,
            encode_json({"schedulerName": "default-scheduler", **workload.template["spec"]}),
            dict(view.metadata.labels),
            view.metadata.namespace or "default",
            compile_shape(alone).exclusive_cpus,
            float(grace),
        )


def _raw_pod(kind: _Kind, uid: str) -> bytes:
    metadata = {"name": uid, "namespace": kind.namespace, "uid": uid, "labels": kind.labels}
    return b'{"metadata":%b,"spec":%b}' % (encode_json(metadata), kind.spec)


def _rejected_pod(uid: str, node: str, because: str) -> bytes:
    status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": f"Pod was rejected: {because}"}
    return encode_json({"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node}, "status": status})


def reasons(outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Why pods still wait, were rejected or evicted, the most frequent first."""
    counted = Counter(f"{pod.workload}: {pod.because}" for pod in outcome.pods if pod.because)
    yield from counted.most_common()
