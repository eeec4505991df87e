"""So much at once and so much a second: a bucket that fills while time passes. Pure; who asks says what time it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RateLimit:
    """A bucket of `burst` calls that fills at `per_second`."""

    per_second: float
    burst: int
    _left: float = field(default=0.0, init=False)
    _at: float | None = field(default=None, init=False)

    def allows(self, now: float) -> bool:
        """Whether a call at `now` may go on; it then counts."""
        return self.take(1, now) == 1

    def take(self, most: int, now: float) -> int:
        """As many as there are of those wanted; they then count."""
        if self._at is None:
            self._left = float(self.burst)
        else:
            passed = max(now - self._at, 0.0)  # a clock that was set back fills nothing
            self._left = min(float(self.burst), self._left + passed * self.per_second)
        self._at = now
        taken = min(most, int(self._left))
        self._left -= taken
        return taken

    def seconds_until_one(self) -> float:
        """How long from the last question until there is one more."""
        return max(0.0, 1.0 - self._left) / self.per_second
