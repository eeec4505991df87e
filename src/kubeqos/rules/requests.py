"""What admission is asked and what it answers: a write, the facts of the cluster that decide about it, two answers.

Called by everybody who hands a write to `rules.admission` or adds an opinion of his own to it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from kubeqos.gates import FeatureGates
from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.limits import Limits
from kubeqos.rules.priority import PriorityClasses
from kubeqos.rules.qos.classes import WELL_KNOWN
from kubeqos.rules.qos.classobjects import ClassObjects
from kubeqos.rules.qos.restoredclasses import Origin
from kubeqos.rules.quota import Deltas, Quota

Raw = dict[str, Any]
NO_OBJECTS = ClassObjects()
DEFAULT_GATES = FeatureGates.default()


class Operation(enum.StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class AdmissionRequest(msgspec.Struct, frozen=True):
    """A write that wants to be admitted: what the API server, `kubeqos check` and every further check are asked about.

    `new` belongs to admission from here on and is changed in place, and is None for a delete; `old` is only read, and
    is None for a create.
    """

    operation: Operation
    resource: str
    kind: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""
    old: Raw | None = None
    new: Raw | None = None
    rules: str = ""
    """The kind as defaults and validation know it; the kind's own name when empty."""
    defaulted: bool = False
    """Whether defaults are filled in already: who owns which field is decided between them and the rest."""
    whole: bool = False
    """Whether the client sent back a whole object or template, rather than naming what changes: what it does not know
    is then left out, without it meaning so."""

    @property
    def qualified(self) -> str:
        """The resource as messages and tables of steps name it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def name(self) -> str:
        """The name for messages; a name that is yet to be generated is known by its prefix."""
        metadata = ((self.new if self.new is not None else self.old) or {}).get("metadata") or {}
        return str(metadata.get("name") or metadata.get("generateName") or "")


class Lookup(Protocol):
    """Objects as they are stored, or about to be, for checks that have to look beyond the one in hand."""

    def get(self, kind: str, group: str, namespace: str, name: str) -> Raw | None: ...

    def all(self, kind: str, group: str, namespace: str) -> Iterable[Raw]: ...


Check = Callable[[AdmissionRequest, Raw, Lookup], Sequence[FieldError]]
"""A further opinion on an object that passed everything else, for rooms that the server does not know. It must have
nothing to say about a new pod without claims and annotations, so that such pods need not be shown to it."""


class NodeRoom(msgspec.Struct, frozen=True):
    """What a resize of a pod must fit into: a node's allocatable amounts as they are written, and its system."""

    cpu: str = "0"
    memory: str = "0"
    os: str = ""

    @staticmethod
    def of(node: Raw) -> NodeRoom:
        has = (node.get("status") or {}).get("allocatable") or {}
        labels = (node.get("metadata") or {}).get("labels") or {}
        return NodeRoom(has.get("cpu", "0"), has.get("memory", "0"), labels.get("kubernetes.io/os", ""))


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the rules need to know beside the object. Compiled parts are kept per revision by the caller."""

    namespace_phase: str | None = "Active"
    """None: the namespace does not exist."""
    limits: Sequence[Limits] = ()
    priorities: PriorityClasses = field(default_factory=PriorityClasses)
    quotas: Collection[Quota] = ()
    gates: FeatureGates = DEFAULT_GATES
    container_level: Collection[str] = frozenset(WELL_KNOWN)
    """QoS-class resources that nodes offer to containers; pod-wide requests of them are defaults for containers."""
    class_objects: ClassObjects = NO_OBJECTS
    """What the administrator's QOSClass objects add to the official names, and for whom each class is."""
    nodes: Mapping[str, NodeRoom] = field(default_factory=dict)
    expired: Collection[str] = ()
    """Uids of pods whose grace period is over although they still exist: they are no longer charged."""
    runtime_classes: Mapping[str, Raw] | None = None
    """Those that exist; None where nobody knows, as for a manifest that is checked for another cluster."""
    origins: Sequence[Origin] = ()
    """Templates that the object's may be a copy of, likeliest first; looked up only where it has lost its classes."""


class Admitted(msgspec.Struct, frozen=True):
    """The object to store (None after a delete), what to tell the client, and what each quota is charged."""

    object: Raw | None
    warnings: tuple[str, ...] = ()
    deltas: Deltas = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The answer that the client gets instead."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    """Every reason there is; the message gives as many as Kubernetes would."""
