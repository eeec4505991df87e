"""The streams of one command over SPDY/3.1: what a runtime's streaming server speaks, and every kubelet.

Over WebSocket most of them speak v4 of the channel protocol, which cannot say that a command's input has ended; a
SPDY stream can be closed on its own. Only what a client of streams needs is here: it opens all of them, sends and
takes data, and answers pings. Who only passes bytes on takes the `upgraded` connection. Called by `web.channels`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from kubeqos.errors import RemoteError
from kubeqos.web.messages import Connection

CHANNELS = "v4.channel.k8s.io"
"""How streams of a command are numbered and how its end is told, once there is a connection."""
UPGRADE_SECONDS = 10.0
MOST_BYTES = 1 << 16
_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _PING, _GOAWAY = 1, 2, 6, 7
_FIN = 0x01


class Streams:
    """Streams by name, on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: Sequence[str]) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = {name: 2 * number + 1 for number, name in enumerate(names)}  # a client's are odd
        self._names = {identity: name for name, identity in self._ids.items()}
        self._closed: set[str] = set()
        self._open = {identity: asyncio.Event() for identity in self._names}
        # Header blocks may be compressed with SPDY's own dictionary; nobody has to use it.
        compressor = zlib.compressobj()
        for name, identity in self._ids.items():
            block = b"".join(_text(word) for word in ("streamtype", name))
            packed = compressor.compress(struct.pack(">I", 1) + block) + compressor.flush(zlib.Z_SYNC_FLUSH)
            self._control(_SYN_STREAM, struct.pack(">IIH", identity, 0, 0) + packed)

    async def send(self, name: str, data: bytes) -> None:
        """Write to a stream; to one that is not there, nothing. Somebody must be reading `received` meanwhile."""
        if name not in self._ids or name in self._closed:
            return
        await self._open[self._ids[name]].wait()  # servers drop what comes before they have answered
        for start in range(0, len(data), MOST_BYTES):
            self._data(self._ids[name], data[start : start + MOST_BYTES])
        await self._writer.drain()

    async def close(self, name: str) -> None:
        """No more comes on this stream."""
        if name in self._ids and name not in self._closed:
            self._closed.add(name)
            await self._open[self._ids[name]].wait()
            self._data(self._ids[name], b"", _FIN)
            await self._writer.drain()

    async def received(self) -> AsyncIterator[tuple[str, bytes]]:
        """What the server sends, by stream, until it hangs up."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                first, rest = struct.unpack(">II", await self._reader.readexactly(8))
                data = await self._reader.readexactly(rest & 0xFFFFFF)
                if not first & 0x80000000:
                    if data and first in self._names:
                        yield self._names[first], data
                elif first & 0xFFFF == _SYN_REPLY:
                    self._open[struct.unpack_from(">I", data)[0]].set()
                elif first & 0xFFFF == _PING:
                    self._control(_PING, data)
                elif first & 0xFFFF == _GOAWAY:
                    return

    def _control(self, kind: int, payload: bytes) -> None:
        self._writer.write(struct.pack(">HHI", _VERSION, kind, len(payload)) + payload)

    def _data(self, identity: int, data: bytes, flags: int = 0) -> None:
        self._writer.write(struct.pack(">II", identity, flags << 24 | len(data)) + data)


def _text(word: str) -> bytes:
    return struct.pack(">I", len(word)) + word.encode()


@contextlib.asynccontextmanager
async def streams(url: str, names: Sequence[str], tls: ssl.SSLContext | None = None) -> AsyncIterator[Streams]:
    """Open streams of these types for the duration of a block."""
    async with upgraded(url, CHANNELS, tls) as (reader, writer):
        yield Streams(reader, writer, names)


@contextlib.asynccontextmanager
async def upgraded(url: str, protocol: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Connection]:
    """A connection that speaks SPDY from here on, for the duration of a block."""
    parts = urlsplit(url)
    secure = tls or ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    async with asyncio.timeout(UPGRADE_SECONDS):
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
    try:
        async with asyncio.timeout(UPGRADE_SECONDS):
            await _upgrade(reader, writer, url, protocol)
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, protocol: str) -> None:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [
        *(f"POST {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: Upgrade", "Upgrade: SPDY/3.1"),
        *(f"X-Stream-Protocol-Version: {protocol}", "Content-Length: 0", "", ""),
    ]
    writer.write("\r\n".join(lines).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace").split("\r\n")
    if " 101 " not in f"{head[0]} ":
        raise RemoteError(f"refuses to open streams: {head[0]}", where=f"{parts.scheme}://{parts.netloc}{parts.path}")
