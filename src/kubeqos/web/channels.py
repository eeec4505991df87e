"""Kubernetes' channel protocol: the streams of a command, or of a forwarded port, on one WebSocket.

Each message begins with the number of its stream. v5 adds a message that closes a stream, so that a command can see the
end of its input. `bridge` carries a client's channels to a server of streams that speaks SPDY: a runtime, when a node
agent calls it, or a kubelet, when the API server does. `tunnel` carries a SPDY connection that a client has put into a
WebSocket as it is (`kubectl port-forward`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.web.messages import Connection, Query, Response
from kubeqos.web.spdy import Streams, streams, upgraded
from kubeqos.web.websockets import Socket

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
NAMES = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}
NUMBERS = {name: number for number, name in NAMES.items()}
CLIENT_WORDS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
"""What clients call the streams in their query, and what kubelets call them in theirs."""
PORT_FORWARD = "portforward.k8s.io"
TUNNEL = f"SPDY/3.1+{PORT_FORWARD}"
"""The subprotocol of a WebSocket whose messages are the bytes of a SPDY connection that forwards ports."""
UNREACHABLE = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, RemoteError)
_READ_BYTES = 1 << 16
log = logger("kubeqos.web.channels")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams are wanted, and of which command; none when they are those of the container itself."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False

    @classmethod
    def of(cls, query: Query) -> StreamOptions:
        """As kubelets are asked."""
        asked = {name: is_on(query, word) for name, word in CLIENT_WORDS.items()}
        return cls(tuple(query.get("command", ())), **asked)

    def streams(self) -> list[str]:
        """What a server of streams waits for. A terminal has one output."""
        asked = {
            ERROR: True,
            STDIN: self.stdin,
            STDOUT: self.stdout,
            STDERR: self.stderr and not self.tty,
            RESIZE: self.tty,
        }
        return [NAMES[number] for number, is_asked in asked.items() if is_asked]


def is_on(query: Query, name: str) -> bool:
    return query.get(name, ["false"])[0].lower() in ("true", "1")


def node_query(query: Query) -> dict[str, list[str]]:
    """What a client asks the API server for, in the words that a kubelet reads."""
    asked = {word: ["1"] for name, word in CLIENT_WORDS.items() if is_on(query, name)}
    return {**asked, **({"command": query["command"]} if "command" in query else {})}


def failure_status(message: str) -> bytes:
    """What the error stream says when a command could not be run."""
    return encode_json(
        {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    )


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream]) + data


async def bridge(url: str, options: StreamOptions, socket: Socket, tls: ssl.SSLContext | None = None) -> None:
    """Carry messages between a client and a server of streams; raises one of UNREACHABLE where there is none."""
    async with streams(url, options.streams(), tls) as server:
        await until_one_ends(_inward(socket, server), _outward(server, socket))


async def _inward(socket: Socket, server: Streams) -> None:
    """Client to server, until the client has gone."""
    while (data := await socket.receive()) is not None:
        if data[:1] == bytes([CLOSE]):
            await server.close(NAMES.get(data[1], "") if len(data) > 1 else "")
        elif data:
            await server.send(NAMES.get(data[0], ""), data[1:])


async def _outward(server: Streams, socket: Socket) -> None:
    async for name, data in server.received():
        await socket.send(frame(NUMBERS[name], data))


async def tunnel(url: str, socket: Socket, tls: ssl.SSLContext | None = None) -> None:
    """Carry the bytes of a SPDY connection both ways; raises one of UNREACHABLE where there is no server."""
    async with upgraded(url, PORT_FORWARD, tls) as (reader, writer):

        async def inward() -> None:
            while (data := await socket.receive()) is not None:
                writer.write(data)
                await writer.drain()

        async def outward() -> None:
            while data := await reader.read(_READ_BYTES):
                await socket.send(data)

        await until_one_ends(inward(), outward())


def passing_on(url: str, protocol: str) -> Response:
    """The answer to a request for SPDY whose bytes another server understands: they are carried there and back."""

    async def takes_over(client: Connection) -> None:
        try:
            async with upgraded(url, protocol) as server:
                await until_one_ends(_copy(client[0], server[1]), _copy(server[0], client[1]))
        except UNREACHABLE as error:
            log.warning("cannot pass streams on: %s", error)

    return Response(101, takes_over=takes_over, protocol=protocol)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()


async def until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Both directions of a connection: what ends one ends it all."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
