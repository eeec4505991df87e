"""The class provider protocol: the plain values a provider takes and returns.

Called by the relay and by the node's simulated runtime. A vendor subclasses `ClassProvider`, implements `advertise`
and whichever other method the resource needs, and registers the class under the entry point group
`kubeqos.class_providers`; every other method has a default that does nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.errors import RemoteError

ENTRY_POINT_GROUP = "kubeqos.class_providers"
SYSTEM_DEFAULT = ""
"""The class of a subject on which nothing was enforced (KEP-3008, Implicit defaults)."""


class Level(enum.Enum):
    """Who is assigned a class: the pod's sandbox, or one container."""

    POD = "pod"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """One class and how many subjects it takes at the same time; 0 is unlimited."""

    name: str
    capacity: int = 0


@dataclass(frozen=True, slots=True)
class Advertisement:
    """One QoS-class resource of this node, as RuntimeStatus shows it."""

    name: str
    level: Level
    mutable: bool
    classes: tuple[ClassInfo, ...]
    default: str = SYSTEM_DEFAULT
    annotation_stem: str = ""
    """`rdt` or `blockio` when stock kubelets ask for this resource with annotations."""
    deny_pod_annotation: frozenset[str] = frozenset()
    deny_container_annotation: frozenset[str] = frozenset()
    """Classes that annotations of the pod, or of the container, may not ask for."""
    by_annotation: frozenset[str] = frozenset()
    """Classes that annotations may ask for; with none of them annotations are not looked at."""
    retired: frozenset[str] = frozenset()
    """Classes that nobody new gets and no status names: who has one keeps it, over restarts of its container too."""
    handlers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Runtime handlers whose pods are given some of the classes only; pods of all others are given any."""

    scales_shares: bool = False
    """Its classes scale the CPU shares that a container asked for; a status shows those that it asked for."""

    def current(self) -> tuple[ClassInfo, ...]:
        """The classes that are open to everybody."""
        return tuple(c for c in self.classes if c.name not in self.retired) if self.retired else self.classes

    def by_handler(self) -> list[tuple[str, list[str]]]:
        """Runtime handlers whose pods are given some classes only, and which of those that are open."""
        current = [one.name for one in self.current()]
        return [(handler, [cls for cls in current if cls in given]) for handler, given in sorted(self.handlers.items())]

    def is_for(self, handler: str, class_name: str) -> bool:
        """Whether pods of this runtime handler are given the class."""
        return handler not in self.handlers or class_name in self.handlers[handler]

    def withheld(self, handler: str, class_name: str) -> str:
        """Why they are not, in words."""
        whose = f"pods of runtime handler {handler!r}" if handler else "pods without RuntimeClass"
        given = ", ".join(sorted(self.handlers[handler])) or "none"
        return f"class {class_name!r} of QoS resource {self.name!r} is not for {whose}; they get: {given}"

    def default_for(self, handler: str) -> str:
        """The class of those who ask for none."""
        return self.default if self.is_for(handler, self.default) else SYSTEM_DEFAULT

    def find(self, class_name: str) -> ClassInfo | None:
        return next((c for c in self.classes if c.name == class_name), None)


@dataclass(frozen=True, slots=True)
class Subject:
    """The sandbox or container that is given a class. `id` is empty until the runtime has made it."""

    level: Level
    id: str = ""
    sandbox_id: str = ""
    pod_uid: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    container_name: str = ""
    cpu_shares: int = 0
    memory_limit_bytes: int = 0
    pod_qos: str = ""
    """Guaranteed, Burstable or BestEffort, where the node says so (KEP-3008, Pass on Pod QoS class)."""
    runtime_handler: str = ""
    """Of the pod's RuntimeClass; empty for the node's default."""

    def describe(self) -> str:
        pod = f"pod {self.pod_namespace}/{self.pod_name}"
        return pod if self.level is Level.POD else f"container {self.container_name!r} of {pod}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a running subject lives: its first process and its cgroup below the cgroup root."""

    pid: int = 0
    cgroup: str = ""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """(hierarchy, path) of cgroup v1 hierarchies that have it at another path: a runtime that is given a relative path
    goes from its own cgroup, which may differ between them."""

    def within(self, hierarchy: str) -> str:
        """The subject's cgroup in one hierarchy."""
        return next((path for name, path in self.elsewhere if name == hierarchy), self.cgroup)


@dataclass(frozen=True, slots=True)
class Edit:
    """What changes in the CRI request before the runtime sees it."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int | str] = field(default_factory=dict)
    """Fields of LinuxContainerResources by name."""
    unified: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: Edit) -> Edit:
        return Edit(
            {**self.annotations, **other.annotations},
            {**self.resources, **other.resources},
            {**self.unified, **other.unified},
        )

    def __bool__(self) -> bool:
        return bool(self.annotations or self.resources or self.unified)


@dataclass(frozen=True, slots=True)
class ClassRefusal:
    """Why a request cannot be granted, and what would help."""

    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value, exported as a metric."""

    name: str
    help: str
    labels: Mapping[str, str]
    value: float
    counter: bool = False


class SubjectGone(RemoteError):
    """The subject ended before its class could be enforced. Not a failure of the class."""


class ClassProvider:
    """What a vendor implements. Only `advertise` is required.

    Calls arrive on one event loop, each under a deadline. A method that fails raises `KubeqosError`; the relay then
    undoes what the same request had already done.
    """

    acts_in_place = True
    """False for a provider that only edits requests: the relay then need not ask where a subject runs."""
    weighs: frozenset[str] = frozenset()
    """What its classes weigh or protect in a container's cgroup: cpu, memory, io. The relay carries that up to the
    pod's cgroup, where it counts against other pods."""

    news = 0
    """Counts up when what is on offer has changed, or when the provider has gone: it is then asked again."""

    async def advertise(self) -> Sequence[Advertisement]:
        """The resources on offer now. Asked again after each configuration change, and when `news` has grown."""
        raise NotImplementedError

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        """Whether this subject could be given this class. Changes nothing."""
        return None

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        """Edits of the create request (or of an update that the runtime is about to see)."""
        return Edit()

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        """Enforce the class on a subject that has just started. Idempotent: repeated after a restart."""

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        """Take a running subject from one class to another; either may be the system default."""

    async def drifted(self, subject: Subject, place: Place, resource: str, class_name: str) -> Sequence[str]:
        """What somebody else has changed of what `enter` or `move` did; the relay then enters the subject again."""
        return ()

    async def report(self) -> Sequence[Sample]:
        """Measurements, for the metrics endpoint."""
        return ()

    async def withdraw(self, subject: Subject, resource: str, class_name: str) -> None:
        """The subject is gone: release what was kept for it."""

    async def close(self) -> None:
        """The provider is no longer in the configuration, or the relay stops."""
