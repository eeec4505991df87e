"""What proves who somebody is stays where it belongs: in no log, in no file that others read, on no old TLS."""

from __future__ import annotations

import logging
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.live import ADMIN_TOKEN, LiveServer, live_server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WRONG = "a-token-that-nobody-has"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LiveServer]:
    with live_server(folder) as live:
        yield live


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def issued(server: LiveServer) -> str:
    server.call("POST", ACCOUNTS, {"metadata": {"name": "builder"}})
    answer = server.call("POST", f"{ACCOUNTS}/builder/token", {"spec": {}})
    assert answer.code == 201
    return str(answer.body["status"]["token"])


def review(token: str) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def test_no_token_is_logged_or_kept(server: LiveServer, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = issued(server)
        used = [
            server.call("GET", "/api/v1/namespaces/default/pods", headers=bearer(token)),
            server.call("GET", "/api/v1/pods", headers=bearer(WRONG)),
            server.call("GET", "/api/v1/pods", headers={"Authorization": f"Basic {WRONG}"}),
            server.call("GET", f"/api/v1/pods?access_token={WRONG}&token={token}&Authorization=Bearer+{WRONG}"),
            server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review(token)),
            server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review(WRONG)),
            server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": [token, WRONG]}}),
            server.call("POST", f"{ACCOUNTS}/builder/token", f'{{"spec": {{"audiences": ["{WRONG}", 5]}}}}'),
        ]
    assert [answer.code for answer in used] == [403, 401, 401, 200, 201, 201, 400, 400]
    assert server.server.audit is not None
    server.server.audit.flush()
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "tokens.csv"}
    assert any(path.name == "audit.log" and len(content) > 500 for path, content in kept.items())
    for secret in (token, token.rpartition(".")[2], ADMIN_TOKEN, WRONG):
        assert [path.name for path, content in kept.items() if secret.encode() in content] == []
        assert secret not in caplog.text


def test_nobody_else_can_read_its_files(server: LiveServer, folder: Path) -> None:
    issued(server)
    readable = [path for path in folder.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert readable == []


EXTENSIONS = bytes.fromhex("000a000400020017 000d000400020403")  # P-256, ECDSA with SHA-256


def client_hello(version: int, suites: tuple[int, ...]) -> bytes:
    """The first message of a client that knows this version and nothing newer."""
    listed = b"".join(struct.pack(">H", suite) for suite in suites)
    body = struct.pack(">H", version) + bytes(32) + b"\x00" + struct.pack(">H", len(listed)) + listed + b"\x01\x00"
    body += struct.pack(">H", len(EXTENSIONS)) + EXTENSIONS
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", 22, 0x0301, len(message)) + message


CBC, RC4, WITHOUT_FORWARD_SECRECY, GOOD = (0x002F, 0xC013, 0xC009), (0x0005,), (0x009C,), (0xC02B, 0xC02C)
HANDSHAKE = 22


@pytest.mark.parametrize(
    ("version", "suites", "is_served"),
    [
        (0x0300, CBC, False),  # SSL 3.0
        (0x0301, GOOD, False),
        (0x0302, GOOD, False),
        (0x0303, CBC, False),  # TLS 1.2 is spoken, these are not
        (0x0303, RC4, False),
        (0x0303, WITHOUT_FORWARD_SECRECY, False),
        (0x0303, GOOD, True),
    ],
)
def test_old_tls_and_weak_ciphers_end_in_the_handshake(
    server: LiveServer, version: int, suites: tuple[int, ...], is_served: bool
) -> None:
    with socket.create_connection((server.host, server.port), timeout=30) as plain:
        plain.sendall(client_hello(version, suites))
        answer = plain.recv(100)
    assert (answer[:1] == bytes([HANDSHAKE])) is is_served
