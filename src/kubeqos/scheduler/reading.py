"""What the scheduler reads of objects: the fields of a pod that decide what to do with it, and a node's facts. Pure."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from kubeqos.codec import decode_json
from kubeqos.model.objects import NodeView
from kubeqos.model.podmarks import may_be_marked, only_marks
from kubeqos.model.topologysummary import NO_SUMMARY, decode_topology
from kubeqos.model.wellknown import DRIVERS_ANNOTATION, TOPOLOGY_ANNOTATION
from kubeqos.placement.cluster import NodeFacts


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    generation: int = 0
    labels: msgspec.Raw = msgspec.Raw(b"{}")
    annotations: msgspec.Raw = msgspec.Raw(b"{}")
    owner_references: msgspec.Raw = msgspec.Raw(b"[]")
    deletion_timestamp: str | None = None

    def marks(self) -> Hashable:
        """Whatever else decides how plugins treat the pod; nothing, for most."""
        text = bytes(self.annotations)
        marked = len(text) > 2 and may_be_marked(text)
        marks = tuple(sorted(only_marks(decode_json(text)).items())) if marked else ()
        return marks, b"DaemonSet" in bytes(self.owner_references)


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
    reason: str = ""
    message: str = ""


class Envelope(msgspec.Struct):
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


ENVELOPE = msgspec.json.Decoder(Envelope)
SPEC_BYTES = msgspec.json.Decoder(_SpecBytes)


def node_facts(view: NodeView) -> NodeFacts:
    """A node as placement sees it, with what its agent publishes in annotations."""
    annotations = view.metadata.annotations
    drivers = frozenset(filter(None, annotations.get(DRIVERS_ANNOTATION, "").split(",")))
    published = annotations.get(TOPOLOGY_ANNOTATION)
    return NodeFacts(view, drivers, decode_topology(published) if published else NO_SUMMARY)


def same_but_topology(old: NodeFacts, new: NodeFacts) -> bool:
    """Whether nothing changed that placement looks at, but for what the node says of its inside."""
    return (
        old.drivers == new.drivers
        and old.view.spec == new.view.spec
        and old.view.metadata.labels == new.view.metadata.labels
        and old.view.status.allocatable == new.view.status.allocatable
        and old.view.status.qos_resources == new.view.status.qos_resources
        and old.view.status.images == new.view.status.images
    )
