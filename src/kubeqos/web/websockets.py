"""WebSockets of the API: accepted, or refused with the same Status that a plain request would get.

A handler answers a request for streams with a `Response` whose `streams` takes the open socket. Used by the API server
and by the node agents' own endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CHANNEL_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Kubernetes' stream protocols that we speak, best first: each message begins with the number of its stream."""


def choose_protocol(offered: Sequence[str], spoken: Sequence[str] = CHANNEL_PROTOCOLS) -> str | None:
    """The best protocol that both sides speak."""
    return next((name for name in spoken if name in offered), None)


class Socket(Protocol):
    """An open WebSocket."""

    protocol: str

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has closed."""

    async def send(self, data: bytes) -> None: ...


class AsgiSocket:
    """A WebSocket that a client opened to us."""

    def __init__(self, receive: Receive, send: Send, protocol: str) -> None:
        self.protocol = protocol
        self._receive = receive
        self._send = send
        self._closed = False

    async def accept(self) -> None:
        await self._send({"type": "websocket.accept", "subprotocol": self.protocol or None})

    async def receive(self) -> bytes | None:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._closed = True
            return None
        data = message.get("bytes")
        return data if data is not None else (message.get("text") or "").encode()

    async def send(self, data: bytes) -> None:
        if not self._closed:
            await self._send({"type": "websocket.send", "bytes": data})

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._send({"type": "websocket.close", "code": 1000})


async def refuse(send: Send, code: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Answer the handshake as a plain request."""
    await send({"type": "websocket.http.response.start", "status": code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def serve_socket(
    streams: Callable[[Socket], Awaitable[None]], protocol: str, receive: Receive, send: Send
) -> None:
    """Accept, hand over, close."""
    await receive()  # websocket.connect
    socket = AsgiSocket(receive, send, protocol)
    await socket.accept()
    try:
        await streams(socket)
    finally:
        await socket.close()
