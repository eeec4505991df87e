"""Watching: every watcher is a cursor into one shared, bounded log of recent events.

Nothing is queued per watcher, so a thousand of them cost nothing while they are slow: one that falls behind
the log continues from the database, and one that falls behind compaction is told so. Since a cursor only
moves forward over published revisions, a watcher sees each event once, in order, and never half a
transaction.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from kubeqos.store.database import Database
from kubeqos.store.errors import Compacted
from kubeqos.store.records import Event

RECENT_EVENTS = 8192
RECENT_BYTES = 16 << 20
PAGE_EVENTS = 256  # from the database, read on the event loop


@dataclass(frozen=True, slots=True)
class Pace:
    """How long events gather between two rounds of watchers: not at all while watchers are few.

    Waking a thousand watchers for every event would leave no time for anything else. They are served together, the
    less often the more they are, and each finds what has gathered: the pause is about what serving them all takes.
    """

    per_watcher: float
    longest: float
    few: int = 50

    def pause(self, watchers: int) -> float:
        """Seconds."""
        return min(watchers * self.per_watcher, self.longest) if watchers > self.few else 0.0


WAKING = Pace(per_watcher=20e-6, longest=0.05)

by_revision = attrgetter("revision")

Topics = Callable[[Event], Iterable[str]]
"""What an event is about, in the words of one kind of watcher: the node of a pod, for example."""


@dataclass(frozen=True, slots=True)
class Interest:
    """A watcher that cares for one topic only. It is not woken for others, though it may be shown them."""

    topics: Topics
    topic: str


class Waiters:
    """Those who wait for events of one prefix, all or those about one topic, in the order in which they came."""

    __slots__ = ("about", "anything")

    def __init__(self) -> None:
        self.anything: dict[Waiter, None] = {}
        self.about: dict[Topics, dict[str, dict[Waiter, None]]] = {}

    def add(self, waiter: Waiter, interest: Interest | None) -> None:
        self._group(interest)[waiter] = None

    def discard(self, waiter: Waiter, interest: Interest | None) -> None:
        group = self._group(interest)
        group.pop(waiter, None)
        if interest is not None and not group:
            table = self.about[interest.topics]
            del table[interest.topic]
            if not table:
                del self.about[interest.topics]

    def concerned(self, events: Sequence[Event]) -> Iterator[Waiter]:
        """Whom these events wake. An event is asked once what it is about, however many watch."""
        yield from self.anything
        for topics, table in self.about.items():
            for topic in dict.fromkeys(topic for event in events for topic in topics(event)):
                yield from table.get(topic, ())

    def __iter__(self) -> Iterator[Waiter]:
        yield from self.anything
        for table in self.about.values():
            for group in table.values():
                yield from group

    def __bool__(self) -> bool:
        return bool(self.anything or self.about)

    def _group(self, interest: Interest | None) -> dict[Waiter, None]:
        if interest is None:
            return self.anything
        return self.about.setdefault(interest.topics, {}).setdefault(interest.topic, {})


class Waiter:
    """A watcher that has nothing to read. `seen` is set when that changes: the revision before the first new event."""

    __slots__ = ("future", "seen")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seen: int | None = None

    def wake(self, seen: int) -> None:
        if self.seen is None:  # also for one whose wait was just cancelled: it must not skip what comes now
            self.seen = seen
        if not self.future.done():
            self.future.set_result(None)


class Feed:
    """The recent events and the watchers that wait for the next ones."""

    def __init__(self, database: Database, revision: int, compacted: int) -> None:
        self.database = database
        self.revision = revision
        self.compacted = compacted
        self.closed = False
        self.floor = revision  # the log holds every event above this revision
        self._log: list[Event] = []
        self._log_bytes = 0
        self.announced = revision  # who waits has seen everything of theirs up to this revision
        self._unannounced: list[Event] = []
        self._waiting: dict[str, Waiters] = {}
        self._waiters = 0
        self._next_wake = 0.0
        self._wake_timer: asyncio.TimerHandle | None = None
        self._same_step: dict[tuple[str, int], list[Event]] = {}

    def publish(self, events: Sequence[Event], revision: int) -> None:
        """Make events visible that are now durable, up to and including `revision`."""
        self.revision = revision
        self._log.extend(events)
        self._unannounced.extend(events)
        self._log_bytes += sum(len(event.value) for event in events)
        self._same_step.clear()
        if len(self._log) > RECENT_EVENTS or self._log_bytes > RECENT_BYTES:
            self._trim()
        if self._wake_timer is None:
            self._announce_soon()

    def _announce_soon(self) -> None:
        if not WAKING.pause(self._waiters):
            self._announce()
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_wake:
            self._announce()
        else:
            self._wake_timer = loop.call_at(self._next_wake, self._announce)

    def _announce(self) -> None:
        """Wake the watchers that have something to read."""
        self._wake_timer = None
        events, self._unannounced = self._unannounced, []
        before, self.announced = self.announced, self.revision
        if pause := WAKING.pause(self._waiters):
            self._next_wake = asyncio.get_running_loop().time() + pause
        folders: dict[str, list[Event]] = {}
        for event in events:  # few folders, and many prefixes that nothing happened to
            folders.setdefault(event.key[: event.key.rfind("/") + 1], []).append(event)
        for prefix, waiting in self._waiting.items():
            near = [each for each in folders if each.startswith(prefix) or prefix.startswith(each)]
            found = [event for each in near for event in folders[each] if event.key.startswith(prefix)]
            if found:
                for waiter in waiting.concerned(found):
                    waiter.wake(before)

    def _trim(self) -> None:
        """Drop the oldest quarter or more; whole revisions only."""
        keep_bytes = RECENT_BYTES * 3 // 4
        drop = max(0, len(self._log) - RECENT_EVENTS * 3 // 4)
        self._log_bytes -= sum(len(event.value) for event in self._log[:drop])
        while drop < len(self._log) and self._log_bytes > keep_bytes:
            self._log_bytes -= len(self._log[drop].value)
            drop += 1
        while 0 < drop < len(self._log) and self._log[drop].revision == self._log[drop - 1].revision:
            self._log_bytes -= len(self._log[drop].value)
            drop += 1
        if drop:
            self.floor = self._log[drop - 1].revision
            del self._log[:drop]

    def read(self, prefix: str, cursor: int) -> tuple[list[Event], int]:
        """Events of a prefix above a revision, and the revision that they reach; Compacted when they are gone."""
        if cursor < self.floor:
            if cursor < self.compacted:
                raise Compacted(self.compacted)
            events = self.database.events(prefix, cursor, self.revision, PAGE_EVENTS)
            return events, self.revision if len(events) < PAGE_EVENTS else events[-1].revision
        # Watchers of one prefix move in step: they share the list, and their consumers may share its
        # encoding.
        events = self._same_step.get((prefix, cursor)) or self._from_log(prefix, cursor)
        if events:
            self._same_step[prefix, cursor] = events
        return events, self.revision

    def _from_log(self, prefix: str, cursor: int) -> list[Event]:
        return self.between(prefix, cursor, self.revision)

    def between(self, prefix: str, after: int, upto: int) -> list[Event]:
        """Events of a prefix above one revision, up to and including another; both in the log."""
        start = bisect_right(self._log, after, key=by_revision)
        end = bisect_right(self._log, upto, start, key=by_revision)
        return [event for event in self._log[start:end] if event.key.startswith(prefix)]

    def wait(self, prefix: str, interest: Interest | None) -> Waiter:
        """To be woken by the next event of the prefix that is of interest, or when the feed closes."""
        waiter = Waiter()
        self._waiting.setdefault(prefix, Waiters()).add(waiter, interest)
        self._waiters += 1
        return waiter

    def leave(self, prefix: str, waiter: Waiter, interest: Interest | None) -> None:
        waiting = self._waiting[prefix]
        waiting.discard(waiter, interest)
        self._waiters -= 1
        if not waiting:
            del self._waiting[prefix]

    def close(self) -> None:
        """End every watch."""
        self.closed = True
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        for waiting in self._waiting.values():
            for waiter in waiting:
                waiter.wake(0)


class Watch(AsyncIterator[list[Event]]):
    """The events of a prefix above a revision, as lists of whole revisions; ends when the store closes."""

    def __init__(self, feed: Feed, prefix: str, after: int, interest: Interest | None = None) -> None:
        self._feed = feed
        self._interest = interest
        self._prefix = prefix
        self._cursor = after
        self._waiter: Waiter | None = None
        self._closed = False

    @property
    def revision(self) -> int:
        """Every event up to this revision has been handed out: what a bookmark may say."""
        return self._cursor if self._waiter is None else self._seen_by(self._waiter)

    def _seen_by(self, waiter: Waiter) -> int:
        return max(self._cursor, self._feed.announced if waiter.seen is None else waiter.seen)

    def ready(self) -> list[Event]:
        """What can be handed out at once; nothing where waiting, or a look into the database, is needed for it."""
        if self.ended or self.behind:
            return []
        events, self._cursor = self._feed.read(self._prefix, self._cursor)
        return events

    @property
    def behind(self) -> bool:
        """What comes next is no longer in the log: only `anext` finds it."""
        return self._cursor < self._feed.floor

    @property
    def ended(self) -> bool:
        """Nothing more will come."""
        return self._closed or self._feed.closed

    def upto(self, revision: int) -> list[Event]:
        """What is to be handed out up to a revision, for one who is not behind; `move` says that it was."""
        return self._feed.between(self._prefix, self._cursor, revision)

    def move(self, revision: int) -> None:
        """Everything up to a revision has been handed out: by one who read it for many watchers at once."""
        self._cursor = max(self._cursor, revision)

    async def __anext__(self) -> list[Event]:
        while not self.ended:
            if self.behind:
                await asyncio.sleep(0)  # a long way to catch up must not keep the loop to itself
                if self.ended:
                    break  # who begins to wait now would never be woken
            events, self._cursor = self._feed.read(self._prefix, self._cursor)
            if events:
                return events
            await self._wait()
        raise StopAsyncIteration

    async def _wait(self) -> None:
        waiter = self._waiter = self._feed.wait(self._prefix, self._interest)
        try:
            await waiter.future
        finally:  # a wait that is cancelled, to send a bookmark for example, has seen that there was nothing
            self._cursor = self._seen_by(waiter)
            self._waiter = None
            self._feed.leave(self._prefix, waiter, self._interest)

    def close(self) -> None:
        """Stop; a pending `__anext__` ends the iteration."""
        self._closed = True
        if self._waiter is not None:
            self._waiter.wake(0)
