"""What the scheduler reads of objects: the fields of a pod that decide what to do with it, and a node's facts. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from kubeqos.codec import decode_json
from kubeqos.errors import InputError
from kubeqos.model.annotations.computepolicies import any_policy, may_have_policy
from kubeqos.model.annotations.podmarks import may_be_marked, only_marks
from kubeqos.model.annotations.published import decode_machine
from kubeqos.model.annotations.topologysummary import NO_SUMMARY, decode_topology
from kubeqos.model.annotations.wellknown import (
    DRIVERS_ANNOTATION,
    MACHINE_ANNOTATION,
    PLACEMENT_ANNOTATION,
    RUNTIME_HANDLER_ANNOTATION,
    TOPOLOGY_ANNOTATION,
)
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeView, OwnerReference
from kubeqos.placement.nodes import NodeFacts

_HANDLER = RUNTIME_HANDLER_ANNOTATION.encode()


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: msgspec.Raw = msgspec.Raw(b"{}")
    owner_references: msgspec.Raw = msgspec.Raw(b"[]")
    deletion_timestamp: str | None = None

    def marks(self) -> Hashable:
        """Whatever else decides how plugins treat the pod; nothing, for most."""
        text = bytes(self.annotations)
        marked = len(text) > 2 and may_be_marked(text)
        marks = tuple(sorted(only_marks(decode_json(text)).items())) if marked else ()
        if _HANDLER in text:
            marks = (*marks, (RUNTIME_HANDLER_ANNOTATION, decode_json(text).get(RUNTIME_HANDLER_ANNOTATION)))
        owners = bytes(self.owner_references)
        if len(owners) <= 2:
            return marks, ()
        # A DaemonSet's pods are treated as daemons, and replicas of one controller are spread.
        return marks, tuple((one.kind, one.name, one.controller) for one in _OWNERS.decode(owners))

    def has_compute_policy(self, containers: Iterable[str]) -> bool:
        """Whether an annotation gives one of its containers to a compute driver (KEP-3675, the form without claims)."""
        text = bytes(self.annotations)
        return may_have_policy(text) and any_policy(decode_json(text), containers) is not None


_NOT_ASKED = ("kubectl.kubernetes.io/last-applied-configuration", PLACEMENT_ANNOTATION)


def seen_by_plugins(annotations: bytes) -> Hashable:
    """A pod's annotations, by value, as a node's plugins and drivers read them: any of them may be decisive."""
    if len(annotations) <= 2:
        return ()
    found: dict[str, str] = decode_json(annotations)
    return tuple(sorted((key, value) for key, value in (found or {}).items() if key not in _NOT_ASKED))


class _Claim(msgspec.Struct, rename="camel"):
    name: str
    source: dict[str, str] = {}
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Container(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    name: str = ""
    image: str = ""
    resources: Any = None
    restart_policy: str | None = None
    ports: Any = None


class _Volume(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A volume of a pod, as far as it is claimed; of others nothing is left, not even the name."""

    persistent_volume_claim: Any = None
    ephemeral: Any = None


class SpecValues(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The fields of a pod's spec that placement reads (those of `PodSpec`), as plain values.

    Left out is what is added to the pod while it runs, and what is mounted into it but for the claims of volumes; no
    quantity is worked out only to compare it.
    """

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[msgspec.Raw] = []
    resource_claims: list[_Claim] = []
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: Any = None
    resources: Any = None
    qos_resources: Any = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None
    topology_spread_constraints: Any = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None
    host_network: bool = False
    volumes: list[_Volume] = []

    @property
    def mounts_claims(self) -> bool:
        return any(one.persistent_volume_claim or one.ephemeral for one in self.volumes)

    def key(self) -> bytes:
        """Equal for pods that ask for the same, whoever wrote them in which order, and whether they have a node yet."""
        return _text_of(msgspec.structs.replace(self, node_name="") if self.node_name else self)


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""


class Envelope(msgspec.Struct):
    """The few fields of a pod that tell what to do with it."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: SpecValues = msgspec.field(default_factory=SpecValues)
    status: _Status = msgspec.field(default_factory=_Status)

    def has_compute_policy(self) -> bool:
        spec = self.spec
        return self.metadata.has_compute_policy(
            one.name for one in (*(spec.init_containers or ()), *(spec.containers or ()))
        )


_OWNERS = msgspec.json.Decoder(list[OwnerReference])
_text_of = msgspec.json.Encoder(order="deterministic").encode
ENVELOPE = msgspec.json.Decoder(Envelope)


def node_facts(view: NodeView) -> NodeFacts:
    """A node as placement sees it, with what its agent publishes in annotations."""
    annotations = view.metadata.annotations
    drivers = frozenset(filter(None, annotations.get(DRIVERS_ANNOTATION, "").split(",")))
    published = annotations.get(TOPOLOGY_ANNOTATION)
    topology = decode_topology(published) if published else NO_SUMMARY
    machine = _machine(annotations.get(MACHINE_ANNOTATION, "")) if topology.compute is not None else None
    return NodeFacts(view, drivers, topology, machine)


@lru_cache(maxsize=512)  # nodes of one model say the same, and a node says it again with every heartbeat
def _machine(text: str) -> Machine | None:
    """What a node says of its machine; nothing in a form that cannot be read."""
    try:
        return decode_machine(text)
    except InputError:
        return None


def same_but_topology(old: NodeFacts, new: NodeFacts) -> bool:
    """Whether nothing changed that placement looks at, but for what the node says of its inside."""
    return (
        old.drivers == new.drivers
        and old.machine is new.machine
        and old.view.spec == new.view.spec
        and old.view.metadata.labels == new.view.metadata.labels
        and old.view.status.allocatable == new.view.status.allocatable
        and old.view.status.qos_resources == new.view.status.qos_resources
        and old.view.status.images == new.view.status.images
    )
