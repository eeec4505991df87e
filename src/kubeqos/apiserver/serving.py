"""uvicorn around the application: TLS with optional client certificates, and limits on slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from kubeqos.apiserver.auth import PeerCertificateProtocol, PeerCertificateSocket
from kubeqos.apiserver.requests import JSON
from kubeqos.apiserver.status import ApiError, bad_request
from kubeqos.client.listening import answering
from kubeqos.codec import encode_json

REQUEST_SECONDS = 30.0  # head and body must have arrived by then
UNREAD_SECONDS = 60.0  # of an answer that waits to be read, another piece must have been by then
MAX_HEAD_BYTES = 1 << 20  # Go's limit, which is Kubernetes'
KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 3


class Protocol(PeerCertificateProtocol):
    """A connection that must send each request, head and body, in reasonable time, no endless head, and must read.

    Bodies are bounded where they are read; a head is gathered here, before anybody knows who the client is. An answer
    that nobody reads would stay in memory as long as the connection: a list of 20,000 pods is tens of megabytes.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and self.cycle is not None and self.cycle.response_complete:
            self._start_deadline()
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                why = f"the head of a request may have {MAX_HEAD_BYTES} bytes"
                self._refuse(ApiError(431, "RequestHeaderFieldsTooLarge", why))

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_deadline()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused as everything else is."""
        self._refuse(bad_request(msg))

    def _refuse(self, error: ApiError) -> None:
        body = encode_json(error.body())
        head = f"HTTP/1.1 {error.code} {error.reason}\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def shutdown(self) -> None:
        """The server stops: an idle client is not asked to say goodbye, which it may never do."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


@contextlib.asynccontextmanager
async def serve(application: Any, listener: socket.socket, tls: ssl.SSLContext) -> AsyncIterator[None]:
    """Serve on an open socket until the block ends."""
    config = uvicorn.Config(
        application,
        http=Protocol,
        ws=PeerCertificateSocket,
        lifespan="off",
        loop="none",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
    )
    config.load()
    config.ssl = tls
    async with answering(config, listener):
        yield
