"""HPACK (RFC 7541): header blocks of HTTP/2.

The decoder is complete. The encoder never adds to the peer's dynamic table, so what it writes for a list of headers is
always the same bytes and is cached: the few header lists of a busy connection are encoded once.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

from kubeqos.errors import RemoteError

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]

DEFAULT_TABLE_SIZE = 4096
ENTRY_OVERHEAD = 32
END_OF_STRING = 256

# RFC 7541 Appendix A, index 1 upwards.
STATIC_TABLE: tuple[Header, ...] = tuple(
    (name, value)
    for name, values in (
        (b":authority", (b"",)),
        (b":method", (b"GET", b"POST")),
        (b":path", (b"/", b"/index.html")),
        (b":scheme", (b"http", b"https")),
        (b":status", (b"200", b"204", b"206", b"304", b"400", b"404", b"500")),
        (b"accept-charset", (b"",)),
        (b"accept-encoding", (b"gzip, deflate",)),
        *(
            (name, (b"",))
            for name in (
                b"accept-language accept-ranges accept access-control-allow-origin age allow authorization "
                b"cache-control content-disposition content-encoding content-language content-length "
                b"content-location content-range content-type cookie date etag expect expires from host if-match "
                b"if-modified-since if-none-match if-range if-unmodified-since last-modified link location "
                b"max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server "
                b"set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
            ).split()
        ),
    )
    for value in values
)
_EXACT = {header: number for number, header in reversed(list(enumerate(STATIC_TABLE, 1)))}
_NAMES = {header[0]: number for number, header in reversed(list(enumerate(STATIC_TABLE, 1)))}

# RFC 7541 Appendix B is a canonical code: the length of each symbol's code determines the code.
_CODE_LENGTHS = (
    *(13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28),
    *(28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15),
    *(6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6),
    *(15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22),
    *(20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23),
    *(23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22),
    *(22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26),
    *(27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27),
    *(26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30),
)


class HpackError(RemoteError):
    """The peer sent a header block that cannot be decoded; the connection is lost (COMPRESSION_ERROR)."""


def _canonical_codes() -> dict[tuple[int, int], int]:
    """(length, code) → symbol."""
    codes: dict[tuple[int, int], int] = {}
    code = previous = 0
    for symbol in sorted(range(len(_CODE_LENGTHS)), key=lambda s: (_CODE_LENGTHS[s], s)):
        length = _CODE_LENGTHS[symbol]
        code <<= length - previous
        codes[length, code] = symbol
        code, previous = code + 1, length
    return codes


_SYMBOLS = _canonical_codes()


@lru_cache(maxsize=4096)
def huffman_decode(data: bytes) -> bytes:
    out = bytearray()
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            length += 1
            symbol = _SYMBOLS.get((length, code))
            if symbol is not None:
                if symbol == END_OF_STRING:
                    raise HpackError("header block: end-of-string symbol inside a string")
                out.append(symbol)
                code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("header block: bad padding of a Huffman string")
    return bytes(out)


class Decoder:
    """Decodes the header blocks of one direction of one connection, in order."""

    def __init__(self, max_size: int = DEFAULT_TABLE_SIZE) -> None:
        self._table: deque[Header] = deque()
        self._size = 0
        self._max_size = self._allowed = max_size

    def decode(self, block: bytes) -> Headers:
        out: list[Header] = []
        position, end = 0, len(block)
        try:
            while position < end:
                byte = block[position]
                if byte & 0x80:
                    index, position = _integer(block, position, 7)
                    out.append(self._entry(index))
                elif byte & 0xE0 == 0x20:
                    size, position = _integer(block, position, 5)
                    if size > self._allowed:
                        raise HpackError("header block: table size above the agreed one")
                    self._max_size = size
                    self._evict(0)
                else:
                    indexed = byte & 0xC0 == 0x40
                    header, position = self._literal(block, position, 6 if indexed else 4)
                    out.append(header)
                    if indexed:
                        self._add(header)
        except IndexError as error:
            raise HpackError("header block: ends inside a field") from error
        return tuple(out)

    def _literal(self, block: bytes, position: int, prefix: int) -> tuple[Header, int]:
        index, position = _integer(block, position, prefix)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        return (name, value), position

    def _entry(self, index: int) -> Header:
        if 1 <= index <= len(STATIC_TABLE):
            return STATIC_TABLE[index - 1]
        if not 0 <= index - len(STATIC_TABLE) - 1 < len(self._table):
            raise HpackError(f"header block: no entry {index}")
        return self._table[index - len(STATIC_TABLE) - 1]

    def _add(self, header: Header) -> None:
        size = len(header[0]) + len(header[1]) + ENTRY_OVERHEAD
        self._evict(size)
        if size <= self._max_size:
            self._table.appendleft(header)
            self._size += size

    def _evict(self, room: int) -> None:
        while self._table and self._size + room > self._max_size:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + ENTRY_OVERHEAD


def _integer(block: bytes, position: int, prefix: int) -> tuple[int, int]:
    mask = (1 << prefix) - 1
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position
        if shift > 28:
            raise HpackError("header block: a number without end")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    huffman = block[position] & 0x80
    length, position = _integer(block, position, 7)
    end = position + length
    if end > len(block):
        raise HpackError("header block: ends inside a string")
    data = block[position:end]
    return (huffman_decode(data) if huffman else data), end


@lru_cache(maxsize=2048)
def encode(headers: Headers) -> bytes:
    """A header block that leaves the peer's dynamic table alone."""
    out = bytearray()
    for header in headers:
        exact = _EXACT.get(header)
        if exact:
            _put_integer(out, exact, 7, 0x80)
            continue
        name, value = header
        index = _NAMES.get(name, 0)
        _put_integer(out, index, 4, 0x00)
        if not index:
            _put_integer(out, len(name), 7, 0x00)
            out += name
        _put_integer(out, len(value), 7, 0x00)
        out += value
    return bytes(out)


def _put_integer(out: bytearray, value: int, prefix: int, flags: int) -> None:
    mask = (1 << prefix) - 1
    if value < mask:
        out.append(flags | value)
        return
    out.append(flags | mask)
    value -= mask
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
