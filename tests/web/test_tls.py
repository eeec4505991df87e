"""Certificates made on the first start, and the identity they carry through a real TLS server."""

from __future__ import annotations

import asyncio
import datetime
import shutil
import socket
import ssl
import stat
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cryptography import x509
from lightkube.config.kubeconfig import KubeConfig

from kubeqos.apiserver.auth import write_kubeconfig
from kubeqos.client import Call
from kubeqos.client.http import HttpApi
from kubeqos.errors import StateError
from kubeqos.web.authority import KeyPair
from kubeqos.web.pki import Pki
from kubeqos.web.tls import SCOPE_KEY, PeerCertificateProtocol, server_context

NOW = datetime.datetime.now(datetime.UTC)


def test_everything_private_is_private(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    pki.server_files()
    pki.token_key()
    write_kubeconfig(tmp_path / "kubeconfig", server="https://127.0.0.1:6443", authority=pki.ca_pem, client=pki.admin())
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700
    for path in [*(tmp_path / "pki").iterdir(), tmp_path / "kubeconfig"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_keys_that_others_could_read_are_closed_to_them(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.admin()
    pki.token_key()
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    again = Pki(tmp_path)
    again.admin()
    again.token_key()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")} == {0o600}


def test_a_restart_changes_nothing_and_age_or_new_names_renew(tmp_path: Path) -> None:
    first = Pki(tmp_path)
    admin, key = first.admin(), first.token_key()
    server = first.server_files()[0].read_bytes()
    again = Pki(tmp_path)
    assert (again.ca_pem, again.admin(), again.token_key()) == (first.ca_pem, admin, key)
    assert again.server_files()[0].read_bytes() == server
    renamed = again.server_files(["kubeqos.example.org", "10.0.0.1"])[0].read_bytes()
    assert renamed != server
    later = Pki(tmp_path, NOW + datetime.timedelta(days=340))
    assert later.admin() != admin
    assert later.ca_pem == first.ca_pem


def test_a_damaged_or_foreign_authority_is_refused(tmp_path: Path) -> None:
    Pki(tmp_path / "a")
    Pki(tmp_path / "b")
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    with pytest.raises(StateError, match="do not belong together"):
        Pki(tmp_path / "a")
    (tmp_path / "a" / "ca.key").write_bytes(b"garbage")
    with pytest.raises(StateError, match="cannot be read"):
        Pki(tmp_path / "a")
    (tmp_path / "a" / "ca.key").unlink()
    with pytest.raises(StateError, match="key is missing"):
        Pki(tmp_path / "a")


def test_a_first_start_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    Pki(tmp_path)
    (tmp_path / "ca.crt").unlink()
    assert x509.load_pem_x509_certificate(Pki(tmp_path).ca_pem)


def test_the_kubeconfig_is_read_by_a_real_client(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    write_kubeconfig(tmp_path / "config", server="https://127.0.0.1:6443", authority=pki.ca_pem, client=pki.admin())
    config = KubeConfig.from_file(tmp_path / "config").get()
    assert config is not None
    assert config.cluster.server == "https://127.0.0.1:6443"
    assert config.context_name == "kubernetes-admin@kubeqos"
    assert config.namespace == "default"


def agreed(server: ssl.SSLContext, ciphers: str) -> str:
    """What a client of TLS 1.2 with these ciphers, best first, and a server agree on."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(ciphers)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    for _ in range(3):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return (ends[0].cipher() or ("none", "", 0))[0]


def test_the_client_chooses_among_ciphers_that_are_all_good(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    server = server_context(*pki.server_files(), pki.ca_file)
    small, large = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
    assert agreed(server, f"{small}:{large}") == small
    assert agreed(server, f"{large}:{small}") == large
    for poor in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"):  # CBC: not authenticated as a whole
        with pytest.raises(ssl.SSLError):
            agreed(server, poor)


async def whoami(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with the peer's identity."""
    if scope["type"] != "http":
        return
    peer = scope[SCOPE_KEY]
    body = f"{peer.user} {','.join(peer.groups)}".encode() if peer else b"nobody"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Server:
    def __init__(self, pki: Pki, port: int, directory: Path) -> None:
        self.pki, self.port, self.directory = pki, port, directory

    async def ask(self, client: KeyPair | None = None) -> str:
        context = ssl.create_default_context(cadata=self.pki.ca_pem.decode())
        if client:
            (self.directory / "c.crt").write_bytes(client.certificate)
            (self.directory / "c.key").write_bytes(client.key)
            context.load_cert_chain(self.directory / "c.crt", self.directory / "c.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="127.0.0.1")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n\r\n")[2].decode()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    pki = Pki(tmp_path / "pki")
    certificate, key = pki.server_files()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            whoami,  # type: ignore[arg-type]
            http=PeerCertificateProtocol,
            ssl_context_factory=lambda _config, _default: server_context(certificate, key, pki.ca_file),
            lifespan="off",
            log_config=None,
        )
        running = uvicorn.Server(config)
        running.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(running.serve([listener]))
        while not running.started:  # noqa: ASYNC110 - uvicorn offers no event
            await asyncio.sleep(0.005)
        yield Server(pki, listener.getsockname()[1], tmp_path)
        running.should_exit = True
        await task


async def test_a_client_certificate_is_an_identity(server: Server) -> None:
    assert await server.ask(server.pki.admin()) == "kubernetes-admin system:masters,system:authenticated"
    node = server.pki.issue_client("system:node:n1", ["system:nodes", "rack-7"])
    assert await server.ask(node) == "system:node:n1 system:nodes,rack-7,system:authenticated"


async def test_our_own_client_arrives_by_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    url, path = f"https://127.0.0.1:{server.port}", tmp_path / "kubeconfig"
    write_kubeconfig(path, server=url, authority=server.pki.ca_pem, client=server.pki.admin())
    api = HttpApi.from_kubeconfig(path)
    answer = await api.transport.send(Call("GET", "/whoami"))
    assert answer.body == b"kubernetes-admin system:masters,system:authenticated"
    assert api.namespace == "default"
    await api.close()


@pytest.mark.kubectl
async def test_the_real_kubectl_arrives_by_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on this machine")
    url, path = f"https://127.0.0.1:{server.port}", tmp_path / "kubeconfig"
    write_kubeconfig(path, server=url, authority=server.pki.ca_pem, client=server.pki.admin())
    process = await asyncio.create_subprocess_exec(
        kubectl, "--kubeconfig", path, "get", "--raw", "/whoami", stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate()
    assert answer.decode().strip() == "kubernetes-admin system:masters,system:authenticated"


def asked(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None, *paths: str) -> Any:
    """Requests over one connection that goes on with a session: the answers, the session, and whether it was taken."""
    answers = []
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as tls,
    ):
        for path in paths:
            tls.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with HTTPResponse(tls) as response:
                response.begin()
                answers.append(response.read().decode())
        return answers, tls.session, tls.session_reused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_comes_again_goes_on_with_its_session_and_is_still_itself(
    server: Server, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = server.pki.issue_client("jane", ["team"], days=1)
    (server.directory / "jane.pem").write_bytes(jane.certificate + jane.key)
    context = ssl.create_default_context(cadata=server.pki.ca_pem.decode())
    context.maximum_version = version
    context.load_cert_chain(server.directory / "jane.pem")
    session, known = None, "jane team,system:authenticated"
    for number in range(5):
        answers, session, resumed = await asyncio.to_thread(asked, server.port, context, session, "/")
        assert (answers, resumed) == ([known], number > 0)
    monkeypatch.setattr("kubeqos.web.tls._now", lambda: time.time() + 2 * 86400)
    answers, _, resumed = await asyncio.to_thread(asked, server.port, context, session, "/")
    assert (answers, resumed) == (["nobody"], True)  # the session outlived the certificate


async def test_a_certificate_that_expires_on_a_kept_connection_is_nobodys(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = server.pki.issue_client("jane", [], days=1)
    (server.directory / "jane.pem").write_bytes(jane.certificate + jane.key)
    context = ssl.create_default_context(cadata=server.pki.ca_pem.decode())
    context.load_cert_chain(server.directory / "jane.pem")
    times = iter([time.time(), time.time() + 2 * 86400])
    monkeypatch.setattr("kubeqos.web.tls._now", lambda: next(times))
    answers, *_ = await asyncio.to_thread(asked, server.port, context, None, "/", "/")
    assert answers == ["jane system:authenticated", "nobody"]


async def test_no_certificate_is_nobody_yet(server: Server) -> None:
    assert await server.ask() == "nobody"


async def test_an_untrusted_certificate_harms_only_itself(server: Server, tmp_path: Path) -> None:
    stranger = Pki(tmp_path / "other").issue_client("kubernetes-admin", ["system:masters"])
    expired = Pki(tmp_path / "pki", NOW - datetime.timedelta(days=30)).issue_client("old", days=1)
    serving = KeyPair(*(path.read_bytes() for path in server.pki.server_files()))
    for pair in (stranger, expired, serving):
        try:
            answer = await server.ask(pair)
        except (ssl.SSLError, ConnectionError):
            answer = ""
        assert answer == ""  # the connection ends in its handshake
        assert await server.ask() == "nobody"
