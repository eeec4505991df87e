"""One pod on this node as the machine keeps it: where it stands, what the runtime holds for it, what is under way.

The record works out once what the others ask again and again: when the pod is described anew (`describe`, `allocate`),
which containers it has and what managers see of it; after every stimulus (`assess`), how far each container is. The
rest of this room reads plain attributes.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from kubeqos.model.objects import ContainerView, PodView
from kubeqos.model.timestamps import timestamp
from kubeqos.node.pod.effects import Effect, Raw
from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox, Stage
from kubeqos.node.pod.resize import SANDBOX, resources_changed
from kubeqos.plugins.managers import AdmittedPod

if TYPE_CHECKING:  # a journal knows statuses, which know records
    from kubeqos.node.pod.journal import Journal

ProbeKind = Literal["startup", "liveness", "readiness"]
STORY_LENGTH = 64
PROBES: dict[ProbeKind, str] = {
    "startup": "startupProbe",
    "liveness": "livenessProbe",
    "readiness": "readinessProbe",
}
"""Kinds of probes, in the order in which they matter, and where a container describes them."""
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


@dataclass(slots=True, eq=False)
class ContainerRecord:
    """One container of a pod: what the pod says of it, and how far it was at the end of the last step."""

    view: ContainerView
    raw: Raw
    is_init: bool
    """Runs before the app containers, once; a sidecar does not."""
    probes: dict[ProbeKind, Raw]
    instances: Sequence[SeenContainer] = ()
    """All that the runtime holds, newest first."""
    newest: SeenContainer | None = None
    """The newest instance that could be started, or may be; also one that ended and that the runtime holds no more."""
    live: bool = False
    """Whether the newest instance was made and has not ended."""
    started: bool = False
    """Running, and past its startup probe where it has one."""
    ready: bool = False
    """Whether it serves. An init container that is no sidecar is ready once it has succeeded."""


@dataclass(slots=True)
class PodRecord:
    """Everything the machine knows about one pod. Made by `PodRecord.of`."""

    uid: str
    asked: AdmittedPod
    """The pod as it was described last: what it wishes for. `raw` and `view` are its two forms."""
    seen: SeenPod
    admitted: AdmittedPod
    """The pod with the resources that it has now; as it wishes to be while nothing is reserved for it."""
    source: Literal["api", "file", "runtime"] = "api"
    raw: Raw = field(init=False)
    view: PodView = field(init=False)
    state: PodState = PodState.WAITING
    serial: int = 0
    """Counts completed runtime effects, so that an older look at the runtime can be told from a newer one."""
    allocated: bool = False
    """Whether what `admitted` says is reserved for it."""
    containers: dict[str, ContainerRecord] = field(default_factory=dict)
    """By name, in the order in which they start."""
    init: tuple[ContainerRecord, ...] = ()
    apps: tuple[ContainerRecord, ...] = ()
    sidecars: tuple[ContainerRecord, ...] = ()
    ephemeral: tuple[ContainerRecord, ...] = ()
    """Started once, when somebody asks for them; the pod neither waits for them nor lives by them."""
    newest_sandbox: SeenSandbox | None = None
    sandbox: SeenSandbox | None = None
    """The sandbox the pod lives in, if it has one that is ready."""
    live: Sequence[SeenContainer] = ()
    """Every instance that has not ended."""
    app_ran: bool = False
    """Whether an app container was ever made: initialization is over then, whatever is left of it."""
    initialized: bool = False
    """Whether the app containers may run."""
    gone: bool = False
    released: bool = False
    ending: Ending | None = None
    refused: Wait | None = None
    room_from: frozenset[str] = frozenset()
    """Pods that are on their way out so that this one, a critical one, can be admitted."""
    resize: Wait | None = None
    resize_refused_generation: int = -1
    busy: dict[str, Effect] = field(default_factory=dict)
    """What is under way, by what it keeps busy (`lifecycle.target`)."""
    ended: dict[str, SeenContainer] = field(default_factory=dict)
    """How the newest instance of a container ended, by name: known when the runtime holds nothing of it any more."""
    told: list[Effect] = field(default_factory=list)
    """Effects that the present step has decided on before it came to plan the next ones: events, looks."""
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
    probes: dict[tuple[str, ProbeKind], ProbeState] = field(default_factory=dict)
    updates: set[str] = field(default_factory=set)
    """Containers whose resources differ from what was last written; the sandbox too (`resize.SANDBOX`)."""
    started_at: float = 0.0
    start_time: str = ""
    """The same, as the API writes it."""
    status: Raw | None = None
    told_end: bool = False
    """Whether its status says how it ended: what is said then stays."""
    last_conditions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Condition type → (status, last transition time)."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))
    journal: Journal | None = None
    """What the story tells in words, as steps that can be replayed; None where nobody will ask."""
    wake: float | None = None

    @classmethod
    def of(cls, raw: Raw, source: Literal["api", "file", "runtime"] = "api", seen: SeenPod | None = None) -> PodRecord:
        """A pod that was not known before."""
        asked = AdmittedPod.of(raw)
        metadata = asked.view.metadata
        pod = cls(asked.uid, asked, seen or SeenPod(asked.uid, metadata.namespace, metadata.name), asked, source)
        pod._list_containers()
        return pod

    def __post_init__(self) -> None:
        self.raw, self.view = self.asked.raw, self.asked.view

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
        return not self.released and (self.allocated or self.ending is not None or not self.seen.empty)

    @property
    def is_stranded(self) -> bool:
        """Whether all that is left of it is what the runtime refuses to remove. It does not keep back the pod itself.

        containerd 1.6 loses sight of a task whose StartContainer was cut short at the wrong moment, by our own death
        for one, and cannot remove its container until it is started again.
        """
        return all(one.id in self.unremovable for one in self.seen.containers or self.seen.sandboxes)

    # ---- What the pod says

    def describe(self, raw: Raw) -> None:
        """The pod is described anew. What it holds stays as it is until it is resized."""
        self.asked = asked = AdmittedPod.of(raw)
        self.raw, self.view = asked.raw, asked.view
        if not self.allocated or not resources_changed(self.admitted.raw, raw):
            self.admitted = asked
        self._list_containers()

    def allocate(self, raw: Raw) -> None:
        """The pod as it was admitted or resized: that is reserved for it."""
        self.allocated = True
        if raw is not self.admitted.raw:
            self.admitted = self.asked if raw is self.asked.raw else AdmittedPod.of(raw)

    def release(self) -> None:
        """Nothing is reserved for the pod any more: it is shown as it wishes to be."""
        self.allocated, self.admitted = False, self.asked

    def _list_containers(self) -> None:
        spec, raw = self.view.spec, self.raw.get("spec") or {}
        init = zip(spec.init_containers, raw.get("initContainers") or (), strict=True)
        apps = zip(spec.containers, raw.get("containers") or (), strict=True)
        self.init = tuple(ContainerRecord(view, one, not view.is_sidecar, _probes(one)) for view, one in init)
        self.apps = tuple(ContainerRecord(view, one, False, _probes(one)) for view, one in apps)
        self.sidecars = tuple(one for one in self.init if not one.is_init)
        late = zip(spec.ephemeral_containers, raw.get("ephemeralContainers") or (), strict=True)
        self.ephemeral = tuple(ContainerRecord(view, one, False, {}) for view, one in late)
        self.containers = {one.view.name: one for one in (*self.init, *self.apps, *self.ephemeral)}
        self.assess()

    def begin(self, at: float) -> None:
        """When the node took notice of the pod, perhaps in an earlier life: its deadline counts from there."""
        self.started_at, self.start_time = at, timestamp(at)

    def attempts_told(self, name: str) -> int:
        """How many instances of a container its status tells of: the count goes on when the runtime has forgotten."""
        status = self.raw.get("status") or {}
        for key in ("initContainerStatuses", "containerStatuses"):
            for one in status.get(key) or ():
                if one.get("name") == name and one.get("containerID"):
                    return int(one.get("restartCount", 0)) + 1
        return 0

    # ---- What the runtime shows

    def put_container(self, container: SeenContainer) -> None:
        others = tuple(one for one in self.seen.containers if one.id != container.id)
        self.seen = replace(self.seen, containers=(*others, container))

    def put_sandbox(self, sandbox: SeenSandbox) -> None:
        others = tuple(one for one in self.seen.sandboxes if one.id != sandbox.id)
        self.seen = replace(self.seen, sandboxes=(*others, sandbox))

    def drop(self, identity: str) -> None:
        """A container or sandbox is there no more."""
        self.seen = replace(
            self.seen,
            sandboxes=tuple(one for one in self.seen.sandboxes if one.id != identity),
            containers=tuple(one for one in self.seen.containers if one.id != identity),
        )

    def is_broken(self, container: SeenContainer) -> bool:
        return container.stage is Stage.CREATED and container.id in self.broken

    def assess(self) -> None:
        """Work out how far everything is. The machine calls this once per step, when a stimulus has been taken in."""
        seen = self.seen
        self.live = [one for one in seen.containers if one.stage is not Stage.EXITED]
        self.newest_sandbox = max(seen.sandboxes, key=lambda one: (one.attempt, one.created), default=None)
        self.sandbox = self.newest_sandbox if self.newest_sandbox and self.newest_sandbox.ready else None
        instances: dict[str, list[SeenContainer]] = {}
        for one in seen.containers:
            instances.setdefault(one.name, []).append(one)
        for name, container in self.containers.items():
            found = instances.get(name, [])
            found.sort(key=lambda one: (one.attempt, one.created), reverse=True)
            self._assess(name, container, found)
        self.app_ran = any(one.newest is not None for one in self.apps)
        # A sidecar has done its part of the initialization when it is up, any other init container when it is through.
        self.initialized = self.app_ran or all(one.ready if one.is_init else one.started for one in self.init)

    def _assess(self, name: str, container: ContainerRecord, instances: list[SeenContainer]) -> None:
        container.instances = instances
        startable = [one for one in instances if not self.is_broken(one)] if self.broken else instances
        # What has ended stays so, though the runtime has forgotten it: nobody runs it anew, or calls it unborn.
        newest = container.newest = startable[0] if startable else self.ended.get(name)
        if newest is None:
            container.live = container.started = container.ready = False
            return
        container.live = newest.stage is not Stage.EXITED
        if container.live:
            self.ended.pop(name, None)
        else:
            self.ended[name] = newest
        container.started = newest.stage is Stage.RUNNING and self._passes(container, name, "startup", newest.id)
        if container.is_init:
            container.ready = newest.stage is Stage.EXITED and newest.exit_code == 0
        else:
            serves = container.started and newest.id not in self.kill
            container.ready = serves and self._passes(container, name, "readiness", newest.id)

    def _passes(self, container: ContainerRecord, name: str, kind: ProbeKind, identity: str) -> bool:
        """Whether a probe of this instance has passed; one that is not described cannot fail."""
        if kind not in container.probes:
            return True
        state = self.probes.get((name, kind))
        return state is not None and state.id == identity and bool(state.passed)

    # ---- What is under way

    def has_now(self, name: str) -> bool:
        """Whether a container, or the sandbox, may have what was given to it before: one that is not there will be made
        with what its pod has then."""
        if name == SANDBOX:
            return self.sandbox is not None or "sandbox" in self.busy
        return name in self.containers and self.containers[name].live

    def retry_later(self, key: str, now: float) -> float:
        """A runtime call failed: when to try again, later each time."""
        last = self.backoffs.get(key)
        self.backoffs[key] = Backoff(FIRST_RETRY_DELAY, now) if last is None else last.next(now, LONGEST_RETRY_DELAY)
        self.retry_at[key] = now + self.backoffs[key].delay
        return self.retry_at[key]


def _probes(container: Raw) -> dict[ProbeKind, Raw]:
    return {kind: found for kind, key in PROBES.items() if (found := container.get(key)) is not None}
