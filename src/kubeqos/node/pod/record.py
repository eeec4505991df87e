"""One pod on this node as the core keeps it: where it stands, what the runtime holds for it, what is under way."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kubeqos.model.objects import ContainerView, PodView
from kubeqos.node.pod.effects import Effect, Raw, UpdateResources, target
from kubeqos.node.pod.observed import SeenContainer, SeenPod, Stage
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.podqos import effective_class

STORY_LENGTH = 64
FIRST_RESTART_DELAY, LONGEST_RESTART_DELAY = 10.0, 300.0
FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY = 1.0, 30.0


class PodState(enum.StrEnum):
    """Where a pod stands on this node.

    WAITING → ADMITTED → STARTING → RUNNING → TERMINATING → GONE
       ↘ REJECTED (final)                        ↘ FINISHED (ended by itself; its logs stay until it is deleted)
    """

    WAITING = "Waiting"
    ADMITTED = "Admitted"
    STARTING = "Starting"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    FINISHED = "Finished"
    REJECTED = "Rejected"
    GONE = "Gone"


ACTIVE = frozenset({PodState.ADMITTED, PodState.STARTING, PodState.RUNNING})
"""States in which containers are started and kept running."""


class Cause(enum.StrEnum):
    """Why a pod ends."""

    COMPLETED = "completed"
    DELETED = "deleted"
    REMOVED = "removed"
    DEADLINE = "deadline"
    EVICTED = "evicted"
    REJECTED = "rejected"

    @property
    def cleans_up(self) -> bool:
        """Whether containers and sandboxes are removed; otherwise they stay, for their logs."""
        return self in (Cause.DELETED, Cause.REMOVED)


@dataclass(slots=True)
class Ending:
    """How a pod ends: why, since when, and how much time its containers have."""

    cause: Cause
    since: float
    grace_seconds: int
    reason: str = ""
    message: str = ""
    condition: Raw | None = None
    fails: bool = False
    """Whether the pod is Failed whatever its containers did."""


@dataclass(slots=True)
class Backoff:
    """A delay that doubles. `updated` is when it last grew."""

    delay: float
    updated: float

    def next(self, at: float, longest: float) -> Backoff:
        return Backoff(min(self.delay * 2, longest), at)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a container is not started: Kubernetes' reason and a message."""

    reason: str
    message: str


@dataclass(slots=True)
class ProbeState:
    """The results of one probe on one container instance. `passed` None: no verdict yet."""

    id: str
    due: float
    successes: int = 0
    failures: int = 0
    passed: bool | None = None


