"""HTTP/2 (RFC 9113) on an asyncio transport: as much of it as gRPC uses, for either end of a connection.

A `Connection` parses frames, keeps the flow control of both directions and hands each stream's events to its sink.
It knows nothing of gRPC. Frames written during one turn of the event loop leave in one system call.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Protocol, cast

from kubeqos.cri.relay.hpack import Decoder, Headers, HpackError, encode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11
SET_ENABLE_PUSH, SET_INITIAL_WINDOW, SET_MAX_FRAME = 2, 4, 5

DEFAULT_WINDOW = 65535
STREAM_WINDOW = 1 << 20
CONNECTION_WINDOW = 1 << 24
MAX_FRAME = 16384
MAX_HEADER_BLOCK = 1 << 17
_HEADER = struct.Struct(">BHBBI")
_LONG = struct.Struct(">I")


class ProtocolViolation(Exception):
    """The peer broke the protocol; the connection ends with this error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Sink(Protocol):
    """Takes what arrives on one stream."""

    def headers(self, headers: Headers, end: bool) -> None: ...
    def data(self, data: bytes, end: bool) -> None: ...
    def reset(self, code: int) -> None: ...


class Owner(Protocol):
    """Owns a connection: gives new streams their sink, learns when the connection goes."""

    def stream_opened(self, stream: Stream, headers: Headers) -> Sink: ...
    def going_away(self, connection: Connection) -> None: ...
    def connection_ended(self, connection: Connection) -> None: ...


