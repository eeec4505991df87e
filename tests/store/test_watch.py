"""The guarantees that etcd gives its watchers and tests of itself, with slow, late and resumed watchers under load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from kubeqos.store import Compacted, Delete, Event, FutureRevision, Interest, Pace, Put, Store, Watch
from kubeqos.store import watch as watch_module


@pytest.fixture(params=["in memory", "mostly from disk", "in a crowd"])
async def store(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    if request.param == "mostly from disk":
        monkeypatch.setattr(watch_module, "RECENT_EVENTS", 8)
        monkeypatch.setattr(watch_module, "PAGE_EVENTS", 5)
    if request.param == "in a crowd":
        monkeypatch.setattr(watch_module, "WAKING", Pace(per_watcher=0.002, longest=0.05, few=0))
    store = Store.open(tmp_path / "state.db")
    yield store
    await store.close()


async def load(store: Store, seed: int, transactions: int = 150) -> list[Event]:
    """Concurrent writers of one to three keys each; returns what happened, as the transactions say it."""
    chance = random.Random(seed)
    happened: list[Event] = []

    async def writer() -> None:
        for _ in range(transactions // 5):
            keys = chance.sample([f"/{kind}/{n}" for kind in ("pods", "nodes") for n in range(6)], chance.randint(1, 3))
            ops: list[Put | Delete] = []
            for key in keys:
                exists = store.get(key, pending=True) is not None
                value = b"%d" % chance.randrange(1000)
                ops.append(Delete(key, value) if exists and chance.random() < 0.3 else Put(key, value))
            before = {key: store.get(key, pending=True) for key in keys}
            write = asyncio.ensure_future(store.commit(ops))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            revision = await write
            for op in ops:
                old = before[op.key]
                previous = old.value if old else None
                if isinstance(op, Delete):
                    assert isinstance(op.final, bytes)
                    happened.append(Event("DELETED", op.key, op.final, revision, previous))
                else:
                    assert isinstance(op.value, bytes)
                    happened.append(Event("MODIFIED" if old else "ADDED", op.key, op.value, revision, previous))

    await asyncio.gather(*(writer() for _ in range(5)))
    return sorted(happened, key=lambda event: event.revision)


async def follow(watch: Watch, upto: asyncio.Future[int], lists: list[list[Event]], pause: float = 0) -> None:
    """Read until everything up to a revision has been handed out."""
    while not upto.done() or watch.revision < upto.result():
        try:
            async with asyncio.timeout(0.02):
                lists.append(await anext(watch))
        except TimeoutError:
            continue
        await asyncio.sleep(pause)


@pytest.mark.parametrize("prefix", ["", "/pods/", "/pods/1", "/none/"])
async def test_ordered_unique_reliable_and_atomic(store: Store, prefix: str) -> None:
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watchers: list[tuple[list[list[Event]], asyncio.Task[None]]] = []
    for pause in (0, 0, 0.001, 0.005):
        lists: list[list[Event]] = []
        watchers.append((lists, asyncio.create_task(follow(store.watch(prefix, 1), end, lists, pause))))
    happened = [event for event in await load(store, 1) if event.key.startswith(prefix)]
    end.set_result(store.revision)
    await asyncio.gather(*(task for _, task in watchers))
    for lists, _ in watchers:
        seen = [event for batch in lists for event in batch]
        assert seen == happened  # ordered, unique, reliable
        for earlier, later in pairwise(lists):
            assert earlier[-1].revision < later[0].revision  # atomic: a revision is never split


async def test_resumable_from_any_revision(store: Store) -> None:
    happened = await load(store, 2)
    for start in range(1, store.revision, 7):
        watch = store.watch("/pods/", start)
        rest = [event for event in happened if event.revision > start and event.key.startswith("/pods/")]
        seen: list[Event] = []
        while len(seen) < len(rest):
            seen += await anext(watch)
        assert seen == rest


async def test_bookmarkable_a_quiet_watch_still_advances(store: Store) -> None:
    watch = store.watch("/quiet/", 1)
    lists: list[list[Event]] = []
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    follower = asyncio.create_task(follow(watch, end, lists))
    await load(store, 3, transactions=50)
    end.set_result(store.revision)
    await follower
    bookmark = watch.revision
    await store.commit([Put("/quiet/a", b"1")])
    assert lists == []
    assert bookmark == store.revision - 1
    assert [e.key for e in await anext(store.watch("/quiet/", bookmark))] == ["/quiet/a"]


async def test_a_bookmark_never_runs_ahead_of_events_that_wait(store: Store) -> None:
    watch = store.watch("/pods/", store.revision)
    reading = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    before = watch.revision
    await store.commit([Put("/pods/a", b"1")])
    if not reading.done():
        assert watch.revision == before
    assert [event.key for event in await reading] == ["/pods/a"]
    assert watch.revision == store.revision


async def test_a_cancelled_read_loses_nothing(store: Store) -> None:
    watch = store.watch("", store.revision)
    seen: list[Event] = []
    for n in range(60):
        reading = asyncio.ensure_future(anext(watch))
        write = asyncio.ensure_future(store.commit([Put(f"/pods/{n}", b"1")]))
        for _ in range(n % 7):
            await asyncio.sleep(0)
        if not reading.done():
            reading.cancel()
        await write
        try:
            seen += await reading
        except asyncio.CancelledError:
            continue
    while len(seen) < 60:
        seen += await anext(watch)
    assert [event.key for event in seen] == [f"/pods/{n}" for n in range(60)]


async def test_a_watcher_behind_compaction_is_told_unless_memory_still_helps(store: Store) -> None:
    watch = store.watch("", store.revision)
    for n in range(20):
        await store.commit([Put("/pods/a", b"%d" % n)])
    store.compact(store.revision - 1)
    if watch_module.RECENT_EVENTS == 8:
        with pytest.raises(Compacted):
            await anext(watch)
    else:
        assert [event.value for event in await anext(watch)] == [b"%d" % n for n in range(20)]
    with pytest.raises(Compacted):
        store.watch("", store.revision - 2)
    with pytest.raises(FutureRevision):
        store.watch("", store.revision + 1)


async def test_a_quiet_watch_is_never_behind(store: Store) -> None:
    """Its reader gives up waiting now and then, to send a bookmark; meanwhile history moves on and is compacted."""
    watch = store.watch("/quiet/", store.revision)
    for _ in range(3):
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        for n in range(20):
            await store.commit([Put("/pods/a", b"%d" % n)])
        await asyncio.sleep(0.005)  # a crowd is woken a little later
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert watch.revision == store.revision
        store.compact(store.revision)
    await store.commit([Put("/quiet/a", b"1")])
    assert [event.key for event in await anext(watch)] == ["/quiet/a"]


async def test_a_wait_cancelled_in_the_very_moment_of_an_event_does_not_skip_it(store: Store) -> None:
    watch = store.watch("/pods/", store.revision)
    reading = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    write = asyncio.ensure_future(store.commit([Put("/pods/a", b"1")]))
    write.add_done_callback(lambda _: None)
    original = store._feed._announce

    def cancel_first() -> None:
        reading.cancel()
        original()

    store._feed._announce = cancel_first  # type: ignore[method-assign]
    await write
    with pytest.raises(asyncio.CancelledError):
        await reading
    store._feed._announce = original  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        assert [event.key for event in await anext(watch)] == ["/pods/a"]


async def test_closing_ends_the_iteration(store: Store) -> None:
    watch = store.watch("", store.revision)
    reading = asyncio.ensure_future(anext(watch, None))
    await asyncio.sleep(0)
    watch.close()
    assert await reading is None
    other = asyncio.ensure_future(anext(store.watch("", store.revision), None))
    await asyncio.sleep(0)
    await store.close()
    assert await other is None


async def test_an_interest_wakes_only_for_its_topic_and_misses_nothing(tmp_path: Path) -> None:
    """Given watchers of two topics: each is woken by its own events alone, and still sees all of them, in order."""
    store = Store.open(tmp_path / "db")
    woken: dict[str, list[list[bytes]]] = {"a": [], "b": []}

    def topics(event: Event) -> list[str]:
        return [event.value[:1].decode()]

    async def follow(topic: str) -> None:
        async for events in store.watch("/k/", 0, Interest(topics, topic)):
            woken[topic].append([event.value for event in events])

    tasks = [asyncio.create_task(follow(topic)) for topic in woken]
    await asyncio.sleep(0)
    for number, value in enumerate((b"a1", b"b1", b"a2", b"a3", b"b2")):
        await store.commit([Put(f"/k/{number}", value)])
        await asyncio.sleep(0.01)
    own = {
        topic: [v for batch in batches for v in batch if v.startswith(topic.encode())]
        for topic, batches in woken.items()
    }
    assert own == {"a": [b"a1", b"a2", b"a3"], "b": [b"b1", b"b2"]}
    assert len(woken["b"]) == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()


async def test_a_watch_that_is_catching_up_ends_when_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave way to others in the middle of that, and the store closed meanwhile."""
    monkeypatch.setattr(watch_module, "RECENT_EVENTS", 1)
    store = Store.open(tmp_path / "db")
    for number in range(8):
        await store.commit([Put(f"/k/{number}", b"1")])
    watch = store.watch("/none/", 1)
    assert watch.behind
    reading, closing = asyncio.ensure_future(anext(watch)), asyncio.ensure_future(store.close())
    await closing
    with pytest.raises(StopAsyncIteration):
        async with asyncio.timeout(60):
            await reading
