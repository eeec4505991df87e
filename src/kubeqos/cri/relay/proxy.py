"""Joins a client's connection to a connection of the runtime, stream by stream.

A call without a hook is spliced: headers, data, trailers, resets and windows pass as they come, unary or streaming,
known or not. A hooked call is either *patched* (each response message goes through a function) or *handled* (a
coroutine gets the request, may forward it once, and gives the response). Handled calls look the same to the client:
the runtime's own headers, trailers and errors are passed on.
"""

from __future__ import annotations

import asyncio
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from kubeqos.cri.relay.hpack import Headers
from kubeqos.cri.relay.http2 import CANCEL, REFUSED_STREAM, Connection, Stream
from kubeqos.cri.status import CANCELLED, INTERNAL, OK, RESOURCE_EXHAUSTED, UNAVAILABLE
from kubeqos.errors import RemoteError

MAX_MESSAGE = 16 << 20
"""The kubelet's own limit for CRI messages."""
CONNECT_SECONDS = 5.0

Patch = Callable[[bytes], bytes]
Forward = Callable[[bytes], Awaitable[bytes]]
Handler = Callable[[bytes, Forward], Awaitable[bytes]]


class CallDenied(Exception):
    """A handler's answer is a gRPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RuntimeFailed(Exception):
    """The runtime answered a forwarded call with an error (or not at all); the client gets the same."""

    def __init__(self, code: int, message: str, *, headers: Headers = (), trailers: Headers = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = headers
        self.trailers = trailers


@dataclass(frozen=True, slots=True)
class Hooks:
    """Which methods are more than spliced, by path (`/runtime.v1.RuntimeService/Status`)."""

    patches: Mapping[bytes, Patch] = field(default_factory=dict)
    handlers: Mapping[bytes, Handler] = field(default_factory=dict)
    endless: Container[bytes] = ()
    """Streams that last as long as their client likes: nobody waits for them when the relay stops."""


class Session:
    """One client connection and the runtime connection behind it."""

    def __init__(self, runtime_path: str, hooks: Hooks, sessions: set[Session]) -> None:
        self.runtime_path = runtime_path
        self.hooks = hooks
        self.tasks: set[asyncio.Task[None]] = set()
        self.sessions = sessions
        """All sessions of the relay; this one is among them while its client is connected or a handler runs."""
        sessions.add(self)
        self.client = Connection(self, client=False)
        self.runtime: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[Callable[[], None]] = []

    # ---- Owner of both connections

    def stream_opened(self, stream: Stream, headers: Headers) -> Call:
        path = path_of(headers)
        headers = _with_plain_authority(headers)
        handler = self.hooks.handlers.get(path)
        if handler is not None:
            return HandledCall(self, stream, headers, handler)
        call = SplicedCall(self, stream, headers, self.hooks.patches.get(path))
        self.when_connected(call.open)
        return call

    def going_away(self, connection: Connection) -> None:
        if connection is self.runtime:
            self.runtime = None  # calls under way finish on it, new ones get a new connection

    def connection_ended(self, connection: Connection) -> None:
        if connection is self.runtime:
            self.runtime = None
        if connection is self.client:
            if self.runtime is not None:
                self.runtime.close()
            self.leave()

    # ---- stopping

    @property
    def idle(self) -> bool:
        return not self.client.streams and not self.tasks

    def drain(self) -> None:
        """The client is told to send no new calls here; endless ones end now. Once: later times change nothing."""
        if self.client.leaving or self.client.transport is None:
            return
        self.client.say_goodbye()
        for stream in list(self.client.streams.values()):
            call = stream.sink
            if isinstance(call, SplicedCall) and call.path in self.hooks.endless:
                call.end(UNAVAILABLE, "the relay is stopping")

    def leave(self) -> None:
        if self.client.lost and not self.tasks:
            self.sessions.discard(self)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """A handler's work; it lasts also when the client has gone, since it must clean up."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.leave()

    # ---- the runtime's side

    def when_connected(self, action: Callable[[], None]) -> None:
        """Run now if the runtime is connected, else as soon as it is (or is known not to be)."""
        if self.runtime is not None:
            action()
            return
        self._waiting.append(action)
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, self.runtime = await loop.create_unix_connection(
                    lambda: Connection(self, client=True), self.runtime_path
                )
        except OSError:
            self.runtime = None
        self._connecting = None
        if self.runtime is not None and self.client.lost:
            self.runtime.close()
        actions, self._waiting = self._waiting, []
        for action in actions:
            action()

    def unreachable(self) -> str:
        return f"the container runtime at unix://{self.runtime_path} cannot be reached"


