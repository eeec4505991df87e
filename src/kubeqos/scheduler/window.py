"""How many bindings may be on their way at once: as many as the server answers within a quarter of a second.

More would make stale decisions and hold the server up, fewer would leave it idle. Pure: it is told what happened. The
service asks it before each turn of decisions.
"""

from __future__ import annotations

FIRST, LEAST, MOST = 64, 16, 512
GOOD_SECONDS = 0.25
GROW = 0.25  # of what was answered in good time
SHRINK, HALVE = 0.8, 0.5


class Window:
    """Bindings in flight, and how many there may be."""

    def __init__(self) -> None:
        self._size = float(FIRST)
        self._shrunk = 0  # answers of requests that were sent before it shrank say nothing new
        self.in_flight = 0

    @property
    def size(self) -> int:
        return int(self._size)

    @property
    def room(self) -> int:
        """How many more may be sent now; none until a good part of the window is free, so that batches stay large."""
        free = self.size - self.in_flight
        return free if free >= min(LEAST, self.size) else 0

    def sent(self, count: int) -> None:
        self.in_flight += count

    def answered(self, count: int, seconds: float, *, pushed_back: bool) -> None:
        """So many were answered together after so long; `pushed_back`: the server said that it is too much for it."""
        self.in_flight -= count
        if self._shrunk > 0:
            self._shrunk -= count
        elif pushed_back:
            self._shrink(HALVE)
        elif seconds > 2 * GOOD_SECONDS:
            self._shrink(SHRINK)
        elif seconds < GOOD_SECONDS:
            self._size = min(MOST, self._size + GROW * count)

    def _shrink(self, factor: float) -> None:
        self._size = max(LEAST, self._size * factor)
        self._shrunk = self.in_flight
