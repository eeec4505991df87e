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
        self.on_death: dict[Callable[[], None], None] = {}
        """Who is told of it, in the order in which they asked."""
        self.context = contextvars.copy_context()
        self.context.run(WHERE.set, self)
        self.mark = zlib.crc32(repr(self).encode())
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = 64
        self._left: list[Any] = []

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A task of a dead component that is collected would run its `finally` blocks. Those that are done may go."""
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._sweep_at = 64 + 2 * len(self._tasks)

    def leave(self, step: Step) -> None:
        """Keep what will not be done any more."""
        self._left.append(step)


_TRACED = struct.Struct("<dI")
WHERE: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("component", default=None)


class Step:
    """A callback that is due, and whose it is. Takes the place of `asyncio.Handle`, which costs twice as much."""

    __slots__ = ("args", "at", "callback", "context", "dropped", "life")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None, at: float
    ) -> None:
        self.callback, self.args, self.at = callback, args, at
        self.context = context = contextvars.copy_context() if context is None else context
        self.life: Incarnation | None = context.get(WHERE)
        self.dropped = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def when(self) -> float:
        return self.at


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without files: time jumps to the next timer; callbacks of the dead are not run."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.steps = 0
        self.wall_offset = 0.0
        self.kill: Callable[[Incarnation], None] = lambda _life: None
        self.failed: Callable[[Callable[..., Any], Exception], None] = lambda _callback, _error: None
        """Told of a callback that raises: asyncio would log a traceback."""
        self.trace = bytearray()
        """What was done when by whom, step by step."""
        self._now = 0.0
        self._waiting: deque[Step] = deque()
        self._timers: list[tuple[float, int, Step]] = []
        self._numbers = itertools.count()
        self.set_task_factory(_keeping_task)

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        return SerialFuture(loop=self)

    def wall(self) -> float:
        """What clocks on walls say; they may jump."""
        return EPOCH + self._now + self.wall_offset

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(callback, args, context, self._now)
        self._waiting.append(step)
        return step

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), step))
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        return self.call_soon(callback, *args, context=context)

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
        waiting, timers = self._waiting, self._timers
        if not waiting:
            while timers and timers[0][2].dropped:
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("everybody waits for somebody else: no timer is left")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            step = heapq.heappop(timers)[2]
            if not step.dropped:
                waiting.append(step)
        step = waiting.popleft() if len(waiting) == 1 else self._next(waiting)
        if not step.dropped:
            self._do(step)

    def _do(self, step: Step) -> None:
        life = step.life
        if life is not None:
            if life.dies_at is not None and life.alive and life.steps >= life.dies_at:
                self.kill(life)
            if not life.alive:
                life.leave(step)
                return
            life.steps += 1
        self.steps += 1
        self.trace += _TRACED.pack(self._now, 0 if life is None else life.mark)
        try:
            step.context.run(step.callback, *step.args)
        except Exception as error:  # noqa: BLE001 - as a loop does; whoever waits for it has been told
            self.failed(step.callback, error)

    def _next(self, waiting: deque[Step]) -> Step:
        """The oldest callback of a drawn component: within one component they stay in order."""
        first: dict[Incarnation | None, int] = {}
        for place in range(min(len(waiting), EVERYBODY_AHEAD)):
            first.setdefault(waiting[place].life, place)
        if len(first) == 1:
            return waiting.popleft()
        place = self.chance.choice(list(first.values()))
        step = waiting[place]
        del waiting[place]
        return step


class Serial:
    """Its place in a set is the same in every run; by its address it would not be."""

    _serials = itertools.count(1)
    _serial = 0

    def __hash__(self) -> int:
        if not self._serial:
            self._serial = next(Serial._serials)
        return self._serial


class SerialTask(Serial, asyncio.Task[Any]):
    """A task that lies in sets."""


class SerialFuture(Serial, asyncio.Future[Any]):
    """The same for futures."""


def _keeping_task(loop: asyncio.AbstractEventLoop, coro: Any, **arguments: Any) -> asyncio.Task[Any]:
    """A task that its component keeps."""
    task = SerialTask(coro, loop=loop, **arguments)
    context = arguments.get("context")
    life = context.get(WHERE) if context is not None else WHERE.get()
    if life is not None:
        life.keep(task)
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
