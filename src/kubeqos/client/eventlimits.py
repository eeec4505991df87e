"""How many events a component writes, as Kubernetes' recorder has it: so many about one object, so many altogether.

It knows no clock, it is told the time. What is over the limit costs the server nothing; what repeats is still counted
and told with the next write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

PER_OBJECT, SECONDS_EACH = 25, 300.0  # writes at once about one object, and after how long another is allowed
RATE, BURST = 100.0, 500  # writes a second of one component, and at once
REMEMBERED = 4096  # objects


@dataclass(slots=True)
class Tokens:
    """A bucket that fills at a rate up to its size."""

    rate: float
    size: float
    left: float
    at: float

    @classmethod
    def full(cls, rate: float, size: float, now: float) -> Tokens:
        return cls(rate, size, size, now)

    def take(self, most: int, now: float) -> int:
        """As many as there are of those wanted."""
        self.left = min(self.size, self.left + max(0.0, now - self.at) * self.rate)
        self.at = now
        taken = min(most, int(self.left))
        self.left -= taken
        return taken

    def seconds_until_one(self) -> float:
        return max(0.0, 1.0 - self.left) / self.rate


class ObjectLimits:
    """Buckets of the objects that were told about last."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, Tokens] = OrderedDict()

    def allows(self, about: Hashable, now: float) -> bool:
        """Whether there may be another write about this object."""
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = self._buckets[about] = Tokens.full(1 / SECONDS_EACH, PER_OBJECT, now)
            if len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(about)
        return bucket.take(1, now) == 1