class Call:
    """What both kinds of call share: the client's stream and how to end it with an error."""

    def __init__(self, session: Session, stream: Stream, headers: Headers) -> None:
        self.session = session
        self.stream = stream
        self.request_headers = headers
        self.answered = False
        """Response headers have been sent to the client."""

    def headers(self, headers: Headers, end: bool) -> None:
        """Request trailers; gRPC clients send none."""

    def data(self, data: bytes, end: bool) -> None:
        raise NotImplementedError

    def reset(self, code: int) -> None:
        raise NotImplementedError

    def refuse(self, code: int, message: str) -> None:
        status = ((b"grpc-status", b"%d" % code), (b"grpc-message", encode_message(message)))
        start = () if self.answered else ((b":status", b"200"), (b"content-type", b"application/grpc"))
        self.stream.send_headers((*start, *status), end=True)
        if not self.stream.ended_there:
            self.stream.reset(0)


class SplicedCall(Call):
    """Passes through; request data that comes before the runtime is connected waits here."""

    def __init__(self, session: Session, stream: Stream, headers: Headers, patch: Patch | None) -> None:
        super().__init__(session, stream, headers)
        self.patch = patch
        self.upstream: Stream | None = None
        self.early: list[tuple[bytes, bool]] = []
        self.gone = False

    def open(self) -> None:
        if self.gone:
            return
        if self.session.runtime is None:
            self.refuse(UNAVAILABLE, self.session.unreachable())
            return
        response = Response(self) if self.patch is None else PatchedResponse(self, self.patch)
        self.upstream = self.session.runtime.open_stream(self.request_headers, response)
        for data, end in self.early:
            self.upstream.send_data(data, end, self.stream)
        self.early.clear()

    def data(self, data: bytes, end: bool) -> None:
        if self.upstream is None:
            self.early.append((data, end))
        else:
            self.upstream.send_data(data, end, self.stream)

    def reset(self, code: int) -> None:
        self.gone = True
        if self.upstream is not None:
            self.upstream.reset(code)

    @property
    def path(self) -> bytes:
        return path_of(self.request_headers)

    def end(self, code: int, message: str) -> None:
        """End the call from here, towards both sides."""
        self.reset(CANCEL)
        self.refuse(code, message)


class Response:
    """The runtime's side of a spliced call: everything goes to the client."""

    def __init__(self, call: SplicedCall) -> None:
        self.call = call

    def headers(self, headers: Headers, end: bool) -> None:
        self.call.answered = True
        self.call.stream.send_headers(headers, end)

    def data(self, data: bytes, end: bool) -> None:
        self.call.stream.send_data(data, end, self.call.upstream)

    def reset(self, code: int) -> None:
        if code in (CANCEL, REFUSED_STREAM):
            self.call.stream.reset(code)
        elif not self.call.stream.ended_here:
            self.call.refuse(UNAVAILABLE, "the connection to the container runtime was lost")


class PatchedResponse(Response):
    """Each response message goes through a function on its way."""

    def __init__(self, call: SplicedCall, patch: Patch) -> None:
        super().__init__(call)
        self.patch = patch
        self.reader = MessageReader()

    def headers(self, headers: Headers, end: bool) -> None:
        self.reader.encoding = encoding_of(headers) or self.reader.encoding
        super().headers(headers, end)

    def data(self, data: bytes, end: bool) -> None:
        upstream = self.call.upstream
        assert upstream is not None
        upstream.credit(len(data))
        try:
            messages = self.reader.feed(data)
        except RemoteError as error:
            upstream.reset(CANCEL)
            self.call.refuse(INTERNAL, error.what)
            return
        for message in messages:
            self.call.stream.send_data(frame(self._patched(message)))
        if end:
            self.call.stream.send_data(b"", True)

    def _patched(self, message: bytes) -> bytes:
        try:
            return self.patch(message)
        except DecodeError:
            return message  # what we cannot read is for the client to judge


class HandledCall(Call):
    """A unary call that a coroutine answers."""

    def __init__(self, session: Session, stream: Stream, headers: Headers, handler: Handler) -> None:
        super().__init__(session, stream, headers)
        self.handler = handler
        self.reader = MessageReader(encoding_of(headers))
        self.request: list[bytes] = []
        self.upstream: Stream | None = None
        self.reply: UnaryReply | None = None
        self.gone = False

    def data(self, data: bytes, end: bool) -> None:
        self.stream.credit(len(data))
        try:
            self.request += self.reader.feed(data)
        except RemoteError as error:
            self.refuse(RESOURCE_EXHAUSTED, error.what)
            return
        if end:
            self.session.run(self._run())

    def reset(self, code: int) -> None:
        """The client gave up. The runtime is told; the handler sees it fail and cleans up."""
        self.gone = True
        if self.upstream is not None:
            self.upstream.reset(code)
        if self.reply is not None:
            self.reply.reset(code)

    async def _run(self) -> None:
        if len(self.request) != 1:
            self.refuse(INTERNAL, f"expected one request message, found {len(self.request)}")
            return
        try:
            answer = await self.handler(self.request[0], self.forward)
        except CallDenied as error:
            self.refuse(error.code, error.message)
        except RuntimeFailed as error:
            self._pass_on(error)
        except DecodeError as error:
            self.refuse(INTERNAL, f"kubeqos relay: the request cannot be read: {error}")
        except Exception as error:
            self.refuse(INTERNAL, f"kubeqos relay: {type(error).__name__}: {error}")
            raise
        else:
            self._answer(answer)

    async def forward(self, message: bytes) -> bytes:
        """Send the request to the runtime on the client's terms (metadata, deadline) and await the response."""
        if self.gone:
            raise RuntimeFailed(CANCELLED, "the client gave up")
        connected = asyncio.get_running_loop().create_future()
        self.session.when_connected(lambda: connected.set_result(None))
        await connected
        if self.session.runtime is None:
            raise RuntimeFailed(UNAVAILABLE, self.session.unreachable())
        self.reply = UnaryReply()
        self.upstream = self.reply.stream = self.session.runtime.open_stream(self.request_headers, self.reply)
        self.upstream.send_data(frame(message), True)
        return await self.reply.result

    def _answer(self, message: bytes) -> None:
        reply = self.reply
        headers = reply.response_headers if reply else ()
        self.stream.send_headers(headers or ((b":status", b"200"), (b"content-type", b"application/grpc")))
        self.stream.send_data(frame(message))
        trailers = reply.trailers if reply else ()
        self.stream.send_headers(trailers or ((b"grpc-status", b"0"),), end=True)

    def _pass_on(self, error: RuntimeFailed) -> None:
        if not error.trailers:
            self.refuse(error.code, error.message)
            return
        if error.headers:
            self.stream.send_headers(error.headers)
        self.stream.send_headers(error.trailers, end=True)


