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
    found = _object(raw, key, _is_free(raw))
    found.fields.update(_of_every_object(always=True))
    return found


def _of_every_object(*, always: bool = False) -> dict[str, Field]:
    text = Shape("string")
    metadata = Shape("object", ref="meta/v1.ObjectMeta", object_type=type_named("meta/v1.ObjectMeta"))
    return {
        "apiVersion": Field("apiVersion", text),
        "kind": Field("kind", text),
        "metadata": Field("metadata", metadata, always_written=always),
    }


def _is_free(raw: JsonObject, within: bool = False) -> bool:
    """Whether somebody may write fields that the schema does not name.

    What lies within a free object is as free to whoever applies it, although it is pruned where it names fields itself.
    """
    others = raw.get("additionalProperties")
    if others is not None:
        return others is True
    return within or bool(raw.get("x-kubernetes-preserve-unknown-fields")) or not raw.get("properties")


def _object(raw: JsonObject, key: str, free: bool) -> TypeSchema:
    found = TypeSchema(key, raw.get("x-kubernetes-map-type") == "atomic", [])
    found.free = free
    within = free and bool(raw.get("x-kubernetes-preserve-unknown-fields") or raw.get("properties"))
    found.__dict__["fields"] = {
        name: _field(name, inner, f"{key}.{name}", within) for name, inner in (raw.get("properties") or {}).items()
    }
    if raw.get("x-kubernetes-embedded-resource"):
        found.fields.update(_of_every_object())
    found.__dict__["shape"] = Shape("object", ref=key, object_type=found)
    return found


def _field(name: str, raw: JsonObject, key: str, within: bool) -> Field:
    kind = raw.get("x-kubernetes-list-type", "atomic")
    return Field(
        name,
        _shape(raw, key, within),
        list_type=kind if kind in ("atomic", "set", "map") else "atomic",
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        atomic_map=raw.get("x-kubernetes-map-type") == "atomic",
        keep_zero=True,
        default=raw.get("default"),
    )


def _shape(raw: JsonObject, key: str, within: bool) -> Shape:
    if raw.get("x-kubernetes-int-or-string"):
        return Shape("intstr")
    kind = raw.get("type")
    if kind == "array":
        of = _shape(raw.get("items") or {}, f"{key}[]", within)
        return Shape("list", of=of, object_type=of.object_type if of.kind == "object" else None)
    if kind == "object" and isinstance(raw.get("additionalProperties"), dict):
        of = _shape(raw["additionalProperties"], f"{key}{{}}", within)
        return Shape("map", of=of, object_type=of.object_type if of.kind == "object" else None)
    if kind == "object":
        return Shape("object", ref=key, object_type=_object(raw, key, _is_free(raw, within)))
    return Shape(_SCALARS.get(str(kind), "free"))
