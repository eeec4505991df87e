"""Objects within objects of defined kinds: what of their metadata is pruned, and what is refused."""

from __future__ import annotations

from typing import Any

from kubeqos.rules.embedded import malformed, problems, prune_metadata

EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {
        "one": EMBEDDED, "many": {"type": "array", "items": EMBEDDED},
        "named": {"type": "object", "additionalProperties": EMBEDDED},
    },
}  # fmt: skip


def thing(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "free": 1}


def test_unknown_metadata_is_pruned_wherever_an_object_is() -> None:
    obj = {"one": thing(bogus=1), "many": [thing(ownerReferences=[{"name": "x", "bogus": 1}])], "named": {"a": thing()}}
    assert prune_metadata(obj, SCHEMA) == ["one.metadata.bogus", "many[0].metadata.ownerReferences[0].bogus"]
    assert obj["one"] == thing()
    assert "bogus" not in obj["many"][0]["metadata"]["ownerReferences"][0]


def test_an_object_says_what_it_is() -> None:
    found = problems({"one": {}, "named": {"a": {"apiVersion": "v1", "kind": "A!"}}}, SCHEMA)
    assert [error.field for error in found] == ["one.apiVersion", "one.kind", "named[a].kind"]


def test_metadata_that_cannot_be_read_is_named() -> None:
    assert malformed({"one": thing(name="x")}, SCHEMA) is None
    found = malformed({"many": [thing(labels={"a": 1})]}, SCHEMA)
    assert found is not None
    assert found.field == "many[0].metadata"
    assert "ObjectMeta.labels" in str(found)
