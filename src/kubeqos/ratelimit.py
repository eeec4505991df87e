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
        if self._at is None:
            self._left = float(self.burst)
        else:
            passed = max(now - self._at, 0.0)  # a clock that was set back fills nothing
            self._left = min(float(self.burst), self._left + passed * self.per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
