"""Long-lived tasks that must not die unnoticed: run, watched, started again with back-off, counted.

The node agent keeps its loops (status, relist, plugins, housekeeping, …) with one `Supervisor`. A loop that fails is a
mistake of ours or a peer that found a way around the checks; either way the node goes on, and says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from kubeqos.clock import NS, Clock, WallClock
from kubeqos.logs import logger

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 60.0
Work = Callable[[], Coroutine[Any, Any, None]]

log = logger("kubeqos.supervision")


class Supervisor:
    """Keeps tasks going until they are cancelled or come to an end by themselves."""

    def __init__(self, clock: Clock | None = None, emit: Callable[[str, str], None] = lambda _reason, _text: None):
        """`emit` takes a reason and words for an event, each time that a task has died."""
        self.clock = clock or WallClock()
        self.emit = emit
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """What runs now, by name."""
        self.restarts: Counter[str] = Counter()

    async def keep(self, name: str, work: Work) -> None:
        """Run `work` again and again, whatever becomes of it; its end without an error is the end."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            started = self.clock.now_ns()
            task = self.tasks[name] = asyncio.get_running_loop().create_task(work(), name=name)
            try:
                await asyncio.wait([task])
            finally:
                if not task.done():  # we are cancelled, and so is it
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    self.tasks.pop(name, None)
            problem = self._why(name, task)
            if problem is None:
                del self.tasks[name]
                return
            if self.clock.now_ns() - started > LAST_PAUSE_SECONDS * NS:
                pause = FIRST_PAUSE_SECONDS
            self.restarts[name] += 1
            self.emit("NodeTaskFailed", f"{name} failed and starts again in {pause:g} s: {problem}")
            await self.clock.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    @staticmethod
    def _why(name: str, task: asyncio.Task[None]) -> str | None:
        """Why a task that we did not end has ended; None when it was done."""
        if task.cancelled():
            return "it was ended"
        error = task.exception()
        if error is None:
            return None
        log.error("a task failed", task=name, exc_info=error)
        return f"{type(error).__name__}: {error}"
