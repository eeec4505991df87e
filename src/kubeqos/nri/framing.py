"""The two lowest layers of NRI's protocol, as bytes in and messages out. Pure; called by `link`.

One socket carries numbered byte streams (the multiplexer: 8 bytes of header, then the payload); each stream carries
ttrpc messages (10 bytes of header, then the data). A message may span frames, and a frame may hold several messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kubeqos.errors import KubeqosError

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
"""The stream whose server is the plugin, and the one whose server is the runtime."""
LONGEST_MESSAGE = 4 << 20
# A peer in Go reads through a buffer of 4,096 bytes and ends the connection at a frame that does not fit into it.
LONGEST_SENT_FRAME = 4096
_FRAME = struct.Struct(">II")
_MESSAGE = struct.Struct(">IIBB")
_LONGEST_FRAME = LONGEST_MESSAGE + _MESSAGE.size


class NriProtocolError(KubeqosError):
    """The peer sent bytes that are not NRI; the connection cannot go on."""


class MessageType(IntEnum):
    REQUEST = 1
    RESPONSE = 2
    DATA = 3


@dataclass(frozen=True, slots=True)
class Message:
    """One ttrpc message; `stream` tells which call it belongs to."""

    stream: int
    type: int
    data: bytes

    def encode(self) -> bytes:
        return _MESSAGE.pack(len(self.data), self.stream, self.type, 0) + self.data


def frames(stream: int, data: bytes) -> bytes:
    """Data of one stream as frames, none longer than a peer can take."""
    parts: list[bytes] = []
    for start in range(0, len(data), LONGEST_SENT_FRAME):
        part = data[start : start + LONGEST_SENT_FRAME]
        parts += (_FRAME.pack(stream, len(part)), part)
    return b"".join(parts)


class Frames:
    """Cuts the bytes of a socket into the payloads of its streams."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that these bytes complete, each as its stream and its payload."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            stream, length = _FRAME.unpack_from(self._buffer)
            if length > _LONGEST_FRAME:
                raise NriProtocolError(f"a frame of {length} bytes; the longest has {_LONGEST_FRAME}")
            if stream not in (PLUGIN_STREAM, RUNTIME_STREAM):
                raise NriProtocolError(f"a frame of stream {stream}; there are only 1 and 2")
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_FRAME.size : end])
            del self._buffer[:end]
            yield stream, payload


class Messages:
    """Cuts one byte stream into ttrpc messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that these bytes complete."""
        self._buffer += data
        while len(self._buffer) >= _MESSAGE.size:
            length, stream, kind, _ = _MESSAGE.unpack_from(self._buffer)
            if length > LONGEST_MESSAGE:
                raise NriProtocolError(f"a message of {length} bytes; the longest has {LONGEST_MESSAGE}")
            end = _MESSAGE.size + length
            if len(self._buffer) < end:
                return
            message = Message(stream, kind, bytes(self._buffer[_MESSAGE.size : end]))
            del self._buffer[:end]
            yield message
