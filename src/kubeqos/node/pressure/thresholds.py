"""When a node is short of something, what is given up first: samples and the clock in, effects out. Pure.

The rules are Kubernetes' (thresholds, grace, minimum reclaim, sticky conditions, one pod at a time, node-level reclaim
before any pod); the order of pods is `rules.qos.eviction`'s. The loop around it is `node.pressure.housekeeping`.
`story` tells what was decided and why; `admit` refuses pods that a short node must not take.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kubeqos.model.objects import PodView, Taint
from kubeqos.model.quantity import Format, Quantity
from kubeqos.node.pressure.samples import NodeSample, PodSample
from kubeqos.node.pressure.storagelimits import over_limit
from kubeqos.plugins.managers import Refusal
from kubeqos.rules.qos.eviction import (
    SIGNALS,
    Candidate,
    Filesystems,
    Ranked,
    Ranking,
    Threshold,
    eviction_message,
    in_line,
    rank,
)
from kubeqos.rules.qos.podqos import QosClass, effective_class
from kubeqos.rules.taints import tolerates

REASON = "Evicted"
HARD_GRACE_SECONDS = 1  # what is evicted at once still gets a second to end
CLEANUP_SECONDS = 30.0  # how long the next eviction waits for the last one to be cleaned up
ALLOCATABLE = "allocatableMemory.available"
CONTAINERS, IMAGES = "containers", "images"
_STORY_LENGTH = 200
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")
_CONDITIONS: Mapping[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "MemoryPressure": (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}
Conditions = Mapping[str, tuple[str, str, str]]
"""Condition type → (status, reason, message)."""


@dataclass(frozen=True, slots=True)
class PressureSettings:
    """How a node defends itself."""

    thresholds: Sequence[Threshold] = ()
    transition_seconds: float = 300.0
    max_pod_grace_seconds: int = 0
    ranking: Ranking = Ranking.QOS
    enforce_allocatable: bool = True
    """Also watch what pods together may use: the hard memory threshold holds for it too."""

    def all_thresholds(self) -> tuple[Threshold, ...]:
        if not self.enforce_allocatable:
            return tuple(self.thresholds)
        copies = [replace(one, signal=ALLOCATABLE) for one in self.thresholds if one.signal == "memory.available"]
        return (*self.thresholds, *(one for one in copies if one.is_hard))


@dataclass(frozen=True, slots=True)
class ActivePod:
    """A pod that runs here. Static pods and their mirrors are never evicted; one that is ending is waited for."""

    view: PodView
    static: bool = False
    ending: bool = False

    @property
    def uid(self) -> str:
        return self.view.metadata.uid


# ---- Effects


@dataclass(frozen=True, slots=True)
class SetConditions:
    """The node's pressure conditions are these now."""

    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Free what no pod uses, step by step (`containers`, `images`), then report with `reclaimed`."""

    signal: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvictPod:
    """End one pod. `annotations` go on the event; `because` is its place in the ranking."""

    uid: str
    signal: str
    message: str
    grace_seconds: int
    because: str
    annotations: Mapping[str, str] | None = None
    threshold: str = ""
    available: str = ""
    ranking: tuple[tuple[str, int, str], ...] = ()
    """Everybody who was looked at: uid, place in line (0 stays) and why."""

    @property
    def condition(self) -> Mapping[str, str]:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Tell people about the node."""

    type: str
    reason: str
    message: str


Effect = SetConditions | Reclaim | EvictPod | NodeEvent


# ---- The machine


