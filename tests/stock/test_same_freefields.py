"""Fields that a definition leaves free, and objects within objects: who owns what in them, and what is pruned.

A real kube-apiserver and ours are told the same story, and compared with their managedFields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.changes import APPLY, JSON, MERGE
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Reply, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")

Raw = dict[str, Any]
Both = tuple[Stock, Ours]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "free.example.com"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string"}
ITEMS = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
    "items": {"type": "object", "required": ["id"], "properties": {"id": TEXT, "free": FREE}},
}  # fmt: skip
SPEC = {
    "type": "object", "properties": {
        "free": FREE, "untyped": {"x-kubernetes-preserve-unknown-fields": True}, "empty": {"type": "object"},
        "known": {**FREE, "properties": {"items": ITEMS, "inner": {"type": "object", "properties": {"a": TEXT}}}},
        "any": {"type": "object", "additionalProperties": True},
        "maps": {"type": "object", "additionalProperties": FREE}, "items": ITEMS,
        "list": {"type": "array", "items": FREE}, "whole": {**FREE, "x-kubernetes-map-type": "atomic"},
        "emb": {"type": "object", "x-kubernetes-embedded-resource": True,
                "properties": {"spec": {"type": "object", "properties": {"a": TEXT}}}},
        "freeemb": {**FREE, "x-kubernetes-embedded-resource": True},
        "embs": {"type": "array", "items": {**FREE, "x-kubernetes-embedded-resource": True}},
    },
}  # fmt: skip


def definition(plural: str, kind: str, schema: Raw, **version: Any) -> Raw:
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [served]}
    return {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec}


BOXES = definition(
    "boxes", "Box", {"type": "object", "properties": {"spec": SPEC, "status": FREE}}, subresources={"status": {}}
)
SACKS = definition("sacks", "Sack", FREE)
BOX, SACK = (f"/apis/{GROUP}/v1/namespaces/default/{plural}" for plural in ("boxes", "sacks"))


def box(called: str, /, **body: Any) -> Raw:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Box", "metadata": {"name": called}, **body}


def sack(called: str, /, **body: Any) -> Raw:
    return {**box(called, **body), "kind": "Sack"}


def applied(path: str, obj: Raw, who: str, more: str = "") -> tuple[str, str, Any, str]:
    return "PATCH", f"{path}?fieldManager={who}{more}", json.dumps(obj), APPLY


def apply(called: str, who: str, /, more: str = "", **spec: Any) -> tuple[str, str, Any, str]:
    return applied(f"{BOX}/{called}", box(called, spec=spec), who, more)


def status(called: str, who: str, more: str = "", **fields: Any) -> tuple[str, str, Any, str]:
    return applied(f"{BOX}/{called}/status", box(called, status=fields), who, more)


META = {
    "name": "x", "namespace": "n", "bogus": 1, "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "bogus": 2}],
    "creationTimestamp": None, "managedFields": [], "generation": 2, "uid": "u", "selfLink": "s",
}  # fmt: skip
THING = {"apiVersion": "v1", "kind": "Thing", "metadata": META, "spec": {"a": "b", "c": "d"}, "more": 1}
WRONG: list[Raw] = [
    {"metadata": {"name": "Bad_/", "labels": {"a b": "c"}, "namespace": "Bad_"}},
    {"apiVersion": "v1/2/3", "kind": "K!"},
    {"apiVersion": "", "kind": 3}, {"apiVersion": "", "kind": ""}, {"metadata": {"ownerReferences": [{"x": 1}]}},
    {"metadata": {"generation": "x"}}, {"metadata": {"generation": -1}}, {"metadata": {"finalizers": ["b b"]}},
    {"metadata": {"annotations": {"a b": "c"}}}, {"metadata": None}, {"metadata": []},
]  # fmt: skip
STORY: list[tuple[str, str, Any, str]] = [
    # Two who say different things of one free field, then the same thing, then nothing.
    apply("a", "one", free={"a": 1, "deep": {"x": 1, "list": [1, 2]}}),
    apply("a", "two", free={"b": 2, "deep": {"y": 2}}),
    apply("a", "two", free={"a": 2}), apply("a", "two", "&force=true", free={"a": 2, "deep": {"list": [3]}}),
    apply("a", "two", free={"deep": {"x": 1}}), apply("a", "one", free={"a": 1}),
    apply("a", "two", free={"a": {"b": 1}}), apply("a", "two", "&force=true", free={"a": {"b": 1, "c": {}}}),
    apply("a", "two", "&force=true", free={"a": [1]}), apply("a", "two", "&force=true", free={"a": "text"}),
    apply("a", "one"),
    # Lists are one value; so is what says so.
    apply("b", "one", free={"list": [{"id": "a"}]}, list=[{"a": 1}], whole={"a": 1}),
    apply("b", "two", free={"list": [{"id": "b"}]}), apply("b", "two", list=[{"b": 1}]),
    apply("b", "two", whole={"b": 1}),
    apply("b", "two", "&force=true", free={"list": [{"id": "b"}]}, list=[{"b": 1}], whole={"b": 1}),
    # Other ways to be free.
    apply("c", "one", untyped={"a": 1}, any={"a": 1}, maps={"m": {"a": 1}}, items=[{"id": "i", "free": {"a": 1}}]),
    apply("c", "two", untyped={"b": 1}, any={"b": 1}, maps={"m": {"b": 1}}, items=[{"id": "i", "free": {"b": 1}}]),
    apply("c", "two", untyped=1), apply("c", "two", "&force=true", untyped=1), apply("c", "one"),
    apply("c", "three", untyped=[1], empty={}), apply("c", "three", "&force=true", untyped=[1], empty={"a": 1}),
    # Known fields within free ones keep their meaning.
    apply("d", "one", known={"items": [{"id": "a", "free": {"x": 1}}], "inner": {"a": "b"}, "other": {"c": 1}}),
    apply("d", "two", known={"items": [{"id": "b"}], "inner": {"z": 1}, "other": {"d": 1}}),
    apply("d", "two", known={"items": [{"id": "a", "free": {"y": 1}}]}), apply("d", "two", known={"items": [{"a": 1}]}),
    apply("d", "two", known=1), apply("d", "two", free=1), apply("d", "two", free=[]),
    ("PATCH", f"{BOX}/d", {"spec": {"free": 1}}, MERGE), ("PATCH", f"{BOX}/d", {"spec": {"known": []}}, MERGE),
    # Ordinary writes own the leaves of what they write.
    ("POST", BOX, box("e", spec={"free": {"a": {"b": 1, "c": [1]}, "n": None, "e": {}}, "untyped": {"a": {}}}), ""),
    ("PATCH", f"{BOX}/e", {"spec": {"free": {"a": {"b": 2, "d": 3}}}}, MERGE),
    ("PATCH", f"{BOX}/e", {"spec": {"free": {"a": None, "z": "z"}}}, MERGE),
    ("PATCH", f"{BOX}/e", [{"op": "add", "path": "/spec/free/j", "value": {"k": [1]}}], JSON),
    apply("e", "one", free={"z": "y"}), apply("e", "one", free={"y": "y"}), ("GET", f"{BOX}/e", None, ""),
    # A free status.
    apply("s", "one", free={"a": 1}), status("s", "one", a=1, deep={"x": 1}), status("s", "two", b=2, deep={"y": 2}),
    status("s", "two", a=2), status("s", "two", "&force=true", a=2), status("s", "one"), ("GET", f"{BOX}/s", None, ""),
    ("PATCH", f"{BOX}/s/status", {"status": {"deep": {"y": 3}, "more": [1]}}, MERGE),
    # A kind that is free as a whole.
    ("POST", SACK, sack("a", spec={"a": 1}, data=[1], text="x"), ""),
    applied(f"{SACK}/a", sack("a", spec={"b": 1}, data=[1], text="x"), "one"),
    applied(f"{SACK}/a", sack("a", spec={"b": 1}, data=[2]), "one"),
    applied(f"{SACK}/b", sack("b", spec={"b": 1}, more={"a": {"b": 1}}), "one"),
    applied(f"{SACK}/b", sack("b", spec={"c": 1}, more={"a": {"c": 1}}), "two"),
    ("PATCH", f"{SACK}/b", {"spec": {"b": None}, "new": {"x": 1}}, MERGE), ("GET", f"{SACK}/b", None, ""),
    # Objects within objects: their metadata is pruned as that of any object.
    ("POST", BOX, box("m", spec={"emb": THING, "freeemb": THING, "embs": [THING]}), ""),
    ("POST", f"{BOX}?fieldValidation=Strict", box("m2", spec={"emb": THING, "embs": [THING]}), ""),
    ("POST", BOX, box("m3", spec={"emb": {"apiVersion": "v1", "kind": "K", "metadata": {"labels": {"a": 1}}}}), ""),
    ("POST", BOX, box("m4", spec={"emb": {"apiVersion": "v1", "kind": "K", "metadata": 1}}), ""),
    ("POST", BOX, box("m5", spec={"emb": {"metadata": {"name": "Bad_"}}, "freeemb": {"kind": "K"}}), ""),
    *(("POST", f"{BOX}?dryRun=All", box("m6", spec={"emb": {"apiVersion": "v1", "kind": "K", **wrong}}), "")
      for wrong in WRONG),
    ("PATCH", f"{BOX}/m", {"spec": {"emb": {"metadata": {"bogus": 3, "name": "y"}, "bogus": 1}}}, MERGE),
    apply("n", "one", freeemb={**THING, "metadata": {"name": "x", "labels": {"a": "b"}}}),
    apply("n", "two", freeemb={"apiVersion": "v1", "kind": "Thing", "metadata": {"labels": {"b": "c"}}, "more": 1}),
    apply("n", "two", emb={"apiVersion": "v1", "kind": "Thing", "metadata": {"labels": {"b": "c"}, "bogus": 1}}),
]  # fmt: skip


def define(servers: Both) -> None:
    for server in servers:
        for one, path in ((BOXES, BOX), (SACKS, SACK)):
            server.call("POST", DEFINITIONS, one)
            deadline = time.monotonic() + 60
            while server.raw("GET", path, "application/json")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            # A definition is served before its schema is known to whoever applies: the first apply may come too early.
            probe = {**one["spec"]["names"], "apiVersion": f"{GROUP}/v1", "metadata": {"name": "probe"}}
            sent = {key: probe[key] for key in ("apiVersion", "kind", "metadata")}
            while server.call("PATCH", f"{path}/probe?fieldManager=p&dryRun=All", json.dumps(sent), APPLY)[0] != 201:
                assert time.monotonic() < deadline
                time.sleep(0.2)


def shown(reply: Reply) -> list[Any]:
    """What is compared of an answer; a configuration that makes no sense is the server's mistake there (500)."""
    code, body = comparable(reply)
    if code == 500 or (code == 400 and reply[1]["message"].startswith("failed to create typed patch object")):
        return [400, {}]
    return [code, body]


def told(servers: Both) -> str:
    wrong = []
    for number, (method, path, body, media) in enumerate(STORY):
        said = [shown(server.call(method, path, body, media or "application/json")) for server in servers]
        if found := list(differences(said[0], said[1])):
            sent = body if isinstance(body, str) else json.dumps(body)
            wrong.append(f"{number} {method} {path} {sent[:200]}:\n   " + "\n   ".join(one[:400] for one in found[:6]))
    return f"{len(wrong)} of {len(STORY)} differ:\n" + "\n".join(wrong) if wrong else ""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        define(both)
        yield both


def test_free_fields_are_owned_and_pruned_the_same(servers: Both) -> None:
    wrong = told(servers)
    assert not wrong, wrong
