"""The scheduler's decisions: changes of pods and nodes in, effects out. No I/O, no clock.

The shell feeds what informers see and performs the effects; a pod that was given a node is charged at once,
before the API has confirmed it, and given back when that fails. A preemptor's place is held for it until its
victims are gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from kubeqos.model.annotations.topologysummary import grown
from kubeqos.model.decisions import Waiting
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.findings import COMPANY, COMPUTE, DOWN, NUMA, VOLUMES
from kubeqos.placement.fit import feasible, freed_by, nowhere
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.placer import Placed, Placer, Unplaced, told
from kubeqos.placement.preempt import DisruptionBudget, NoPreemption, Preemption, Preemptor
from kubeqos.placement.score import DEFAULT_WEIGHTS, Weights
from kubeqos.placement.shape import Shape, class_needs, pod_amounts
from kubeqos.placement.storage.filters import volume_plan
from kubeqos.ratelimit import RateLimit
from kubeqos.rules.qos.allocated import held_spec
from kubeqos.scheduler.effects import (
    UNSCHEDULABLE,
    WAITING_FOR_VOLUMES,
    Bind,
    BindVolumes,
    Counters,
    Effect,
    Evict,
    Outcome,
    PodKey,
    Report,
)
from kubeqos.scheduler.explaining import waiting
from kubeqos.scheduler.keptoff import KeptOff
from kubeqos.scheduler.queue import ANYTHING, Nominee, QueuedPod, SchedulingQueue
from kubeqos.scheduler.reading import storage
from kubeqos.scheduler.reading.claims import ClaimIndex
from kubeqos.scheduler.reading.objects import ENVELOPE, Envelope, node_facts, same_but_topology
from kubeqos.scheduler.reading.shapes import ShapeMemo
from kubeqos.scheduler.reading.spreading import DefaultSpreading
from kubeqos.scheduler.reading.storage import VolumeIndex, VolumeState
from kubeqos.scheduler.refusals import is_refusal
from kubeqos.scheduler.stories import Stories

_COMPARED_PER_SECOND, _COMPARED_AT_ONCE = 50.0, 512  # are told the next nodes too: that costs a third of a decision


@dataclass(frozen=True, slots=True)
class Profile:
    """One scheduler name and how it weighs nodes."""

    scheduler_name: str = "default-scheduler"
    weights: Weights = DEFAULT_WEIGHTS


class Scheduler:
    """Decides for every pod that names one of its profiles."""

    def __init__(self, profiles: tuple[Profile, ...] = (Profile(),), *, classes: bool = True) -> None:
        self.cluster = Cluster()
        self.queue = SchedulingQueue()
        self.claims = ClaimIndex()
        self.storage = VolumeIndex()
        self.counters = Counters()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._placers = {each.scheduler_name: Placer(self.cluster, each.weights, self._namespaces) for each in profiles}
        self._preemptor = Preemptor(self.cluster, self._namespaces)
        self._shapes = ShapeMemo(classes=classes)
        self._kept_off = KeptOff(self.cluster, self.queue, self._shapes, self._tell_story)
        self.refusals = self._kept_off.backoffs
        self.spreading = DefaultSpreading()
        self._profile_of: dict[str, str] = {}
        self._nominees: dict[str, Nominee] = {}
        self._sent_off: dict[str, QueuedPod] = {}
        """Pods whose binding is on its way: until the API shows it, or refuses it, nobody knows what became of it."""
        self._told: dict[str, tuple[str, str]] = {}
        self._explained: tuple[Unplaced, Waiting] | None = None
        self._compared = RateLimit(_COMPARED_PER_SECOND, _COMPARED_AT_ONCE)
        self._stories = Stories()

    @property
    def profiles(self) -> tuple[str, ...]:
        """The scheduler names it answers to."""
        return tuple(self._placers)

    # -- what happened -----------------------------------------------------------------------------------------------

    def node_changed(self, raw: bytes | None, name: str, now: float) -> None:
        """A node appeared, changed or went away (None)."""
        if raw is None:
            if name in self.cluster.row_of:
                self.cluster.remove_node(name)
                self.refusals.gone(name)
            return
        facts = node_facts(NodeView.read(raw))
        row = self.cluster.row_of.get(name)
        old = self.cluster.rows[row].facts if row is not None else None
        if old is not None and same_but_topology(old, facts):
            if old.topology == facts.topology:
                return  # heartbeats
            freed: list[Hashable] = [NUMA, COMPUTE, DOWN, *grown(old.topology, facts.topology)]
        else:
            freed = [ANYTHING]
        self.cluster.set_node(facts)
        if old is None:
            self.cluster.limit_volumes(name, self.storage.limits(name))
        self.refusals.eased(name, now)
        self.queue.wake(freed, now)

    def pod_changed(self, raw: bytes | None, uid: str, now: float) -> None:
        """A pod appeared, changed or went away (None)."""
        if raw is None:
            self._pod_gone(uid, now)
            return
        envelope = ENVELOPE.decode(raw)
        uid = envelope.metadata.uid
        if envelope.status.phase in ("Succeeded", "Failed"):
            if is_refusal(envelope.status.phase, envelope.status.message) and envelope.spec.node_name:
                self._kept_off.refused(envelope, now)
            self._pod_gone(uid, now)
        elif envelope.spec.node_name:
            self._pod_bound(raw, envelope, now)
        elif envelope.metadata.deletion_timestamp is not None:
            self._pod_gone(uid, now)
        elif envelope.spec.scheduler_name in self._placers and not envelope.spec.scheduling_gates:
            self._pod_waits(raw, envelope, now)

    def namespace_changed(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, which affinity terms may select by."""
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    def budgets_changed(self, budgets: list[DisruptionBudget]) -> None:
        self._preemptor.budgets = budgets

    def claims_changed(self, now: float) -> None:
        """Claims, templates, classes or parameters changed: pods that wait for one are tried again."""
        self.queue.wake(["claims"], now)

    def storage_unreadable(self, why: Mapping[str, str]) -> None:
        """Kinds of storage that cannot be read at present, each with the reason: pods that need them wait."""
        self.storage.unreadable = why

    def storage_changed(self, kind: str, key: str, raw: bytes | None, now: float) -> None:
        """A claim, a volume, a storage class or what CSI drivers say: pods that wait for it are tried again."""
        if not self.storage.seen(kind, key, raw):
            return
        if kind == storage.NODES:
            self.cluster.limit_volumes(key, self.storage.limits(key))
        if kind == storage.CLAIMS:
            self.cluster.claim_drivers[key] = self.storage.driver(key)
            self.queue.wake([(VOLUMES, key)], now)
        else:
            self.queue.wake([VOLUMES], now)

    def volumes_failed(self, pod: PodKey, why: str, now: float) -> None:
        """The API refused what was asked for a pod's claims, or did not answer: decide again after a pause."""
        self.counters.attempts[Outcome.ERROR] += 1
        self._tell_story(pod.uid, now, f"asking for volumes failed: {why}")
        self.storage.give_back(pod.uid)
        nominee = self._step_aside(pod.uid)
        if nominee is not None and pod.uid in self.queue:
            del self._nominees[pod.uid]
            self.queue.retry(nominee.pod, now)

    def bind_failed(self, pod: PodKey, why: str, now: float) -> None:
        """The API refused a binding, or did not answer: give the place back and try again later.

        One that was carried out all the same is bound when this comes, or soon after: its place is its own.
        """
        self.counters.attempts[Outcome.ERROR] += 1
        self._tell_story(pod.uid, now, f"binding failed: {why}")
        waiting = self._sent_off.pop(pod.uid, None)
        if waiting is None:
            return
        if pod.uid in self.cluster.where:
            self._release(pod.uid, now)
        self.queue.retry(waiting, now)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def step(self, now: float, limit: int = 256) -> Iterator[Effect]:
        """Decide for up to `limit` pods."""
        self.tick(now)
        for _ in range(limit):
            pod = self.queue.pop(now)
            if pod is None:
                return
            yield from self._decide(pod, now)

    def _decide(self, pod: QueuedPod, now: float) -> Iterator[Effect]:
        key = PodKey(pod.uid, pod.namespace, pod.name)
        claims = self.claims.state(pod.uid)
        if claims.waits:
            yield from self._unschedulable(pod, key, claims.waits, frozenset({"claims"}), now)
            return
        # The shape was made when the pod came; its claims, and so their drivers, may have come after it.
        pod.shape = self._shapes.with_claims(pod.shape, claims)
        held = self._step_aside(pod.uid)
        volumes = self.storage.state(pod.uid)
        if volumes.waits:
            self._nominees.pop(pod.uid, None)
            message = nowhere(self.cluster, volumes.waits)
            yield from self._unschedulable(pod, key, message, volumes.awaited, now)
            return
        asked = self._kept_off.shape_of(pod) if self.cluster.kept_off else pod.shape
        shape = self.spreading.shape_of(self._shapes.with_volumes(asked, volumes.need))
        placer = self._placers[self._profile_of[pod.uid]]
        answer = self._kept_place(held, shape) or placer.place(shape)
        if isinstance(answer, Placed) and volumes.need is not None and volumes.need.unbound:
            yield from self._bind_volumes(pod, key, answer.node, volumes, now)
        elif isinstance(answer, Placed):
            best = placer.best(shape, answer) if not answer.uncontested and self._compared.allows(now) else ()
            because = told(answer, best) if best else answer.brief
            self._nominees.pop(pod.uid, None)
            self.cluster.add_pod(answer.node, PlacedPod(pod.uid, pod.name, pod.shape, started=now))
            if len(self.refusals):
                self._kept_off.sent(pod, answer.node, now)
            self.queue.remove(pod.uid)
            self._sent_off[pod.uid] = pod
            self.queue.wake([COMPANY], now)
            self._told.pop(pod.uid, None)
            self.counters.attempts[Outcome.SCHEDULED] += 1
            self._tell_story(pod.uid, now, f"placed on {answer.node}: {because}")
            yield Bind(key, answer.node, because, best)
        else:
            yield from self._make_room(pod, key, shape, answer, held, now)

    # -- volumes -----------------------------------------------------------------------------------------------------

    def _bind_volumes(
        self, pod: QueuedPod, key: PodKey, node: str, volumes: VolumeState, now: float
    ) -> Iterator[Effect]:
        """Keep the place, and ask for the volumes of the claims that waited for it, unless that was done before."""
        assert volumes.need is not None
        plan = self.storage.unasked(volume_plan(self.cluster, volumes.need.unbound, node), node)
        self._hold_place(Nominee(pod, node, set(), for_volumes=True))
        if plan.bindings or plan.provisions:
            self.storage.promise(pod.uid, plan, node)
            yield BindVolumes(key, node, plan)
        message = f"waiting for volumes on node {node}: {self.storage.waiting_for(volumes.claims)}"
        yield from self._unschedulable(pod, key, message, volumes.awaited, now, reason=WAITING_FOR_VOLUMES)

    def _kept_place(self, held: Nominee | None, shape: Shape) -> Placed | None:
        """The node for which a pod's volumes were made, while it fits there."""
        row = self.cluster.row_of.get(held.node) if held is not None and held.for_volumes else None
        if row is None or not feasible(self.cluster, shape, np.array([row]), self._namespaces)[0]:
            return None
        return Placed(self.cluster.node_name(row), 0, "its volumes are for this node")

    def _make_room(
        self, pod: QueuedPod, key: PodKey, shape: Shape, answer: Unplaced, held: Nominee | None, now: float
    ) -> Iterator[Effect]:
        waits_for = answer.explanation.waits_for
        if held is not None and any(victim in self.cluster.where for victim in held.victims):
            self._hold_place(held)  # its victims are still leaving; do not evict others meanwhile
            yield from self._unschedulable(pod, key, answer.message, waits_for, now, held.node, answer)
            return
        plan = self._preemptor.preempt(shape if shape.volumes is not None else pod.shape, answer.explanation)
        if isinstance(plan, NoPreemption):
            self._nominees.pop(pod.uid, None)
            message = f"{answer.message} preemption: {plan.message}"
            yield from self._unschedulable(pod, key, message, waits_for, now, answer=answer)
            return
        self._waiting(pod.shape, answer)  # before the place is held: the numbers are those of the decision
        evicted = list(self._evict(pod, key, plan, now))
        yield from evicted
        victims = tuple(one.victim for one in evicted)
        yield from self._unschedulable(pod, key, answer.message, waits_for, now, plan.node, answer, victims)

    def _evict(self, pod: QueuedPod, key: PodKey, plan: Preemption, now: float) -> Iterator[Evict]:
        self.counters.preemptions += 1
        victims: set[str] = set()
        for victim in plan.victims:
            nominee = self._nominees.pop(victim.uid, None)
            if nominee is not None:
                self.cluster.remove_pod(victim.uid)  # only held a place; it has not run yet
                continue
            victims.add(victim.uid)
            self.counters.victims += 1
            self._tell_story(victim.uid, now, f"preempted by {pod.namespace}/{pod.name} on node {plan.node}")
            because = f"priority {victim.shape.priority} is below {pod.shape.priority}"
            yield Evict(PodKey(victim.uid, victim.shape.namespace, victim.name), plan.node, key, because)
        self._tell_story(pod.uid, now, f"evicting {len(victims)} pods from {plan.node} to make room")
        self._hold_place(Nominee(pod, plan.node, victims))

    def _unschedulable(
        self,
        pod: QueuedPod,
        key: PodKey,
        message: str,
        waits_for: frozenset[Hashable],
        now: float,
        nominated: str = "",
        answer: Unplaced | None = None,
        victims: tuple[PodKey, ...] = (),
        reason: str = UNSCHEDULABLE,
    ) -> Iterator[Effect]:
        self.counters.attempts[Outcome.UNSCHEDULABLE] += 1
        self.queue.failed(pod, waits_for, now)
        if self._told.get(pod.uid) != (message, nominated):
            self._told[pod.uid] = (message, nominated)
            self._tell_story(pod.uid, now, message)
            yield Report(key, message, nominated, self._waiting(pod.shape, answer), victims, reason)

    def _waiting(self, shape: Shape, answer: Unplaced | None) -> Waiting | None:
        """Worked out once for all pods that are told the same."""
        if answer is None:
            return None
        if self._explained is None or self._explained[0] is not answer:
            self._explained = answer, waiting(self.cluster, shape, answer.explanation)
        return self._explained[1]

    # -- time passes -------------------------------------------------------------------------------------------------

    @property
    def next_wake(self) -> float | None:
        """When to call `tick` even if nothing happens."""
        return min((due for due in (self.refusals.next_due, self.queue.next_due) if due is not None), default=None)

    def tick(self, now: float) -> None:
        """Time has passed: nodes and pods whose pause is over may be tried again."""
        self.queue.promote(now)
        self._kept_off.tick(now)  # also when nothing is kept off any more: what has passed must not wake anybody again

    # -- places held for preemptors ----------------------------------------------------------------------------------

    def _hold_place(self, nominee: Nominee) -> None:
        pod = nominee.pod
        self._nominees[pod.uid] = nominee
        if nominee.node in self.cluster.row_of:
            self.cluster.add_pod(nominee.node, PlacedPod(pod.uid, pod.name, pod.shape, started=pod.arrived))

    def _step_aside(self, uid: str) -> Nominee | None:
        """Give up a held place while the pod itself is decided."""
        nominee = self._nominees.get(uid)
        if nominee is not None and uid in self.cluster.where:
            self.cluster.remove_pod(uid)
        return nominee

    # -- pods --------------------------------------------------------------------------------------------------------

    def _pod_bound(self, raw: bytes, envelope: Envelope, now: float) -> None:
        uid, node = envelope.metadata.uid, envelope.spec.node_name
        self.queue.remove(uid)
        self.storage.forget(uid)
        self._sent_off.pop(uid, None)
        self._nominees.pop(uid, None)
        self._told.pop(uid, None)
        row = self.cluster.where.get(uid)
        if row is not None:
            if self.cluster.node_name(row) == node:
                if envelope.status.phase == "Running" and len(self.refusals):
                    self._kept_off.runs(row, envelope, now)
                if envelope.metadata.generation > 1:
                    self._recount(raw, envelope, row, now)
                return
            self._release(uid, now)
        if node in self.cluster.row_of:
            shape = self._held_shape(raw, envelope)
            self.cluster.add_pod(node, PlacedPod(uid, envelope.metadata.name, shape, started=now))
            self.queue.wake([COMPANY], now)

    def _recount(self, raw: bytes, envelope: Envelope, row: int, now: float) -> None:
        """A pod whose spec was changed is charged anew, unless it holds what it held."""
        known = self.cluster.rows[row].pods[envelope.metadata.uid]
        shape = self._held_shape(raw, envelope)
        if shape is not known.shape:
            self._release(known.uid, now)
            self.cluster.add_pod(envelope.spec.node_name, msgspec.structs.replace(known, shape=shape))

    def _held_shape(self, raw: bytes, envelope: Envelope) -> Shape:
        """A pod's shape where it runs: one that was changed holds the larger of its wish and what it has."""
        shape = self._shape(raw, envelope)
        if envelope.metadata.generation <= 1:
            return shape
        view = PodView.read(raw)
        spec = held_spec(view)
        classes = class_needs(spec) if shape.class_needs else ()
        if pod_amounts(spec) == shape.requests and classes == shape.class_needs:
            return shape
        held = msgspec.structs.replace(view, spec=spec)
        return self._shapes.compile(held, self.claims.state(envelope.metadata.uid))

    def _pod_waits(self, raw: bytes, envelope: Envelope, now: float) -> None:
        uid = envelope.metadata.uid
        if (sent_off := self._sent_off.get(uid)) is not None:
            sent_off.shape = self._shape(raw, envelope)  # for another try, should the binding fail
            return
        shape = self._shape(raw, envelope)
        if uid in self.queue and self._profile_of.get(uid) == envelope.spec.scheduler_name:
            known = self.queue.get(uid)
            if known is not None and known.shape is shape:
                known.annotations = bytes(envelope.metadata.annotations)
                return  # only its status changed, by ourselves most of the time
        self._profile_of[uid] = envelope.spec.scheduler_name
        meta = envelope.metadata
        queued = QueuedPod(uid, meta.namespace, meta.name, shape, now, annotations=bytes(meta.annotations))
        self.queue.add(queued)

    def _pod_gone(self, uid: str, now: float) -> None:
        self.queue.remove(uid)
        self._sent_off.pop(uid, None)
        self._nominees.pop(uid, None)
        self._told.pop(uid, None)
        self._profile_of.pop(uid, None)
        self.claims.forget(uid)
        self.storage.forget(uid)
        if uid in self.cluster.where:
            self._release(uid, now)

    def _release(self, uid: str, now: float) -> None:
        row = self.cluster.where[uid]
        held = self.cluster.rows[row]
        pod = self.cluster.remove_pod(uid)
        if len(self.refusals):
            self.refusals.eased(self.cluster.node_name(row), now)
        self.queue.wake(freed_by(pod.shape, held.keys_of(pod)), now)

    def _shape(self, raw: bytes, envelope: Envelope) -> Shape:
        if envelope.spec.resource_claims or envelope.has_compute_policy():
            self.claims.pod_seen(envelope.metadata.uid, PodView.read(raw))
        if envelope.spec.mounts_claims and not envelope.spec.node_name:
            self.storage.pod_seen(envelope.metadata.uid, PodView.read(raw))
        return self._shapes.shape_of(raw, envelope, self.claims.state(envelope.metadata.uid))

    # -- the story ---------------------------------------------------------------------------------------------------

    def story(self, uid: str, ahead: float = 0.0) -> list[str]:
        """What was decided about a pod, oldest first; `ahead`: how far the reader's clock is before ours."""
        return self._stories.story(uid, ahead)

    def _tell_story(self, uid: str, now: float, line: str) -> None:
        self._stories.tell(uid, now, line)

    def validate(self) -> list[str]:
        """Broken invariants; empty means sound."""
        wrong = [
            f"{uid} is both queued and placed"
            for uid in self.cluster.where
            if uid in self.queue and uid not in self._nominees
        ]
        for key, column in self.cluster.classes.items():
            if (column.used < 0).any():
                wrong.append(f"class {key} has negative use")
        for name, resource in self.cluster.resources.items():
            if (resource.used < 0).any():
                wrong.append(f"resource {name} has negative use")
        return wrong
