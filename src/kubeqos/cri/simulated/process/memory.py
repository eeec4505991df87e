"""Memory of a simulated container over time, and whom the kernel kills when the machine has none left. Pure.

Memory grows at a constant pace. Above `memory.high` the kernel makes who allocates wait, so that it grows at a tenth of
its pace and is stalled for the rest: that is what `memory.pressure` shows. Everything has a closed form; `usage` keeps
one `Memory` for each running container, `core` asks when the machine runs out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NS = 1_000_000_000
SLOWER = 10
"""How much slower a container grows above memory.high."""
NEVER_KILLED = -1000
PSI_SECONDS = (10, 60, 300)


@dataclass(slots=True)
class Memory:
    """A size that grows from a moment on; `stalled_ns` counts what was waited for before."""

    size_bytes: int
    since_ns: int
    growth_per_second: int = 0
    peak_bytes: int | None = None
    high_bytes: int | None = None
    stalled_ns: int = 0

    def at(self, at_ns: int) -> int:
        """Bytes in use."""
        passed = max(0, at_ns - self.since_ns)
        size = self.size_bytes + passed * self.growth_per_second // NS
        slow = self._slow_from()
        if slow is not None and size > slow[0]:
            size = slow[0] + max(0, at_ns - slow[1]) * self.growth_per_second // (NS * SLOWER)
        bound = self.bound()
        return size if bound is None else min(size, bound)

    def bound(self) -> int | None:
        """The size that it never passes, or None if it grows without end."""
        if self.growth_per_second <= 0:
            return self.size_bytes
        return None if self.peak_bytes is None else max(self.peak_bytes, self.size_bytes)

    def passes_ns(self, limit_bytes: int) -> int | None:
        """When it is first above a size, or None if it never is."""
        if self.size_bytes > limit_bytes:
            return self.since_ns
        if self.growth_per_second <= 0 or (self.peak_bytes is not None and self.peak_bytes <= limit_bytes):
            return None
        slow = self._slow_from()
        if slow is None or limit_bytes < slow[0]:
            return self.since_ns + _time(limit_bytes + 1 - self.size_bytes, self.growth_per_second)
        return slow[1] + _time((limit_bytes + 1 - slow[0]) * SLOWER, self.growth_per_second)

    def limit(self, at_ns: int, high_bytes: int | None) -> None:
        """From now on another memory.high holds."""
        self.stalled_ns = self.stalled_at(at_ns)
        self.size_bytes, self.since_ns = self.at(at_ns), max(at_ns, self.since_ns)
        self.high_bytes = high_bytes

    def stalled_at(self, at_ns: int) -> int:
        """For how long it waited for memory so far."""
        first, last = self._stall(at_ns)
        return self.stalled_ns + max(0, last - first) * (SLOWER - 1) // SLOWER

    def pressure_at(self, at_ns: int) -> str:
        """The file memory.pressure: shares of the last 10, 60 and 300 seconds, and the sum in microseconds."""
        first, last = self._stall(at_ns)
        shares = []
        for seconds in PSI_SECONDS:
            risen = 1 - math.exp(-max(0, last - first) / (seconds * NS))
            shares.append(100 * (SLOWER - 1) / SLOWER * risen * math.exp(-max(0, at_ns - last) / (seconds * NS)))
        averages = " ".join(f"avg{each}={share:.2f}" for each, share in zip(PSI_SECONDS, shares, strict=True))
        total = self.stalled_at(at_ns) // 1000
        return f"some {averages} total={total}\nfull {averages} total={total}"

    def _slow_from(self) -> tuple[int, int] | None:
        """The size from which it grows slowly, and when that is reached."""
        if self.high_bytes is None or self.growth_per_second <= 0:
            return None
        size = max(self.size_bytes, self.high_bytes)
        return size, self.since_ns + _time(size - self.size_bytes, self.growth_per_second)

    def _stall(self, at_ns: int) -> tuple[int, int]:
        """From when until when it is held back, up to a moment."""
        slow = self._slow_from()
        if slow is None or at_ns <= slow[1]:
            return at_ns, at_ns
        last = at_ns
        if self.peak_bytes is not None:
            room = max(0, max(self.peak_bytes, self.size_bytes) - slow[0])
            last = min(at_ns, slow[1] + _time(room * SLOWER, self.growth_per_second))
        return slow[1], last


def _time(size: int, growth_per_second: int) -> int:
    return -(-max(0, size) * NS // growth_per_second)


def runs_out_ns(containers: Sequence[Memory], total_bytes: int, now_ns: int) -> int | None:
    """When containers together first need more than there is, or None if they never do. Sizes only grow."""
    if sum(each.at(now_ns) for each in containers) > total_bytes:
        return now_ns
    if all(each.growth_per_second <= 0 for each in containers):
        return None
    bounds = [each.bound() for each in containers]
    if all(bound is not None for bound in bounds) and sum(bound or 0 for bound in bounds) <= total_bytes:
        return None
    low, high = now_ns, now_ns + NS
    while sum(each.at(high) for each in containers) <= total_bytes:
        low, high = high, high + 2 * (high - now_ns)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(each.at(middle) for each in containers) > total_bytes:
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process, as the kernel's choice sees it."""

    id: str
    memory_bytes: int
    oom_score_adj: int
    started_ns: int

    def badness(self, total_bytes: int) -> int:
        """Bytes, with a thousandth of the machine for each point of oom_score_adj (the kernel's oom_badness)."""
        return self.memory_bytes + self.oom_score_adj * total_bytes // 1000

    def oom_score(self, total_bytes: int) -> int:
        """What /proc/PID/oom_score shows: 0 to 2000, where 667 is one without an adjustment and without memory."""
        return max(0, (1000 + self.badness(total_bytes) * 1000 // total_bytes) * 2 // 3)


def victim(candidates: Iterable[Candidate], total_bytes: int) -> Candidate | None:
    """Whom the kernel kills: the largest badness; among equals the youngest. Some are never killed."""
    killable = [each for each in candidates if each.oom_score_adj > NEVER_KILLED]
    return max(killable, key=lambda each: (each.badness(total_bytes), each.started_ns, each.id), default=None)
