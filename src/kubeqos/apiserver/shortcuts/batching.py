"""Many requests in one task: each is run as far as it goes without waiting, then all wait together.

Components in the server's own process write in batches, and every write of a batch waits for the same trip to the disk.
A task for each would cost more than the waiting does. A handler that is run so must not ask for the current task
(timeouts, task groups), because it has none of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_together(work: Iterable[Coroutine[Any, Any, T]], /) -> list[T]:
    """What all of them return, in their order. They are begun in that order too, and none of them may raise."""
    begun = list(work)
    results: dict[int, T] = {}
    waiting: list[tuple[int, Any]] = [(place, None) for place in range(len(begun))]
    try:
        while waiting:
            still = []
            for place, blocked in waiting:
                if blocked is not None and not blocked.done():
                    with contextlib.suppress(Exception):  # whoever waits for it hears of it
                        await blocked
                try:
                    found = begun[place].send(None)
                except StopIteration as done:
                    results[place] = done.value
                else:
                    still.append((place, _taken(found)))
            waiting = still
            if any(blocked is None for _, blocked in waiting):
                await asyncio.sleep(0)  # somebody gave way to others
    finally:
        for one in begun:
            one.close()
    return [results[place] for place in range(len(begun))]


def _taken(blocked: Any) -> Any:
    """A future as a task takes it from a coroutine that awaits it; otherwise nobody else could await it.

    The mark is how coroutines and tasks talk to each other about a future. `asyncio.isfuture` is documented by it, and
    tests hold it against the asyncio that is there.
    """
    if blocked is not None:
        if not asyncio.isfuture(blocked):
            raise TypeError(f"a request waits for {blocked!r}, which is not a future")
        blocked._asyncio_future_blocking = False
    return blocked
