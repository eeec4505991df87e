"""Few connections to one server, for every request of a process: opened as they are needed, kept, bounded, spread over.

The first request opens one connection, whose TLS session the later ones go on with. Another is opened only while
requests wait, and never more than `MOST`; whoever finds all of them busy waits in line. After a burst those that nobody
has needed for a while are closed: a quiet agent keeps a few. A server that cannot be reached is not stormed: whoever
waits is told, and the next try comes after a pause that grows, with jitter.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from kubeqos.client.transport.connection import Connection
from kubeqos.client.transport.dialing import NotSent

MOST = 32
OPENING = 4  # at the same time, once there is a session to go on with
IDLE_SECONDS = 80.0  # servers close idle connections, Kubernetes' after 90 s; one that may be closing is not used
FEW, SPARE_SECONDS = 4, 10.0  # as many stay, and more only as long as they were in use at once (each has 300 KB)
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
Lost = Callable[[Connection], None]
Dial = Callable[[Lost], Coroutine[Any, Any, Connection]]


class Pool:
    """Connections to one server."""

    def __init__(self, dial: Dial, most: int = MOST) -> None:
        self._dial = dial
        self._most = most
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause = 0.0  # before the next try to connect
        self._busiest = 0  # in use at the same time since the spare ones were last looked for
        self._looking: asyncio.TimerHandle | None = None
        self.opened = 0
        self.requests = 0

    def __len__(self) -> int:
        return len(self._open)

    async def acquire(self) -> Connection:
        """A connection for one request; `release` it when the answer is complete, `drop` it otherwise."""
        self.requests += 1
        found = self._take()
        self._busiest = max(self._busiest, len(self._open) - len(self._idle))
        if found is not None:
            return found
        waiter: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._grow()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())
            raise

    def _take(self) -> Connection | None:
        """The one that has been idle for longest, so that requests are spread; not one that has been for too long."""
        while self._idle:
            found = self._idle.popleft()
            if not found.is_open:
                continue
            if asyncio.get_running_loop().time() - found.idle_since < IDLE_SECONDS:
                return found
            self.drop(found)
        return None

    def release(self, connection: Connection) -> None:
        """Its answer was read to the end."""
        if connection not in self._open or not connection.is_open:
            self.drop(connection)
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._looking is None and len(self._open) > FEW:
            self._looking = loop.call_later(SPARE_SECONDS, self._close_spare)

    def _close_spare(self) -> None:
        """Close what was not needed since the last look; look again while there are more than a few."""
        kept, self._busiest = max(FEW, self._busiest), len(self._open) - len(self._idle)
        while self._idle and len(self._open) > kept:
            self.drop(self._idle.popleft())
        again = len(self._open) > FEW
        self._looking = asyncio.get_running_loop().call_later(SPARE_SECONDS, self._close_spare) if again else None

    def drop(self, connection: Connection) -> None:
        """It is of no more use."""
        connection.abort()
        self._lost(connection)

    def retire(self) -> None:
        """We are somebody else now: connections that know us by the old name are used up and not kept."""
        while self._idle:
            self.drop(self._idle.popleft())
        self._open.clear()

    async def close(self) -> None:
        """Close everything; who still waits for an answer is told that there will be none."""
        if self._looking is not None:
            self._looking.cancel()
        opening, everything = list(self._opening), list(self._open)
        for task in opening:
            task.cancel()
        self._fail(NotSent("the client is closed"))
        for connection in everything:
            connection.abort()
        await asyncio.gather(*opening, *(one.closed for one in everything), return_exceptions=True)

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._waiting:
            self._grow()

    def _grow(self) -> None:
        """Open another one if somebody waits for it; the first alone, so that the others can go on with its session."""
        at_once = OPENING if self._open else 1
        wanted = min(len(self._waiting), self._most - len(self._open), at_once) - len(self._opening)
        for _ in range(wanted):
            task = asyncio.get_running_loop().create_task(self._add())
            self._opening.add(task)

    async def _add(self) -> None:
        if self._pause:
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        try:
            made = await self._dial(self._lost)
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._fail(error)
            return
        finally:
            self._opening.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        self._pause = 0.0
        self.opened += 1
        self._open.add(made)
        self.release(made)
        if self._waiting:
            self._grow()

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)