class Pressure:
    """One node's defence."""

    def __init__(self, settings: PressureSettings) -> None:
        self.settings = settings
        self.thresholds = settings.all_thresholds()
        self.conditions: tuple[str, ...] = ()
        self.evictions: Counter[str] = Counter()
        self.story: deque[str] = deque(maxlen=_STORY_LENGTH)
        self._first_seen: dict[Threshold, float] = {}
        self._met: tuple[Threshold, ...] = ()
        self._condition_seen: dict[str, float] = {}
        self._sampled_at = float("-inf")
        self._leaving: tuple[str, float] | None = None
        self._over_limit: set[str] = set()
        self._told: Conditions | None = None
        self.memory: Mapping[str, Mapping[str, int]] = {}
        """What containers used when they were last seen to run, by pod and name: who has ended since is still there."""

    def step(self, sample: NodeSample, pods: Iterable[ActivePod], now: float) -> list[Effect]:
        """What a new sample calls for: conditions, and reclaim or at most one eviction.

        Pods over their own disk limits go at once, all of them, and nobody else in the same step.
        """
        active = list(pods)
        uids = {*sample.pods, *(pod.uid for pod in active)}
        self.memory = {uid: {**self.memory.get(uid, {}), **_memory(sample.pods.get(uid))} for uid in uids}
        acting = self._observe(sample, now)
        effects: list[Effect] = []
        if (shown := self.shown()) != self._told:
            self._told = shown
            effects.append(SetConditions(shown))
        fresh, self._sampled_at = sample.at > self._sampled_at, max(sample.at, self._sampled_at)
        if not fresh:
            return effects
        greedy = self._over_own_limits(sample, active, now)
        if greedy or not acting or self._waits(active, now):
            return effects + greedy
        worst = _by_urgency(acting)[0]
        effects.append(
            NodeEvent("Warning", "EvictionThresholdMet", f"Attempting to reclaim {SIGNALS[worst.signal].resource}")
        )
        steps = _reclaim_steps(worst.signal, sample.filesystems)
        if steps:
            self._tell(now, f"{worst.signal} is short: freeing unused {' and '.join(steps)} first")
            return [*effects, Reclaim(worst.signal, steps)]
        return effects + self._evict(worst, sample, active, now)

    def reclaimed(self, reclaim: Reclaim, sample: NodeSample, pods: Iterable[ActivePod], now: float) -> list[Effect]:
        """Unused things were freed: is that enough, or has a pod to go?"""
        self._sampled_at = max(sample.at, self._sampled_at)
        still = [one for one in self._met if one.signal == reclaim.signal and _short(one, sample, reclaimed=True)]
        if not still:
            self._tell(now, f"{reclaim.signal}: freeing unused {' and '.join(reclaim.steps)} was enough")
            return []
        return self._evict(_by_urgency(still)[0], sample, list(pods), now)

    def admit(self, pod: ActivePod) -> Refusal | None:
        """Whether a node that is short may take this pod (Kubernetes' rule)."""
        if not self.conditions or Candidate.of("", pod.view.spec, None, static=pod.static).is_critical:
            return None
        if self.conditions == ("MemoryPressure",) and (
            effective_class(pod.view) is not QosClass.BEST_EFFORT
            or any(tolerates(one, _MEMORY_TAINT) for one in pod.view.spec.tolerations)
        ):
            return None
        return Refusal(REASON, f"The node had condition: [{' '.join(self.conditions)}]. ")

    def shown(self) -> Conditions:
        """All pressure conditions as the Node's status shows them."""
        found = {}
        for kind, (short, enough) in _CONDITIONS.items():
            status, (reason, message) = ("True", short) if kind in self.conditions else ("False", enough)
            found[kind] = (status, reason, message)
        return found

    def validate(self) -> list[str]:
        """Broken invariants; empty means sound."""
        wrong = [f"{one} is acted upon but was never seen" for one in self._met if one not in self._first_seen]
        wrong += [
            f"{one.signal} is short but the node does not say so"
            for one in self._met
            if SIGNALS[one.signal].condition not in self.conditions
        ]
        return wrong

    # ---- Observation

    def _observe(self, sample: NodeSample, now: float) -> list[Threshold]:
        """The thresholds to act upon: crossed for as long as their grace, or not yet reclaimed enough."""
        crossed = {one for one in self.thresholds if _short(one, sample)}
        crossed |= {one for one in self._met if _short(one, sample, reclaimed=True)}
        self._first_seen = {one: self._first_seen.get(one, now) for one in self.thresholds if one in crossed}
        for one in crossed:
            self._condition_seen[SIGNALS[one.signal].condition] = now
        before = self.conditions
        self.conditions = tuple(
            kind
            for kind in _CONDITIONS
            if kind in self._condition_seen
            and (self._condition_seen[kind] == now or now - self._condition_seen[kind] < self._transition)
        )
        if before != self.conditions:
            self._tell(now, f"conditions: {', '.join(self.conditions) or 'none'}")
        self._met = tuple(one for one, since in self._first_seen.items() if now - since >= one.grace_seconds)
        return list(self._met)

    @property
    def _transition(self) -> float:
        return self.settings.transition_seconds

    def _waits(self, active: Sequence[ActivePod], now: float) -> bool:
        """Whether the last evicted pod is still on its way out."""
        if self._leaving is None:
            return False
        uid, since = self._leaving
        if any(pod.uid == uid for pod in active) and now - since < CLEANUP_SECONDS:
            return True
        self._leaving = None
        return False

    # ---- Eviction

    def _over_own_limits(self, sample: NodeSample, active: Sequence[ActivePod], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for pod in active:
            used = sample.pods.get(pod.uid)
            over = over_limit(pod.view, used) if used is not None else None
            if over is None or pod.ending or _candidate(pod, sample).is_critical or pod.uid in self._over_limit:
                continue
            signal, message = over
            self.evictions[signal] += 1
            self._over_limit.add(pod.uid)
            self._tell(now, f"evicting {pod.view.metadata.namespace}/{pod.view.metadata.name}: {message}")
            effects.append(EvictPod(pod.uid, signal, message, HARD_GRACE_SECONDS, message.strip()))
        self._over_limit &= {pod.uid for pod in active}
        return effects

    def _evict(self, threshold: Threshold, sample: NodeSample, active: Sequence[ActivePod], now: float) -> list[Effect]:
        by_uid = {pod.uid: pod for pod in active}
        candidates = [_candidate(pod, sample) for pod in active if not pod.ending]
        ranked = rank(threshold.signal, candidates, self.settings.ranking, sample.filesystems)
        for place in ranked:
            if not place.candidate.is_critical:
                line = tuple(in_line(threshold.signal, candidates, ranked, sample.filesystems))
                return [self._eviction(threshold, sample, place, by_uid[place.candidate.name], now, line)]
        self._tell(now, f"{threshold.signal} is short, but no pod may be evicted for it")
        return []

    def _eviction(
        self,
        threshold: Threshold,
        sample: NodeSample,
        place: Ranked,
        pod: ActivePod,
        now: float,
        line: tuple[tuple[str, int, str], ...],
    ) -> EvictPod:
        level = sample.levels[threshold.signal]
        offenders = _offenders(threshold.signal, pod.view, sample)
        resource = SIGNALS[threshold.signal].resource
        least, available = _amount(resource, threshold.minimum.of(level.capacity)), _amount(resource, level.available)
        message = eviction_message(threshold.signal, least, available, offenders)
        annotations = _annotations(resource, offenders) if pod.uid in sample.pods else None
        grace = HARD_GRACE_SECONDS
        if not threshold.is_hard:
            own = pod.view.spec.termination_grace_period_seconds
            grace = min(self.settings.max_pod_grace_seconds, 30 if own is None else own)
        self.evictions[threshold.signal] += 1
        self._leaving = (pod.uid, now)
        self._tell(now, f"evicting {pod.view.metadata.namespace}/{pod.view.metadata.name}: {place.because}")
        return EvictPod(
            pod.uid,
            threshold.signal,
            message,
            grace,
            place.because,
            annotations,
            threshold=str(least),
            available=str(available),
            ranking=line,
        )

    def _tell(self, now: float, what: str) -> None:
        self.story.append(f"{now:.3f} {what}")


def _short(threshold: Threshold, sample: NodeSample, *, reclaimed: bool = False) -> bool:
    level = sample.levels.get(threshold.signal)
    return level is not None and threshold.met(level.available, level.capacity, until_reclaimed=reclaimed)


def _by_urgency(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Memory first: it is what runs out fastest."""
    return sorted(thresholds, key=lambda one: SIGNALS[one.signal].resource != "memory")


def _reclaim_steps(signal: str, filesystems: Filesystems) -> tuple[str, ...]:
    """What the node can free before a pod has to go: dead containers and unused images on the short file system."""
    if not signal.startswith(("nodefs", "imagefs", "containerfs")):
        return ()
    if not filesystems.image:
        return (CONTAINERS, IMAGES)
    on_image_fs = signal.startswith("imagefs")
    if filesystems.split:
        return (IMAGES,) if on_image_fs else (CONTAINERS,)
    return (CONTAINERS, IMAGES) if on_image_fs or signal.startswith("containerfs") else ()


def _candidate(pod: ActivePod, sample: NodeSample) -> Candidate:
    measured = sample.pods.get(pod.uid)
    usage = measured.usage() if measured is not None else None
    return Candidate.of(pod.uid, pod.view.spec, usage, static=pod.static)


def _amount(resource: str, amount: int) -> Quantity:
    return Quantity.from_int(amount, Format.DECIMAL_SI if resource in ("pids", "inodes") else Format.BINARY_SI)


def _annotations(resource: str, offenders: Sequence[tuple[str, Quantity, Quantity]]) -> dict[str, str]:
    """What the event says for machines, under Kubernetes' names; nothing about a pod that was never measured."""
    return {
        "starved_resource": resource,
        "offending_containers": ",".join(name for name, _, _ in offenders),
        "offending_containers_usage": ",".join(str(usage) for _, usage, _ in offenders),
    }


def _offenders(signal: str, pod: PodView, sample: NodeSample) -> list[tuple[str, Quantity, Quantity]]:
    """Containers that use more than they request: (name, usage, request)."""
    resource = SIGNALS[signal].resource
    measured = sample.pods.get(pod.metadata.uid)
    if measured is None or resource not in ("memory", "ephemeral-storage"):
        return []
    requests = {
        one.name: one.resources.requests.get(resource, Quantity.ZERO)
        for one in (*pod.spec.init_containers, *pod.spec.containers)
    }
    found = []
    for container in measured.containers:
        used = container.memory_working_set
        if resource == "ephemeral-storage":
            parts = [part[0] for part in (container.rootfs, container.logs) if part is not None]
            used = sum(parts) if parts else None
        request = requests.get(container.name)
        if used is not None and request is not None and used > request.value():
            found.append((container.name, _amount(resource, used), request))
    return found


def _memory(pod: PodSample | None) -> dict[str, int]:
    running = pod.containers if pod is not None else ()
    return {one.name: one.memory_working_set for one in running if one.memory_working_set is not None}
