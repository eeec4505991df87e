"""One HTTP/1.1 connection to a server, on a parser in C: a request, its answer, the next request.

It knows bytes and nothing of the API. `pool` keeps connections and hands them out, `http` says what is asked. A stream
(a watch) has its connection to itself: pieces are handed over as they come, and a reader that does not keep up stops
the connection from reading.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import cast

import httptools
import msgspec

from kubeqos.client.credentials import ResumingContext
from kubeqos.web.garbage import connection_ended

MOST_UNREAD = 1 << 20  # bytes of a stream that wait for its reader


class NoAnswer(Exception):
    """The connection ended, or stayed silent, before the answer was complete."""


class Idle(NoAnswer):
    """The server had closed the connection before it saw the request: nothing was answered on a used connection."""


class Unsent(NoAnswer):
    """The connection was closed before anything was written to it."""


class Reply(msgspec.Struct, gc=False):
    """An answer: its code, its headers by lower-case name, and the whole body."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Connection(asyncio.Protocol):
    """One connection; whoever holds it asks one thing at a time."""

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._in_body = False
        self._stream: _Stream | None = None
        self._answered = 0
        self.idle_since = 0.0
        self.closed = self._loop.create_future()

    # ---- Asking

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, seconds: float) -> Reply:
        """Send a request and wait for the whole answer."""
        waiter = self._begin(request)
        self._timer = self._loop.call_later(seconds, self._too_late, seconds)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort()  # its answer would be taken for that of the next request
            raise
        finally:
            self._timer.cancel()

    async def follow(self, request: bytes, seconds: float, silence: float) -> Reply | AsyncGenerator[bytes, None]:
        """Send a request whose answer has no end: a refusal as a whole, or the pieces of the body as they come."""
        self._stream = _Stream(self._loop, silence, self)
        reply = await self.ask(request, seconds)
        if reply.status >= 400:
            return reply
        return self._stream.pieces()

    def _begin(self, request: bytes) -> asyncio.Future[Reply]:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise Unsent("the connection was closed")
        self._waiter = self._loop.create_future()
        self._headers, self._body, self._in_body = {}, [], False
        transport.write(request)
        return self._waiter

    def _too_late(self, seconds: float) -> None:
        self._fail(NoAnswer(f"no answer within {seconds:.0f} s"))
        self.abort()

    def pause(self, paused: bool) -> None:
        if self.is_open:
            assert self._transport is not None
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None and self._stream is None:
            self.abort()  # nobody has asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NoAnswer(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._in_body and exc is None and not self._headers.keys() & {b"content-length", b"transfer-encoding"}:
            self.on_message_complete()  # the end of the connection is the end of such a body
        elif self._answered and self._waiter is not None and not self._headers:
            self._fail(Idle("the server closed the connection"))
        else:
            self._fail(NoAnswer(str(exc) if exc else "the server closed the connection"))
        # The parser and this object hold each other: what TLS keeps for reading need not wait for the collector.
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)
        self._lost(self)
        connection_ended()

    def _fail(self, error: NoAnswer) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        elif self._stream is not None:
            self._stream.end(error)

    # ---- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = status >= 200
        stream = self._stream
        if stream is not None and self._in_body and status < 400:
            self._answer(Reply(status, self._headers, b""))

    def on_body(self, body: bytes) -> None:
        if self._stream is not None and self._waiter is None:
            self._stream.add(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}  # "continue": the answer is still to come
            return
        self._in_body = False
        if self._waiter is not None:
            body = self._body
            self._answer(Reply(status, self._headers, body[0] if len(body) == 1 else b"".join(body)))
        elif self._stream is not None:
            self._stream.end(None)
        if not self._parser.should_keep_alive():
            assert self._transport is not None
            self._transport.close()

    def _answer(self, reply: Reply) -> None:
        if not self._answered:
            self._remember_session()
        self._answered += 1
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _remember_session(self) -> None:
        """Tickets come after the handshake, before the first answer."""
        assert self._transport is not None
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        if tls is not None and isinstance(tls.context, ResumingContext):
            tls.context.session = tls.session


class _Stream:
    """The pieces of a body without end that its reader has not taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, silence: float, connection: Connection) -> None:
        self._loop = loop
        self._silence = silence
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._ended = False
        self._error: NoAnswer | None = None
        self._wake: asyncio.Future[None] | None = None

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > MOST_UNREAD and not self._paused:
            self._paused = True
            self._connection.pause(True)
        self._notify()

    def end(self, error: NoAnswer | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """All of them in order; `NoAnswer` where the connection was cut, or silent for too long."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._unread -= len(piece)
                yield piece
            if self._paused:
                self._paused = False
                self._connection.pause(False)
            if self._ended:
                if self._error is not None:
                    raise self._error
                return
            self._wake = self._loop.create_future()
            timer = self._loop.call_later(self._silence, self.end, NoAnswer(f"silent for {self._silence:.0f} s"))
            try:
                await self._wake
            finally:
                timer.cancel()
