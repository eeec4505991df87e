"""The scheduler's decisions: changes of pods and nodes in, effects out. No I/O, no clock.

The shell feeds what informers see and performs the effects; a pod that was given a node is charged at once,
before the API has confirmed it, and given back when that fails. A preemptor's place is held for it until its
victims are gone.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from kubeqos.codec import decode_json
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.wellknown import DRIVERS_ANNOTATION, TOPOLOGY_ANNOTATION
from kubeqos.placement.cluster import Cluster, NodeFacts, NumaSummary, PlacedPod, class_use
from kubeqos.placement.findings import COMPANY
from kubeqos.placement.fit import Surroundings, freed_by
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.preempt import DisruptionBudget, NoPreemption, Preemption, Preemptor
from kubeqos.placement.score import DEFAULT_WEIGHTS, Weights
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.scheduler.claims import ClaimIndex
from kubeqos.scheduler.queue import ANYTHING, QueuedPod, SchedulingQueue

_KEPT_SHAPES = 4096
_STORY_LENGTH = 32
_KEPT_STORIES = 10_000


class PodKey(msgspec.Struct, frozen=True, gc=False):
    """A pod as effects name it."""

    uid: str
    namespace: str
    name: str


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Give the pod this node."""

    pod: PodKey
    node: str
    because: str


class Report(msgspec.Struct, frozen=True, gc=False):
    """Tell the user why the pod waits; `nominated` is the node being freed for it."""

    pod: PodKey
    message: str
    nominated: str = ""


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Delete a victim so that a more important pod can have its place."""

    victim: PodKey
    node: str
    preemptor: PodKey


Effect = Bind | Report | Evict


class Outcome(enum.StrEnum):
    """How an attempt ended, as metrics count it."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Profile:
    """One scheduler name and how it weighs nodes."""

    scheduler_name: str = "default-scheduler"
    weights: Weights = DEFAULT_WEIGHTS


@dataclass(slots=True)
class _Nominee:
    """A preemptor whose node is being freed."""

    pod: QueuedPod
    node: str
    victims: set[str]


@dataclass(slots=True)
class Counters:
    """What metrics read."""

    attempts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    preemptions: int = 0
    victims: int = 0


