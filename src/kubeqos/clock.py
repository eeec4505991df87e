"""The time of nodes and runtimes: the wall clock, or a virtual one that a test or a simulation moves.

With virtual time a day of a thousand nodes passes as fast as its events can be handled, in the same order every time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

NS = 1_000_000_000


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Nanoseconds since the epoch, and calls at a later time."""

    def now_ns(self) -> int: ...

    def steady_ns(self) -> int:
        """Nanoseconds since some moment, which only go forward: pauses are measured by them. A clock that is set
        back by an hour must not make a pause an hour longer.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer: ...

    async def sleep_until(self, at_ns: int) -> None: ...


class WallClock:
    """Real time, on the running event loop."""

    def now_ns(self) -> int:
        return time.time_ns()

    def steady_ns(self) -> int:
        return round(time.monotonic() * NS)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        delay = max(0.0, (at_ns - time.time_ns()) / NS)
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - time.time_ns()) / NS))


class _VirtualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Time that stands still until `advance` moves it; timers fire in order, each at its own time."""

    def __init__(self, start_ns: int = 1_700_000_000 * NS, settle: Callable[[], Awaitable[None]] | None = None) -> None:
        self._now_ns = start_ns
        self._order = itertools.count()
        self._timers: list[tuple[int, int, _VirtualTimer]] = []
        self._settle = settle or _settle

    def now_ns(self) -> int:
        return self._now_ns

    def steady_ns(self) -> int:
        return self._now_ns

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self._now_ns + round(seconds * NS))

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        timer = _VirtualTimer(callback)
        heapq.heappush(self._timers, (at_ns, next(self._order), timer))
        return timer

    async def sleep_until(self, at_ns: int) -> None:
        if at_ns > self._now_ns:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            timer = self.call_at(at_ns, lambda: woken.set_result(None))
            try:
                await woken
            finally:
                timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting every task that wakes on the way run before time moves on."""
        end = self._now_ns + round(seconds * NS)
        await self._settle()
        while self._timers and self._timers[0][0] <= end:
            at_ns, _, timer = heapq.heappop(self._timers)
            self._now_ns = max(self._now_ns, at_ns)
            if timer.callback is not None:
                timer.callback()
                await self._settle()
        self._now_ns = max(self._now_ns, end)


async def _settle() -> None:
    """Let ready tasks run; a few rounds, because one task wakes the next."""
    for _ in range(5):
        await asyncio.sleep(0)
