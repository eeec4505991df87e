"""Who we are: renewed files, programs that know, people we act for; and the way to the server through proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, Unreachable, credentials
from kubeqos.client.api import Call
from kubeqos.client.http import HttpApi
from kubeqos.client.kubeconfig import User
from kubeqos.client.light import LightApi
from kubeqos.client.resources import NODES
from kubeqos.client.transport.address import address_of, proxy_of
from kubeqos.codec import decode_json, encode_json, encode_yaml
from kubeqos.errors import ConfigurationError
from tests.client.test_connections import Server, serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('good,jane,1,"system:masters"\nbetter,jane,1,"system:masters"\n')
    tokens.chmod(0o600)
    async with ApiServer.start(Settings(tmp_path / "data", port=0, token_file=tokens)) as server:
        yield server


def kubeconfig(folder: Path, live: ApiServer, user: dict[str, Any], **cluster: Any) -> Path:
    where = {"server": f"https://{live.application.address}", "certificate-authority": str(live.pki.ca_file)}
    content = {
        "clusters": [{"name": "c", "cluster": {**where, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(encode_yaml(content))
    return path


async def whoami(api: HttpApi) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    call = Call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=encode_json(review))
    answer = await api.transport.send(call)
    found: Any = decode_json(answer.body)
    if answer.status >= 400:
        raise ApiError.of(answer.status, answer.body)
    return str(found["status"]["userInfo"]["username"])


async def test_a_token_that_was_renewed_is_read_when_the_old_one_is_refused(server: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, {"tokenFile": "token"}))
    with pytest.raises(ApiError) as refused:
        await whoami(api)
    assert refused.value.status == 401
    token.write_text("good\n")
    assert await whoami(api) == "jane"
    await api.close()


async def test_a_token_is_read_again_after_a_while(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("good")
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, {"tokenFile": "token"}))
    await api.list(NODES)
    token.write_text("better")
    await api.list(NODES)
    assert "Bearer good\r" in api.transport._said
    monkeypatch.setattr(credentials, "LOOK_SECONDS", 0.0)
    await api.list(NODES)
    assert "Bearer better\r" in api.transport._said
    await api.close()


async def test_a_renewed_certificate_gets_new_connections(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(user: str) -> None:
        pair = server.pki.issue_client(user, ["system:masters"])
        (tmp_path / "u.crt").write_bytes(pair.certificate)
        (tmp_path / "u.key").write_bytes(pair.key)

    write("before")
    names = {"client-certificate": "u.crt", "client-key": "u.key"}
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, names))
    assert await whoami(api) == "before"
    write("after")
    assert await whoami(api) == "before"
    monkeypatch.setattr(credentials, "LOOK_SECONDS", 0.0)
    assert await whoami(api) == "after"
    assert len(api.transport.pool) == 1
    await api.close()


PLUGIN = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
with open(sys.argv[1], "a") as log:
    log.write(json.dumps(info["spec"]) + os.environ["EXTRA"] + "\\n")
status = json.loads(open(sys.argv[2]).read())
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def plugin(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "plugin.py").write_text(PLUGIN)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(folder / "plugin.py"), str(folder / "log"), str(folder / "status")],
            "env": [{"name": "EXTRA", "value": "extra"}],
            "provideClusterInfo": True,
            "interactiveMode": "IfAvailable",
            **more,
        }
    }


async def test_a_program_is_asked_once_until_it_expires_or_is_refused(server: ApiServer, tmp_path: Path) -> None:
    log, status = tmp_path / "log", tmp_path / "status"
    status.write_text('{"token": "good", "expirationTimestamp": "2999-01-01T00:00:00Z"}')
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, plugin(tmp_path)))
    assert not log.exists()
    assert set(await asyncio.gather(*(whoami(api) for _ in range(20)))) == {"jane"}
    [asked] = log.read_text().splitlines()
    assert '"certificate-authority-data"' in asked and server.application.address in asked and "extra" in asked
    api.transport._credentials._said.expires = time.time() - 1  # type: ignore[union-attr]
    status.write_text('{"token": "wrong"}')
    with pytest.raises(ApiError):  # asked once because it expired, once because that was refused
        await whoami(api)
    assert len(log.read_text().splitlines()) == 3
    status.write_text('{"token": "better"}')
    assert await whoami(api) == "jane"
    await api.close()


async def test_a_program_or_a_file_that_fails_for_a_moment_ends_nothing(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    status, token = tmp_path / "status", tmp_path / "token"
    status.write_text('{"token": "good"}')
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, plugin(tmp_path)))
    assert await whoami(api) == "jane"
    api.transport._credentials._said.expires = time.time() - 1  # type: ignore[union-attr]
    status.unlink()
    with pytest.raises(Unreachable, match="no credentials from a program"):
        await whoami(api)
    status.write_text('{"token": "better"}')
    assert await whoami(api) == "jane"
    await api.close()
    monkeypatch.setattr(credentials, "LOOK_SECONDS", 0.0)
    token.write_text("good")
    api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, {"tokenFile": "token"}))
    assert await whoami(api) == "jane"
    token.unlink()
    assert await whoami(api) == "jane"
    await api.close()


async def test_a_program_may_know_a_certificate(server: ApiServer, tmp_path: Path) -> None:
    pair = server.pki.issue_client("bob", ["system:masters"])
    said = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    (tmp_path / "status").write_bytes(encode_json(said))
    path = kubeconfig(tmp_path, server, plugin(tmp_path))
    api = HttpApi.from_kubeconfig(path)
    assert await whoami(api) == "bob"
    await api.close()
    found = await asyncio.to_thread(lambda: LightApi.from_kubeconfig(path).items("/api/v1/namespaces"))
    assert found


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "{}", "v1alpha1' is not supported"),
        ({"command": "/nowhere/to/be/found"}, "{}", "No such file"),
        ({"args": ["-c", "import sys; sys.exit('log in first')"]}, "{}", "ended with code 1: log in first"),
        ({"args": ["-c", "print('hello')"]}, "{}", "no credentials from a program"),
        ({}, "{}", "neither a token nor a certificate"),
        ({"interactiveMode": "Always"}, "{}", "standard input is not a terminal"),
        ({"interactiveMode": ""}, "{}", "interactiveMode must be specified"),
        ({"interactiveMode": "Often"}, "{}", "unknown interactiveMode: 'Often'"),
    ],
)
async def test_a_program_that_does_not_help_is_named(
    server: ApiServer, tmp_path: Path, more: dict[str, Any], status: str, message: str
) -> None:
    (tmp_path / "status").write_text(status)
    path = kubeconfig(tmp_path, server, plugin(tmp_path, installHint="apt install helper", **more))
    api = HttpApi.from_kubeconfig(path)
    with pytest.raises(ConfigurationError, match=message) as error:
        await api.list(NODES)
    assert error.value.remedy and "exec" in str(error.value.where)
    await api.close()


ASKS = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
print("token, please:", end=" ", file=sys.stderr, flush=True)
said = {"token": sys.stdin.readline().strip() + str(info["spec"]["interactive"])}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": said}))
"""
ASKED = """
import sys
from pathlib import Path
from kubeqos.client.credentials import ask_program
from kubeqos.client.kubeconfig import load
print("got", ask_program(load(Path(sys.argv[1]))).token)
"""


