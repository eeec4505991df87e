"""Time that passes when nothing is left to do, and an event loop that runs one callback at a time in a drawn order.

Import it before kubeqos: `time.time` and its kin are replaced here, and some of our functions keep them as defaults.
Outside of a simulation they say what they always said.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import os
import random
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

EPOCH = 1_700_000_000.0
_real_time, _real_time_ns, _real_urandom = time.time, time.time_ns, os.urandom
_real_monotonic, _real_perf_counter = time.monotonic, time.perf_counter

EVERYBODY_AHEAD = 12
"""Among so many waiting callbacks the next one is drawn: processes side by side have no common order."""


class Incarnation:
    """One life of a component. What it left behind when it died is kept, so that nothing is cleaned up."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.steps = 0
        self.dies_at: int | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.left: list[Any] = []
        self.on_death: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(WHERE.set, self)
        self.mark = zlib.crc32(repr(self).encode())

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


_TRACED = struct.Struct("<dI")
WHERE: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("component", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without files: time jumps to the next timer; callbacks of the dead are not run."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.steps = 0
        self.wall_offset = 0.0
        self.kill: Callable[[Incarnation], None] = lambda _life: None
        self.after_step: Callable[[], None] = lambda: None
        self.trace: Callable[[bytes], None] | None = None
        self._now = 0.0
        self._left: list[Any] = []
        self.set_task_factory(_keeping_task)

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        return SerialFuture(loop=self)

    def wall(self) -> float:
        """What clocks on walls say; they may jump."""
        return EPOCH + self._now + self.wall_offset

    def _write_to_self(self) -> None:
        """There is nobody to wake: all is one thread."""

    def _process_events(self, _events: Any) -> None:
        """There are no files."""

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """A thread that is done in a moment of its own; it dies with its component."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - as a thread would
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self.chance.uniform(0.0002, 0.003), work)
        return future

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not ready:
            if not timers:
                raise RuntimeError("everybody waits for somebody else: no timer is left")
            self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        if ready:
            self._step(ready)

    def _step(self, ready: deque[asyncio.Handle]) -> None:
        handle = self._next(ready)
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        life = handle._context.get(WHERE)  # type: ignore[attr-defined]
        if life is not None:
            if life.alive and life.dies_at is not None and life.steps >= life.dies_at:
                self.kill(life)
            if not life.alive:
                life.left.append(handle)
                return
            life.steps += 1
        self.steps += 1
        if self.trace is not None:
            self.trace(_TRACED.pack(self._now, 0 if life is None else life.mark))
        handle._run()
        self.after_step()

    def _next(self, ready: deque[asyncio.Handle]) -> asyncio.Handle:
        """The oldest callback of a drawn component: within one component they stay in order."""
        if len(ready) == 1:
            return ready.popleft()
        first: dict[Incarnation | None, int] = {}
        for place in range(min(len(ready), EVERYBODY_AHEAD)):
            first.setdefault(ready[place]._context.get(WHERE), place)  # type: ignore[attr-defined]
        if len(first) == 1:
            return ready.popleft()
        place = self.chance.choice(list(first.values()))
        handle = ready[place]
        del ready[place]
        return handle


class SerialTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run; by its address it would not be."""

    _serials = itertools.count()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.serial = next(self._serials)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self.serial


class SerialFuture(asyncio.Future[Any]):
    """The same for futures."""

    _serials = itertools.count()

    def __init__(self, **named: Any) -> None:
        self.serial = next(self._serials)
        super().__init__(**named)

    def __hash__(self) -> int:
        return self.serial


def _keeping_task(loop: asyncio.AbstractEventLoop, coro: Any, **arguments: Any) -> asyncio.Task[Any]:
    """A task that its component keeps: a dead one that is collected would run its `finally` blocks."""
    task = SerialTask(coro, loop=loop, **arguments)
    context = arguments.get("context")
    life = context.get(WHERE) if context is not None else WHERE.get()
    if life is not None:
        life.tasks.add(task)

        def ended(done: asyncio.Task[Any]) -> None:
            life.tasks.discard(done)

        task.add_done_callback(ended)
    return task


_loop: VirtualLoop | None = None
_bytes: random.Random = random.Random(0)


def enter(loop: VirtualLoop, seed: int) -> None:
    """From now on this process has the loop's time and the seed's randomness."""
    global _loop, _bytes
    _loop, _bytes = loop, random.Random(f"bytes {seed}")
    random.seed(f"process {seed}")


time.time = lambda: _loop.wall() if _loop is not None else _real_time()
time.time_ns = lambda: round(_loop.wall() * 1e9) if _loop is not None else _real_time_ns()
time.monotonic = lambda: _loop.time() if _loop is not None else _real_monotonic()
time.perf_counter = lambda: _loop.time() if _loop is not None else _real_perf_counter()
os.urandom = lambda size: _bytes.randbytes(size) if _loop is not None else _real_urandom(size)
