"""What our components tell the API server by the hundred: bindings and events, as typed values.

Who writes one (scheduler, `client.events`) encodes the value, and the API server reads the same type: the form on the
wire is said here alone. Other clients write them as they like, with their fields in any order.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from kubeqos.codec import encode_json

Text = str | UnsetType


class BindingMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which pod is bound; with a uid only that one, and not a namesake that followed it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}


class BindingTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A pod gets its node."""

    api_version: str
    kind: str
    metadata: BindingMetadata
    target: BindingTarget

    @classmethod
    def to_node(cls, node: str, metadata: BindingMetadata) -> Binding:
        return cls("v1", "Binding", metadata, BindingTarget("v1", "Node", node))


class EventMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    namespace: str
    annotations: dict[str, str] | UnsetType = UNSET


class ObjectReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which object, or which part of it."""

    api_version: Text = UNSET
    kind: Text = UNSET
    namespace: Text = UNSET
    name: Text = UNSET
    uid: Text = UNSET
    resource_version: Text = UNSET
    field_path: Text = UNSET


class EventSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    component: str
    host: Text = UNSET


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Something happened to an object, so many times."""

    api_version: str
    kind: str
    metadata: EventMetadata
    involved_object: ObjectReference
    type: str
    reason: str
    message: str
    source: EventSource
    reporting_component: str
    reporting_instance: str
    first_timestamp: str
    last_timestamp: str
    count: int


Message = Binding | Event


def says_all(message: Message, body: bytes) -> bool:
    """Whether a body that was read as this message says nothing else: no field twice, nothing that was left out.

    The order of the fields does not matter. Reading loses what a body says twice or spells at greater length, and
    writing adds nothing that was not read, so the written form is exactly as long as a body without any of that.
    """
    return len(encode_json(message)) == len(body)
