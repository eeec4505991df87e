"""What the relay would be on python-hyper's `h2`: the whole relay, its two connections kept by the library.

`python -m bench.h2relay relay --listen …` is `kubeqos relay` with the same arguments. Run by `bench.relay`, to compare.
The library is asked for as little as it can do: header checks are off on both sides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from kubeqos.cli.main import main
from kubeqos.cri.relay import proxy
from kubeqos.cri.relay.hpack import Headers
from kubeqos.cri.relay.http2 import (
    CANCEL,
    CONNECTION_WINDOW,
    DEFAULT_WINDOW,
    INTERNAL_ERROR,
    REFUSED_STREAM,
    STREAM_WINDOW,
    Owner,
    Sink,
)


class LibraryStream:
    """One stream of a connection: `http2.Stream` on the library."""

    __slots__ = ("connection", "ended_here", "ended_there", "id", "queue", "sink", "uncredited")

    def __init__(self, connection: LibraryConnection, stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.sink: Sink | None = None
        self.ended_here = self.ended_there = False
        self.uncredited = 0
        self.queue: deque[tuple[bytes | Headers, bool, LibraryStream | None]] = deque()

    def send_headers(self, headers: Headers, end: bool = False) -> None:
        if self.queue:
            self.queue.append((headers, end, None))
        elif not self.ended_here:
            self.connection.write_headers(self, headers, end)

    def send_data(self, data: bytes, end: bool = False, source: LibraryStream | None = None) -> None:
        if not self.ended_here:
            self.queue.append((data, end, source))
            self.connection.pump(self)

    def credit(self, count: int) -> None:
        self.uncredited += count
        if self.uncredited >= STREAM_WINDOW // 2 and not self.ended_there:
            self.connection.wire.increment_flow_control_window(self.uncredited, self.id)
            self.connection.flush_soon()
            self.uncredited = 0

    def reset(self, code: int = CANCEL) -> None:
        self.connection.reset(self, code)


class LibraryConnection(asyncio.Protocol):
    """One end of an HTTP/2 connection: `http2.Connection` on the library."""

    def __init__(self, owner: Owner, *, client: bool) -> None:
        self.owner = owner
        self.client = client
        self.streams: dict[int, LibraryStream] = {}
        self.wire = H2Connection(
            H2Configuration(
                client_side=client,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        self.transport: asyncio.Transport | None = None
        self.lost = self.leaving = self._flushing = False
        self._uncredited = 0
        self._loop = asyncio.get_running_loop()

    # ---- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.wire.initiate_connection()
        wanted: dict[SettingCodes | int, int] = {SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW}
        if self.client:
            wanted[SettingCodes.ENABLE_PUSH] = 0
        self.wire.update_settings(wanted)
        self.wire.increment_flow_control_window(CONNECTION_WINDOW - DEFAULT_WINDOW)
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        streams, self.streams = list(self.streams.values()), {}
        for stream in streams:
            stream.ended_here = stream.ended_there = True
            if stream.sink is not None:
                stream.sink.reset(CANCEL if not self.client else INTERNAL_ERROR)
        self.owner.connection_ended(self)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.wire.receive_data(data):
                self._take(event)
        except ProtocolError:
            self.close()
        self.flush_soon()

    def close(self, code: int = 0, reason: str = "") -> None:
        if self.transport is not None and not self.lost:
            self.wire.close_connection(code, reason.encode() or None)
            self._flush()
            self.transport.close()

    def say_goodbye(self) -> None:
        """Never on the wire: to the library a GOAWAY, sent or received, is the end of every stream."""
        self.leaving = True

    # ---- writing

    def open_stream(self, headers: Headers, sink: Sink) -> LibraryStream:
        stream = LibraryStream(self, self.wire.get_next_available_stream_id())
        stream.sink = sink
        self.streams[stream.id] = stream
        stream.send_headers(headers)
        return stream

    def write_headers(self, stream: LibraryStream, headers: Headers, end: bool) -> None:
        self.wire.send_headers(stream.id, headers, end_stream=end)
        self.flush_soon()
        if end:
            self._end_here(stream)

    def pump(self, stream: LibraryStream) -> None:
        while stream.queue and not stream.ended_here:
            item, end, source = stream.queue[0]
            if isinstance(item, tuple):
                stream.queue.popleft()
                self.write_headers(stream, item, end)
                continue
            room = min(self.wire.local_flow_control_window(stream.id), self.wire.max_outbound_frame_size)
            if room <= 0 and item:
                return
            chunk, rest = item[:room], item[room:]
            if rest:
                stream.queue[0] = (rest, end, source)
            else:
                stream.queue.popleft()
            self.wire.send_data(stream.id, chunk, end and not rest)
            self.flush_soon()
            if end and not rest:
                self._end_here(stream)
            if source is not None:
                source.credit(len(chunk))

    def reset(self, stream: LibraryStream, code: int) -> None:
        if self.streams.pop(stream.id, None) is not None and not (stream.ended_here and stream.ended_there):
            self.wire.reset_stream(stream.id, code)
            self.flush_soon()
        stream.ended_here = stream.ended_there = True
        stream.queue.clear()

    def flush_soon(self) -> None:
        """Frames written during one turn of the event loop leave in one system call."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        data = self.wire.data_to_send()
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _end_here(self, stream: LibraryStream) -> None:
        stream.ended_here = True
        if stream.ended_there:
            self.streams.pop(stream.id, None)

    def _end_there(self, stream: LibraryStream) -> None:
        stream.ended_there = True
        if stream.ended_here:
            self.streams.pop(stream.id, None)

    # ---- reading

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._on_data(event)
        elif isinstance(event, RequestReceived):
            stream = LibraryStream(self, event.stream_id)
            self.streams[stream.id] = stream
            stream.ended_there = event.stream_ended is not None
            stream.sink = self.owner.stream_opened(stream, tuple(event.headers))  # type: ignore[arg-type]
            if stream.ended_there:
                stream.sink.data(b"", True)
        elif isinstance(event, ResponseReceived | TrailersReceived):
            if (known := self.streams.get(event.stream_id)) is not None and known.sink is not None:
                if event.stream_ended is not None:
                    self._end_there(known)
                known.sink.headers(tuple(event.headers), event.stream_ended is not None)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            for waiting in [stream for stream in self.streams.values() if stream.queue]:
                self.pump(waiting)
        elif isinstance(event, StreamReset):
            self._on_reset(event.stream_id, event.error_code)
        elif isinstance(event, ConnectionTerminated):
            self.owner.going_away(self)  # type: ignore[arg-type]
            if self.client:
                for stream_id in [i for i in self.streams if i > (event.last_stream_id or 0)]:
                    self._on_reset(stream_id, REFUSED_STREAM)

    def _on_data(self, event: DataReceived) -> None:
        size = event.flow_controlled_length
        self._uncredited += size
        if self._uncredited >= CONNECTION_WINDOW // 2:
            self.wire.increment_flow_control_window(self._uncredited)
            self._uncredited = 0
        stream = self.streams.get(event.stream_id)
        if stream is None or stream.ended_there or stream.sink is None:
            return
        if size != len(event.data):
            stream.credit(size - len(event.data))
        end = event.stream_ended is not None
        if end:
            self._end_there(stream)
        stream.sink.data(event.data, end)

    def _on_reset(self, stream_id: int, code: int) -> None:
        stream = self.streams.pop(stream_id, None)
        if stream is not None and stream.sink is not None:
            stream.ended_here = stream.ended_there = True
            stream.queue.clear()
            stream.sink.reset(code)


if __name__ == "__main__":
    vars(proxy)["Connection"] = LibraryConnection
    main()