@pytest.mark.parametrize(
    ("version", "mode", "told"),
    [("v1", "Always", "got abcTrue"), ("v1beta1", "", "got abcTrue"), ("v1", "Never", "got False")],
)
def test_a_program_asks_the_person_at_the_terminal_where_it_may(
    tmp_path: Path, version: str, mode: str, told: str
) -> None:
    exec_ = {"apiVersion": f"client.authentication.k8s.io/{version}", "interactiveMode": mode}
    user = {"exec": {**exec_, "command": sys.executable, "args": ["-c", ASKS]}}
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://localhost:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "config").write_bytes(encode_json(config))
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", ASKED, str(tmp_path / "config")]
    shown = bytearray()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        os.write(ours, b"abc\n")
        with contextlib.suppress(OSError):  # the other end is closed: all was said
            while piece := os.read(ours, 1024):
                shown += piece
    os.close(ours)
    assert running.returncode == 0, shown
    assert told in shown.decode() and (b"token, please" in shown) == told.endswith("True")


async def test_whom_we_act_for_is_said_in_every_request() -> None:
    fake = Server()
    async with serving(fake) as api:
        user = {
            "as": "mary",
            "as-uid": "7",
            "as-groups": ["a,b", "c"],
            "as-user-extra": {"Some/Thing": ["x", "y"]},
            "username": "u",
            "password": "p",
        }
        found = credentials.headers_of(msgspec.convert(user, User), "")
        api.transport._credentials.headers = found
        api.transport._said = api.transport._head()
        await api.list(NODES)
    head = fake.heads[0]
    for line in (
        "impersonate-user: mary",
        "impersonate-uid: 7",
        "impersonate-group: a,b",
        "impersonate-group: c",
        "impersonate-extra-some%2fthing: x",
        "impersonate-extra-some%2fthing: y",
        f"authorization: Basic {base64.b64encode(b'u:p').decode()}",
    ):
        assert f"{line}\r\n" in head


