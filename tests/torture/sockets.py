"""The sockets on a node: gRPC without gRPC, so that runtimes, plugins and drivers are processes that can die.

Takes the place of `grpc.aio.insecure_channel` and `grpc.aio.server`. Who listens makes a real socket file, which stays
behind when he dies; who dials finds whoever listens there by the file. Messages travel as bytes, with the weather of
the link to the component that serves them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import grpc.aio

from tests.torture.network import Network
from tests.torture.virtualtime import WHERE, Incarnation

CONNECTED_SECONDS = 0.5
"""How often a connection looks whether its other end is still there."""


class _Aborted(grpc.aio.AbortError):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class _Context:
    """What a handler is told of its call."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.trailing: tuple[tuple[str, bytes], ...] = ()

    def time_remaining(self) -> float | None:
        return self._seconds

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise _Aborted(code, details)

    async def send_initial_metadata(self, _metadata: Any) -> None: ...

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.trailing = tuple(metadata)


class Server:
    """Takes the place of `grpc.aio.Server`."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self.handlers: list[Any] = []
        self.life: Incarnation | None = None
        self.up = False

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self.handlers += handlers

    def add_insecure_port(self, target: str) -> int:
        path = target.removeprefix("unix:")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)
        self._sockets.listening[_file(path)] = self
        self.life = WHERE.get()
        return 1

    async def start(self) -> None:
        self.up = True

    async def stop(self, grace: float | None = None) -> None:
        self.up = False

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        await asyncio.Event().wait()
        return True

    def method(self, path: str) -> Any:
        details = SimpleNamespace(method=path, invocation_metadata=())
        return next((found for one in self.handlers if (found := one.service(details)) is not None), None)


def _file(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


class _Call:
    """A call that is awaited, and whose metadata can be asked for afterwards."""

    def __init__(self, work: asyncio.Task[Any], context: _Context) -> None:
        self._work, self._context = work, context

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._work.__await__())
        except asyncio.CancelledError:
            self._work.cancel()
            raise

    async def trailing_metadata(self) -> Any:
        return self._context.trailing

    def cancel(self) -> bool:
        return self._work.cancel()


class _Stream:
    def __init__(self, channel: Channel, path: str, encode: Any, decode: Any, request: Any) -> None:
        self._channel, self._decode = channel, decode
        self._pipe: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._server = channel.other_end()
        self._pump: asyncio.Task[Any] | None = None
        if self._server is not None:
            assert self._server.life is not None
            work = self._serve(self._server.method(path), encode(request))
            self._pump = channel.sockets.network.components.spawn(self._server.life, work)
            self._server.life.on_death[self._died] = None
            if (client := WHERE.get()) is not None:
                client.on_death[self.cancel] = None

    def _died(self) -> None:
        self._pipe.put_nowait(None)

    async def _serve(self, method: Any, request: bytes) -> None:
        async for message in method.unary_stream(method.request_deserializer(request), _Context(None)):
            self._pipe.put_nowait(method.response_serializer(message))

    async def read(self) -> Any:
        if self._server is None:
            raise _failure(grpc.StatusCode.UNAVAILABLE, "connection refused")
        network = self._channel.sockets.network
        piece = await self._pipe.get()
        weather = network.of(self._channel.link(self._server))
        await network.pause(weather)
        if piece is None or network.chance.random() < weather.cuts:
            raise _failure(grpc.StatusCode.UNAVAILABLE, "connection reset")
        if weather.away:
            await asyncio.Event().wait()  # a runtime that hangs is silent
        return self._decode(piece)

    def cancel(self) -> None:
        if self._pump is not None and self._server is not None and self._server.life is not None:
            self._pump.cancel()
            self._server.life.on_death.pop(self._died, None)


class Channel:
    """Takes the place of `grpc.aio.Channel`."""

    def __init__(self, sockets: Sockets, target: str) -> None:
        self.sockets = sockets
        self._path = target.removeprefix("unix:")
        self._closed = False

    def link(self, server: Server) -> str:
        assert server.life is not None
        return server.life.name

    def other_end(self) -> Server | None:
        """Who listens at the path now; nobody if he has died and left the file."""
        try:
            server = self.sockets.listening.get(_file(self._path))
        except OSError:
            return None
        alive = server is not None and server.up and server.life is not None and server.life.alive
        return server if alive else None

    def unary_unary(self, path: str, request_serializer: Any = None, response_deserializer: Any = None) -> Any:
        encode, decode = request_serializer or bytes, response_deserializer or bytes

        def start(request: Any, timeout: float | None = None) -> _Call:
            if self._closed:
                raise grpc.aio.UsageError("Channel is closed.")
            context = _Context(timeout)
            loop = asyncio.get_running_loop()
            return _Call(loop.create_task(self._ask(path, encode(request), decode, timeout, context)), context)

        return start

    def unary_stream(self, path: str, request_serializer: Any = None, response_deserializer: Any = None) -> Any:
        encode, decode = request_serializer or bytes, response_deserializer or bytes
        return lambda request: _Stream(self, path, encode, decode, request)

    async def _ask(self, path: str, sent: bytes, decode: Any, seconds: float | None, context: _Context) -> Any:
        network = self.sockets.network
        server = self.other_end()
        if server is None or server.life is None:
            await asyncio.sleep(0.001)
            raise _failure(grpc.StatusCode.UNAVAILABLE, "connection refused")
        weather = network.of(self.link(server))
        try:
            async with asyncio.timeout(seconds):
                await network.pause(weather)
                if network.lost(weather):
                    await asyncio.Event().wait()
                gone = _failure(grpc.StatusCode.UNAVAILABLE, "connection reset")
                answer = network.components.call(server.life, self._work(server, path, sent, context), lambda: gone)
                found = await answer  # who waits no longer does not stop the other end
                await network.pause(weather)
                if network.lost(weather):
                    await asyncio.Event().wait()
        except TimeoutError:
            raise _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        return decode(found)

    @staticmethod
    async def _work(server: Server, path: str, sent: bytes, context: _Context) -> bytes:
        method = server.method(path)
        if method is None:
            raise _failure(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        try:
            answer = await method.unary_unary((method.request_deserializer or bytes)(sent), context)
        except _Aborted as aborted:
            raise _failure(aborted.code, aborted.details) from None
        except grpc.aio.AioRpcError:
            raise
        except Exception as error:
            raise _failure(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}") from error
        return bytes((method.response_serializer or bytes)(answer))

    # ---- Whether it is connected

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        connected = self.other_end() is not None
        return grpc.ChannelConnectivity.READY if connected else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        while self.get_state() is last:  # noqa: ASYNC110 - it is a poll: the dead tell nobody
            await asyncio.sleep(CONNECTED_SECONDS)

    async def channel_ready(self) -> None:
        while self.get_state() is not grpc.ChannelConnectivity.READY:  # noqa: ASYNC110
            await asyncio.sleep(CONNECTED_SECONDS)

    async def close(self, grace: float | None = None) -> None:
        self._closed = True


class Sockets:
    """All that listen on this machine's sockets, by the file."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.listening: dict[tuple[int, int], Server] = {}

    def install(self) -> None:
        """From now on this process's gRPC is ours."""
        make_channel: Callable[..., Any] = lambda target, options=None: Channel(self, target)  # noqa: E731
        make_server: Callable[..., Any] = lambda options=None: Server(self)  # noqa: E731
        grpc.aio.insecure_channel = make_channel
        grpc.aio.server = make_server
