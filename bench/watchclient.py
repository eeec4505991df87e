"""A thousand watches in one process, as cheap as Python reads TLS, and a proof that each saw every event.

Used by `bench.watchers`, beside whose server it has to run: what it saves, the figures do not owe to a client that was
too slow. All connections share one pair of buffers for TLS, which stay in the processor's cache, and the bytes that
watchers get are not parsed one by one but compared: the first to get a piece of the stream writes it down, everybody
else must get the same.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubeqos.codec import decode_json

GATHER_SECONDS = 0.005  # between two looks at the connections: fewer and larger reads
BUFFER_BYTES = 256 << 10
RECORD_BYTES = 16 << 10  # the largest of TLS, of which a part may have come before


@dataclass
class Stream:
    """What everybody must see, as the first to see it wrote it down."""

    expected: int
    content: bytearray = field(default_factory=bytearray)
    events: int = 0

    def matches(self, piece: memoryview, position: int) -> bool:
        """Whether a watcher at a position got what the others got there."""
        known = len(self.content) - position
        if known >= len(piece):
            return self.content.startswith(piece, position)
        same = self.content.startswith(piece[:known], position)
        self.content += piece[known:]
        self.events += bytes(piece[known:]).count(b"\n")
        return same

    @property
    def complete(self) -> bool:
        return self.events >= self.expected

    def names(self) -> list[str]:
        """Of the objects in the order of their events, which must be arrivals with growing versions."""
        events = [decode_json(line) for line in self.content.splitlines()]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert all(event["type"] == "ADDED" for event in events)
        assert versions == sorted(set(versions)), "events out of order"
        return [event["object"]["metadata"]["name"] for event in events]


@dataclass(slots=True)
class Watcher:
    """One connection: how far it has come in the stream, and in the chunk that it is reading."""

    connection: socket.socket
    tls: ssl.SSLObject
    position: int = 0
    left: int = 0
    size_line: bytes = b""
    last: float = 0.0

    def take(self, data: memoryview, stream: Stream) -> None:
        """Compare the content of chunks with the stream; between them is the size of the next."""
        while data:
            if not self.left:
                data = self._next_size(data)
                continue
            piece = data[: self.left]
            assert stream.matches(piece, self.position), f"another stream from byte {self.position} on"
            self.position += len(piece)
            self.left -= len(piece)
            data = data[len(piece) :]

    def _next_size(self, data: memoryview) -> memoryview:
        line = self.size_line + bytes(data[:20])
        end = line.find(b"\r\n", 2 if line.startswith(b"\r\n") else 0)  # the chunk before ends with an empty line
        if end < 0:
            assert len(line) < 20, line
            self.size_line = line
            return data[20:]
        used = end + 2 - len(self.size_line)
        self.left, self.size_line = int(line[:end], 16), b""
        assert self.left, "the watch ended"
        return data[used:]


class Watchers:
    """Many watches of one collection."""

    def __init__(self, port: int, context: ssl.SSLContext, request: bytes, expected: int) -> None:
        self.stream = Stream(expected)
        self.reads = self.received = 0
        self._port, self._context, self._request = port, context, request
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._encrypted, self._plain = bytearray(BUFFER_BYTES), bytearray(BUFFER_BYTES + RECORD_BYTES)
        self._ready = select.epoll()
        self._by_number: dict[int, Watcher] = {}
        self.cipher = ""

    @property
    def all(self) -> list[Watcher]:
        return list(self._by_number.values())

    def open(self, count: int) -> None:
        """Connect one after the other, each until the head of its answer is there."""
        for _ in range(count):
            watcher = self._connect()
            self._by_number[watcher.connection.fileno()] = watcher
            self._ready.register(watcher.connection.fileno(), select.EPOLLIN)
            self.cipher = "{1} {0}".format(*watcher.tls.cipher() or ("", ""))

    def _connect(self) -> Watcher:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        tls = self._context.wrap_bio(self._incoming, self._outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(self._outgoing.read())
                self._incoming.write(connection.recv(BUFFER_BYTES))
        tls.write(self._request)
        connection.sendall(self._outgoing.read())
        watcher, head = Watcher(connection, tls), b""
        while b"\r\n\r\n" not in head:
            head += b"".join(bytes(piece) for piece in self._received(watcher))
        assert head.startswith(b"HTTP/1.1 200 "), head
        watcher.take(memoryview(head.partition(b"\r\n\r\n")[2]), self.stream)
        return watcher

    def _received(self, watcher: Watcher) -> Iterator[memoryview]:
        """What has come on a connection, decrypted.

        TLS takes everything out of the shared buffer, also a part of a record, before it asks for more.
        """
        count = watcher.connection.recv_into(self._encrypted)
        assert count, "the server has cut the connection"
        self.reads += 1
        self.received += count
        self._incoming.write(memoryview(self._encrypted)[:count])
        plain, used = memoryview(self._plain), 0
        read: Any = watcher.tls.read  # typeshed knows only the form without a buffer
        try:
            while True:
                used += read(RECORD_BYTES, plain[used:])
        except ssl.SSLWantReadError:
            yield plain[:used]

    def read(self) -> None:
        """Until everybody has seen everything."""
        behind = len(self._by_number)
        while behind:
            for number, _ in self._ready.poll():
                watcher = self._by_number[number]
                for piece in self._received(watcher):
                    watcher.take(piece, self.stream)
                watcher.last = time.perf_counter()
                if self.stream.complete and watcher.position == len(self.stream.content):
                    behind -= 1
            time.sleep(GATHER_SECONDS)
