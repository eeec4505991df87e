"""CustomResourceDefinitions: kinds that come and go while the server runs."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.apiserver.live import LiveServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "replicas": {"type": "integer"},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string"}, "weight": {"type": "number", "default": 1}},
            },
        },
    },
}
STATUS = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}, "selector": {"type": "string"}},
}
SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}}


def version(name: str, *, storage: bool, **more: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": storage, "schema": SCHEMA, **more}


def definition(plural: str, kind: str, group: str = "shop.example.com", **spec: Any) -> dict[str, Any]:
    below = {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    body = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind, "shortNames": [kind.lower()[:2]]},
        "versions": [version("v1", storage=True, subresources=below, additionalPrinterColumns=columns)],
        **spec,
    }
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": body}


@pytest.fixture(scope="module")
def widgets(live: LiveServer) -> str:
    """The path of the objects of a kind that was just defined."""
    made = live.call("POST", DEFINITIONS, definition("widgets", "Widget"))
    assert made.code == 201, made.body
    types = {one["type"]: one["status"] for one in made.body["status"]["conditions"]}
    assert types == {"NamesAccepted": "True", "Established": "True"}
    assert made.body["status"]["storedVersions"] == ["v1"]
    return "/apis/shop.example.com/v1/namespaces/default/widgets"


def test_an_object_is_pruned_completed_and_stored(live: LiveServer, widgets: str) -> None:
    spec = {"size": 3, "unknown": 1, "free": {"any": ["thing"]}, "parts": [{"id": "a"}], "port": "http"}
    made = live.call("POST", widgets, {"metadata": {"name": "one"}, "spec": spec, "status": {"phase": "Done"}})
    assert made.code == 201, made.body
    assert made.body["spec"] == {
        "size": 3, "free": {"any": ["thing"]}, "parts": [{"id": "a", "weight": 1}], "port": "http", "color": "red",
    }  # fmt: skip
    assert "status" not in made.body  # it has a way of its own
    assert made.body["metadata"]["generation"] == 1
    assert any('unknown field \\"spec.unknown\\"' in warning for warning in made.warnings)
    assert live.call("GET", f"{widgets}/one").body == made.body
    strict = live.call("POST", f"{widgets}?fieldValidation=Strict", {"metadata": {"name": "two"}, "spec": spec})
    assert strict.code == 400
    assert 'strict decoding error: unknown field "spec.unknown"' in strict.body["message"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "spec.size: Required value"),
        ({"size": "big"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"size": 1, "color": "blue"}, 'spec.color: Unsupported value: "blue": supported values: "red", "green"'),
        ({"size": 1, "name": "A"}, "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'"),
        ({"size": 1, "port": 1.5}, "spec.port in body must be of type integer,string"),
        ({"size": 1, "labels": {"a": 1}}, 'spec.labels.a in body must be of type string: "integer"'),
        ({"size": 1, "parts": [{}]}, "spec.parts[0].id: Required value"),
    ],
)
def test_what_does_not_fit_its_schema_is_refused(
    live: LiveServer, widgets: str, spec: dict[str, Any], why: str
) -> None:
    answer = live.call("POST", widgets, {"metadata": {"name": "wrong"}, "spec": spec})
    assert answer.code == 422
    assert why in answer.body["message"]


def test_patches_and_generations(live: LiveServer, widgets: str) -> None:
    live.call("POST", widgets, {"metadata": {"name": "patched"}, "spec": {"size": 1}})
    changed = live.call("PATCH", f"{widgets}/patched", {"spec": {"size": 2, "junk": 1}}, MERGE)
    assert (changed.body["spec"]["size"], changed.body["metadata"]["generation"]) == (2, 2)
    assert "junk" not in changed.body["spec"]
    wrong = live.call("PATCH", f"{widgets}/patched", {"spec": {"size": 99}}, MERGE)
    assert wrong.code == 422
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    assert live.call("PATCH", f"{widgets}/patched", {"spec": {}}, strategic).code == 415
    status = live.call("PATCH", f"{widgets}/patched/status", {"status": {"phase": "Done"}, "spec": {"size": 9}}, MERGE)
    assert (status.body["status"], status.body["spec"]["size"]) == ({"phase": "Done"}, 2)
    assert status.body["metadata"]["generation"] == 2


def test_server_side_apply_knows_the_keys_of_lists(live: LiveServer, widgets: str) -> None:
    def apply(manager: str, parts: list[dict[str, Any]]) -> Any:
        body = {
            "apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "applied"},
            "spec": {"size": 1, "parts": parts},
        }  # fmt: skip
        return live.call("PATCH", f"{widgets}/applied?fieldManager={manager}", json.dumps(body), APPLY)

    first = apply("one", [{"id": "a", "weight": 2}])
    assert first.code == 201, first.body
    both = apply("two", [{"id": "b", "weight": 3}])
    assert [part["id"] for part in both.body["spec"]["parts"]] == ["a", "b"]
    conflict = apply("two", [{"id": "a", "weight": 9}])
    assert (conflict.code, conflict.body["reason"]) == (409, "Conflict")


def test_scale(live: LiveServer, widgets: str) -> None:
    live.call("POST", widgets, {"metadata": {"name": "scaled"}, "spec": {"size": 1, "replicas": 2}})
    live.call("PATCH", f"{widgets}/scaled/status", {"status": {"replicas": 1, "selector": "a=b"}}, MERGE)
    scale = live.call("GET", f"{widgets}/scaled/scale").body
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert live.call("PATCH", f"{widgets}/scaled/scale", {"spec": {"replicas": 5}}, MERGE).code == 200
    assert live.call("GET", f"{widgets}/scaled").body["spec"]["replicas"] == 5


def test_objects_are_selected_by_fields_that_the_definition_names(live: LiveServer) -> None:
    fields = [{"jsonPath": path} for path in (".spec.color", ".spec.size", ".status.phase")]
    versions = [version("v1", storage=True, selectableFields=fields), version("v2", storage=False)]
    made = live.call("POST", DEFINITIONS, definition("balls", "Ball", "balls.example.com", versions=versions))
    assert made.code == 201, made.body
    path = "/apis/balls.example.com/v1/namespaces/default/balls"
    for name, spec in (("a", {"size": 1, "color": "green"}), ("b", {"size": 2}), ("c", {"size": 2, "color": "green"})):
        assert live.call("POST", path, {"metadata": {"name": name}, "spec": spec}).code == 201

    def selected(selector: str) -> list[str]:
        answer = live.call("GET", f"{path}?fieldSelector={quote(selector)}")
        assert answer.code == 200, answer.body
        return [one["metadata"]["name"] for one in answer.body["items"]]

    assert selected("spec.color=green") == ["a", "c"]
    assert selected("spec.color!=green") == ["b"]
    assert selected("spec.size=2,spec.color=green") == ["c"]
    assert selected("status.phase=") == ["a", "b", "c"]
    unknown = live.call("GET", f"{path}?fieldSelector=spec.name%3Dx")
    assert (unknown.code, unknown.body["message"]) == (400, "field label not supported: spec.name")
    other = live.call("GET", f"{path.replace('v1', 'v2')}?fieldSelector=spec.color%3Dred")
    assert other.code == 400, "each version says for itself what may be selected"

    since = live.call("GET", path).body["metadata"]["resourceVersion"]
    for color in ("green", "red"):
        assert live.call("PATCH", f"{path}/b", {"spec": {"color": color}}, MERGE).code == 200
    watch = f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=60&fieldSelector=spec.color%3Dgreen"
    told = live.watched(watch, lambda event: event["type"] == "DELETED")
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in told] == [("ADDED", "b"), ("DELETED", "b")]


def test_scale_of_a_kind_that_names_no_selector(live: LiveServer) -> None:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    for plural, kind, scale in (("levers", "Lever", paths), ("knobs", "Knob", {**paths, "labelSelectorPath": ""})):
        below = {"status": {}, "scale": scale}
        versions = [version("v1", storage=True, subresources=below)]
        assert (
            live.call("POST", DEFINITIONS, definition(plural, kind, "dials.example.com", versions=versions)).code == 201
        )
        path = f"/apis/dials.example.com/v1/namespaces/default/{plural}"
        live.call("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 1}})
        unset = live.call("GET", f"{path}/a/scale")
        assert (unset.code, unset.body["reason"]) == (500, "InternalError")
        assert 'the spec replicas field ".spec.replicas" does not exist' in unset.body["message"]
        answer = live.call("PATCH", f"{path}/a/scale", {"spec": {"replicas": 5}}, MERGE)
        assert (answer.code, answer.body["spec"], answer.body["status"]) == (200, {"replicas": 5}, {"replicas": 0})
        assert live.call("GET", f"{path}/a").body["spec"]["replicas"] == 5


def test_columns_discovery_and_openapi(live: LiveServer, widgets: str) -> None:
    live.call("POST", widgets, {"metadata": {"name": "shown"}, "spec": {"size": 4}})
    table = live.call("GET", widgets, headers=TABLE).body
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Size", "Color", "Age"]
    [row] = [one["cells"] for one in table["rows"] if one["cells"][0] == "shown"]
    assert row[:3] == ["shown", 4, "red"]
    found = live.call("GET", "/apis/shop.example.com/v1").body["resources"]
    assert [one["name"] for one in found] == ["widgets", "widgets/scale", "widgets/status"]
    assert "shop.example.com" in [group["name"] for group in live.call("GET", "/apis").body["groups"]]
    document = live.call("GET", "/openapi/v3/apis/shop.example.com/v1").body
    assert "size" in document["components"]["schemas"]["com.example.shop.v1.Widget"]["properties"]["spec"]["properties"]
    assert "com.example.shop.v1.Widget" in live.call("GET", "/openapi/v2").body["definitions"]


def test_a_quota_counts_objects_of_a_defined_kind(live: LiveServer, widgets: str) -> None:
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "few"}})
    hard = {"count/widgets.shop.example.com": "1"}
    live.call("POST", "/api/v1/namespaces/few/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    path = widgets.replace("default", "few")
    assert live.call("POST", path, {"metadata": {"name": "a"}, "spec": {"size": 1}}).code == 201
    second = live.call("POST", path, {"metadata": {"name": "b"}, "spec": {"size": 1}})
    assert (second.code, "exceeded quota: q" in second.body["message"]) == (403, True)


def test_versions_are_views_of_what_is_stored(live: LiveServer) -> None:
    versions = [version("v1beta1", storage=False), version("v1", storage=True)]
    assert live.call("POST", DEFINITIONS, definition("gadgets", "Gadget", versions=versions)).code == 201
    old, new = (f"/apis/shop.example.com/{name}/namespaces/default/gadgets" for name in ("v1beta1", "v1"))
    live.call("POST", old, {"metadata": {"name": "g"}, "spec": {"size": 1}})
    assert live.call("GET", f"{new}/g").body["apiVersion"] == "shop.example.com/v1"
    assert live.call("GET", f"{old}/g").body["apiVersion"] == "shop.example.com/v1beta1"
    assert live.call("PATCH", f"{old}/g", {"spec": {"size": 2}}, MERGE).body["spec"]["size"] == 2
    assert live.call("GET", new).body["items"][0]["spec"]["size"] == 2


def test_a_kind_goes_with_its_objects(live: LiveServer) -> None:
    live.call("POST", DEFINITIONS, definition("trinkets", "Trinket", scope="Cluster"))
    path = "/apis/shop.example.com/v1/trinkets"
    assert live.call("POST", path, {"metadata": {"name": "t"}, "spec": {"size": 1}}).code == 201
    assert live.call("DELETE", f"{DEFINITIONS}/trinkets.shop.example.com").code == 200
    assert live.call("GET", path).code == 404
    live.call("POST", DEFINITIONS, definition("trinkets", "Trinket", scope="Cluster"))
    assert live.call("GET", path).body["items"] == []


def test_rules_that_nobody_evaluates_are_told(live: LiveServer) -> None:
    rules = [{"rule": "self.size > 1"}]
    schema = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": {**SPEC, "x-kubernetes-validations": rules}}}
    }
    made = live.call(
        "POST", DEFINITIONS, definition("ruled", "Ruled", versions=[{**version("v1", storage=True), "schema": schema}])
    )
    assert made.code == 201
    assert any("CEL rules are not evaluated here" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group": "apps"}, "apps is built in"),
        ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy"'),
        (
            {"versions": []},
            "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
        ),
        ({"conversion": {"strategy": "Webhook"}}, 'spec.conversion.strategy: Unsupported value: "Webhook"'),
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            {
                "versions": [
                    {
                        **version("v1", storage=True),
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}},
                    }
                ]
            },
            "properties[a].type: Required value: must not be empty for specified object fields",
        ),
    ],
)
def test_what_is_no_definition(live: LiveServer, change: dict[str, Any], why: str) -> None:
    answer = live.call("POST", DEFINITIONS, definition("wrongs", "Wrong", **change))
    assert answer.code == 422
    assert why in answer.body["message"]


def test_a_kind_may_be_called_as_one_of_ours(live: LiveServer) -> None:
    group = "serving.example.com"
    assert live.call("POST", DEFINITIONS, definition("services", "Service", group)).code == 201
    path = f"/apis/{group}/v1/namespaces/default/services"
    assert live.call("POST", path, {"metadata": {"name": "s"}, "spec": {"size": 1}}).code == 201
    assert live.call("GET", "/api/v1/namespaces/default/services/s").code == 404
