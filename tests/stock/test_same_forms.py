"""Who takes nothing but protobuf gets the same from both servers: objects, lists, watches, discovery and refusals."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.apiserver.protobuf import CONTENT_TYPE, MAGIC, decode_body, wire
from kubeqos.apiserver.registry.kinds import KINDS, Kind
from kubeqos.model import schema
from tests.apiserver.examples import NAMES, collection, example
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Raw, Stock, both_servers

pytestmark = needs_stock("kube-apiserver", "etcd")

OURS_ALONE = "resource.k8s.io/v1alpha1"
STORED = [kind for kind in KINDS if kind.stored and kind.api_version != OURS_ALONE]
META = "g=meta.k8s.io;v=v1"
TABLE, ONE, MANY = (
    f"{CONTENT_TYPE};as={form};{META}" for form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
)
GROUPS = f"{CONTENT_TYPE};as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2"
THINGS = "/apis/example.com/v1/namespaces/default/things"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        for kind in STORED:
            for server in both:
                made = server.call("POST", collection(kind), example(kind, _name(kind)))
                assert made[0] == 201, made
        for server in both:
            _add_a_thing(server)
        yield both


def _name(kind: Kind) -> str:
    return NAMES.get(kind.kind, f"form-{kind.group[:6]}-{kind.version}".replace("--", "-"))


def _add_a_thing(server: Stock | Ours) -> None:
    """An object of a kind that a definition added; a real server serves it a moment later."""
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
    deadline = time.monotonic() + 60
    while server.raw("POST", THINGS, "application/json", thing)[0] != 201:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_both_write_the_same_object(servers: tuple[Stock, Ours], kind: Kind) -> None:
    """The bytes of each mean what its JSON says: ours are written, and theirs are read, by the same tables."""
    path = f"{collection(kind)}/{_name(kind)}"
    type_schema = schema.kind(kind.group, kind.version, kind.kind)
    for server in servers:
        for place in (path, collection(kind)):
            code, media, body = server.raw("GET", place, CONTENT_TYPE)
            assert (code, media) == (200, CONTENT_TYPE)
            if place == path:
                plain = server.call("GET", path)[1]
                assert schema.normalise(decode_body(body), type_schema) == schema.normalise(plain, type_schema)
            else:
                assert decode_body(body)["kind"] == f"{kind.kind}List"


CASES: list[tuple[str, str, str]] = [
    *(("GET", path, CONTENT_TYPE) for path in (
        "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/example.com/v1", "/openapi/v2",
        "/openapi/v3/api/v1", "/version", "/healthz", "/nowhere", "/apis/nowhere", "/api/v1/nothing",
        THINGS, f"{THINGS}/one", f"{THINGS}?watch=1&timeoutSeconds=1", f"{THINGS}/none", "/api/v1/namespaces/none",
        f"{DEPLOYMENTS}/form-apps-v1/scale", "/api/v1/pods?labelSelector=%21%21", 
        "/api/v1/namespaces/default/pods/form-v1/log", "/api/v1/componentstatuses?labelSelector=none",
    )),
    *(("GET", path, TABLE) for path in (
        "/api/v1/pods", "/api/v1/namespaces/default", THINGS, "/api/v1/pods?watch=1&timeoutSeconds=1")),
    *(("GET", path, "text/html") for path in (
        "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3/api/v1", "/version")),
    *(("GET", path, ONE) for path in ("/api/v1/namespaces/default", f"{THINGS}/one", "/api/v1/namespaces/none")),
    *(("GET", path, MANY) for path in ("/api/v1/namespaces", THINGS)),
    *(("GET", path, GROUPS) for path in ("/api", "/apis")),
    ("GET", "/api/v1/namespaces/default", f"{TABLE},{CONTENT_TYPE}"),
    ("GET", "/api/v1/namespaces/default", "application/vnd.other, application/vnd.kubernetes.protobuf"),
    ("GET", "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
    ("DELETE", "/api/v1/namespaces/default/configmaps/form-v1?dryRun=All", CONTENT_TYPE),
    ("DELETE", "/api/v1/namespaces/default/pods/form-v1?dryRun=All", CONTENT_TYPE),
    ("DELETE", "/api/v1/namespaces/default/configmaps?dryRun=All", CONTENT_TYPE),
    ("DELETE", "/api/v1/namespaces/default/configmaps/none", CONTENT_TYPE),
    ("DELETE", f"{THINGS}/one?dryRun=All", CONTENT_TYPE),
    ("PUT", "/api/v1/namespaces/default/configmaps/form-v1", CONTENT_TYPE),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "accept"), CASES, ids=lambda one: str(one)[:70])
def test_both_answer_in_the_same_form(servers: tuple[Stock, Ours], method: str, path: str, accept: str) -> None:
    theirs, ours = (server.raw(method, path, accept) for server in servers)
    assert (theirs[0], theirs[1]) == (ours[0], ours[1]), (theirs[2][:500], ours[2][:500])
    told = [_read(one) for one in (theirs, ours)]
    assert told[0].keys() == told[1].keys()
    if theirs[0] >= 400 or path in SAME:
        assert told[0] == told[1]


SAME = ("/apis/apps", "/apis/apps/v1")
"""Of other groups we serve more or fewer kinds and subresources."""


def _read(answer: Raw) -> Any:
    """An answer as a value without what is empty, which Go always writes in protobuf; nothing of what is neither."""
    code, media, body = answer
    if media.startswith(CONTENT_TYPE) and not media.endswith("stream=watch"):
        found = decode_body(body)
        group, _, version = found["apiVersion"].rpartition("/")
        kind, home = found["kind"], "" if group == "meta.k8s.io" else group
        return schema.normalise(found, schema.kind(home, version or "v1", kind))
    return json.loads(body) if media == "application/json" and code >= 400 else {}


def test_both_watch_in_the_same_frames(servers: tuple[Stock, Ours]) -> None:
    query = "watch=1&fieldSelector=metadata.name%3Dform-v1&resourceVersion=0&timeoutSeconds=1"
    path = f"/api/v1/namespaces/default/configmaps?{query}"
    told = []
    for server in servers:
        code, media, body = server.raw("GET", path, CONTENT_TYPE)
        told.append((code, media, [_event(frame) for frame in _frames(body)]))
    assert told[0] == told[1]


def _frames(body: bytes) -> Iterator[bytes]:
    while body:
        [size] = struct.unpack(">I", body[:4])
        yield body[4 : 4 + size]
        body = body[4 + size :]


def _event(frame: bytes) -> tuple[bytes, str, str]:
    parts = {number: frame[at:end] for number, _, at, end in wire.fields(frame, 0, len(frame))}
    [(at, end)] = [(at, end) for number, _, at, end in wire.fields(parts[2], 0, len(parts[2])) if number == 1]
    assert parts[2][at:].startswith(MAGIC)
    held = decode_body(parts[2][at:end])
    return parts[1], held["kind"], held["metadata"].get("name", "") or held.get("message", "")
