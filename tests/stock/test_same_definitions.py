"""Objects of a kind that a definition added, through their whole life: a real kube-apiserver and ours say the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.stock.changes import APPLY, JSON, MERGE, STRATEGIC
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")

Raw = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD, NEW = (f"/apis/shop.example.com/{version}/namespaces/default/toys" for version in ("v1beta1", "v1"))
PARTS = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
    "items": {"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "weight": {"type": "number", "default": 1.5}}},
}  # fmt: skip
SPEC = {
    "type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "count": {"type": "integer"}, "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "deep": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": True}}},
        "when": {"type": "string", "format": "date-time"}, "parts": PARTS,
        "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                   "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}}  # fmt: skip
STATUS = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "selector": {"type": "string"},
        "phase": {"type": "string", "default": "New"},
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large it is."},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
    {"name": "Ids", "type": "string", "jsonPath": ".spec.parts[*].id"},
    {"name": "Heavy", "type": "string", "jsonPath": '.spec.parts[?(@.id=="a")].weight'},
]
SCALE = {
    "specReplicasPath": ".spec.count",
    "statusReplicasPath": ".status.count",
    "labelSelectorPath": ".status.selector",
}


def version(name: str, *, storage: bool) -> Raw:
    properties = {"spec": SPEC, "status": STATUS}
    if not storage:
        properties = {
            "spec": {**SPEC, "properties": {k: v for k, v in SPEC["properties"].items() if k != "tags"}},
            "status": STATUS,
        }
    return {
        "name": name, "served": True, "storage": storage, "subresources": {"status": {}, "scale": SCALE},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "additionalPrinterColumns": COLUMNS,
    }  # fmt: skip


NAMES = {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList", "shortNames": ["ty"]}
TOYS = {
    "metadata": {"name": "toys.shop.example.com"},
    "spec": {"group": "shop.example.com", "scope": "Namespaced", "names": NAMES,
             "versions": [version("v1beta1", storage=False), version("v1", storage=True)]},
}  # fmt: skip


SELECTABLE = [{"jsonPath": f".spec.{path}"} for path in ("color", "size", "deep.on", "when", "labels.a")]
DIALS = "/apis/dials.example.com/v1/namespaces/default/dials"
"""Of a kind whose definition names no selector for its scale, and fields by which objects are selected."""


def dials(plural: str = "dials", kind: str = "Dial", *, scale: Raw | None = None, **more: Raw | list[Raw]) -> Raw:
    below = {"status": {}, "scale": {**SCALE, "labelSelectorPath": "", **(scale or {})}}
    shape = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {**SPEC, "required": []}, "status": STATUS}}}
    one = {"name": "v1", "served": True, "storage": True, "subresources": below, "schema": shape, **more}
    names = {"plural": plural, "kind": kind}
    spec = {"group": "dials.example.com", "scope": "Namespaced", "names": names, "versions": [one]}
    return {"metadata": {"name": f"{plural}.dials.example.com"}, "spec": spec}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        for server in both:
            for one in (TOYS, dials(selectableFields=SELECTABLE)):
                assert server.call("POST", DEFINITIONS, one)[0] == 201
            deadline = time.monotonic() + 60
            while not all(server.raw("GET", path, "application/json")[0] == 200 for path in (OLD, NEW, DIALS)):
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield both


def toy(called: str, api: str = "v1", /, **spec: Any) -> Raw:
    return {
        "apiVersion": f"shop.example.com/{api}",
        "kind": "Toy",
        "metadata": {"name": called},
        "spec": {"size": 1, **spec},
    }


FULL = {
    "size": 3, "unknown": {"a": 1}, "free": {"any": ["thing", None]}, "port": "http", "tags": ["x", "y"],
    "parts": [{"id": "a"}, {"id": "b", "weight": 2, "x": 1}], "labels": {"a": "b"},
}  # fmt: skip
STORY: list[tuple[str, str, Any, str]] = [
    ("POST", NEW, {**toy("full"), "spec": FULL, "status": {"phase": "Done"}, "more": 1}, "application/json"),
    ("POST", f"{NEW}?fieldValidation=Strict", {**toy("strict"), "spec": FULL}, "application/json"),
    ("POST", f"{NEW}?dryRun=All", toy("dry"), "application/json"),
    ("POST", OLD, toy("old", "v1beta1", tags=["gone"]), "application/json"),
    ("POST", OLD, toy("wrong", "v1"), "application/json"),
    ("POST", NEW, toy("nulls", color=None, free=None, labels={"a": None}, name=None), "application/json"),
    ("POST", NEW, toy("Bad_Name"), "application/json"),
    *(("POST", NEW, toy("bad", **wrong), "application/json") for wrong in (
        {"size": 0}, {"size": 11}, {"size": "big"}, {"size": 1.5}, {"color": "blue"}, {"name": "A"}, {"name": "abcdef"},
        {"port": 1.5}, {"labels": {"a": 1}}, {"parts": [{}]}, {"parts": [{"id": "a"}, {"id": "a"}]},
        {"tags": ["x", "x"]}, {"free": 1}, {"parts": {}}, {"when": "never"}, {"size": None},
    )),
    ("GET", f"{NEW}/old", None, ""), ("GET", f"{OLD}/full", None, ""), ("GET", NEW, None, ""), ("GET", OLD, None, ""),
    ("PATCH", f"{NEW}/full", {"spec": {"size": 4, "junk": 1}}, MERGE),
    ("PATCH", f"{NEW}/full", {"spec": {"color": None, "parts": None}}, MERGE),
    ("PATCH", f"{NEW}/full", {"spec": {"size": 99}}, MERGE),
    ("PATCH", f"{NEW}/full", {"spec": {"size": 2}}, STRATEGIC),
    ("PATCH", f"{NEW}/full", [{"op": "replace", "path": "/spec/size", "value": 5}], JSON),
    ("PATCH", f"{NEW}/full", [{"op": "test", "path": "/spec/size", "value": 6}], JSON),
    ("PATCH", f"{OLD}/full", {"spec": {"size": 6}}, MERGE),
    ("PATCH", f"{NEW}/full/status", {"status": {"count": 1, "selector": "a=b", "x": 1}, "spec": {"size": 9}}, MERGE),
    ("PATCH", f"{NEW}/full/status", {"status": {"count": "one"}}, MERGE),
    ("PATCH", f"{NEW}/full", {"status": {"count": 7}}, MERGE),
    ("GET", f"{NEW}/full/status", None, ""),
    ("PATCH", f"{NEW}/full/scale", {"spec": {"replicas": 4}}, MERGE),
    ("PATCH", f"{NEW}/full/scale", {"spec": {"replicas": -4}}, MERGE),
    ("GET", f"{NEW}/full/scale", None, ""),
    *(("PATCH", f"{NEW}/applied?fieldManager={who}", json.dumps(toy("applied", **spec)), APPLY) for who, spec in (
        ("one", {"parts": [{"id": "a", "weight": 2}], "tags": ["a"]}),
        ("two", {"parts": [{"id": "b"}], "tags": ["b"]}),
        ("two", {"parts": [{"id": "a", "weight": 9}]}), ("two&force=true", {"parts": [{"id": "a", "weight": 9}]}),
        ("one", {"size": 2}), ("one&force=true", {"parts": []}),
    )),
    ("POST", NEW, {**toy("many"), "spec": FULL}, "application/json"),
    ("GET", f"{NEW}/applied", None, ""), ("GET", f"{NEW}?limit=1", None, ""),
    ("GET", f"{NEW}?fieldSelector=spec.size%3D1", None, ""), ("DELETE", f"{NEW}/old", None, ""),
    ("DELETE", f"{NEW}/none", None, ""), ("GET", "/apis/shop.example.com/v1", None, ""),
    ("GET", "/apis/shop.example.com", None, ""),
]  # fmt: skip


def shown(reply: Any) -> Any:
    """What is compared of an answer.

    Not the kind of each item of a list, which ours leaves out as built-in kinds do, nor the order of resources and
    verbs.
    """
    code, body = comparable(reply)
    for obj in (body, *body.get("items", ())):
        (obj.get("metadata") or {}).pop("continue", None)
    for item in body.get("items", ()):
        item.pop("kind", None)
        item.pop("apiVersion", None)
    for one in body.get("resources", ()):
        one["verbs"].sort()
    body.get("resources", []).sort(key=lambda one: one["name"])
    # What its scale needs, and a number with a fraction, a real server tells of fields that are none.
    named = [one for one in body.get("causes", ()) if not one[1].startswith(("<nil>", ".status"))]
    return [code, {**body, "causes": named} if "causes" in body else body]


def test_a_toy_lives_the_same_life(servers: tuple[Stock, Ours]) -> None:
    both_tell(servers, STORY)


def dial(called: str, **spec: Any) -> Raw:
    return {"apiVersion": "dials.example.com/v1", "kind": "Dial", "metadata": {"name": called}, "spec": spec}


UNSELECTED: list[tuple[str, str, Any, str]] = [
    ("POST", DIALS, dial("set", count=2), ""), ("POST", DIALS, dial("unset"), ""),
    ("GET", f"{DIALS}/set/scale", None, ""), ("GET", f"{DIALS}/unset/scale", None, ""),
    *(("PATCH", f"{DIALS}/{name}/scale", {"spec": {"replicas": count}}, MERGE)
      for name in ("set", "unset") for count in (4, 0, -1)),
    ("GET", f"{DIALS}/set", None, ""), ("GET", f"{DIALS}/set/scale", None, ""), ("GET", f"{DIALS}/unset", None, ""),
    *(("POST", DEFINITIONS, dials("wrongs", "Wrong", scale=scale), "") for scale in (
        {"specReplicasPath": ""}, {"statusReplicasPath": ""}, {"specReplicasPath": ".count"},
        *({"labelSelectorPath": path} for path in (".", "status.selector", ".spec", ".metadata.labels")),
    )),
]  # fmt: skip


def test_a_scale_needs_no_selector(servers: tuple[Stock, Ours]) -> None:
    both_tell(servers, UNSELECTED, scaled=True)


SELECTED: list[tuple[str, str, Any, str]] = [
    *(("POST", DIALS, dial(name, **spec), "") for name, spec in (
        ("red", {"size": 1}), ("green", {"color": "green", "size": 2}), ("off", {"size": 2, "deep": {"on": False}}),
        ("dated", {"when": "2026-01-01T00:00:00Z", "labels": {"a": "b"}}),
    )),
    *(("GET", f"{DIALS}?fieldSelector={quote(selector)}", None, "") for selector in (
        "spec.color=red", "spec.color!=red", "spec.color=", "spec.size=2", "spec.size=", "spec.size!=2,spec.color=red",
        "spec.deep.on=false", "spec.labels.a=b", "spec.deep.on=true", "spec.when=2026-01-01T00:00:00Z",
        "metadata.name=red", "metadata.name=red,spec.color=green", "spec.name=x", ".spec.color=red", "status.phase=New",
        "spec.deep=x",
    )),
    ("DELETE", f"{DIALS}?fieldSelector=spec.color%3Dgreen", None, ""), ("GET", DIALS, None, ""),
    *(("POST", DEFINITIONS, dials("wrongs", "Wrong", selectableFields=[{"jsonPath": one} for one in paths]), "")
      for paths in (
        [".spec.none"], [".spec.deep"], [".spec.free.a"], [".spec.tags"], [".spec.tags[0]"], [""],
        ["spec.color"], ["."], [".spec."], [".spec.color", ".spec.color"], [".metadata.name"], [".spec.port"],
        [*(one["jsonPath"] for one in SELECTABLE), ".spec.name", ".spec.count", ".status.count", ".status.phase",
         ".status.selector"],
    )),
]  # fmt: skip


def test_objects_are_selected_by_the_same_fields(servers: tuple[Stock, Ours]) -> None:
    both_tell(servers, SELECTED, scaled=True)


def test_a_watch_selects_by_the_same_fields(servers: tuple[Stock, Ours]) -> None:
    told = []
    for server in servers:
        since = server.call("GET", DIALS)[1]["metadata"]["resourceVersion"]
        for name, color in (("watched", "green"), ("other", "red")):
            server.call("POST", DIALS, dial(name, color=color))
        server.call("PATCH", f"{DIALS}/watched", {"spec": {"size": 2}}, MERGE)
        server.call("PATCH", f"{DIALS}/watched", {"spec": {"color": "red"}}, MERGE)
        query = f"watch=1&resourceVersion={since}&timeoutSeconds=3&fieldSelector=spec.color%3Dgreen"
        lines = server.raw("GET", f"{DIALS}?{query}", "application/json")[2].splitlines()
        told.append([(one["type"], one["object"]["metadata"]["name"]) for one in map(json.loads, lines)])
    assert told[0] == told[1] == [(event, "watched") for event in ("ADDED", "MODIFIED", "DELETED")]


def both_tell(servers: tuple[Stock, Ours], story: list[tuple[str, str, Any, str]], scaled: bool = False) -> None:
    """`scaled` objects are compared without who owns their fields: here whoever scales owns the number; on a real
    server it was seen to be nobody's once it had been scaled to 0.
    """
    wrong = []
    for number, (method, path, body, media) in enumerate(story):
        said = [shown(server.call(method, path, body, media or "application/json")) for server in servers]
        for _, answer in said if scaled else ():
            for obj in (answer, *answer.get("items", ())):
                (obj.get("metadata") or {}).pop("managedFields", None)
        found = list(differences(said[0], said[1]))
        if found:
            wrong.append(
                f"{number} {method} {path} {json.dumps(body)[:200]}:\n   "
                + "\n   ".join(one[:300] for one in found[:6])
            )
    assert not wrong, f"{len(wrong)} of {len(story)} differ:\n" + "\n".join(wrong)


def test_both_show_the_same_columns(servers: tuple[Stock, Ours]) -> None:
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    tables = [json.loads(server.raw("GET", NEW, table)[2]) for server in servers]
    for one in tables:
        for column in one["columnDefinitions"]:
            if column["name"] == "Name":
                del column["description"]
    assert tables[0]["columnDefinitions"] == tables[1]["columnDefinitions"]
    assert [row["cells"] for row in tables[0]["rows"]] == [row["cells"] for row in tables[1]["rows"]]
