"""What a plugin author sees: requests and capacities as plain values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.podmarks import QOS_LEVEL_KEY, RECLAIMED_CORES
from kubeqos.model.annotations.topologysummary import Division
from kubeqos.model.annotations.wellknown import HELD_ANNOTATION
from kubeqos.qrm.messages import WHOLE_POD, hint_from_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.topology.alignment.hints import ANYWHERE, Hint


class Refuse(KubeqosError):
    """Raised by a plugin that cannot give what is asked for; the text reaches the pod's events."""


class Kind(enum.StrEnum):
    """What a container is to its pod."""

    INIT = "INIT"
    MAIN = "MAIN"
    SIDECAR = "SIDECAR"
    EPHEMERAL = "EPHEMERAL"


@dataclass(frozen=True, slots=True)
class Request:
    """One resource that one container asks for. `quantity` is in the plugin's own unit, 0 for an implicit request."""

    pod_uid: str
    resource: str
    quantity: float = 0.0
    namespace: str = "default"
    pod: str = ""
    container: str = "main"
    kind: Kind = Kind.MAIN
    index: int = 0
    role: str = ""
    type: str = ""
    hint: Hint = ANYWHERE
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    qos_class: str = ""
    runtime_class: str = ""
    held: str = ""
    """What a running container has of the resource, in a request that repeats one whose answer the plugin forgot."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a resource this machine has. `node` puts it into Node status."""

    total: float
    allocatable: float | None = None
    by_numa: Mapping[int, float] = field(default_factory=dict)
    """What each NUMA node may hand out; together as much as is allocatable."""
    node: bool = False
    division: Division | None = None
    """How the plugin divides it among pods, so that the scheduler sends none here that the plugin would refuse."""
    requested: Mapping[str, float] = field(default_factory=dict)
    """What the containers of each pool of the division request, for people to see."""
    total_by_numa: Mapping[int, float] = field(default_factory=dict)
    """What each NUMA node has; as `by_numa` where all of it may be handed out."""

    def spread(self) -> Mapping[int, float]:
        """The total by NUMA node; nothing where that is not known: parts that do not make up the whole mislead."""
        whole = self.allocatable is None or self.allocatable == self.total
        return self.total_by_numa or (self.by_numa if whole else {})


def request_from_wire(sent: pb.ResourceRequest) -> Request:
    return Request(
        pod_uid=sent.pod_uid,
        resource=sent.resource_name,
        quantity=quantity_of(sent.resource_name, sent.resource_requests, sent.annotations),
        namespace=sent.pod_namespace,
        pod=sent.pod_name,
        container=sent.container_name,
        kind=Kind(pb.ContainerType.Name(sent.container_type)),
        index=sent.container_index,
        role=sent.pod_role,
        type=sent.pod_type,
        hint=hint_from_wire(sent.hint),
        labels=dict(sent.labels),
        annotations=dict(sent.annotations),
        qos_class=sent.native_qos_class,
        runtime_class=sent.runtime_class,
        held=sent.annotations.get(HELD_ANNOTATION, ""),
    )


def pod_request_from_wire(sent: pb.PodResourceRequest) -> Request:
    """A pod as a whole asks like a main container without a name."""
    return Request(
        pod_uid=sent.pod_uid,
        resource=sent.resource_name,
        quantity=quantity_of(sent.resource_name, sent.resource_requests, sent.annotations),
        namespace=sent.pod_namespace,
        pod=sent.pod_name,
        container=WHOLE_POD,
        role=sent.pod_role,
        type=sent.pod_type,
        hint=hint_from_wire(sent.hint),
        labels=dict(sent.labels),
        annotations=dict(sent.annotations),
        held=sent.annotations.get(HELD_ANNOTATION, ""),
    )


def quantity_of(resource: str, requests: Mapping[str, float], annotations: Mapping[str, str]) -> float:
    """The amount asked for, whichever name it travels under.

    Managers send it under the pod's own name, or (some, sometimes) under the mapped one, which hides that it counts
    thousandths; but only pods of Katalyst's level reclaimed_cores ask for thousandths (reference, interop traps 2, 3).
    """
    reclaimed = resource == "cpu" and annotations.get(QOS_LEVEL_KEY) == RECLAIMED_CORES
    for spelled, amount in requests.items():
        hidden = spelled == resource and reclaimed
        told = spelled != resource and "milli" in spelled.rpartition("/")[2]
        return amount / 1000 if hidden or told else amount
    return 0.0
