"""Container logs in the CRI's form: `TIME STREAM F|P TEXT`, one line of the file per line or part of a line.

`select` is the pure part: which bytes of a log a request wants. `read_log` reads the file and, with `follow`, goes on
reading while the container runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kubeqos.errors import InputError
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.web.messages import Query

POLL_SECONDS = 0.1
BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What `kubectl logs` asks for; the names are those of PodLogOptions."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: str = ""
    """Lines from this RFC 3339 time on."""
    stream: str = "All"

    @classmethod
    def of(cls, query: Query, now: float) -> LogOptions:
        """Read a query; InputError with Kubernetes' field names for what cannot be meant."""
        seconds = _number(query, "sinceSeconds", 1)
        since = _first(query, "sinceTime")
        if seconds is not None and since:
            raise InputError("at most one of `sinceTime` or `sinceSeconds` may be specified")
        if since and seconds_of(since) is None:
            raise InputError(f"sinceTime: {since!r} is not a time", remedy="write it like 2026-11-15T07:07:08Z")
        stream = _first(query, "stream") or "All"
        if stream not in ("All", "Stdout", "Stderr"):
            raise InputError(f"stream: {stream!r} is none of All, Stdout, Stderr")
        return cls(
            _flag(query, "follow"),
            _flag(query, "previous"),
            _flag(query, "timestamps"),
            _number(query, "tailLines", 0),
            _number(query, "limitBytes", 1),
            since if seconds is None else timestamp(now - seconds),
            stream,
        )


def _first(query: Query, name: str) -> str:
    found = query.get(name)
    return found[0] if found else ""


def _flag(query: Query, name: str) -> bool:
    return name in query and _first(query, name).lower() not in ("false", "0")


def _number(query: Query, name: str, low: int) -> int | None:
    text = _first(query, name)
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < low:
        raise InputError(f"{name}: Invalid value: {text!r}: must be greater than or equal to {low}")
    return int(text)


class Selector:
    """Turns lines of a log file into what a request wants of them, in order."""

    def __init__(self, options: LogOptions) -> None:
        self._since = seconds_of(options.since) if options.since else None
        self._stream = options.stream.lower()
        self._timestamps = options.timestamps
        self._left = options.limit_bytes
        self._begins = True

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    def select(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            parsed = parse_line(line)
            if parsed is None or self._stream not in ("all", parsed.stream):
                continue
            if self._since is not None and (seconds_of(parsed.time) or 0.0) < self._since:
                continue
            text = parsed.text
            if self._timestamps and self._begins:
                text = parsed.time.encode() + b" " + text
            self._begins = text.endswith(b"\n")
            if self._left is not None:
                text = text[: self._left]
                self._left -= len(text)
            if text:
                yield text
            if self.full:
                return


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log file; a part of a longer line ends without a line break."""

    time: str
    stream: str
    text: bytes


def parse_line(line: bytes) -> LogLine | None:
    """None for a line that is not in the CRI's form, such as one that a crash cut off."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        return None
    partial = parts[2].split(b":")[0] == b"P"
    text = parts[3] if len(parts) == 4 else b""
    return LogLine(parts[0].decode("ascii", "replace"), parts[1].decode(), text if partial else text + b"\n")


def tail_offset(file: BinaryIO, lines: int) -> int:
    """Where the last whole lines begin. Parts of one line count together."""
    end = file.seek(0, 2)
    size = BLOCK_BYTES
    while True:
        start = max(0, end - size)
        file.seek(start)
        buffer = file.read(end - start)
        *whole, unfinished = buffer.split(b"\n")
        position, found = len(buffer) - len(unfinished), 0
        for line in reversed(whole if start == 0 else whole[1:]):  # the first may be cut off
            parsed = parse_line(line)
            if parsed is not None and parsed.text.endswith(b"\n"):
                if found == lines:
                    return start + position
                found += 1
            position -= len(line) + 1
        if start == 0:
            return 0
        size *= 4


async def read_log(path: Path, options: LogOptions, runs: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What a request wants of a log. `runs` says whether more may come; asked before each look at the file."""
    selector = Selector(options)
    opened = await _open(path, options.follow, runs)
    if opened is None:
        return
    with opened as file:
        file.seek(tail_offset(file, options.tail_lines) if options.tail_lines is not None else 0)
        rest = b""
        while True:
            live = options.follow and runs()
            while data := file.read(BLOCK_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                if chunk := b"".join(selector.select(lines)):
                    yield chunk
                if selector.full:
                    return
            if not live:
                return
            await asyncio.sleep(POLL_SECONDS)


async def _open(path: Path, follow: bool, runs: Callable[[], bool]) -> BinaryIO | None:
    """The file, which a container that has written nothing does not have yet."""
    while True:
        try:
            return path.open("rb")
        except FileNotFoundError:
            if not (follow and runs()):
                return None
            await asyncio.sleep(POLL_SECONDS)