@dataclass(slots=True)
class PodRecord:
    """Everything the core knows about one pod."""

    uid: str
    raw: Raw
    view: PodView
    seen: SeenPod
    source: Literal["api", "file", "runtime"] = "api"
    state: PodState = PodState.WAITING
    serial: int = 0
    """Counts completed runtime effects, so that an older look at the runtime can be told from a newer one."""
    allocated: Raw | None = None
    """The pod as last admitted or resized: the resources that hold, while `raw` says what is wished for."""
    gone: bool = False
    released: bool = False
    ending: Ending | None = None
    refused: Wait | None = None
    room_from: frozenset[str] = frozenset()
    """Pods that are on their way out so that this one, a critical one, can be admitted."""
    resize: Wait | None = None
    resize_refused_generation: int = -1
    busy: dict[str, Effect] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    """Containers whose image is there for the next attempt."""
    hooks: set[str] = field(default_factory=set)
    """Containers that were just started: their postStart hook is still to run."""
    hooked: set[str] = field(default_factory=set)
    """Containers whose preStop hook has run."""
    broken: set[str] = field(default_factory=set)
    """Containers that could not be started: they are removed and made anew."""
    unremovable: set[str] = field(default_factory=set)
    """Containers and sandboxes that have stopped, and that the runtime refused to remove so far."""
    unsure: bool = False
    """A call to the runtime failed, and may have been carried out all the same: look before anything else is done."""
    kill: dict[str, str] = field(default_factory=dict)
    """Containers to be stopped while the pod lives on: a failed liveness probe or hook (id → why)."""
    probes: dict[tuple[str, str], ProbeState] = field(default_factory=dict)
    updates: set[str] = field(default_factory=set)
    """Containers whose resources differ from what was last written."""
    started_at: float = 0.0
    status: Raw | None = None
    told_end: bool = False
    """Whether its status says how it ended: what is said then stays."""
    last_conditions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Condition type → (status, last transition time)."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))
    wake: float | None = None
    shown_to_managers: AdmittedPod | None = None

    @property
    def key(self) -> str:
        return f"{self.view.metadata.namespace}/{self.view.metadata.name}"

    @property
    def shown(self) -> str:
        """The pod as Kubernetes' messages name it."""
        return f"{self.view.metadata.name}_{self.view.metadata.namespace}({self.uid})"

    @property
    def holds(self) -> bool:
        """Whether resources of the node are, or may be, reserved for it."""
        return not self.released and (self.allocated is not None or self.ending is not None or not self.seen.empty)

    @property
    def is_stranded(self) -> bool:
        """Whether all that is left of it is what the runtime refuses to remove. It does not keep back the pod itself.

        containerd 1.6 loses sight of a task whose StartContainer was cut short at the wrong moment, by our own death
        for one, and cannot remove its container until it is started again.
        """
        return all(one.id in self.unremovable for one in self.seen.containers or self.seen.sandboxes)

    @property
    def in_force(self) -> Raw:
        """The pod with the resources that it has now."""
        return self.raw if self.allocated is None else self.allocated

    def admitted_pod(self) -> AdmittedPod:
        """The pod as managers see it, with the resources that it has now."""
        raw = self.in_force
        if self.shown_to_managers is None or self.shown_to_managers.raw is not raw:
            view = self.view if raw is self.raw else PodView.of(dict(raw))
            self.shown_to_managers = AdmittedPod(view, raw, effective_class(view))
        return self.shown_to_managers

    def raw_container(self, name: str) -> dict[str, Any]:
        spec = self.raw.get("spec") or {}
        for key in ("initContainers", "containers"):
            for container in spec.get(key) or ():
                if container.get("name") == name:
                    found: dict[str, Any] = container
                    return found
        return {}

    def attempts_told(self, name: str) -> int:
        """How many instances of a container its status tells of: the count goes on when the runtime has forgotten."""
        status = self.raw.get("status") or {}
        for key in ("initContainerStatuses", "containerStatuses"):
            for one in status.get(key) or ():
                if one.get("name") == name and one.get("containerID"):
                    return int(one.get("restartCount", 0)) + 1
        return 0

    def containers(self) -> Iterator[ContainerView]:
        yield from self.view.spec.init_containers
        yield from self.view.spec.containers

    @property
    def sidecars(self) -> list[ContainerView]:
        return [one for one in self.view.spec.init_containers if one.is_sidecar]

    def newest(self, name: str) -> SeenContainer | None:
        """The newest instance that could be started, or may be."""
        if not self.broken:
            return self.seen.newest(name)
        return next((one for one in self.seen.instances(name) if not self.is_broken(one)), None)

    def is_broken(self, container: SeenContainer) -> bool:
        return container.stage is Stage.CREATED and container.id in self.broken

    def is_busy(self, *prefixes: str) -> bool:
        return any(key.startswith(prefixes) for key in self.busy)

    def finish(self, effect: Effect) -> bool:
        """An effect is no longer under way; False when a newer one has taken its place."""
        key = target(effect)
        if self.busy.get(key) != effect:
            return False
        del self.busy[key]
        return True

    def retry_later(self, key: str, now: float) -> float:
        """A runtime call failed: when to try again, later each time."""
        last = self.backoffs.get(key)
        self.backoffs[key] = Backoff(FIRST_RETRY_DELAY, now) if last is None else last.next(now, LONGEST_RETRY_DELAY)
        self.retry_at[key] = now + self.backoffs[key].delay
        return self.retry_at[key]

    def succeeded(self, key: str) -> None:
        self.backoffs.pop(key, None)
        self.retry_at.pop(key, None)

    def update_pending(self) -> list[UpdateResources]:
        found = []
        for name in sorted(self.updates):
            seen = self.newest(name)
            if seen is not None and seen.live:
                found.append(UpdateResources(self.uid, name, seen.id))
        return found
