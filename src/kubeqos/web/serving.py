"""uvicorn around the application: TLS with optional client certificates, and limits on slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from kubeqos.codec import encode_json
from kubeqos.web.asgi import DIRECT, UPGRADE, Headers
from kubeqos.web.garbage import connection_ended
from kubeqos.web.messages import JSON, Connection
from kubeqos.web.sockets import answering
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.tls import PeerCertificateProtocol, PeerCertificateSocket

REQUEST_SECONDS = 30.0  # head and body must have arrived by then
UNREAD_SECONDS = 60.0  # of an answer that waits to be read, another piece must have been by then
MAX_HEAD_BYTES = 1 << 20  # Go's limit, which is Kubernetes'
KEEP_ALIVE_SECONDS = 120  # longer than the 90 s after which Go's clients, and most, close idle connections themselves
STOP_SECONDS = 3
SPDY = b"spdy/3.1"
"""As uvicorn gives it, in lower case."""


class Protocol(PeerCertificateProtocol):
    """A connection that must send each request, head and body, in reasonable time, no endless head, and must read.

    Bodies are bounded where they are read; a head is gathered here, before anybody knows who the client is. An answer
    that nobody reads would stay in memory as long as the connection: a list of 20,000 pods is tens of megabytes.
    """

    _due = inf  # when the client must have sent the rest of its request, or the next one
    _is_idle = False
    _clock: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._due = self.loop.time() + REQUEST_SECONDS
        self._look_again()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_idle:
            self._is_idle, self._due = False, self.loop.time() + REQUEST_SECONDS
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
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:  # not for an upgrade
            self.scope[DIRECT] = Direct(cycle)  # type: ignore[literal-required]
            if self._get_upgrade() == SPDY:
                self.scope[UPGRADE] = Upgrade(self, cycle)  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        self._due = inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """uvicorn's, without a timer for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._is_idle, self._due = True, self.loop.time() + KEEP_ALIVE_SECONDS

    def handle_websocket_upgrade(self) -> None:
        self._stop_clock()
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for anything but a WebSocket is answered by the application."""

    def let_go(self, protocol: asyncio.BaseProtocol) -> None:
        """From here on the connection is another's."""
        self._stop_clock()
        self._stop_unread()
        self.connections.discard(self)
        self.transport.set_protocol(protocol)

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused as everything else is."""
        self._refuse(bad_request(msg))

    def _refuse(self, error: ApiError) -> None:
        body = encode_json(error.body())
        head = f"HTTP/1.1 {error.code} {error.reason}\r\ncontent-type: {JSON}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_unread()
        super().connection_lost(exc)
        connection_ended()

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

    def _look_again(self) -> None:
        """Close a connection that is overdue. Setting a timer for every request would cost more than it is worth."""
        if self.loop.time() >= self._due:
            self.transport.close()
        else:
            self._clock = self.loop.call_later(REQUEST_SECONDS / 6, self._look_again)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


class Upgrade:
    """A request that asks to go on in SPDY: its connection, for who accepts that."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle

    def accept(self, protocol: str) -> Connection:
        cycle, transport = self._cycle, self._cycle.transport
        head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {SPDY.decode().upper()}\r\n"
        transport.write(f"{head}X-Stream-Protocol-Version: {protocol}\r\n\r\n".encode())
        cycle.response_started = cycle.response_complete = True
        reader = asyncio.StreamReader()
        streams = asyncio.StreamReaderProtocol(reader)
        self._protocol.let_go(streams)
        streams.connection_made(transport)
        return reader, asyncio.StreamWriter(transport, streams, reader, asyncio.get_running_loop())


class Direct:
    """A request's connection for who writes past ASGI: whole answers, and chunks that are shared with others."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def answer(self, code: int, headers: Headers, body: bytes) -> bool:
        """Write a whole answer, head and body together: that is one record of TLS and one call of the kernel, not two.

        False, and nothing written, where it is not as simple as that.
        """
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.response_started or cycle.disconnected or cycle.scope["method"] == "HEAD":
            return False
        parts = [STATUS_LINE[code]]
        for name, value in headers:
            if b"\n" in value or b"\r" in value or name == b"connection":
                return False
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", body)
        cycle.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True

    @property
    def takes_chunks(self) -> bool:
        cycle = self._cycle
        return cycle.response_started and not cycle.response_complete and bool(cycle.chunked_encoding)

    @property
    def is_full(self) -> bool:
        return self._cycle.flow.write_paused

    async def drained(self) -> None:
        if self._cycle.flow.write_paused:
            await self._cycle.flow.drain()

    def write(self, framed: bytes) -> None:
        if not self._cycle.disconnected:
            self._cycle.transport.write(framed)


@contextlib.asynccontextmanager
async def serve(application: Any, listener: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Serve on an open socket until the block ends; without TLS to this machine only."""
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
        proxy_headers=False,  # who is asking is who is connected, whatever a header says
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
    )
    config.load()
    config.ssl = tls
    async with answering(config, listener):
        yield