class Stream:
    """One stream of a connection, seen from this side."""

    __slots__ = ("connection", "ended_here", "ended_there", "id", "queue", "sink", "uncredited", "window")

    def __init__(self, connection: Connection, stream_id: int, window: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.window = window
        self.sink: Sink | None = None
        self.ended_here = self.ended_there = False
        self.uncredited = 0
        self.queue: deque[tuple[bytes | Headers, bool, Stream | None]] = deque()

    def send_headers(self, headers: Headers, end: bool = False) -> None:
        if self.queue:
            self.queue.append((headers, end, None))
        elif not self.ended_here:
            self.connection.write_headers(self, headers, end)

    def send_data(self, data: bytes, end: bool = False, source: Stream | None = None) -> None:
        """Send as the peer's window allows; `source` is credited when the bytes have left."""
        if self.ended_here:
            return
        if self.queue or len(data) > min(self.window, self.connection.window, self.connection.peer_max_frame):
            self.queue.append((data, end, source))
            self.connection.pump(self)
            return
        self.connection.write_data(self, data, end)
        if source is not None:
            source.credit(len(data))

    def credit(self, count: int) -> None:
        """The bytes of this stream were taken: let the peer send as many more."""
        self.uncredited += count
        if self.uncredited >= STREAM_WINDOW // 2 and not self.ended_there:
            self.connection.write_frame(WINDOW_UPDATE, 0, self.id, _LONG.pack(self.uncredited))
            self.uncredited = 0

    def reset(self, code: int = CANCEL) -> None:
        self.connection.reset(self, code)


class Connection(asyncio.Protocol):
    """One end of an HTTP/2 connection."""

    def __init__(self, owner: Owner, *, client: bool) -> None:
        self.owner = owner
        self.client = client
        self.streams: dict[int, Stream] = {}
        self.window = DEFAULT_WINDOW
        self.peer_max_frame = MAX_FRAME
        self.transport: asyncio.Transport | None = None
        self.lost = self.leaving = False
        self._peer_initial_window = DEFAULT_WINDOW
        self._uncredited = 0
        self._decoder = Decoder()
        self._buffer = b""
        self._preface_left = b"" if client else PREFACE
        self._block: tuple[int, bool, bytearray] | None = None
        self._next_id = 1
        self._highest = 0
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    # ---- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.client:
            self._write(PREFACE)
        settings = [(SET_INITIAL_WINDOW, STREAM_WINDOW)] + [(SET_ENABLE_PUSH, 0)] * self.client
        self.write_frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in settings))
        self.write_frame(WINDOW_UPDATE, 0, 0, _LONG.pack(CONNECTION_WINDOW - DEFAULT_WINDOW))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        streams, self.streams = list(self.streams.values()), {}
        for stream in streams:
            stream.ended_here = stream.ended_there = True
            if stream.sink is not None:
                stream.sink.reset(CANCEL if not self.client else INTERNAL_ERROR)
        self.owner.connection_ended(self)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        try:
            self._buffer = self._parse(buffer)
        except ProtocolViolation as error:
            self.close(error.code, str(error))
        except HpackError as error:
            self.close(COMPRESSION_ERROR, error.what)
        except struct.error:
            self.close(FRAME_SIZE_ERROR, "a frame of the wrong size")

    def close(self, code: int = NO_ERROR, reason: str = "") -> None:
        """Say goodbye and end the connection."""
        if self.transport is None or self.lost:
            return
        self.write_frame(GOAWAY, 0, 0, struct.pack(">II", self._highest, code) + reason.encode())
        self._flush()
        self.transport.close()

    def say_goodbye(self) -> None:
        """Take no new streams; those that were opened go on (RFC 9113, 6.8)."""
        if not self.lost and not self.leaving:
            self.leaving = True
            self.write_frame(GOAWAY, 0, 0, struct.pack(">II", self._highest, NO_ERROR))

    # ---- writing

    def open_stream(self, headers: Headers, sink: Sink) -> Stream:
        stream = Stream(self, self._next_id, self._peer_initial_window)
        self._next_id += 2
        stream.sink = sink
        self.streams[stream.id] = stream
        stream.send_headers(headers)
        return stream

    def write_headers(self, stream: Stream, headers: Headers, end: bool) -> None:
        block = encode(headers)
        flags = END_STREAM if end else 0
        if len(block) <= self.peer_max_frame:
            self.write_frame(HEADERS, flags | END_HEADERS, stream.id, block)
        else:
            pieces = [block[i : i + self.peer_max_frame] for i in range(0, len(block), self.peer_max_frame)]
            self.write_frame(HEADERS, flags, stream.id, pieces[0])
            for number, piece in enumerate(pieces[1:], 2):
                self.write_frame(CONTINUATION, END_HEADERS if number == len(pieces) else 0, stream.id, piece)
        if end:
            self._end_here(stream)

    def write_data(self, stream: Stream, data: bytes, end: bool) -> None:
        stream.window -= len(data)
        self.window -= len(data)
        self.write_frame(DATA, END_STREAM if end else 0, stream.id, data)
        if end:
            self._end_here(stream)

    def pump(self, stream: Stream) -> None:
        """Send what is queued as far as the windows go."""
        while stream.queue and not stream.ended_here:
            item, end, source = stream.queue[0]
            if isinstance(item, tuple):
                stream.queue.popleft()
                self.write_headers(stream, item, end)
                continue
            room = min(stream.window, self.window, self.peer_max_frame)
            if room <= 0 and item:
                return
            chunk, rest = item[:room], item[room:]
            if rest:
                stream.queue[0] = (rest, end, source)
            else:
                stream.queue.popleft()
            self.write_data(stream, chunk, end and not rest)
            if source is not None:
                source.credit(len(chunk))

    def reset(self, stream: Stream, code: int) -> None:
        if self.streams.pop(stream.id, None) is not None and not (stream.ended_here and stream.ended_there):
            self.write_frame(RST_STREAM, 0, stream.id, _LONG.pack(code))
        stream.ended_here = stream.ended_there = True
        stream.queue.clear()

    def write_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._write(_HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload)

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()

    def _end_here(self, stream: Stream) -> None:
        stream.ended_here = True
        if stream.ended_there:
            self.streams.pop(stream.id, None)

    def _end_there(self, stream: Stream) -> None:
        stream.ended_there = True
        if stream.ended_here:
            self.streams.pop(stream.id, None)

    # ---- reading

    def _parse(self, buffer: bytes) -> bytes:
        """Handle every whole frame; what remains is kept for the next bytes."""
        position = 0
        if self._preface_left:
            position = min(len(buffer), len(self._preface_left))
            if buffer[:position] != self._preface_left[:position]:
                raise ProtocolViolation(PROTOCOL_ERROR, "not an HTTP/2 client")
            self._preface_left = self._preface_left[position:]
        end = len(buffer)
        while end - position >= 9 and not self.lost:
            high, low, kind, flags, stream_id = _HEADER.unpack_from(buffer, position)
            size = high << 16 | low
            if size > MAX_FRAME:
                raise ProtocolViolation(FRAME_SIZE_ERROR, f"frame of {size} bytes")
            stop = position + 9 + size
            if stop > end:
                break
            self._frame(kind, flags, stream_id & 0x7FFFFFFF, buffer[position + 9 : stop])
            position = stop
        return buffer[position:]

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != CONTINUATION or stream_id != self._block[0]):
            raise ProtocolViolation(PROTOCOL_ERROR, "a header block was interrupted")
        if kind == DATA:
            self._on_data(flags, stream_id, payload)
        elif kind == HEADERS:
            self._on_headers(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, _LONG.unpack(payload)[0] & 0x7FFFFFFF)
        elif kind == PING:
            if not flags & ACK:
                self.write_frame(PING, ACK, 0, payload)
        elif kind == SETTINGS:
            self._on_settings(flags, payload)
        elif kind == RST_STREAM:
            self._on_reset(stream_id, _LONG.unpack(payload)[0])
        elif kind == CONTINUATION:
            self._on_continuation(flags, payload)
        elif kind == GOAWAY:
            self._on_goaway(_LONG.unpack_from(payload)[0] & 0x7FFFFFFF)
        elif kind == PUSH_PROMISE:
            raise ProtocolViolation(PROTOCOL_ERROR, "push is off")

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._uncredited += len(payload)
        if self._uncredited >= CONNECTION_WINDOW // 2:
            self.write_frame(WINDOW_UPDATE, 0, 0, _LONG.pack(self._uncredited))
            self._uncredited = 0
        stream = self.streams.get(stream_id)
        if stream is None or stream.ended_there:
            return  # of a stream that was reset; the bytes still counted against the connection
        data = _unpadded(flags, payload)
        if len(data) != len(payload):
            stream.credit(len(payload) - len(data))
        end = bool(flags & END_STREAM)
        if end:
            self._end_there(stream)
        assert stream.sink is not None
        stream.sink.data(data, end)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = _unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            block = block[5:]
        end = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            self._on_block(stream_id, end, block)
        else:
            self._block = (stream_id, end, bytearray(block))

    def _on_continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise ProtocolViolation(PROTOCOL_ERROR, "a continuation of nothing")
        stream_id, end, block = self._block
        block += payload
        if len(block) > MAX_HEADER_BLOCK:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "header block too large")
        if flags & END_HEADERS:
            self._block = None
            self._on_block(stream_id, end, bytes(block))

    def _on_block(self, stream_id: int, end: bool, block: bytes) -> None:
        headers = self._decoder.decode(block)
        stream = self.streams.get(stream_id)
        if stream is not None:
            if end:
                self._end_there(stream)
            assert stream.sink is not None
            stream.sink.headers(headers, end)
        elif not self.client and stream_id > self._highest and not self.leaving:
            if not stream_id & 1:
                raise ProtocolViolation(PROTOCOL_ERROR, "a client's streams have odd numbers")
            self._highest = stream_id
            stream = Stream(self, stream_id, self._peer_initial_window)
            self.streams[stream_id] = stream
            stream.ended_there = end
            stream.sink = self.owner.stream_opened(stream, headers)
            if end:
                stream.sink.data(b"", True)

    def _on_window_update(self, stream_id: int, increment: int) -> None:
        if stream_id:
            stream = self.streams.get(stream_id)
            if stream is not None:
                stream.window += increment
                self.pump(stream)
            return
        self.window += increment
        self._pump_all()

    def _pump_all(self) -> None:
        for stream in [stream for stream in self.streams.values() if stream.queue]:
            self.pump(stream)

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            return
        for key, value in struct.iter_unpack(">HI", payload):
            if key == SET_INITIAL_WINDOW:
                for stream in self.streams.values():
                    stream.window += value - self._peer_initial_window
                self._peer_initial_window = value
            elif key == SET_MAX_FRAME:
                self.peer_max_frame = value
        self.write_frame(SETTINGS, ACK, 0, b"")
        self._pump_all()

    def _on_reset(self, stream_id: int, code: int) -> None:
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            stream.ended_here = stream.ended_there = True
            stream.queue.clear()
            assert stream.sink is not None
            stream.sink.reset(code)

    def _on_goaway(self, last_id: int) -> None:
        """Streams above `last_id` were not processed. A client's GOAWAY speaks of streams we never open."""
        self.owner.going_away(self)
        if self.client:
            for stream_id in [i for i in self.streams if i > last_id]:
                self._on_reset(stream_id, REFUSED_STREAM)


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolViolation(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]
