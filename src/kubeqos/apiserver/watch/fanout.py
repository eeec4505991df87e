"""Watchers that keep step are served together: one task reads the store, frames what came, and writes it to all.

A watcher of its own costs a task that wakes, a pass through ASGI and a copy for its chunk at every delivery. In a
fan-out it costs one write of a buffer that all of them share. Whoever cannot keep step (a client that reads slowly, a
watch from long ago) is fed alone, piece by piece as it reads, and joins again when it has caught up. Called by
`watcher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from kubeqos.apiserver.watch.batches import Batch, frames
from kubeqos.store import Compacted, Event, Pace, Store, Watch
from kubeqos.web.messages import Outlet

DELIVERING = Pace(per_watcher=100e-6, longest=0.2)
TURN_SECONDS = 0.002  # after so long of writing it is somebody else's turn on the event loop


async def next_events(watch: Watch, deadline: float) -> list[Event]:
    """The next events; none when there were none in time, or the watch has ended."""
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(watch)
    except (TimeoutError, StopAsyncIteration):
        return []


@dataclass(slots=True, eq=False)
class Member:
    """One watcher: where it stands, the connection it writes to, and what it selects.

    Everything up to `watch.revision` has been written, but for the frames in `unwritten`.
    """

    prefix: str
    watch: Watch
    outlet: Outlet
    selection: Hashable
    lines: Callable[[Batch], Iterable[bytes]]
    unwritten: list[bytes] = field(default_factory=list)


@dataclass
class FanOuts:
    """All fan-outs: one for each prefix that somebody watches over a connection."""

    store: Store
    joined: int = 0
    delivered: int = 0
    by_prefix: dict[str, FanOut] = field(default_factory=dict)

    async def serve(self, member: Member, until: float) -> None:
        """Write a watcher's events to its connection until a moment has come or there will be no more of them."""
        loop, watch = asyncio.get_running_loop(), member.watch
        while not watch.ended:
            while member.unwritten:
                await member.outlet.drained()
                member.outlet.write(member.unwritten.pop(0))
            events = watch.ready() or (await next_events(watch, until) if watch.behind else [])
            if events:
                await self._feed(member, events)
            if loop.time() >= until:
                return
            if not events:
                await self._join(member, until)

    async def _feed(self, member: Member, events: list[Event]) -> None:
        """Write to one alone, each piece made when the client has read what came before.

        This is not cut short when the moment has come: what the cursor has passed must be written.
        """
        for frame in frames(member.lines(Batch(events))):
            await member.outlet.drained()
            member.outlet.write(frame)
            await asyncio.sleep(0)
        self.delivered += len(events)

    async def _join(self, member: Member, until: float) -> None:
        """Nothing is there to be read: wait for more among others, from this very step of the event loop on."""
        fanout = self.by_prefix.get(member.prefix)
        if fanout is None:
            fanout = self.by_prefix[member.prefix] = FanOut(self, member.prefix)
        try:
            async with asyncio.timeout_at(until):
                await fanout.join(member)
        except TimeoutError:
            return


class FanOut:
    """Those who watch one prefix and have seen the same of it."""

    def __init__(self, fanouts: FanOuts, prefix: str) -> None:
        self._all = fanouts
        self._prefix = prefix
        self._members: dict[Member, asyncio.Future[None]] = {}
        self._watch = fanouts.store.watch(prefix, fanouts.store.revision)
        self._task = asyncio.ensure_future(self._run())

    async def join(self, member: Member) -> None:
        """Be served until one does not keep step, or the store closes."""
        left = self._members[member] = asyncio.get_running_loop().create_future()
        self._all.joined += 1
        try:
            await left
        finally:
            self._all.joined -= 1
            del self._members[member]
            if not self._members:
                self._disband()
                self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for _ in self._watch:
                began = loop.time()
                await self._deliver()
                await asyncio.sleep(began + DELIVERING.pause(len(self._members)) - loop.time())
        except Compacted:
            return  # each of them finds out about itself, alone
        finally:
            self._disband()
            for left in self._members.values():
                _end(left)

    def _disband(self) -> None:
        if self._all.by_prefix.get(self._prefix) is self:
            del self._all.by_prefix[self._prefix]
        self._watch.close()

    async def _deliver(self) -> None:
        """Bring everybody to the same revision, a turn's worth of them at a time."""
        loop, revision = asyncio.get_running_loop(), self._all.store.revision
        batches: dict[int, Batch] = {}
        turn_ends = loop.time() + TURN_SECONDS
        for member in tuple(self._members):
            left = self._members.get(member)
            if left is None or left.done():
                continue  # it left during the turn of another
            try:
                if not self._write(member, revision, batches):
                    _end(left)
            except Exception as error:  # noqa: BLE001 - a bug of ours fails this answer alone
                left.set_exception(error)
            if loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + TURN_SECONDS

    def _write(self, member: Member, revision: int, batches: dict[int, Batch]) -> bool:
        """Write everything up to a revision to one; False when it does not keep step any longer."""
        watch, outlet = member.watch, member.outlet
        standing = watch.revision
        if standing >= revision:
            return True
        if watch.behind or outlet.is_full:
            return False
        batch = batches.get(standing)
        if batch is None:
            batch = batches[standing] = Batch(watch.upto(revision))
        watch.move(revision)
        self._all.delivered += len(batch.events)
        found = batch.frames(member.selection, member.lines)
        for place, frame in enumerate(found):
            if outlet.is_full:
                member.unwritten = found[place:]
                return False
            outlet.write(frame)
        return True


def _end(left: asyncio.Future[None]) -> None:
    if not left.done():
        left.set_result(None)
