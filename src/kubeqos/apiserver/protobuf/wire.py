"""The protobuf wire format: varints, lengths and tags. Knows nothing about Kubernetes.

Every function takes the whole buffer and offsets into it, never reads past `end`, and raises InputError for bytes that
are not a message.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeqos.errors import InputError

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)
_MAX_VARINT = 10


def varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, and the offset after it."""
    value = shift = 0
    for position in range(at, min(end, at + _MAX_VARINT)):
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise InputError("protobuf body: a number is cut off or too long", where=f"byte {at}")


def fields(buffer: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message as (number, wire type, value or start, end of its bytes)."""
    while at < end:
        tag, at = varint(buffer, at, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise InputError("protobuf body: field number 0", where=f"byte {at}")
        if kind == VARINT:
            value, at = varint(buffer, at, end)
            yield number, kind, value, at
            continue
        if kind == BYTES:
            size, at = varint(buffer, at, end)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise InputError(f"protobuf body: wire type {kind} is not used by Kubernetes", where=f"byte {at}")
        if size > end - at:
            raise InputError("protobuf body: a field is longer than its message", where=f"byte {at}")
        yield number, kind, at, at + size
        at += size


def signed(value: int) -> int:
    """A varint as a signed 64-bit number."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(buffer: bytes, start: int, end: int) -> str:
    """A string field."""
    try:
        return buffer[start:end].decode()
    except UnicodeDecodeError as error:
        raise InputError("protobuf body: a string is not UTF-8", where=f"byte {start}") from error
