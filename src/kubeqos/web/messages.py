"""What an HTTPS server of ours answers, whatever asked: a `Response`, and the query of a request.

The API server and the node agents' endpoint build these; `asgi` puts them on the wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs

from kubeqos.web.websockets import Socket

Query = Mapping[str, list[str]]
NO_QUERY: Query = {}
_is_malformed = re.compile("%(?![0-9A-Fa-f]{2})|;").search
JSON = "application/json"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Outlet(Protocol):
    """A connection in the middle of an answer, for one who frames chunks himself and heeds that it may be full."""

    @property
    def is_full(self) -> bool:
        """The client does not read as fast as we write: wait until it is `drained`."""

    def write(self, framed: bytes) -> None: ...

    async def drained(self) -> None: ...


@dataclass(slots=True)
class Response:
    """An answer: whole, or a stream of chunks."""

    code: int
    body: bytes = b""
    content_type: str = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    stream: AsyncIterator[bytes] | None = None
    attach: Callable[[Outlet], None] | None = None
    """Where the server has an outlet: takes it before the stream begins, which then writes to it between its chunks."""
    streams: Callable[[Socket], Awaitable[None]] | None = None
    """Takes over the WebSocket, which speaks `protocol`."""
    protocol: str = ""
    takes_over: Callable[[Connection], Awaitable[None]] | None = None
    """Takes over the connection of a request that asked for SPDY, which carries `protocol`."""


def parse_query(raw: bytes) -> Query:
    """Parameters by name. A pair that is not well-formed is as good as not there, as in Kubernetes."""
    if not raw:
        return NO_QUERY
    text = raw.decode("latin-1")
    if "%" in text or ";" in text:
        text = "&".join(pair for pair in text.split("&") if not _is_malformed(pair))
    return parse_qs(text, keep_blank_values=True)


def is_true(query: Query, name: str) -> bool:
    """Booleans of the query are lenient: present and neither `false` nor `0`."""
    found = query.get(name)
    return bool(found) and found[0].lower() not in ("false", "0")  # type: ignore[index]
