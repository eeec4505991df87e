"""What a connection may and must do: requests in a row, several at once, and none that never ends."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kubeqos.web import serving
from tests.apiserver.live import ADMIN_TOKEN, LiveServer


@contextmanager
def connected(live: LiveServer) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection((live.host, live.port), timeout=20)
    with live.tls.wrap_socket(plain, server_hostname=live.host) as secure:
        yield secure


def asking(path: str, method: str = "GET", *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {ADMIN_TOKEN}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def until_closed(secure: ssl.SSLSocket) -> bytes:
    read = b""
    while chunk := secure.recv(1 << 16):
        read += chunk
    return read


def test_requests_that_come_at_once_are_answered_in_order(live: LiveServer) -> None:
    with connected(live) as secure:
        paths = ("/version", "/api/v1/namespaces/default", "/nowhere")
        secure.sendall(b"".join(map(asking, paths[:2])) + asking(paths[2], "GET", "Connection: close"))
        answers = until_closed(secure)
    places = [answers.index(word) for word in (b"gitVersion", b'"kind":"Namespace"', b"404 page not found")]
    assert places == sorted(places)
    assert answers.count(b"HTTP/1.1 200 OK") == 2


def test_a_client_that_says_goodbye_is_let_go(live: LiveServer) -> None:
    with connected(live) as secure:
        secure.sendall(asking("/version", "GET", "Connection: close"))
        head = until_closed(secure).partition(b"\r\n\r\n")[0]
    assert b"connection: close" in head


def test_the_answer_to_head_has_no_body(live: LiveServer) -> None:
    with connected(live) as secure:
        secure.sendall(asking("/version", "HEAD", "Connection: close"))
        head, _, body = until_closed(secure).partition(b"\r\n\r\n")
    assert b"content-length: " in head
    assert body == b""


def test_half_a_request_is_not_waited_for(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.6)
    with connected(live) as secure:
        secure.sendall(asking("/version")[:-2])
        assert until_closed(secure) == b""
    with connected(live) as secure:
        secure.sendall(asking("/version"))
        assert b"gitVersion" in secure.recv(1 << 16)
        secure.sendall(asking("/api/v1/namespaces", "POST", "Content-Length: 100"))
        secure.sendall(b"{")
        assert b"gitVersion" not in until_closed(secure)


def test_an_idle_connection_is_closed_in_the_end(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.6)
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 3.0)
    with connected(live) as secure:
        secure.sendall(asking("/version"))
        assert b"gitVersion" in secure.recv(1 << 16)
        time.sleep(0.9)  # longer than a request may take, shorter than a client may be silent
        secure.sendall(asking("/version"))
        assert b"gitVersion" in secure.recv(1 << 16)
        assert until_closed(secure) == b""
