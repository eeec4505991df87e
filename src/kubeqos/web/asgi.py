"""`Response` to ASGI messages: whole, as a stream that ends when the client leaves, or over a WebSocket.

Shared by the API server and by the node agents' endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from kubeqos.web.messages import Connection, Outlet, Response
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.websockets import refuse, serve_socket

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PIECE_BYTES = 256 << 10
UPGRADE = "kubeqos.upgrade"
"""In the scope of a request that asks to speak SPDY on its connection: the way to let it, an `Upgrade`."""
DIRECT = "kubeqos.direct"
"""In the scope, where the server offers it: the request's `Direct` way to its connection."""


class Upgrade(Protocol):
    """A connection that waits to be taken over."""

    def accept(self, protocol: str) -> Connection:
        """Tell the client, and take the connection out of the server's hands."""


class Direct(Outlet, Protocol):
    """The connection of one request, past ASGI's messages."""

    def answer(self, code: int, headers: Headers, body: bytes) -> bool:
        """Write a whole answer; False, and nothing written, where it is not as simple as that."""

    @property
    def takes_chunks(self) -> bool:
        """The answer's head is out and said that chunks follow."""


async def respond(response: Response, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in the form that the response and the request have."""
    direct: Direct | None = scope.pop(DIRECT, None)  # it refers to the scope: what is left in there would be a cycle
    upgrade: Upgrade | None = scope.pop(UPGRADE, None)
    if response.takes_over is not None and upgrade is not None:
        await _taken_over(response, upgrade)
    elif response.streams is not None:
        await serve_socket(response.streams, response.protocol, receive, send)
    elif scope["type"] == "websocket":
        await refuse(send, response.code, headers, response.body)
    elif response.stream is not None:
        await _stream(response, headers, direct, receive, send)
    else:
        if response.code != 204:
            headers.append((b"content-length", b"%d" % len(response.body)))
        if direct and len(response.body) <= PIECE_BYTES and direct.answer(response.code, headers, response.body):
            return
        await send({"type": "http.response.start", "status": response.code, "headers": headers})
        if len(response.body) > PIECE_BYTES:
            await _send_pieces(memoryview(response.body), send)
        else:
            await send({"type": "http.response.body", "body": response.body})


async def _taken_over(response: Response, upgrade: Upgrade) -> None:
    assert response.takes_over is not None
    reader, writer = upgrade.accept(response.protocol)
    try:
        await response.takes_over((reader, writer))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_body(receive: Receive, most: int) -> bytes:
    """The whole body of a request, of at most so many bytes."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:  # the connection's own deadline ends a body that does not come
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("the client closed the connection before the body was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def too_large(most: int) -> ApiError:
    """Kubernetes' words for a body with more bytes than that."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {most}", details={})


async def _send_pieces(body: memoryview, send: Send) -> None:
    """A large answer piece by piece, as fast as the client reads: others get their turn, and whoever stops shows."""
    for start in range(0, len(body), PIECE_BYTES):
        end = start + PIECE_BYTES
        await send({"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)})


async def _stream(response: Response, headers: Headers, direct: Direct | None, receive: Receive, send: Send) -> None:
    """Send chunks until the stream ends or the client goes away."""
    sender = asyncio.ensure_future(_send_chunks(response, headers, direct, send))
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, listener):
            if not task.done():
                task.cancel()
        await asyncio.gather(sender, listener, return_exceptions=True)


async def _send_chunks(response: Response, headers: Headers, direct: Direct | None, send: Send) -> None:
    assert response.stream is not None
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    if response.attach is not None and direct is not None and direct.takes_chunks:
        response.attach(direct)
    async for chunk in response.stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
