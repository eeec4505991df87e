"""TLS for the API server: optional client certificates, and the peer's certificate as an identity in the ASGI scope.

uvicorn does not hand the peer certificate to the application (Kludex/uvicorn #3132), so its protocol is extended by
the two hooks that do. A client without a certificate may still present a token. A certificate that our authority did
not sign is refused in the handshake of its own connection and touches no other.

Clients get tickets, so that one that opens connection after connection proves who it is once and goes on with that
session. Certificates are therefore looked at again at every request: whoever's has expired meanwhile is nobody.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import Headers, Subprotocol
from websockets.http11 import Request
from websockets.server import ServerProtocol

from kubeqos.web.identity import Identity

SCOPE_KEY = "kubeqos.peer"
_now = time.time
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of TLS 1.3 are all as good. Authenticated ones with forward secrecy only, so it does no harm that
the client chooses among them: it knows what its processor is fast at. Go's clients take AES-128 where ours took 256."""


def server_context(certificate: Path, key: Path, authority: Path | None) -> ssl.SSLContext:
    """Serve this certificate; ask clients for one of the authority's, if there is one, and accept none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(certificate, key)
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context(certificate: Path, key: Path, authority_pem: str) -> ssl.SSLContext:
    """Go to a server of this authority with our own certificate. The authority signs for one server only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=authority_pem)
    context.load_cert_chain(certificate, key)
    return context


class PeerCertificateProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol; `scope[SCOPE_KEY]` is the identity of the verified client certificate, or None."""

    peer: Identity | None = None
    _valid_until = inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert() or {}
            self.peer, self._valid_until = identity_of(certificate), expiry_of(certificate)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._valid_until <= _now():
            self.peer = None
        self.scope[SCOPE_KEY] = self.peer  # type: ignore[literal-required]


class AnySubprotocols(ServerProtocol):
    """The handshake of a WebSocket, without an opinion on names of subprotocols: the application chooses one.

    Kubernetes has one with a slash in it (`SPDY/3.1+portforward.k8s.io`), which is no token of HTTP.
    """

    def process_subprotocol(self, headers: Headers) -> Subprotocol | None:
        return None


class PeerCertificateSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with the same entry in its scope."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        made = self.conn
        self.conn = AnySubprotocols(
            extensions=made.available_extensions, max_size=self.config.ws_max_size, logger=made.logger
        )

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        tls = self.transport.get_extra_info("ssl_object")
        if self.response.status_code == 101:  # otherwise there is no scope
            certificate = tls.getpeercert() or {} if tls is not None else {}
            known = identity_of(certificate) if expiry_of(certificate) > _now() else None
            self.scope[SCOPE_KEY] = known  # type: ignore[literal-required]


def identity_of(certificate: Mapping[str, Any]) -> Identity | None:
    """CN is the user and every O a group; `certificate` is what `getpeercert` says of a verified peer."""
    subject: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject", ())
    attributes = [pair for relative_name in subject for pair in relative_name]
    user = next((value for kind, value in attributes if kind == "commonName"), "")
    groups = [value for kind, value in attributes if kind == "organizationName"]
    return Identity.authenticated(user, groups) if user else None


def expiry_of(certificate: Mapping[str, Any]) -> float:
    """Until when it holds, in seconds since 1970."""
    until = certificate.get("notAfter")
    return ssl.cert_time_to_seconds(until) if until else inf
