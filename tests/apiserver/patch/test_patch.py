"""Patches do what their documentation says, refuse what makes no sense, and never touch what they were given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.patch import PatchError, apply_patch, json_patch, merge_patch, strategic_merge
from kubeqos.apiserver.patch.jsonpatch import MAX_OPERATIONS
from kubeqos.codec import JsonObject
from kubeqos.model import schema

POD = schema.kind("", "v1", "Pod")
DEPLOYMENT = schema.kind("apps", "v1", "Deployment")


def pod(**spec: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec}


def strategic(base: JsonObject, **spec: Any) -> JsonObject:
    spec_after: JsonObject = strategic_merge(base, {"spec": spec}, POD)["spec"]
    return spec_after


def names(items: list[JsonObject]) -> list[str]:
    return [item["name"] for item in items]


MAIN = {"name": "main", "image": "a:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
SIDE = {"name": "side", "image": "b:1"}


def test_a_list_is_merged_by_its_key() -> None:
    after = strategic(pod(containers=[MAIN, SIDE]), containers=[{"name": "side", "image": "b:2"}])
    assert after["containers"] == [MAIN, {"name": "side", "image": "b:2"}]


def test_a_new_item_comes_before_the_items_of_the_server() -> None:
    after = strategic(pod(containers=[MAIN, SIDE]), containers=[{"name": "new", "image": "c"}])
    assert names(after["containers"]) == ["new", "main", "side"]


def test_the_order_can_be_set() -> None:
    order = {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}
    assert names(strategic(pod(containers=[MAIN, SIDE]), **order)["containers"]) == ["side", "main"]


def test_an_item_outside_the_order_is_refused() -> None:
    patch = {"$setElementOrder/containers": [{"name": "main"}], "containers": [{"name": "side", "image": "x"}]}
    with pytest.raises(PatchError, match=r"doesn't match \$setElementOrder list"):
        strategic(pod(containers=[MAIN, SIDE]), **patch)


def test_items_are_deleted_and_lists_replaced() -> None:
    base = pod(containers=[MAIN, SIDE])
    assert strategic(base, containers=[{"name": "side", "$patch": "delete"}])["containers"] == [MAIN]
    assert strategic(base, containers=[{"$patch": "replace"}, {"name": "x"}])["containers"] == [{"name": "x"}]


def test_deep_lists_are_merged_too() -> None:
    patch = {"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
    after = strategic(pod(containers=[MAIN]), containers=[patch])
    assert [(e["name"], e["value"]) for e in after["containers"][0]["env"]] == [("A", "1"), ("B", "3"), ("C", "4")]


def test_primitive_lists_are_merged_and_shortened() -> None:
    base: JsonObject = {"metadata": {"finalizers": ["a", "b"]}}
    added = strategic_merge(base, {"metadata": {"finalizers": ["b", "c"]}}, POD)
    assert added["metadata"]["finalizers"] == ["a", "b", "c"]
    gone = strategic_merge(base, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD)
    assert gone["metadata"]["finalizers"] == ["b"]


def test_lists_without_a_key_are_replaced() -> None:
    base = pod(tolerations=[{"key": "a"}, {"key": "b"}])
    assert strategic(base, tolerations=[{"key": "c"}])["tolerations"] == [{"key": "c"}]


def test_a_union_keeps_the_member_that_the_patch_names() -> None:
    base: JsonObject = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge(base, patch, DEPLOYMENT)["spec"]["strategy"] == {"type": "Recreate"}


def test_the_proposals_lists_are_merged_by_name() -> None:
    base = pod(qosResources=[{"name": "network", "class": "slow"}, {"name": "disk", "class": "a"}])
    after = strategic(base, qosResources=[{"name": "network", "class": "fast"}])
    assert after["qosResources"] == [{"name": "network", "class": "fast"}, {"name": "disk", "class": "a"}]


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"spec": {"$patch": "bogus"}}, 400, "unknown patch type: bogus in map: map[$patch:bogus]"),
        ({"spec": {"$retainKeys": 1}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": [], "nodeName": "n"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$setElementOrder/containers": 5}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"containers": [{"image": "x"}]}},
            400,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        ({"spec": {"containers": [1]}}, 400, "list element types are not identical"),
        ({"spec": {"containers": [[1]]}}, 400, "lists of lists are not supported"),
        (
            {"spec": {"containers": [{"name": "main", "$patch": "merge"}]}},
            400,
            "merging lists cannot yet be specified in the patch",
        ),
    ],
)
def test_a_strategic_patch_that_makes_no_sense(patch: Any, code: int, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        apply_patch("strategic", pod(containers=[MAIN]), patch, POD)
    assert (caught.value.code, caught.value.what) == (code, message)


def test_unknown_fields_warn_or_refuse() -> None:
    base, patch = pod(containers=[MAIN]), {"spec": {"bogus": 1}}
    patched = apply_patch("merge", base, patch, POD)
    assert patched.warnings == ['unknown field "spec.bogus"']
    assert "bogus" not in patched.object["spec"]
    assert apply_patch("merge", base, patch, POD, "Ignore").warnings == []
    with pytest.raises(PatchError, match=r'strict decoding error: unknown field "spec\.bogus"'):
        apply_patch("strategic", base, patch, POD, "Strict")


def test_a_merge_patch_removes_with_null() -> None:
    assert merge_patch({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": {"e": None}}}) == {"a": {"c": 2, "d": {}}}


def test_null_is_no_merge_patch_but_an_empty_strategic_one() -> None:
    with pytest.raises(PatchError, match="Invalid JSON Patch") as caught:
        merge_patch({"a": 1}, None)
    assert caught.value.code == 400
    base = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    assert apply_patch("strategic", base, None, POD).object["metadata"] == {"name": "p"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "bogus", "path": "/a"},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "", "value": {}},
        {"op": "replace", "path": "/list/9", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "move", "from": "/missing", "path": "/a"},
        {"op": "add", "path": 5, "value": 1},
        {"op": "test", "path": "/a"},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/list/x~2", "value": 1},
        {},
        None,
    ],
)
def test_a_json_patch_that_does_not_fit(operation: JsonObject | None) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch({"a": 1, "list": [1]}, [operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


def test_the_limits_of_a_json_patch() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(PatchError, match="maximum operations in a JSON patch is 10000, got 10001") as caught:
        json_patch({"a": 1}, operations)
    assert caught.value.code == 413


def test_a_json_patch_is_laxer_than_the_standard() -> None:
    assert json_patch({"a": {}}, [{"op": "replace", "path": "/a/b", "value": 1}]) == {"a": {"b": 1}}
    assert json_patch({"a": {}}, [{"op": "test", "path": "/a/b", "value": None}]) == {"a": {}}
    assert json_patch({"a": {}}, [{"op": "add", "path": "/a/b"}]) == {"a": {"b": None}}
    assert json_patch({"a": {}}, [{"op": "add", "path": "ignored/c", "value": 1}]) == {"a": {}, "c": 1}


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("style", ["strategic", "merge", "json"])
def test_a_patch_that_is_too_deep(style: Any) -> None:
    deep = nested(900)
    patch = [{"op": "add", "path": "/spec/x", "value": deep}] if style == "json" else {"spec": {"x": deep}}
    try:
        patched = apply_patch(style, pod(containers=[MAIN]), patch, POD)
        assert "x" not in patched.object["spec"]
    except PatchError as error:
        assert error.code == 400


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
STEPS = ["metadata", "spec", "containers", "name", "finalizers", "$patch", "$retainKeys", "$setElementOrder/containers",
         "$deleteFromPrimitiveList/finalizers", "labels", "volumes"]  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS | st.sampled_from(["delete", "replace", "main"]),
    lambda inner: st.dictionaries(st.sampled_from(STEPS), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=14,
)


@settings(max_examples=300)
@given(DOCUMENTS, st.sampled_from(["strategic", "merge"]))
def test_any_patch_is_applied_or_refused_and_leaves_its_inputs_alone(patch: Any, style: Any) -> None:
    base = pod(containers=[MAIN, SIDE], volumes=[{"name": "v", "emptyDir": {}}])
    base["metadata"]["finalizers"] = ["a/b"]
    before = copy.deepcopy((base, patch))
    try:
        patched = apply_patch(style, base, patch, POD)
        assert schema.normalise(patched.object, POD) == patched.object
    except PatchError as error:
        assert 400 <= error.code < 500
    assert (base, patch) == before


OPERATIONS = st.lists(
    st.dictionaries(
        st.sampled_from(["op", "path", "from", "value"]),
        st.sampled_from(
            [
                "add",
                "remove",
                "replace",
                "move",
                "copy",
                "test",
                "/spec",
                "/spec/containers/0",
                "/metadata/x",
                "/spec/containers/-",
                "/",
                "",
                "/metadata/labels",
            ]
        )
        | SCALARS,
        max_size=4,
    )
    | SCALARS,
    max_size=5,
)


@settings(max_examples=300)
@given(OPERATIONS)
def test_any_json_patch_is_applied_or_refused(operations: Any) -> None:
    base = pod(containers=[MAIN, SIDE])
    before = copy.deepcopy(base)
    try:
        apply_patch("json", base, operations, POD)
    except PatchError as error:
        assert 400 <= error.code < 500
    assert base == before


@settings(max_examples=100)
@given(st.permutations(["main", "side", "new", "last"]), st.integers(0, 4))
def test_a_list_always_follows_the_order_that_was_set(order: list[str], kept: int) -> None:
    items = [{"name": name, "image": name} for name in ["main", "side", "new", "last"]]
    patch = {"$setElementOrder/containers": [{"name": name} for name in order[:kept]]}
    after = names(strategic(pod(containers=items), **patch)["containers"])
    assert sorted(after) == sorted(order)
    assert [name for name in after if name in order[:kept]] == order[:kept]
