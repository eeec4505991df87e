"""Protobuf bodies: what the real kubectl sends is understood, and no bytes at all can do harm."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.protobuf import CONTENT_TYPE, MAGIC, decode_body, encode_body
from kubeqos.apiserver.protobuf.body import MAX_BODY
from kubeqos.apiserver.protobuf.messages import MAX_VALUES, numbers, plan_of
from kubeqos.codec import JsonObject
from kubeqos.errors import InputError
from kubeqos.model import schema

RECORDED = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "kubectl_bodies.jsonl").read_text().splitlines()
]


def canonical(raw: JsonObject) -> JsonObject:
    group, _, version = raw["apiVersion"].rpartition("/")
    kind = schema.kind(group, version, raw["kind"])
    assert schema.check(raw, kind) == schema.Findings()
    return schema.normalise(raw, kind)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["command"])
def test_a_body_of_kubectl_1_32(case: JsonObject) -> None:
    assert canonical(decode_body(bytes.fromhex(case["hex"]))) == case["object"]


# A small encoder, written against the wire format and not against the decoder.


def number(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(tag: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(tag << 3 | 2) + number(len(data)) + data


def body(version: str, kind: str, raw: bytes, content_type: str = "") -> bytes:
    type_meta = field(1, version) + field(2, kind)
    return MAGIC + field(1, type_meta) + field(2, raw) + field(3, "") + field(4, content_type)


def test_values_of_every_kind() -> None:
    resources = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    port = field(2, -1) + field(3, 80)
    probe = field(1, field(2, field(1, "/") + field(2, field(1, 1) + field(3, "web")))) + field(2, 5)
    container = field(1, "c") + field(6, port) + field(8, resources) + field(10, probe) + field(16, 1)
    volume = field(1, "v") + field(2, field(2, field(1, "Memory")))
    metadata = field(1, "p") + field(8, field(1, 1_700_000_000)) + field(11, field(1, "a") + field(2, "b"))
    spec = field(1, volume) + field(2, container) + field(4, 7) + field(5, -3)
    pod = decode_body(body("v1", "Pod", field(1, metadata) + field(2, spec)))
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"a": "b"}},
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
            "containers": [
                {
                    "name": "c",
                    "ports": [{"hostPort": -1, "containerPort": 80}],
                    "resources": {"limits": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "initialDelaySeconds": 5},
                    "stdin": True,
                }
            ],
            "terminationGracePeriodSeconds": 7,
            "activeDeadlineSeconds": -3,
        },
    }


def test_times_bytes_and_embedded_json() -> None:
    lease = field(1, field(1, "l")) + field(2, field(1, "me") + field(3, field(1, 1) + field(2, 500_000)))
    assert decode_body(body("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "holderIdentity": "me",
        "acquireTime": "1970-01-01T00:00:01.000500Z",
    }
    secret = field(2, field(1, "k") + field(2, b"\0\xff")) + field(2, field(1, "empty"))
    assert decode_body(body("v1", "Secret", secret))["data"] == {"k": "AP8=", "empty": ""}
    managed = field(17, field(1, "m") + field(7, field(1, b'{"f:data":{}}')))
    assert decode_body(body("v1", "ConfigMap", field(1, managed)))["metadata"]["managedFields"] == [
        {"manager": "m", "fieldsV1": {"f:data": {}}}
    ]
    review = field(2, field(3, "u") + field(5, field(1, "k") + field(2, field(1, "a") + field(1, "b"))))
    assert decode_body(body("authorization.k8s.io/v1", "SubjectAccessReview", review))["spec"] == {
        "user": "u",
        "extra": {"k": ["a", "b"]},
    }


def test_embedded_json_is_written_as_go_writes_it() -> None:
    """Go's controllers compare a revision's bytes with their own."""
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "r"},
        "data": {"command": "a && b <c>"},
        "revision": 1,
    }
    body = encode_body(revision)
    assert rb'{"command":"a \u0026\u0026 b \u003cc\u003e"}' in body
    assert decode_body(body)["data"] == revision["data"]


def test_messages_given_in_pieces_are_merged_and_unknown_fields_skipped() -> None:
    pieces = field(1, field(1, "first")) + field(999, "?") + field(1, field(3, "ns")) + number(998 << 3 | 5) + b"abcd"
    assert decode_body(body("v1", "Namespace", pieces))["metadata"] == {"name": "first", "namespace": "ns"}


def test_options_are_understood_in_any_group() -> None:
    assert decode_body(body("apps/v1", "DeleteOptions", field(1, 0) + field(4, "Orphan"))) == {
        "apiVersion": "apps/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
    }


def test_json_inside_the_envelope() -> None:
    raw = b'{"metadata":{"name":"x"}}'
    assert decode_body(body("v1", "ConfigMap", raw, "application/json"))["metadata"] == {"name": "x"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", r"does not appear to be a protobuf message, expected prefix \[107 56 115 0\]"),
        (body("v1", "Bogus", b""), 'no kind "Bogus" is registered for version "v1"'),
        (MAGIC + b"\x0a\xff", "cut off"),
        (body("v1", "Pod", b"\x0a\x05a"), "longer than its message"),
        (body("v1", "Pod", b"\x0b"), "wire type 3"),
        (body("v1", "Pod", b"\x02\x00"), "field number 0"),
        (body("v1", "Pod", field(1, 5)), "wrong wire type for field metadata"),
        (body("v1", "Pod", field(1, field(1, b"\xff"))), "not UTF-8"),
        (body("v1", "Pod", field(1, field(8, field(1, 1 << 62)))), "out of range"),
        (body("v1", "ConfigMap", field(1, field(17, field(7, field(1, b"{"))))), "embedded JSON"),
        (body("v1", "ConfigMap", b"[", "application/json"), "embedded JSON cannot be read"),
        (body("v1", "ConfigMap", b"[]", "application/json"), "not an object"),
        (body("resource.k8s.io/v1alpha1", "ResourceClaim", b""), "has no protobuf form"),
        (MAGIC + bytes(MAX_BODY), "bytes are more than"),
        (body("v1", "Pod", field(2, field(2, b"") * (MAX_VALUES + 1))), "more than 250000 values"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)
def test_what_cannot_be_read(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_body(data)


@settings(max_examples=400)
@given(
    st.sampled_from(RECORDED), st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=4), st.data()
)
def test_damaged_bodies_are_read_or_refused(case: JsonObject, damage: list[tuple[int, bytes]], data: Any) -> None:
    mangled = bytearray.fromhex(case["hex"])
    for at, patch in damage:
        mangled[at : at + len(patch)] = patch
    cut = data.draw(st.integers(0, len(mangled)))
    for candidate in (bytes(mangled), bytes(mangled[:cut])):
        try:
            assert isinstance(decode_body(candidate), dict)
        except InputError as error:
            assert error.what


@settings(max_examples=200)
@given(st.binary(max_size=200), st.sampled_from(sorted(schema.kinds())))
def test_arbitrary_bytes_are_read_or_refused(raw: bytes, kind: tuple[str, str, str]) -> None:
    group, version, name = kind
    try:
        decode_body(body(f"{group}/{version}".lstrip("/"), name, raw))
    except InputError as error:
        assert error.what


def test_every_kind_that_clients_send_has_field_numbers() -> None:
    others = ("resource.k8s.io/v1alpha1", "apiextensions.k8s.io/v1")  # of a proposal; of schemas, which nobody sends so
    missing = [
        kind for kind, key in schema.kinds().items() if f"{kind[0]}/{kind[1]}" not in others and not plan_of(key)
    ]
    assert missing == []


def test_every_field_number_belongs_to_a_field_of_the_schema() -> None:
    embedded = {
        f"{key.rpartition('.')[0]}.{name[1:-1]}" for key in numbers() for name in numbers()[key] if name[0] == "<"
    }
    described = {*schema.kinds().values()}
    for key in list(described):
        described |= reachable(key)
    for key, fields in numbers().items():
        assert len(set(fields.values())) == len(fields)
        assert key in described | embedded, f"nobody needs {key}"
        if key in described:
            assert len(plan_of(key)) == len(fields)


def reachable(key: str, seen: set[str] | None = None) -> set[str]:
    """A type and all that it leads to."""
    seen = seen if seen is not None else set()
    if key not in seen:
        seen.add(key)
        for each in schema.type_named(key).fields.values():
            if each.shape.object_type is not None:
                reachable(each.shape.object_type.key, seen)
    return seen


class Capture(BaseHTTPRequestHandler):
    """Answers discovery well enough for kubectl, keeps what is posted, and refuses it."""

    bodies: list[tuple[str, bytes]]

    def log_message(self, *_: Any) -> None:
        return

    def _answer(self, code: int, document: JsonObject) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        documents: dict[str, JsonObject] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {
                "kind": "APIResourceList",
                "groupVersion": "v1",
                "resources": [{"name": "pods", "namespaced": True, "kind": "Pod", "verbs": ["create"]}],
            },
        }
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
        self._answer(200 if path in documents else 404, documents.get(path, missing))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append((self.headers["Content-Type"], data))
        self._answer(
            403, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}
        )


@pytest.fixture
def capture() -> Iterator[ThreadingHTTPServer]:
    Capture.bodies = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Capture)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.kubectl
@pytest.mark.skipif(which("kubectl") is None, reason="there is no kubectl on this machine")
@pytest.mark.parametrize("index", [0, 1, 2, 5, 7, 15])
def test_the_kubectl_of_this_machine_is_understood(capture: ThreadingHTTPServer, tmp_path: Path, index: int) -> None:
    case = RECORDED[index]
    server = f"http://127.0.0.1:{capture.server_port}"
    command = ["kubectl", "--server", server, "--cache-dir", str(tmp_path), *case["command"].split()[1:]]
    subprocess.run(command, capture_output=True, check=False, timeout=60, env={**os.environ, "HOME": str(tmp_path)})
    content_type, data = Capture.bodies[0]
    assert content_type == CONTENT_TYPE
    assert canonical(decode_body(data)) == case["object"]