class UnaryReply:
    """Collects the runtime's answer to a forwarded call."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.response_headers: Headers = ()
        self.trailers: Headers = ()
        self.messages: list[bytes] = []
        self.reader = MessageReader()

    def headers(self, headers: Headers, end: bool) -> None:
        if not end:
            self.response_headers = headers
            self.reader.encoding = encoding_of(headers)
            return
        self.trailers = headers
        if self.result.done():
            return
        code, message = status_of(headers)
        if code == OK and len(self.messages) == 1:
            self.result.set_result(self.messages[0])
        else:
            failed = RuntimeFailed(code, message, headers=self.response_headers, trailers=headers)
            self.result.set_exception(failed)

    def data(self, data: bytes, end: bool) -> None:
        if self.stream is not None:
            self.stream.credit(len(data))
        try:
            self.messages += self.reader.feed(data)
        except RemoteError as error:
            self._fail(INTERNAL, error.what)

    def reset(self, code: int) -> None:
        if code == CANCEL:
            self._fail(CANCELLED, "the call was cancelled")
        else:
            self._fail(UNAVAILABLE, "the connection to the container runtime was lost")

    def _fail(self, code: int, message: str) -> None:
        if not self.result.done():
            self.result.set_exception(RuntimeFailed(code, message))


class MessageReader:
    """Cuts gRPC's length-prefixed messages out of a stream of bytes."""

    __slots__ = ("buffer", "encoding")

    def __init__(self, encoding: bytes = b"") -> None:
        self.buffer = bytearray()
        self.encoding = encoding

    def feed(self, data: bytes) -> list[bytes]:
        self.buffer += data
        out = []
        while len(self.buffer) >= 5:
            size = int.from_bytes(self.buffer[1:5], "big")
            if size > MAX_MESSAGE:
                raise RemoteError(f"a message of {size} bytes is larger than the limit of {MAX_MESSAGE}")
            if len(self.buffer) < 5 + size:
                break
            message = bytes(self.buffer[5 : 5 + size])
            out.append(self._plain(message) if self.buffer[0] else message)
            del self.buffer[: 5 + size]
        return out

    def _plain(self, message: bytes) -> bytes:
        if self.encoding not in (b"gzip", b"deflate"):
            raise RemoteError(f"a message is compressed with {self.encoding.decode() or 'nothing'!r}")
        try:
            # 32 + MAX_WBITS takes both a gzip and a zlib header.
            return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(message, MAX_MESSAGE)
        except zlib.error as error:
            raise RemoteError(f"a compressed message cannot be read: {error}") from error


def frame(message: bytes) -> bytes:
    """A message with gRPC's prefix: not compressed, its length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def encoding_of(headers: Headers) -> bytes:
    return next((value for name, value in headers if name == b"grpc-encoding"), b"")


def path_of(headers: Headers) -> bytes:
    return next((value for name, value in headers if name == b":path"), b"")


def status_of(trailers: Headers) -> tuple[int, str]:
    found = dict(trailers)
    code = found.get(b"grpc-status", b"2")
    message = urllib.parse.unquote(found.get(b"grpc-message", b"").decode("utf-8", "replace"))
    return (int(code) if code.isdigit() else 2), message


def encode_message(message: str) -> bytes:
    """gRPC percent-encodes what is not printable ASCII, and the percent sign."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in message.encode()
    ).encode()


def _with_plain_authority(headers: Headers) -> Headers:
    """gRPC clients of unix sockets may send the socket's path as authority, which strict servers refuse."""
    return tuple(
        (name, b"localhost") if name == b":authority" and (b"%" in value or b"/" in value) else (name, value)
        for name, value in headers
    )