async def test_the_name_in_the_certificate_may_be_another(server: ApiServer, tmp_path: Path) -> None:
    url = f"https://localhost:{server.application.address.rpartition(':')[2]}"
    path = kubeconfig(tmp_path, server, {"token": "good"}, server=url, **{"tls-server-name": "kubernetes.default"})
    api = HttpApi.from_kubeconfig(path)
    await api.list(NODES)
    await api.close()
    assert await asyncio.to_thread(lambda: LightApi.from_kubeconfig(path).items("/api/v1/namespaces"))
    path = kubeconfig(tmp_path, server, {"token": "good"}, server=url, **{"tls-server-name": "example.org"})
    api = HttpApi.from_kubeconfig(path)
    with pytest.raises(Unreachable, match="not to be trusted"):
        await api.create(NODES, {"metadata": {"name": "a"}})
    await api.close()


def test_an_authority_and_no_check_exclude_each_other(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.touch()
    content = {
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://x",
                    "certificate-authority": str(authority),
                    "insecure-skip-tls-verify": True,
                },
            }
        ],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(encode_yaml(content))
    with pytest.raises(ConfigurationError, match="exclude each other"):
        HttpApi.from_kubeconfig(path)


# ---- Proxies


class Proxy:
    """An HTTP proxy that knows CONNECT, or a SOCKS proxy."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.asked: list[str] = []

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        if self.refuses:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        await self.tunnel(host, int(port), b"HTTP/1.1 200 Connection established\r\n\r\n", reader, writer)

    async def socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        ways = await reader.readexactly(count)
        writer.write(b"\x05\x02" if 2 in ways else b"\x05\x00")
        if 2 in ways:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.asked.append(f"{user.decode()}:{password.decode()}")
            writer.write(b"\x01\x00")
        *_, length = await reader.readexactly(5)
        host = (await reader.readexactly(length)).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(host)
        await self.tunnel(host, port, b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", reader, writer)

    async def tunnel(
        self, host: str, port: int, hello: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection(host, port)
        writer.write(hello)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while piece := await source.read(1 << 16):
                    sink.write(piece)
            sink.close()

        await asyncio.gather(copy(reader, back), copy(there, writer))


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_the_way_may_lead_through_a_proxy(server: ApiServer, tmp_path: Path, scheme: str) -> None:
    proxy = Proxy()
    handler = proxy.http if scheme == "http" else proxy.socks
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        more = {"proxy-url": f"{scheme}://me:p%40ss@127.0.0.1:{port}"}
        path = kubeconfig(tmp_path, server, {"token": "good"}, **more)
        api = HttpApi.from_kubeconfig(path)
        assert await whoami(api) == "jane"
        if scheme == "http":
            pair = base64.b64encode(b"me:p@ss").decode()
            assert f"Proxy-Authorization: Basic {pair}\r\n" in proxy.asked[0]
            assert await asyncio.to_thread(lambda: LightApi.from_kubeconfig(path).items("/api/v1/namespaces"))
            assert len(proxy.asked) == 2
        else:
            assert proxy.asked == ["me:p@ss", "127.0.0.1"]
        await api.close()


async def test_a_proxy_that_refuses_says_so(server: ApiServer, tmp_path: Path) -> None:
    proxy = Proxy(refuses=True)
    async with await asyncio.start_server(proxy.http, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        api = HttpApi.from_kubeconfig(kubeconfig(tmp_path, server, {"token": "good"}, **{"proxy-url": url}))
        with pytest.raises(Unreachable, match="407 Proxy Authentication Required"):
            await api.create(NODES, {"metadata": {"name": "a"}})
        await api.close()


@pytest.mark.parametrize(
    ("host", "rules", "direct"),
    [
        ("api.example.org", "", False),
        ("api.example.org", "example.org", True),
        ("api.example.org", ".example.org", True),
        ("example.org", ".example.org", False),
        ("example.org", "example.org", True),
        ("notexample.org", "example.org", False),
        ("api.example.org", "*.example.org", True),
        ("api.example.org", "example.org:443", False),
        ("api.example.org", "example.org:6443", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4, 192.168.0.0/16", False),
        ("fd00::1", "fd00::/8", True),
        ("anything", "*", True),
    ],
)
def test_who_needs_no_proxy(host: str, rules: str, direct: bool) -> None:
    env = {"https_proxy": "http://proxy:3128", "NO_PROXY": rules}
    assert proxy_of("https", host, 6443, env) == ("" if direct else "http://proxy:3128")


def test_ones_own_machine_needs_no_proxy_unless_the_kubeconfig_says_so() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128"}
    assert address_of("https://127.0.0.1:6443", env=env).proxy is None
    there = address_of("https://api.example.org/prefix/", env=env)
    assert there.proxy is not None and there.proxy.hostname == "proxy"
    assert (there.base, there.port, there.authority) == ("/prefix", 443, "api.example.org")
    assert address_of("https://localhost:1", "", "http://other:1", env).proxy is not None
    for url, proxy in (("ftp://x", ""), ("https://", ""), ("https://x:y", ""), ("https://x", "https://proxy")):
        with pytest.raises(ConfigurationError):
            address_of(url, "", proxy, {})
