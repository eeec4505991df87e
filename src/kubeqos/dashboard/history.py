"""The past hour of objects as what each change took away: the state at a time is the present with later changes undone.

Old versions are kept compressed, up to a number of bytes in all; when there are more, the past becomes shorter. Pure.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

SECONDS = 3600.0
MOST_BYTES = 64 << 20

Key = tuple[str, str]
"""Kind and key of an object."""


@dataclass(frozen=True, slots=True)
class Undo:
    """At this time the object stopped being like this; None: it was not there."""

    at: float
    key: Key
    old: bytes | None

    @property
    def size(self) -> int:
        return 200 + len(self.old or b"")


class History:
    """What changed in the last hour."""

    def __init__(self, began: float, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self.began = began
        """Before this time nothing is known."""
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._changes: deque[Undo] = deque()
        self._bytes = 0

    def note(self, at: float, key: Key, old: bytes | None) -> None:
        """An object changed, and was like this before."""
        change = Undo(at, key, None if old is None else zlib.compress(old, 1))
        self._changes.append(change)
        self._bytes += change.size
        self._forget(at)

    def _forget(self, now: float) -> None:
        self.began = max(self.began, now - self._seconds)
        while self._changes and (self._bytes > self._most_bytes or self._changes[0].at < self.began):
            gone = self._changes.popleft()
            self._bytes -= gone.size
            self.began = max(self.began, gone.at)

    def undone(self, at: float) -> Mapping[Key, bytes | None]:
        """What objects were at a time, of those that changed since; None: it was not there."""
        found: dict[Key, bytes | None] = {}
        for change in reversed(self._changes):
            if change.at <= at:
                break
            found[change.key] = change.old
        return {key: None if old is None else zlib.decompress(old) for key, old in found.items()}

    def versions(self, key: Key) -> list[tuple[float, bytes | None]]:
        """What one object was, each with the time until which it was that, oldest first."""
        found = [(change.at, change.old) for change in self._changes if change.key == key]
        return [(at, None if old is None else zlib.decompress(old)) for at, old in found]

    def changes(self, span: float = 60.0) -> list[tuple[float, int]]:
        """How many objects changed in each minute in which some did."""
        counted: dict[float, int] = {}
        for change in self._changes:
            start = change.at // span * span
            counted[start] = counted.get(start, 0) + 1
        return sorted(counted.items())
