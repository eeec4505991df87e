"""The quick yes for objects of defined kinds says the same as the whole walk, or nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.codec import encode_json
from kubeqos.rules.conforming import compiled
from kubeqos.rules.customresources import apply_defaults, prune, validate

Raw = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c", "kind", "metadata"])
TEXT = {
    "format": ["date-time", "int32"],
    "enum": [["a", "b"], ["b", 1]],
    "minLength": [0, 1],
    "maxLength": [0, 2],
    "pattern": ["^a", "b$"],
}
WHOLE = {"enum": [[1, 2], [True]], "minimum": [0, 1], "maximum": [1, 3], "exclusiveMinimum": [True], "multipleOf": [2]}
LIST = {
    "minItems": [1],
    "maxItems": [1],
    "x-kubernetes-list-type": ["map", "set"],
    "x-kubernetes-list-map-keys": [["a"], ["a", "b"]],
}
OBJECT = {
    "minProperties": [1],
    "x-kubernetes-preserve-unknown-fields": [True],
    "x-kubernetes-embedded-resource": [True],
}
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-1, 4),
        st.sampled_from([1.0, 1.5]),
        st.sampled_from(["", "a", "b", "ab", "abc"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


def keywords(**choices: list[Any]) -> st.SearchStrategy[Raw]:
    """Some of these keywords, with a default and null now and then."""
    some = {name: st.sampled_from(values) for name, values in choices.items()}
    return st.fixed_dictionaries({}, optional={**some, "nullable": st.booleans(), "default": VALUES})


def typed(kind: str, inner: st.SearchStrategy[Raw]) -> st.SearchStrategy[Raw]:
    return inner.map(lambda one: {"type": kind, **one})


def nested(inner: st.SearchStrategy[Raw]) -> st.SearchStrategy[Raw]:
    fields = st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "required": st.lists(NAMES, max_size=2),
        },
    )
    objects = st.tuples(fields, keywords(**OBJECT)).map(lambda pair: {**pair[0], **pair[1]})
    lists = st.tuples(inner, keywords(**LIST)).map(lambda pair: {"items": pair[0], **pair[1]})
    return st.one_of(typed("object", objects), typed("array", lists))


SCHEMAS: st.SearchStrategy[Raw] = st.recursive(
    st.one_of(
        typed("string", keywords(**TEXT)),
        typed("integer", keywords(**WHOLE)),
        typed("number", keywords()),
        typed("boolean", keywords()),
        st.sampled_from([{}, {"x-kubernetes-int-or-string": True}, {"type": "string", "not": {"enum": ["a"]}}]),
    ),
    nested,
    max_leaves=6,
)
ROOTS = typed("object", st.dictionaries(NAMES, SCHEMAS, max_size=3).map(lambda one: {"properties": one}))


def meant(schema: Raw) -> st.SearchStrategy[Any]:
    """Values of the kind that a schema wants; whether they fit is another question."""
    match schema.get("type"):
        case "object":
            fields = {name: meant(inner) for name, inner in (schema.get("properties") or {}).items()}
            needed = {*(schema.get("required") or ())} & fields.keys()
            others = schema.get("additionalProperties")
            more = st.dictionaries(NAMES, meant(others) if isinstance(others, dict) else VALUES, max_size=1)
            known = st.fixed_dictionaries(
                {name: fields[name] for name in needed},
                optional={name: one for name, one in fields.items() if name not in needed},
            )
            return st.one_of(known, st.tuples(more, known).map(lambda pair: {**pair[0], **pair[1]}))
        case "array":
            return st.lists(meant(schema.get("items") or {}), max_size=2)
        case "string":
            return st.sampled_from(["a", "b", "ab", "", "2026-01-01T00:00:00Z", "2026-01-01"])
        case "integer":
            return st.integers(0, 3)
        case "boolean":
            return st.booleans()
    return VALUES


@st.composite
def schemas_and_objects(draw: st.DrawFn) -> tuple[Raw, Raw]:
    root = draw(st.one_of(ROOTS, ROOTS, SCHEMAS))
    value = draw(st.one_of(meant(root), meant(root), st.dictionaries(NAMES, VALUES, max_size=4)))
    return root, value if isinstance(value, dict) else {"a": value}


@given(pair=schemas_and_objects())
def test_a_yes_means_that_nothing_would_be_taken_out_added_or_refused(pair: tuple[Raw, Raw]) -> None:
    root, value = pair
    if not compiled(root)(value):
        return
    walked = copy.deepcopy(value)
    assert prune(walked, root) == []
    apply_defaults(walked, root)
    assert encode_json(walked) == encode_json(value)
    assert validate(walked, root) == []


PART = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string", "minLength": 1}, "weight": {"type": "integer", "maximum": 3}},
}
MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
PARTS = {"type": "array", "items": PART, "minItems": 1, "maxItems": 2, **MAP}
LABELS = {"type": "object", "additionalProperties": {"type": "string", "nullable": True}}
COLOR = {"type": "string", "enum": ["red", "green"], "default": "red"}
SPEC = {"type": "object", "properties": {"parts": PARTS, "labels": LABELS, "color": COLOR}}
ROOT = {"type": "object", "properties": {"spec": SPEC}, "required": ["spec"]}
GOOD: Raw = {"parts": [{"id": "a", "weight": 3}, {"id": "b"}], "labels": {"x": "y", "z": None}, "color": "red"}


@pytest.mark.parametrize(
    "spec",
    [
        {**GOOD, "unknown": 1},
        {**GOOD, "parts": [{"id": "a"}, {"id": "a"}]},
        {**GOOD, "parts": []},
        {**GOOD, "parts": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
        {**GOOD, "parts": [{"weight": 1}]},
        {**GOOD, "parts": [{"id": ""}]},
        {**GOOD, "parts": [{"id": "a", "weight": 4}]},
        {**GOOD, "parts": [{"id": "a", "weight": True}]},
        {**GOOD, "labels": {"x": 1}},
        {**GOOD, "color": "blue"},
        {name: value for name, value in GOOD.items() if name != "color"},
        None,
    ],
)
def test_what_is_not_fine_as_it_is_gets_no_yes(spec: Raw | None) -> None:
    conforms = compiled(ROOT)
    assert conforms({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}, "spec": GOOD})
    assert not conforms({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}, "spec": spec})
    assert not conforms({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}})
