"""A level-triggered work queue: keys, not events; one worker per key at a time; failures come back later and later.

Controllers add a key whenever something about it may have changed. However often it is added while it waits, it is
worked on once; added while it is being worked on, once more afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
FIRST_DELAY, LONGEST_DELAY = 0.005, 300.0


class WorkQueue(Generic[Key]):
    """Keys that need work."""

    def __init__(self, *, first_delay: float = FIRST_DELAY, longest_delay: float = LONGEST_DELAY) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._ready: deque[Key] = deque()
        self._waiting: set[Key] = set()  # in _ready, or to be put there when its work is done
        self._working: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing is being worked on; delayed keys do not count."""
        return not (self._waiting or self._working)

    def add(self, key: Key) -> None:
        """This key needs work."""
        if self._closed or key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._enqueue(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """This key needs work after a while; the earliest of several wishes counts."""
        if seconds <= 0:
            self.add(key)
            return
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            if timer is not None:
                timer.cancel()
            self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: Key) -> float:
        """The work failed: come back, twice as late each time. Returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._first_delay * (1 << min(failures, 60)), self._longest_delay)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """The work succeeded: the next failure is a first one again."""
        self._failures.pop(key, None)

    async def get(self) -> Key | None:
        """The next key, which nobody else gets until `done`; None when the queue is closed."""
        while not self._ready:
            if self._closed:
                return None
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                self._pass_on(getter)
                raise
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """The work on a key has ended, one way or the other."""
        self._working.discard(key)
        if key in self._waiting:
            self._enqueue(key)

    def close(self) -> None:
        """Hand out nothing more; `get` answers None."""
        self._closed = True
        self._ready.clear()
        self._waiting.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake()

    async def work(
        self,
        reconcile: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int = 1,
        failed: Callable[[Key, Exception, float], None],
    ) -> None:
        """Run workers until the queue is closed.

        `reconcile` may return seconds after which it wants to see the key again. What it raises is reported to
        `failed` with the delay of the next try.
        """

        async def worker() -> None:
            while (key := await self.get()) is not None:
                try:
                    again = await reconcile(key)
                except Exception as error:  # noqa: BLE001 - one broken object must not stop the others
                    failed(key, error, self.retry(key))
                else:
                    self.forget(key)
                    if again is not None:
                        self.add_after(key, again)
                finally:
                    self.done(key)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def _enqueue(self, key: Key) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _pass_on(self, getter: asyncio.Future[None]) -> None:
        """A cancelled getter that had been woken wakes another one, or its key would lie there."""
        if getter.done() and not getter.cancelled():
            self._wake()
        elif getter in self._getters:
            self._getters.remove(getter)