class Scheduler:
    """Decides for every pod that names one of its profiles."""

    def __init__(self, profiles: tuple[Profile, ...] = (Profile(),), *, classes: bool = True) -> None:
        self.cluster = Cluster()
        self.queue = SchedulingQueue()
        self.claims = ClaimIndex()
        self.counters = Counters()
        self._classes = classes
        self._namespaces: dict[str, Mapping[str, str]] = {}
        around = Surroundings(self._namespaces)
        self._placers = {each.scheduler_name: Placer(self.cluster, each.weights, around) for each in profiles}
        self._preemptor = Preemptor(self.cluster, around)
        self._shapes: OrderedDict[Hashable, Shape] = OrderedDict()
        self._profile_of: dict[str, str] = {}
        self._nominees: dict[str, _Nominee] = {}
        self._told: dict[str, tuple[str, str]] = {}
        self._stories: OrderedDict[str, list[str]] = OrderedDict()

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
            return
        facts = node_facts(NodeView.read(raw))
        row = self.cluster.row_of.get(name)
        if row is not None and same_for_placement(self.cluster.rows[row].facts, facts):
            return  # heartbeats
        self.cluster.set_node(facts)
        self.queue.wake([ANYTHING], now)

    def pod_changed(self, raw: bytes | None, uid: str, now: float) -> None:
        """A pod appeared, changed or went away (None)."""
        if raw is None:
            self._pod_gone(uid, now)
            return
        envelope = _ENVELOPE.decode(raw)
        uid = envelope.metadata.uid
        if envelope.status.phase in ("Succeeded", "Failed"):
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
        """Claims, templates or classes changed: pods that wait for one are tried again."""
        self.queue.wake(["claims"], now)

    def bind_failed(self, pod: PodKey, why: str, now: float) -> None:
        """The API refused a binding: give the place back and try again later."""
        self.counters.attempts[Outcome.ERROR] += 1
        self._tell_story(pod.uid, now, f"binding failed: {why}")
        if pod.uid in self.cluster.where:
            self._release(pod.uid, now)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def step(self, now: float, limit: int = 256) -> Iterator[Effect]:
        """Decide for up to `limit` pods."""
        for _ in range(limit):
            pod = self.queue.pop(now)
            if pod is None:
                return
            yield from self._decide(pod, now)

    def _decide(self, pod: QueuedPod, now: float) -> Iterator[Effect]:
        key = PodKey(pod.uid, pod.namespace, pod.name)
        missing = self.claims.missing(pod.uid)
        if missing is not None:
            yield from self._unschedulable(pod, key, f"waiting for {missing}", frozenset({"claims"}), now)
            return
        held = self._step_aside(pod.uid)
        answer = self._placers[self._profile_of[pod.uid]].place(pod.shape)
        if isinstance(answer, Placed):
            self._nominees.pop(pod.uid, None)
            self.cluster.add_pod(answer.node, PlacedPod(pod.uid, pod.name, pod.shape, started=now))
            self.queue.remove(pod.uid)
            self.queue.wake([COMPANY], now)
            self._told.pop(pod.uid, None)
            self.counters.attempts[Outcome.SCHEDULED] += 1
            because = f"best of the nodes that fit, with {answer.points} points"
            self._tell_story(pod.uid, now, f"placed on {answer.node}: {because}")
            yield Bind(key, answer.node, because)
            return
        yield from self._make_room(pod, key, answer, held, now)

    def _make_room(
        self, pod: QueuedPod, key: PodKey, answer: Unplaced, held: _Nominee | None, now: float
    ) -> Iterator[Effect]:
        waits_for = answer.explanation.waits_for
        if held is not None and any(victim in self.cluster.where for victim in held.victims):
            self._hold_place(held)  # its victims are still leaving; do not evict others meanwhile
            yield from self._unschedulable(pod, key, answer.message, waits_for, now, held.node)
            return
        plan = self._preemptor.preempt(pod.shape, answer.explanation)
        if isinstance(plan, NoPreemption):
            self._nominees.pop(pod.uid, None)
            message = f"{answer.message} preemption: {plan.message}"
            yield from self._unschedulable(pod, key, message, waits_for, now)
            return
        yield from self._evict(pod, key, plan, now)
        yield from self._unschedulable(pod, key, answer.message, waits_for, now, plan.node)

    def _evict(self, pod: QueuedPod, key: PodKey, plan: Preemption, now: float) -> Iterator[Effect]:
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
            yield Evict(PodKey(victim.uid, victim.shape.namespace, victim.name), plan.node, key)
        self._tell_story(pod.uid, now, f"evicting {len(victims)} pods from {plan.node} to make room")
        self._hold_place(_Nominee(pod, plan.node, victims))

    def _unschedulable(
        self, pod: QueuedPod, key: PodKey, message: str, waits_for: frozenset[Hashable], now: float, nominated: str = ""
    ) -> Iterator[Effect]:
        self.counters.attempts[Outcome.UNSCHEDULABLE] += 1
        self.queue.failed(pod, waits_for, now)
        if self._told.get(pod.uid) != (message, nominated):
            self._told[pod.uid] = (message, nominated)
            self._tell_story(pod.uid, now, message)
            yield Report(key, message, nominated)

    # -- places held for preemptors ----------------------------------------------------------------------------------

    def _hold_place(self, nominee: _Nominee) -> None:
        pod = nominee.pod
        self._nominees[pod.uid] = nominee
        if nominee.node in self.cluster.row_of:
            self.cluster.add_pod(nominee.node, PlacedPod(pod.uid, pod.name, pod.shape, started=pod.arrived))

    def _step_aside(self, uid: str) -> _Nominee | None:
        """Give up a held place while the pod itself is decided."""
        nominee = self._nominees.get(uid)
        if nominee is not None and uid in self.cluster.where:
            self.cluster.remove_pod(uid)
        return nominee

    # -- pods --------------------------------------------------------------------------------------------------------

    def _pod_bound(self, raw: bytes, envelope: _Envelope, now: float) -> None:
        uid, node = envelope.metadata.uid, envelope.spec.node_name
        self.queue.remove(uid)
        self._nominees.pop(uid, None)
        self._told.pop(uid, None)
        row = self.cluster.where.get(uid)
        if row is not None:
            if self.cluster.node_name(row) == node:
                return
            self._release(uid, now)
        if node in self.cluster.row_of:
            shape = self._shape(raw, envelope)
            self.cluster.add_pod(node, PlacedPod(uid, envelope.metadata.name, shape, started=now))
            self.queue.wake([COMPANY], now)

    def _pod_waits(self, raw: bytes, envelope: _Envelope, now: float) -> None:
        uid = envelope.metadata.uid
        if uid in self.cluster.where and uid not in self._nominees:
            return  # a binding is on its way
        self.claims.pod_names(uid, envelope.metadata.namespace, envelope.spec.resource_claims)
        shape = self._shape(raw, envelope)
        if uid in self.queue and self._profile_of.get(uid) == envelope.spec.scheduler_name:
            known = self.queue.get(uid)
            if known is not None and known.shape is shape:
                return  # only its status changed, by ourselves most of the time
        self._profile_of[uid] = envelope.spec.scheduler_name
        self.queue.add(QueuedPod(uid, envelope.metadata.namespace, envelope.metadata.name, shape, now))

    def _pod_gone(self, uid: str, now: float) -> None:
        self.queue.remove(uid)
        self._nominees.pop(uid, None)
        self._told.pop(uid, None)
        self._profile_of.pop(uid, None)
        self.claims.forget(uid)
        if uid in self.cluster.where:
            self._release(uid, now)

    def _release(self, uid: str, now: float) -> None:
        row = self.cluster.where[uid]
        offered = self.cluster.rows[row].classes
        pod = self.cluster.remove_pod(uid)
        self.queue.wake(freed_by(pod.shape, (key for key, _ in class_use(pod.shape, offered))), now)

    def _shape(self, raw: bytes, envelope: _Envelope) -> Shape:
        """The pod's shape, compiled once for all pods with the same spec, labels and claim drivers."""
        drivers = self.claims.drivers(envelope.metadata.uid)
        key = (
            envelope.metadata.namespace,
            bytes(envelope.metadata.labels),
            _SPEC_BYTES.decode(raw).without_node(envelope.spec.node_name),
            drivers,
        )
        shape = self._shapes.get(key)
        if shape is None:
            view = PodView.read(raw)
            if view.spec.node_name:
                view = msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, node_name=""))
            shape = self._shapes[key] = compile_shape(view, classes=self._classes, claim_drivers=drivers)
            if len(self._shapes) > _KEPT_SHAPES:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(key)
        return shape

    # -- the story ---------------------------------------------------------------------------------------------------

    def story(self, uid: str) -> list[str]:
        """What was decided about a pod, oldest first."""
        return list(self._stories.get(uid, ()))

    def _tell_story(self, uid: str, now: float, line: str) -> None:
        story = self._stories.get(uid)
        if story is None:
            story = self._stories[uid] = []  # most have two lines, and a deque has room for 64
            if len(self._stories) > _KEPT_STORIES:
                self._stories.popitem(last=False)
        story.append(f"{now:.3f} {line}")
        del story[:-_STORY_LENGTH]

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


