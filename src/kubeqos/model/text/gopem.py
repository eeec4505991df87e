"""PEM as Go's encoding/pem reads it: what is no whole block is passed over, and headers are kept apart. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field

_START, _END, _DASHES = b"-----BEGIN ", b"\n-----END ", b"-----"


@dataclass(frozen=True, slots=True)
class Block:
    """One block: what it says it is, its headers and what it holds."""

    type: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


def blocks(text: bytes) -> Iterator[Block]:
    """The blocks of a text, in order."""
    rest = b"\n" + text
    while (end := rest.find(_END)) >= 0:
        after = rest[end + len(_END) :]
        begin = rest.rfind(b"\n" + _START, 0, end)
        found = _block(rest[begin + 1 + len(_START) : end + 1], after) if begin >= 0 else None
        if found is None:
            rest = after
            continue
        yield found
        rest = b"\n" + _line(after)[1]


def _block(inside: bytes, after: bytes) -> Block | None:
    """What stands between the two lines of a block, if they belong together."""
    typed, rest = _line(inside)
    if not typed.endswith(_DASHES):
        return None
    name = typed.removesuffix(_DASHES)
    if _line(after)[0] != name + _DASHES:
        return None
    headers: dict[str, str] = {}
    while rest:
        line, following = _line(rest)
        key, colon, value = line.partition(b":")
        if not colon:
            break
        headers[key.strip().decode("utf-8", "replace")] = value.strip().decode("utf-8", "replace")
        rest = following
    try:
        data = base64.b64decode(rest.translate(None, b" \t\r\n"), validate=True)
    except binascii.Error:
        return None
    return Block(name.decode("utf-8", "replace"), data, headers)


def _line(text: bytes) -> tuple[bytes, bytes]:
    line, _, rest = text.partition(b"\n")
    return line.removesuffix(b"\r").rstrip(b" \t"), rest
