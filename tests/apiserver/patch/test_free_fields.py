"""Server-side apply of fields that a definition leaves free: objects are owned field by field, lists as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.apiserver.patch import Applied, PatchError, Writer, apply_configuration
from kubeqos.model.schema import structural_type

FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KEYED = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
    "items": {"type": "object", "properties": {"id": {"type": "string"}}},
}  # fmt: skip
SCHEMA = structural_type(
    {"type": "object", "properties": {"free": {**FREE, "properties": {"known": KEYED}}}}, "x.example/v1.Box"
)


def apply(live: Applied | None, who: str, free: Any, *, force: bool = False) -> Applied:
    before = None
    if live is not None:
        metadata = {**live.object.get("metadata", {}), "managedFields": live.managed_fields}
        before = {**live.object, "metadata": metadata}
    config = {"apiVersion": "x.example/v1", "kind": "Box", "metadata": {"name": "x"}, "free": free}
    writer = Writer(who, "x.example/v1", "2026-01-01T00:00:00Z")
    return apply_configuration(before, config, SCHEMA, writer, force=force)


def owners(applied: Applied) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in applied.managed_fields}


def test_two_own_parts_of_one_free_field() -> None:
    found = apply(apply(None, "one", {"a": 1, "deep": {"x": 1}}), "two", {"b": 2, "deep": {"y": 2}})
    assert found.object["free"] == {"a": 1, "b": 2, "deep": {"x": 1, "y": 2}}
    assert owners(found) == {
        "one": {"f:free": {"f:a": {}, "f:deep": {".": {}, "f:x": {}}}},
        "two": {"f:free": {"f:b": {}, "f:deep": {".": {}, "f:y": {}}}},
    }


def test_a_list_has_one_owner_unless_the_schema_knows_its_keys() -> None:
    first = apply(None, "one", {"list": [1], "known": [{"id": "a"}]})
    assert apply(first, "two", {"known": [{"id": "b"}]}).object["free"]["known"] == [{"id": "a"}, {"id": "b"}]
    with pytest.raises(PatchError, match=r"\.free\.list"):
        apply(first, "two", {"list": [2]})


def test_what_an_object_held_goes_with_it() -> None:
    found = apply(apply(None, "one", {"a": {"b": 1}, "c": 1}), "two", {"a": "text"}, force=True)
    assert found.object["free"] == {"a": "text", "c": 1}
    assert owners(found) == {"one": {"f:free": {"f:c": {}}}, "two": {"f:free": {"f:a": {}}}}
