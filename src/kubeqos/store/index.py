"""Keys in order, in memory: what makes a range over one prefix cheap without sorting or copying the rest.

A list of short sorted lists: adding or removing one of 50,000 keys moves a few hundred pointers, not all of
them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

CHUNK = 512


class KeyIndex:
    """A sorted set of keys."""

    def __init__(self, ordered: Iterable[str] = ()) -> None:
        keys = list(ordered)
        self._chunks = [keys[at : at + CHUNK] for at in range(0, len(keys), CHUNK)] or [[]]
        self._lasts = [chunk[-1] if chunk else "" for chunk in self._chunks]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, key: str) -> None:
        """Insert a key that is not there yet."""
        at = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * CHUNK:
            self._chunks[at : at + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._lasts[at : at + 1] = [chunk[CHUNK - 1], chunk[-1]]
        else:
            self._lasts[at] = chunk[-1]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[at] = chunk[-1]
        elif len(self._chunks) > 1:
            del self._chunks[at], self._lasts[at]
        else:
            self._lasts[at] = ""

    def count(self, prefix: str, after: str) -> int:
        """How many keys have the prefix and sort behind `after`."""
        (first, start), (last, stop) = self._bounds(prefix, after)
        if first == last:
            return stop - start
        between = sum(len(chunk) for chunk in self._chunks[first + 1 : last])
        return len(self._chunks[first]) - start + between + stop

    def scan(self, prefix: str, after: str) -> Iterator[str]:
        """The keys that have the prefix and sort behind `after`, in order."""
        (first, start), (last, stop) = self._bounds(prefix, after)
        for at in range(first, last + 1):
            chunk = self._chunks[at]
            yield from chunk[start if at == first else 0 : stop if at == last else len(chunk)]

    def _bounds(self, prefix: str, after: str) -> tuple[tuple[int, int], tuple[int, int]]:
        start = self._behind(after) if after >= prefix else self._before(prefix)
        end = prefix_end(prefix)
        final = len(self._chunks) - 1
        stop = self._before(end) if end is not None else (final, len(self._chunks[final]))
        return start, max(start, stop)

    def _before(self, key: str) -> tuple[int, int]:
        at = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        return at, bisect_left(self._chunks[at], key)

    def _behind(self, key: str) -> tuple[int, int]:
        at = min(bisect_right(self._lasts, key), len(self._chunks) - 1)
        return at, bisect_right(self._chunks[at], key)


def prefix_end(prefix: str) -> str | None:
    """The smallest string above every string with this prefix; None when there is none."""
    while prefix:
        successor = ord(prefix[-1]) + 1
        if successor == 0xD800:  # surrogates are not text that SQLite can compare
            successor = 0xE000
        if successor <= 0x10FFFF:
            return prefix[:-1] + chr(successor)
        prefix = prefix[:-1]
    return None
