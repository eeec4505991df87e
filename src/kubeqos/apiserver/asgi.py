"""`Response` to ASGI messages: whole, as a stream that ends when the client leaves, or over a WebSocket.

Shared by the API server and by the node agents' endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kubeqos.apiserver.requests import Response
from kubeqos.apiserver.sockets import refuse, serve_socket

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PIECE_BYTES = 256 << 10
AT_ONCE = "kubeqos.at_once"
"""In the scope, where the server offers it: a function that writes a whole answer, unless it returns False."""


async def respond(response: Response, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in the form that the response and the request have."""
    if response.streams is not None:
        await serve_socket(response.streams, response.protocol, receive, send)
    elif scope["type"] == "websocket":
        await refuse(send, response.code, headers, response.body)
    elif response.stream is not None:
        await _stream(response, headers, receive, send)
    else:
        if response.code != 204:
            headers.append((b"content-length", b"%d" % len(response.body)))
        at_once = scope.pop(AT_ONCE, None)  # it refers to the scope: what is left in there would be a cycle
        if at_once is not None and len(response.body) <= PIECE_BYTES and at_once(response.code, headers, response.body):
            return
        await send({"type": "http.response.start", "status": response.code, "headers": headers})
        if len(response.body) > PIECE_BYTES:
            await _send_pieces(memoryview(response.body), send)
        else:
            await send({"type": "http.response.body", "body": response.body})


async def _send_pieces(body: memoryview, send: Send) -> None:
    """A large answer piece by piece, as fast as the client reads: others get their turn, and whoever stops shows."""
    for start in range(0, len(body), PIECE_BYTES):
        end = start + PIECE_BYTES
        await send({"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)})


async def _stream(response: Response, headers: Headers, receive: Receive, send: Send) -> None:
    """Send chunks until the stream ends or the client goes away."""
    sender = asyncio.ensure_future(_send_chunks(response, headers, send))
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, listener):
            if not task.done():
                task.cancel()
        await asyncio.gather(sender, listener, return_exceptions=True)


async def _send_chunks(response: Response, headers: Headers, send: Send) -> None:
    assert response.stream is not None
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    async for chunk in response.stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
