"""How many events a component writes, as Kubernetes' recorder has it: so many about one object, so many altogether.

It knows no clock, it is told the time. What is over the limit costs the server nothing; what repeats is still counted
and told with the next write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from kubeqos.ratelimit import RateLimit

PER_OBJECT, SECONDS_EACH = 25, 300.0  # writes at once about one object, and after how long another is allowed
RATE, BURST = 100.0, 500  # writes a second of one component, and at once
REMEMBERED = 4096  # objects


class ObjectLimits:
    """Buckets of the objects that were told about last."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, RateLimit] = OrderedDict()

    def allows(self, about: Hashable, now: float) -> bool:
        """Whether there may be another write about this object."""
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = self._buckets[about] = RateLimit(1 / SECONDS_EACH, PER_OBJECT)
            if len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(about)
        return bucket.allows(now)