# -- reading objects ---------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    labels: msgspec.Raw = msgspec.Raw(b"{}")
    deletion_timestamp: str | None = None


class _Claim(msgspec.Struct, rename="camel"):
    name: str
    source: dict[str, str] = {}
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[msgspec.Raw] = []
    resource_claims: list[_Claim] = []


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class _Envelope(msgspec.Struct):
    """The few fields of a pod that tell what to do with it."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _SpecBytes(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")

    def without_node(self, node: str) -> bytes:
        """The spec's text as it was before the pod was bound."""
        text = bytes(self.spec)
        return text.replace(b'"nodeName":"%s",' % node.encode(), b"", 1) if node else text


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_SPEC_BYTES = msgspec.json.Decoder(_SpecBytes)


def node_facts(view: NodeView) -> NodeFacts:
    """A node as placement sees it, with what its agent publishes in annotations."""
    annotations = view.metadata.annotations
    drivers = frozenset(filter(None, annotations.get(DRIVERS_ANNOTATION, "").split(",")))
    summary = NumaSummary()
    if published := annotations.get(TOPOLOGY_ANNOTATION):
        try:
            raw = decode_json(published.encode())
            summary = NumaSummary(str(raw["policy"]), str(raw["scope"]), tuple(int(n) for n in raw["freeCPUs"]))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            summary = NumaSummary()  # a foreign or newer form: place without it
    return NodeFacts(view, drivers, summary)


def same_for_placement(old: NodeFacts, new: NodeFacts) -> bool:
    """Whether nothing changed that placement looks at."""
    return (
        old.numa == new.numa
        and old.drivers == new.drivers
        and old.view.spec == new.view.spec
        and old.view.metadata.labels == new.view.metadata.labels
        and old.view.status.allocatable == new.view.status.allocatable
        and old.view.status.qos_resources == new.view.status.qos_resources
        and old.view.status.images == new.view.status.images
    )
