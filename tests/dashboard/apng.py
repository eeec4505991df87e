"""Pictures of equal size as one that moves: an animated PNG, which every browser shows."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and data of every chunk of a PNG."""
    at = len(SIGNATURE)
    while at < len(picture):
        (size,) = struct.unpack(">I", picture[at : at + 4])
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def moving(pictures: Sequence[bytes], milliseconds: int) -> bytes:
    """The pictures one after the other, for ever."""
    head = next(data for kind, data in chunks(pictures[0]) if kind == b"IHDR")
    parts = [SIGNATURE, _chunk(b"IHDR", head), _chunk(b"acTL", struct.pack(">II", len(pictures), 0))]
    number = 0
    for picture in pictures:
        assert next(chunks(picture))[1][:8] == head[:8], "pictures of another size"
        control = struct.pack(">I8sIIHHBB", number, head[:8], 0, 0, milliseconds, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", control))
        number += 1
        data = b"".join(found for kind, found in chunks(picture) if kind == b"IDAT")
        if picture is pictures[0]:
            parts.append(_chunk(b"IDAT", data))
        else:
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
            number += 1
    return b"".join([*parts, _chunk(b"IEND", b"")])
