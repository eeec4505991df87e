"""Types from the schemas of CustomResourceDefinitions, so that patches and server-side apply know them as ours.

A structural schema says for every field what it is; what it does not say is pruned. Called by the API server when a
definition is stored. Zero values are kept: what an author wrote is what he gets.
"""

from __future__ import annotations

from typing import Any

from kubeqos.codec import JsonObject
from kubeqos.model.schema.types import Field, Shape, TypeSchema, type_named

_SCALARS: dict[str, Any] = {"string": "string", "integer": "int64", "number": "float", "boolean": "bool"}


def structural_type(raw: JsonObject, key: str) -> TypeSchema:
    """The type of a kind: the fields of its schema, and those that every object has."""
    found = _object(raw, key)
    text = Shape("string")
    metadata = Shape("object", ref="meta/v1.ObjectMeta", object_type=type_named("meta/v1.ObjectMeta"))
    found.fields.update(
        apiVersion=Field("apiVersion", text), kind=Field("kind", text), metadata=Field("metadata", metadata)
    )
    return found


def _object(raw: JsonObject, key: str) -> TypeSchema:
    found = TypeSchema(key, raw.get("x-kubernetes-map-type") == "atomic", [])
    found.__dict__["fields"] = {
        name: _field(name, inner, f"{key}.{name}") for name, inner in (raw.get("properties") or {}).items()
    }
    found.__dict__["shape"] = Shape("object", ref=key, object_type=found)
    return found


def _field(name: str, raw: JsonObject, key: str) -> Field:
    kind = raw.get("x-kubernetes-list-type", "atomic")
    return Field(
        name,
        _shape(raw, key),
        list_type=kind if kind in ("atomic", "set", "map") else "atomic",
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        atomic_map=raw.get("x-kubernetes-map-type") == "atomic",
        keep_zero=True,
        default=raw.get("default"),
    )


def _shape(raw: JsonObject, key: str) -> Shape:
    if raw.get("x-kubernetes-int-or-string"):
        return Shape("intstr")
    kind = raw.get("type")
    if raw.get("x-kubernetes-preserve-unknown-fields") or raw.get("x-kubernetes-embedded-resource"):
        return Shape("any")
    if kind == "array":
        of = _shape(raw.get("items") or {}, f"{key}[]")
        return Shape("list", of=of, object_type=of.object_type if of.kind == "object" else None)
    if kind == "object" and isinstance(raw.get("additionalProperties"), dict):
        of = _shape(raw["additionalProperties"], f"{key}{{}}")
        return Shape("map", of=of, object_type=of.object_type if of.kind == "object" else None)
    if kind == "object" and raw.get("additionalProperties") is not True:
        return Shape("object", ref=key, object_type=_object(raw, key))
    return Shape(_SCALARS.get(str(kind), "any"))
