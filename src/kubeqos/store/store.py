"""The store itself: memory index, pending overlay, batches and the writer thread.

One event loop owns everything here except `Database.insert` and `compact`, which the writer thread runs. A
commit is checked and numbered at once against the pending overlay and joins the open batch; when the writer
is free, the batch is sealed and written as one SQLite transaction; after the sync it is published to readers
and watchers and its commits are acknowledged. So nobody ever reads what a crash could take back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from kubeqos.store.database import PLACE_BITS, Database, Row, row_id
from kubeqos.store.errors import Compacted, Conflict, FutureRevision, ReadOnly, StoreError
from kubeqos.store.index import KeyIndex
from kubeqos.store.records import Delete, Event, Page, Put, Retention, Statistics, Stored, Value
from kubeqos.store.watch import Feed, Interest, Watch
from kubeqos.store.writer import Writer, WriterThread

Render = Callable[[int], bytes | None]


class Batch:
    """Commits that share one transaction on disk."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.waiters: list[tuple[asyncio.Future[int], int | None]] = []
        self.coalesced: dict[str, Render] = {}
        self.seconds = 0.0  # in the writer

    def __bool__(self) -> bool:
        return bool(self.waiters)


class Store:
    """Keys to bytes under one global revision. Its methods are called on one event loop."""

    def __init__(
        self, database: Database, retention: Retention, clock: Callable[[], float], writer: Callable[[], Writer]
    ) -> None:
        self._database = database
        self._retention = retention
        self._clock = clock
        items, revision, compacted = database.load()
        self._committed = {item.key: item for item in items}
        self._index = KeyIndex(item.key for item in items)
        self._pending: dict[str, tuple[int, Stored | None]] = {}
        self._assigned = revision
        self._feed = Feed(database, revision, compacted)
        self.statistics = Statistics()
        self._open_batch = Batch()
        self._in_flight: Batch | None = None
        self._seal_scheduled = False
        self._failure: StoreError | None = None
        self._closing = False
        self._drained: asyncio.Future[None] | None = None  # what `close` waits for
        self._on_discard: list[Callable[[], None]] = []
        self._compacting = False
        self._ages: list[tuple[float, int]] = [(clock(), revision)]
        self._writer = writer()  # last: a file that cannot be read leaves no thread behind

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        retention: Retention = Retention(),  # noqa: B008 - frozen value
        max_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        writer: Callable[[], Writer] = WriterThread,
    ) -> Store:
        """Open or create the database file. `max_bytes` bounds its size; 0 leaves that to the disk."""
        database = Database(path, max_bytes=max_bytes)
        try:
            return cls(database, retention, clock, writer)
        except BaseException:
            database.close(clean=False)
            raise

    @property
    def revision(self) -> int:
        """The newest committed revision."""
        return self._feed.revision

    @property
    def compacted(self) -> int:
        """The oldest revision that `range` and `watch` still answer for."""
        return self._feed.compacted

    @property
    def failure(self) -> StoreError | None:
        """Why the store is read-only, if it is."""
        return self._failure

    def __len__(self) -> int:
        return len(self._committed)

    def get(self, key: str, *, pending: bool = False) -> Stored | None:
        """One key; with `pending` as the writes submitted so far will leave it."""
        if pending and (submitted := self._pending.get(key)):
            return submitted[1]
        return self._committed.get(key)

    def pending_keys(self, prefix: str) -> set[str]:
        """Keys of a prefix that writes submitted so far will change: read them with `get(key, pending=True)`."""
        return {key for key in self._pending if key.startswith(prefix)}

    def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0) -> Page:
        """The keys of a prefix behind `after`, newest or exactly as they were at a revision."""
        at = revision or self.revision
        if at > self.revision:
            raise FutureRevision(at, self.revision)
        if at < self.compacted:
            raise Compacted(self.compacted)
        if at == self.revision:
            keys = self._index.scan(prefix, after)
            items = [self._committed[key] for key in (islice(keys, limit) if limit else keys)]
            total = self._index.count(prefix, after) if limit else len(items)
        else:
            items = list(self._database.range(prefix, after, limit, at))
            full = limit and len(items) == limit
            total = self._database.count(prefix, after, at) if full else len(items)
        remaining = total - len(items)
        return Page(items, remaining > 0, remaining, at)

    def watch(self, prefix: str, after: int, interest: Interest | None = None) -> Watch:
        """Every event of the prefix above a revision; with an interest, at least those about its topic."""
        if after > self.revision:
            raise FutureRevision(after, self.revision)
        if after < self.compacted:
            raise Compacted(self.compacted)
        return Watch(self._feed, prefix, after, interest)

    def commit(self, ops: Sequence[Put | Delete], coalesced: Mapping[str, Render] | None = None) -> Awaitable[int]:
        """Write atomically; resolves with the revision once it is durable. Conflict is raised at once.

        A commit that was accepted is carried out whether or not somebody still waits for it: cancelling the wait does
        not take it back. When it fails, every waiter is told before any later batch is sealed.

        A `coalesced` value is rendered once per batch, under a revision of its own, and shares the transaction on disk.
        It updates keys only: one that does not exist by then, or renders None, is left out.
        """
        if self._failure is not None:
            raise self._failure.again()
        if self._closing:
            raise StoreError("the store is closed")
        known = self._known(ops)
        revision = self._assigned + 1
        rows = [self._row(op, known[place], row_id(revision, place)) for place, op in enumerate(ops)]
        if rows:
            self._accept(rows, revision)
        if coalesced:
            self._open_batch.coalesced.update(coalesced)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open_batch.waiters.append((future, revision if rows else None))
        self._schedule_seal()
        return future

    async def durable(self) -> None:
        """Wait until every write submitted so far is durable; raises when one of them was thrown away.

        Whoever answers by what he found in the pending view waits for this: else a crash could take back what was told.
        """
        if self._pending:
            await self.commit([])  # behind all of them, and nothing by itself

    def on_discard(self, callback: Callable[[], None]) -> None:
        """Call back when submitted writes were thrown away because their batch failed.

        Whatever was derived from the pending view, a quota ledger for example, is to be derived anew: it is called
        before the waiters are told and before anything else can be submitted.
        """
        self._on_discard.append(callback)

    def _known(self, ops: Sequence[Put | Delete]) -> list[Stored | None]:
        """What each operation finds, when they may all be done."""
        if len(ops) > 1 and (len({op.key for op in ops}) != len(ops) or len(ops) >> PLACE_BITS):
            raise ValueError("a commit names each key once, and at most 65,535 keys")
        known: list[Stored | None] = []
        for op in ops:
            if not op.key.isascii() or not op.key:
                check_text(op.key)
            current = self.get(op.key, pending=True)
            found = current.revision if current else 0
            if op.expect not in (None, found) or (not found and isinstance(op, Delete)):
                raise Conflict(op.key, current)
            known.append(current)
        return known

    def _row(self, op: Put | Delete, current: Stored | None, identity: int) -> Row:
        revision = identity >> PLACE_BITS
        if isinstance(op, Put):
            created = current.created if current else revision
            return Row(identity, op.key, created, False, render(op.value, revision))
        assert current is not None  # checked
        final = current.value if op.final is None else render(op.final, revision)
        return Row(identity, op.key, current.created, True, final)

    def _accept(self, rows: list[Row], revision: int) -> None:
        self._assigned = revision
        self._open_batch.rows.extend(rows)
        for row in rows:
            stored = Stored(row.key, row.value, revision, row.created)
            self._pending[row.key] = revision, None if row.deleted else stored

    # batches

    def _schedule_seal(self) -> None:
        if not self._seal_scheduled and self._in_flight is None:
            self._seal_scheduled = True
            asyncio.get_running_loop().call_soon(self._seal)

    def _seal(self) -> None:
        """Close the open batch and give it to the writer; runs after the commits of this turn of the loop."""
        self._seal_scheduled = False
        batch = self._open_batch
        if self._in_flight is not None or not batch:
            return
        try:
            self._render_coalesced(batch)
        except Exception as error:  # noqa: BLE001 - a caller's code; its batch must fail as one
            failure = StoreError(f"cannot render a coalesced value: {error}")
            failure.__cause__ = error
            self._fail_pending(failure)
            self._let_close()
            return
        self._in_flight, self._open_batch = batch, Batch()
        loop = asyncio.get_running_loop()
        self._writer.put(lambda: self._write(batch, loop))

    def _render_coalesced(self, batch: Batch) -> None:
        revision = self._assigned + 1
        rows: list[Row] = []
        for key, render_value in batch.coalesced.items():
            current = self.get(key, pending=True)
            value = render_value(revision) if current else None
            if current and value is not None:
                rows.append(Row(row_id(revision, len(rows)), key, current.created, False, render(value, revision)))
        if rows:
            self._accept(rows, revision)

    def _batch_done(self, batch: Batch, failure: StoreError | None) -> None:
        """Back on the loop: the batch is durable, or it never happened."""
        self._in_flight = None
        self._count(batch, failure)
        if failure is not None:
            self._fail_pending(failure, batch)
            if isinstance(failure, ReadOnly):
                self._failure = failure
            else:
                self.compact(self.revision)  # a full disk: history is what can be given up
        else:
            self._publish(batch)
            for future, revision in batch.waiters:
                if not future.done():
                    future.set_result(self.revision if revision is None else revision)
            self._retain()
        if self._open_batch:
            self._schedule_seal()
        else:
            self._let_close()

    def _let_close(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _count(self, batch: Batch, failure: StoreError | None) -> None:
        counted = self.statistics
        counted.batches += 1
        counted.sync_seconds += batch.seconds
        if failure is not None:
            counted.failed_batches += 1
        else:
            counted.commits += len(batch.waiters)
            counted.rows += len(batch.rows)

    def _publish(self, batch: Batch) -> None:
        events = []
        for row in batch.rows:
            event = self._apply(row)
            events.append(event)
            if self._pending[row.key][0] == event.revision:  # a later write of the key is not durable yet
                del self._pending[row.key]
        if events:
            self._feed.publish(events, events[-1].revision)

    def _apply(self, row: Row) -> Event:
        key, value, revision = row.key, row.value, row.revision
        before = self._committed.get(key)
        previous = before.value if before else None
        if row.deleted:
            del self._committed[key]
            self._index.remove(key)
            return Event("DELETED", key, value, revision, previous)
        self._committed[key] = Stored(key, value, revision, row.created)
        if before:
            return Event("MODIFIED", key, value, revision, previous)
        self._index.add(key)
        return Event("ADDED", key, value, revision, None)

    def _fail_pending(self, failure: StoreError, batch: Batch | None = None) -> None:
        """Everything not yet durable was built on the failed batch, so it fails with it."""
        failed = [*(batch.waiters if batch else ()), *self._open_batch.waiters]
        self._open_batch = Batch()
        self._pending.clear()
        for callback in self._on_discard:
            callback()
        for future, _ in failed:
            if not future.done():
                future.set_exception(failure.again())

    # history

    def compact(self, revision: int) -> None:
        """Forget history below a revision; at once for readers, soon after on disk."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self._feed.compacted = max(self.compacted, revision)
        self._next_compaction()

    def _next_compaction(self) -> None:
        """One step at a time: batches that arrive meanwhile go between the steps."""
        if not (self._compacting or self._closing or self._failure):
            self._compacting = True
            target, loop = self.compacted, asyncio.get_running_loop()
            self._writer.put(lambda: self._compact(target, loop))

    def _compacted_step(self, more: bool, failure: StoreError | None) -> None:
        self._compacting = False
        if isinstance(failure, ReadOnly):
            self._failure = failure
        if more:
            self._next_compaction()

    def _retain(self) -> None:
        """Compact by age and count; driven by writes, because without them history does not grow."""
        now = self._clock()
        if now - self._ages[-1][0] >= self._retention.seconds / 10:
            self._ages.append((now, self.revision))
        target = self.revision - self._retention.revisions * 11 // 10
        if target > self.compacted:
            target = self.revision - self._retention.revisions
        while len(self._ages) > 1 and now - self._ages[0][0] > self._retention.seconds:
            target = max(target, self._ages.pop(0)[1])
        if target > self.compacted:
            self.compact(target)

    # writer thread

    def _write(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        failure = None
        started = time.perf_counter()
        try:
            self._database.insert(batch.rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiters must hear of it
            failure = self._database.explain(error)
        batch.seconds = time.perf_counter() - started
        loop.call_soon_threadsafe(self._batch_done, batch, failure)

    def _compact(self, target: int, loop: asyncio.AbstractEventLoop) -> None:
        more, failure = False, None
        try:
            more = self._database.compact(target)
        except Exception as error:  # noqa: BLE001 - a full disk is met again by the next compaction
            failure = self._database.explain(error)
        loop.call_soon_threadsafe(self._compacted_step, more, failure)

    async def close(self) -> None:
        """Finish what was submitted, end the watches and let go of the file."""
        if self._closing:
            return
        self._closing = True
        if self._open_batch and self._in_flight is None:
            self._seal()
        if self._in_flight is not None:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        self._feed.close()
        await self._writer.close()
        self._database.close(clean=self._failure is None)


def render(value: Value, revision: int) -> bytes:
    rendered = value(revision) if callable(value) else value
    if not isinstance(rendered, bytes):
        raise TypeError(f"a value must be bytes, not {type(rendered).__name__}")
    return rendered


def check_text(key: str) -> None:
    """Keys are non-empty text that SQLite can hold and order."""
    if not key:
        raise ValueError("a key cannot be empty")
    key.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
