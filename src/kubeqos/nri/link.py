"""One connection between a plugin and a runtime: calls in both directions over one socket.

Both ends are servers: each serves one of the two streams and calls on the other. `Link` is the same for both; `plugin`
makes the plugin's end of it, tests make a runtime's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.nri.framing import (
    LONGEST_MESSAGE,
    PLUGIN_STREAM,
    RUNTIME_STREAM,
    Frames,
    Message,
    Messages,
    MessageType,
    NriProtocolError,
    frames,
)
from kubeqos.nri.proto import ttrpc_pb2 as ttrpc

Reply = TypeVar("Reply", bound=Protobuf)
Handler = Callable[[str, str, bytes], Awaitable[Protobuf]]
"""Answers one call: service, method and the bytes of its message."""
UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED = 2, 4, 12
"""The codes of gRPC that NRI's peers use."""
log = logger("kubeqos.nri")


class NriCallError(RemoteError):
    """A call was answered with an error, or will not be answered: the peer is gone or was too slow."""

    def __init__(self, what: str, code: int = UNKNOWN) -> None:
        super().__init__(what)
        self.code = code


@dataclass(frozen=True, slots=True)
class Streams:
    """Which stream an end serves, and on which it calls."""

    served: int
    called: int


PLUGIN_END = Streams(served=PLUGIN_STREAM, called=RUNTIME_STREAM)
RUNTIME_END = Streams(served=RUNTIME_STREAM, called=PLUGIN_STREAM)


class Link(asyncio.Protocol):
    """One end of a connection. Calls are answered in the order in which their handlers end."""

    def __init__(self, streams: Streams, handler: Handler) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams = streams
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._messages = {streams.served: Messages(), streams.called: Messages()}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._last_served = 0
        self._answering: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        try:
            for stream, payload in self._frames.feed(data):
                for message in self._messages[stream].feed(payload):
                    self._take(stream, message)
        except NriProtocolError as error:
            log.warning("the runtime does not speak NRI: the connection ends", error=error.what)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._answering:
            task.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NriCallError("the connection ended before the answer"))
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)

    @property
    def socket(self) -> Any:
        """The connection's own socket, for who asks the kernel about the peer; None before there is one."""
        return self._transport.get_extra_info("socket") if self._transport is not None else None

    def close(self) -> None:
        """End the connection; calls that wait for an answer fail."""
        if self._transport is not None:
            self._transport.close()

    async def call(
        self, service: str, method: str, request: Protobuf, reply: type[Reply], timeout: float | None = None
    ) -> Reply:
        """Call the peer and wait for its answer, at most so many seconds."""
        if self._transport is None or self._transport.is_closing():
            raise NriCallError("the connection has ended")
        envelope = ttrpc.Request(service=service, method=method, payload=request.SerializeToString())
        if timeout is not None:
            envelope.timeout_nano = int(timeout * 1e9)
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        answer = self._waiting[stream] = asyncio.get_running_loop().create_future()
        try:
            self._send(self._streams.called, Message(stream, MessageType.REQUEST, envelope.SerializeToString()))
            async with asyncio.timeout(timeout):
                return reply.FromString(await answer)
        except TimeoutError:
            raise NriCallError(f"{method}: no answer within {timeout:g} s", DEADLINE_EXCEEDED) from None
        except DecodeError:
            raise NriCallError(f"{method}: the answer is not a {reply.DESCRIPTOR.name}") from None
        finally:
            self._waiting.pop(stream, None)

    def _send(self, stream: int, message: Message) -> None:
        if len(message.data) > LONGEST_MESSAGE:
            raise NriCallError(f"a message of {len(message.data)} bytes; the longest has {LONGEST_MESSAGE}")
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames(stream, message.encode()))

    def _take(self, stream: int, message: Message) -> None:
        if stream == self._streams.called and message.type == MessageType.RESPONSE:
            self._answered(message)
        elif stream == self._streams.served and message.type == MessageType.REQUEST:
            if message.stream % 2 == 0 or message.stream <= self._last_served:
                raise NriProtocolError(f"call {message.stream} after {self._last_served}; calls are odd and rise")
            self._last_served = message.stream
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            raise NriProtocolError(f"a message of type {message.type} on stream {stream}")

    def _answered(self, message: Message) -> None:
        waiting = self._waiting.get(message.stream)
        if waiting is None or waiting.done():
            return  # nobody waits any longer: the call was too slow
        try:
            response = ttrpc.Response.FromString(message.data)
        except DecodeError:
            waiting.set_exception(NriCallError("the answer is not a ttrpc response"))
            return
        if response.status.code:
            waiting.set_exception(NriCallError(response.status.message, response.status.code))
        else:
            waiting.set_result(response.payload)

    async def _answer(self, message: Message) -> None:
        request, response = ttrpc.Request(), ttrpc.Response()
        try:
            request.ParseFromString(message.data)
            deadline = request.timeout_nano / 1e9 if request.timeout_nano else None
            async with asyncio.timeout(deadline):
                answer = await self._handler(request.service, request.method, request.payload)
            response.payload = answer.SerializeToString()
        except TimeoutError:
            # The runtime has stopped waiting and drops the plugin; it is told all the same.
            response.status.code, response.status.message = DEADLINE_EXCEEDED, "not answered in time"
        except NriCallError as error:
            response.status.code, response.status.message = error.code, error.what
        except DecodeError:
            response.status.code, response.status.message = UNKNOWN, "the request cannot be read"
        except KubeqosError as error:
            response.status.code, response.status.message = UNKNOWN, error.what
        except Exception as error:
            log.error("a handler failed", exc_info=True, method=request.method)
            response.status.code, response.status.message = UNKNOWN, f"{request.method} failed: {error!r}"
        self._send(self._streams.served, Message(message.stream, MessageType.RESPONSE, response.SerializeToString()))


def unimplemented(service: str, method: str) -> NriCallError:
    """The answer to a method that this end does not have."""
    return NriCallError(f"service {service} has no method {method}", UNIMPLEMENTED)
