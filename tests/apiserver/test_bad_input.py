"""Whatever a client sends gets a Status and leaves nothing behind; nothing of it is a 5xx."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.registry.kinds import KINDS, Kind
from tests.apiserver.live import ADMIN_TOKEN, LiveServer

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "metadata", "spec", "status", "data", "name", "namespace", "labels", "hard", "containers", "kind", "limits",
    "value", "resources", "requests", "cpu", "items", "rules", "subjects", "roleRef", "scopes", "template",
)  # fmt: skip
OBJECTS = st.recursive(
    JSON_VALUES,
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


def collection(kind: Kind) -> str:
    group = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{group}/{kind.version}/{'namespaces/default/' if kind.namespaced else ''}{kind.plural}"


PATHS = [collection(kind) for kind in KINDS]
QUIET = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused_politely(code: int, body: Any) -> None:
    assert code < 500, body
    if code >= 400 and isinstance(body, dict):
        assert body["kind"] == "Status"
        assert body["status"] == "Failure"
        assert body["code"] == code


@QUIET
@given(path=st.sampled_from(PATHS), body=OBJECTS, validation=st.sampled_from(["", "&fieldValidation=Strict"]))
def test_any_json_as_an_object(live: LiveServer, path: str, body: Any, validation: str) -> None:
    if isinstance(body, dict):
        body = {**body, "metadata": body.get("metadata", {"name": "x"})}
    answer = live.call("POST", f"{path}?dryRun=All{validation}", json.dumps(body))
    refused_politely(answer.code, answer.body)


@QUIET
@given(
    patch=OBJECTS,
    kind=st.sampled_from(["strategic-merge-patch+json", "merge-patch+json", "json-patch+json", "apply-patch+yaml"]),
    target=st.sampled_from(["configmaps/c", "pods/p", "pods/p/status", "pods/p/resize", "resourcequotas/q"]),
)
def test_any_json_as_a_patch(live: LiveServer, patch: Any, kind: str, target: str) -> None:
    base = "/api/v1/namespaces/default"
    live.call("POST", f"{base}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    spec = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    live.call("POST", f"{base}/pods", {"metadata": {"name": "p"}, "spec": spec})
    live.call("POST", f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "900"}}})
    headers = {"Content-Type": f"application/{kind}"}
    answer = live.call("PATCH", f"{base}/{target}?fieldManager=f&dryRun=All", json.dumps(patch), headers)
    refused_politely(answer.code, answer.body)


PARAMETERS = (
    "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "timeoutSeconds",
    "dryRun", "includeObject", "sendInitialEvents", "allowWatchBookmarks", "pretty",
)  # fmt: skip
QUERIES = st.dictionaries(
    st.sampled_from(PARAMETERS),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12) | st.integers(0, 5).map(str),
    max_size=4,
)


@QUIET
@given(query=QUERIES)
def test_any_query(live: LiveServer, query: dict[str, str]) -> None:
    answer = live.call("GET", "/api/v1/namespaces/default/pods?" + urlencode(query))
    # A version from the future is 504 by protocol: client-go waits and asks again.
    if answer.code == 504:
        assert "Too large resource version" in answer.body["message"]
    else:
        refused_politely(answer.code, answer.body)


@settings(QUIET, max_examples=12)
@given(query=QUERIES)
def test_any_watch(live: LiveServer, query: dict[str, str]) -> None:
    """A watch is refused, or it is a stream of events that ends when it was asked to."""
    answer = live.call(
        "GET", "/api/v1/namespaces/default/pods?" + urlencode({**query, "watch": "1", "timeoutSeconds": "1"})
    )
    if answer.code == 504:
        assert "Too large resource version" in answer.body["message"]
    elif answer.code != 200:
        refused_politely(answer.code, answer.body)
    else:
        for line in answer.raw.splitlines():
            assert json.loads(line).keys() == {"type", "object"}


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"\xff\xfe", b"", b"{", b'{"metadata":{"name":"\x00"}}'],
    ids=["deep array", "deep object", "not text", "empty", "half", "control character"],
)
def test_broken_bodies(live: LiveServer, body: bytes) -> None:
    answer = live.call("POST", "/api/v1/namespaces/default/configmaps", body)
    assert answer.code == 400
    refused_politely(answer.code, answer.body)


def test_bodies_are_bounded_before_and_after_decompression(live: LiveServer) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    assert live.call("POST", path, b" " * (4 << 20)).code == 413
    bomb = gzip.compress(b" " * (200 << 20))
    assert live.call("POST", path, bomb, {"Content-Encoding": "gzip"}).code == 413
    assert live.call("POST", path, b"not gzip", {"Content-Encoding": "gzip"}).code == 400
    small = gzip.compress(b'{"metadata":{"name":"zipped"}}')
    assert live.call("POST", path, small, {"Content-Encoding": "gzip"}).code == 201


def test_a_thousand_wrong_fields_are_warned_of_in_few_headers(live: LiveServer) -> None:
    body = {"metadata": {"name": "odd"}, **{f"field{n}": 1 for n in range(1000)}}
    answer = live.call("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", body)
    assert answer.code == 201
    assert answer.warnings[0] == '299 - "unknown field \\"field0\\""'
    assert 20 < len(answer.warnings) <= 64
    long = {"metadata": {"name": "odd"}, **{f"{n}{'x' * 3000}": 1 for n in range(10)}}
    warnings = live.call("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", long).warnings
    assert len(warnings) == 10
    assert max(map(len, warnings)) < 300


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "pods/p/binding"), ("POST", "pods/p/eviction"), ("POST", "serviceaccounts/default/token"),
     ("PATCH", "replicationcontrollers/r/scale"), ("PUT", "replicationcontrollers/r/scale"),
     ("PUT", "pods/p/status"), ("POST", "configmaps")],
)  # fmt: skip
def test_options_are_checked_at_every_door(live: LiveServer, method: str, path: str) -> None:
    body = {"metadata": {"name": "p"}, "target": {"name": "n"}, "spec": {"replicas": 1}}
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    base = "/api/v1/namespaces/default"
    spec = {"containers": [{"name": "c", "image": "x"}]}
    live.call("POST", f"{base}/pods", {"metadata": {"name": "p"}, "spec": spec})
    answer = live.call(method, f"{base}/{path}?fieldValidation=Sometimes", body, headers)
    assert answer.code == 422
    assert 'fieldValidation: Unsupported value: "Sometimes"' in answer.body["message"]


def test_no_credentials_is_401_everywhere(live: LiveServer) -> None:
    for path in ("/api/v1/pods", "/version", "/healthz", "/nope", "/metrics"):
        answer = live.call("GET", path, headers={"Authorization": ""})
        assert answer.code == 401
        assert answer.body["reason"] == "Unauthorized"


def test_half_a_request_does_not_hold_others_up(live: LiveServer) -> None:
    raw = socket.create_connection((live.host, live.port))
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.sendall(b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n"
                    b"Authorization: Bearer " + ADMIN_TOKEN.encode() + b"\r\n\r\n{")  # fmt: skip
        started = time.monotonic()
        assert live.call("GET", "/api/v1/namespaces/default").code == 200
        assert time.monotonic() - started < 5
    answer = live.call("GET", "/api/v1/namespaces/default/configmaps")
    assert all(item["metadata"]["name"] in ("zipped", "c") for item in answer.body["items"])


HALF_A_BODY = (
    f"PUT /api/v1/nodes/n HTTP/1.1\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Length: 9\r\n\r\n{{".encode()
)


@pytest.mark.parametrize("sent", [b"GET /version HTTP/1.1\r\nX-Slow: ", HALF_A_BODY], ids=["head", "body"])
def test_a_request_that_never_ends_is_cut_off(live: LiveServer, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("kubeqos.web.serving.REQUEST_SECONDS", 0.3)
    raw = socket.create_connection((live.host, live.port))
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.sendall(sent)
        tls.settimeout(5)
        try:
            assert tls.recv(100) == b""
        except ssl.SSLEOFError:
            return  # cut without a TLS goodbye


def exchange(live: LiveServer, pieces: Iterable[bytes]) -> tuple[int, Any]:
    """Send bytes that need not be HTTP; the code and body of the answer."""
    raw = socket.create_connection((live.host, live.port))
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.settimeout(10)
        for piece in pieces:
            tls.sendall(piece)
        response = http.client.HTTPResponse(tls)
        response.begin()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"GET /version HTTP/1.1\r\n", b"X-More: and more\r\n"),
        (b"GET /version HTTP/1.1\r\nX-Long: ", b"long and longer "),
        (b"GET /", b"longer/"),
    ],
    ids=["fields", "one field", "path"],
)
def test_an_endless_head_is_refused_before_anybody_asks_who_sent_it(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch, start: bytes, more: bytes
) -> None:
    monkeypatch.setattr("kubeqos.web.serving.MAX_HEAD_BYTES", 10_000)
    code, status = exchange(live, [start, more * (10_000 // len(more) + 1)])
    assert code == status["code"] == 431
    assert status["kind"] == "Status"


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"GET /version SMTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xff"])
def test_what_is_not_http_gets_a_status_too(live: LiveServer, sent: bytes) -> None:
    code, status = exchange(live, [sent])
    assert code == status["code"] == 400
    assert status["kind"] == "Status"


def test_many_requests_on_one_connection_are_no_long_head(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.web.serving.MAX_HEAD_BYTES", 1000)
    connection = live.connect()
    for number in range(20):
        body = json.dumps({"metadata": {"name": f"many{number}"}, "data": {"a": "x" * 3000}})
        connection.request("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", body,
                           {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"})  # fmt: skip
        response = connection.getresponse()
        response.read()
        assert response.status == 201


def test_a_watcher_that_does_not_read_holds_nobody_up(live: LiveServer) -> None:
    """It is a cursor into the log, not a queue: what it does not read costs nothing but the socket's own buffer."""
    base = "/api/v1/namespaces/default/configmaps"
    version = live.call("GET", base).body["metadata"]["resourceVersion"]
    raw = socket.create_connection((live.host, live.port))
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.sendall(f"GET {base}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: x\r\n"
                    f"Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())  # fmt: skip
        tls.settimeout(10)
        tls.recv(1000)
        live.call("POST", base, {"metadata": {"name": "big"}, "data": {"a": ""}})
        before = live.server.watching.delivered
        for number in range(150):
            body = {"metadata": {"name": "big"}, "data": {"a": str(number) + "x" * 500_000}}
            assert live.call("PUT", f"{base}/big", body).code == 200
        assert live.server.watching.delivered - before < 100, "what nobody reads is not sent"
        seen = []
        lines = tls.makefile("rb")
        while len(seen) < 151:
            line = lines.readline()
            if line.startswith(b'{"type"'):
                seen.append(json.loads(line)["object"]["metadata"]["resourceVersion"])
        assert sorted(set(seen), key=int) == seen, "and what it missed is all there when it reads again"
    live.call("DELETE", f"{base}/big")


def test_an_answer_that_nobody_reads_does_not_stay_in_memory(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    base = "/api/v1/namespaces/default/configmaps"
    for number in range(20):
        body = {"metadata": {"name": f"unread{number}"}, "data": {"a": "x" * 1_000_000}}
        assert live.call("POST", base, body).code == 201
    size = len(live.call("GET", base).raw)
    monkeypatch.setattr("kubeqos.web.serving.UNREAD_SECONDS", 0.3)
    raw = socket.create_connection((live.host, live.port))
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        tls.sendall(f"GET {base} HTTP/1.1\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
        time.sleep(1.5)
        tls.settimeout(10)
        got = 0
        try:
            while piece := tls.recv(1 << 20):
                got += len(piece)
        except (ConnectionError, ssl.SSLError):
            pass  # the server hung up in the middle
    assert got < size, "only what the kernel had taken by then"
    for number in range(20):
        live.call("DELETE", f"{base}/unread{number}")


def test_a_slow_reader_gets_it_all(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.web.serving.UNREAD_SECONDS", 2)
    base = "/api/v1/namespaces/default/configmaps"
    for number in range(20):
        body = {"metadata": {"name": f"slow{number}"}, "data": {"a": "x" * 1_000_000}}
        assert live.call("POST", base, body).code == 201
    connection = live.connect()
    connection.request("GET", base, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    response = connection.getresponse()
    wanted = int(response.headers["content-length"])
    got = 0
    while piece := response.read(2_000_000):
        got += len(piece)
        time.sleep(0.3)  # three seconds in all
    assert got == wanted
    for number in range(20):
        live.call("DELETE", f"{base}/slow{number}")


def many(count: int, **item: Any) -> list[dict[str, Any]]:
    """A list of objects; `#` in a text is the number of the item."""
    return [
        {name: value.replace("#", str(number)) if isinstance(value, str) else value for name, value in item.items()}
        for number in range(count)
    ]


REQUIRED_TERM = {
    "topologyKey": "z",
    "matchLabelKeys": [f"k{number}" for number in range(20_000)],
    "mismatchLabelKeys": [f"m{number}" for number in range(20_000)],
    "labelSelector": {"matchExpressions": many(10_000, key="k#", operator="Exists")},
}
OWNERS = many(20_000, apiVersion="v1", kind="Pod", name="x#", uid="#", controller=True)
SPREAD = many(30_000, maxSkew=1, topologyKey="z#", whenUnsatisfiable="DoNotSchedule")
CLAIMS = many(10_000, name="c#", resourceClaimName="x")


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"ownerReferences": OWNERS}},
        {"spec": {"topologySpreadConstraints": SPREAD}},
        {"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [REQUIRED_TERM]}}}},
        {"spec": {"resourceClaims": CLAIMS}, "container": {"resources": {"claims": many(10_000, name="missing#")}}},
        {"container": {"ports": many(60_000, containerPort=80)}},
        {"container": {"ports": many(20_000, containerPort=80, hostPort=80, hostIP="10.0.0.#")}},
    ],
    ids=["owners", "spread", "label keys", "claims", "ports", "host ports"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_large_object_is_judged_in_little_time_and_memory(live: LiveServer, pod: dict[str, Any]) -> None:
    container = {"name": "c", "image": "i", **pod.get("container", {})}
    body = {
        "metadata": {"name": "large", **pod.get("metadata", {})},
        "spec": {"containers": [container], **pod.get("spec", {})},
    }
    answer = live.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
    assert answer.code in (201, 422)
    assert len(answer.raw) < 20 << 20
