"""Who runs the store's trips to the disk: a thread of its own, so that the event loop never waits for a sync.

Called by `store` only. A simulation that decides itself when a disk answers gives the store another `Writer`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]


class Writer(Protocol):
    """Runs jobs one after the other, in the order in which they came."""

    @property
    def put(self) -> Callable[[Job], None]: ...

    async def close(self) -> None:
        """Run what was put, and end."""


class WriterThread:
    """A thread for one store."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.put: Callable[[Job], None] = self._jobs.put
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
