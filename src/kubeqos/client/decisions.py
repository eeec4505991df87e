"""Tells the API server what a component decided about pods, for their records (`model.decisions`).

`record` never waits and never fails its caller. A background task sends what has gathered, at most so much at a time;
what finds the line full is lost, and so is what a server that is away or busy does not take. A stock API server keeps
no records: it is asked again now and then, and nothing is gathered meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import DECISION_BATCHES
from kubeqos.logs import logger
from kubeqos.model.decisions import AnyDecision, DecisionBatch, Entry, PodRef
from kubeqos.model.timestamps import timestamp

GATHER_SECONDS = 0.5
QUEUED = 256  # and so at most twice as many in a second
ASK_AGAIN_SECONDS = 300.0  # whether a server keeps records that did not

log = logger("kubeqos.client")


class DecisionRecorder:
    """Decisions of one component. `run` it in a task."""

    def __init__(
        self,
        api: Api | None,
        by: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Without an API server nobody is told."""
        self._api = api
        self._by = by
        self._clock, self._wall = clock, wall
        self._waiting: deque[Entry] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._silent_until = 0.0
        self.lost = 0

    @property
    def listening(self) -> bool:
        """Whether it is worth the trouble to make up a decision."""
        return self._api is not None and self._clock() >= self._silent_until and len(self._waiting) < QUEUED

    def record(self, pod: PodRef, decision: AnyDecision) -> None:
        """Something was decided about a pod, now."""
        if not self.listening:
            self.lost += self._api is not None
            return
        self._waiting.append(Entry(pod, msgspec.structs.replace(decision, at=timestamp(self._wall()), by=self._by)))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wake.clear()
            entries = tuple(self._waiting)
            self._waiting.clear()
            await self._send(entries)
            if not self._waiting:
                self._idle.set()

    async def flushed(self) -> None:
        """Wait until everything recorded so far has been sent or lost."""
        await self._idle.wait()

    async def _send(self, entries: tuple[Entry, ...]) -> None:
        assert self._api is not None  # or nothing had been gathered
        try:
            await self._api.create(DECISION_BATCHES, msgspec.to_builtins(DecisionBatch(entries)))
        except Unreachable:
            self.lost += len(entries)
        except ApiError as error:
            self.lost += len(entries)
            if error.not_found or error.forbidden:
                self._silent_until = self._clock() + ASK_AGAIN_SECONDS
                log.info("no records of decisions are kept there", because=error.what)
