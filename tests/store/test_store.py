"""The store as its callers see it: numbered, atomic, compare-and-set, readable at a revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeqos.errors import StateError
from kubeqos.store import Compacted, Conflict, Delete, FutureRevision, Put, Store, StoreError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path / "state.db")
    yield store
    await store.close()


async def test_a_value_can_carry_the_revision_it_gets(store: Store) -> None:
    revision = await store.commit([Put("/pods/a", lambda revision: b"rv=%d" % revision, expect=0)])
    stored = store.get("/pods/a")
    assert stored is not None
    assert (stored.value, stored.revision, stored.created) == (b"rv=%d" % revision, revision, revision)


async def test_readers_see_a_write_only_when_it_is_durable(store: Store) -> None:
    write = store.commit([Put("/pods/a", b"1")])
    assert store.get("/pods/a") is None
    assert store.get("/pods/a", pending=True) is not None
    assert store.range("/pods/").items == []
    await write
    assert store.get("/pods/a") == store.get("/pods/a", pending=True)


@pytest.mark.parametrize(
    ("op", "passes"),
    [
        (Put("/a", b"2", expect=0), False),
        (Put("/a", b"2", expect=2), True),
        (Put("/a", b"2", expect=1), False),
        (Put("/a", b"2"), True),
        (Put("/b", b"2", expect=0), True),
        (Put("/b", b"2", expect=2), False),
        (Delete("/a", expect=2), True),
        (Delete("/a", expect=1), False),
        (Delete("/b"), False),
    ],
)
async def test_compare_and_set(store: Store, op: Put | Delete, passes: bool) -> None:
    assert await store.commit([Put("/a", b"1")]) == 2
    if passes:
        await store.commit([op])
    else:
        with pytest.raises(Conflict) as conflict:
            await store.commit([op])
        assert conflict.value.current == store.get(op.key)


async def test_compare_and_set_counts_what_is_submitted(store: Store) -> None:
    first = store.commit([Put("/a", b"1", expect=0)])
    with pytest.raises(Conflict):
        store.commit([Put("/a", b"2", expect=0)])
    assert await store.commit([Put("/a", b"3", expect=await first)]) == 3


async def test_a_refused_transaction_leaves_nothing(store: Store) -> None:
    await store.commit([Put("/a", b"1")])
    with pytest.raises(Conflict):
        store.commit([Put("/b", b"1"), Put("/a", b"2", expect=0)])
    assert store.get("/b", pending=True) is None
    assert await store.commit([Put("/c", b"1")]) == 3


async def test_a_coalesced_value_is_written_once_per_batch(store: Store) -> None:
    await store.commit([Put("/quota", b"used=0")])
    used = 0

    def status(revision: int) -> bytes:
        return b"used=%d rv=%d" % (used, revision)

    watch = store.watch("/quota", store.revision)
    writes = []
    for number in range(100):
        used += 1
        writes.append(store.commit([Put(f"/pods/{number:03}", b"pod")], {"/quota": status}))
    await asyncio.gather(*writes)
    assert [event.value for event in await anext(watch)] == [b"used=100 rv=103"]
    assert (store.statistics.batches, store.statistics.commits, store.statistics.rows) == (2, 101, 102)


async def test_range_pages_through_a_prefix_at_one_revision(store: Store) -> None:
    await asyncio.gather(*(store.commit([Put(f"/pods/{n:02}", b"old")]) for n in range(10)))
    await store.commit([Put("/podsx", b"other")])
    first = store.range("/pods/", limit=4)
    assert (len(first.items), first.more, first.remaining) == (4, True, 6)
    await store.commit([Delete("/pods/05"), Put("/pods/07", b"new"), Put("/pods/99", b"new")])
    second = store.range("/pods/", limit=4, after=first.items[-1].key, revision=first.revision)
    assert [(i.key, i.value) for i in second.items] == [(f"/pods/{n:02}", b"old") for n in range(4, 8)]
    assert (second.more, second.remaining, second.revision) == (True, 2, first.revision)
    newest = store.range("/pods/", after="/pods/04")
    assert [i.key for i in newest.items] == [f"/pods/{n:02}" for n in (6, 7, 8, 9, 99)]


async def test_revisions_outside_history_are_refused_by_name(store: Store) -> None:
    for n in range(5):
        await store.commit([Put("/a", b"%d" % n)])
    store.compact(4)
    assert store.range("", revision=4).items[0].value == b"2"
    with pytest.raises(Compacted) as compacted:
        store.range("", revision=3)
    assert compacted.value.oldest == 4
    with pytest.raises(FutureRevision) as future:
        store.range("", revision=99)
    assert (future.value.requested, future.value.current) == (99, 6)
    with pytest.raises(Compacted):
        store.watch("", 3)


async def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    await store.commit([Put("/a", b"1"), Put("/b", b"1")])
    await store.commit([Put("/a", b"2")])
    await store.commit([Delete("/b", final=b"gone")])
    await store.close()

    again = Store.open(tmp_path / "state.db")
    assert again.revision == 4
    assert [(i.key, i.value, i.revision, i.created) for i in again.range("").items] == [("/a", b"2", 3, 2)]
    assert [i.value for i in again.range("", revision=2).items] == [b"1", b"1"]
    events = await anext(again.watch("", 2))
    assert [(e.type, e.key, e.value, e.previous) for e in events] == [
        ("MODIFIED", "/a", b"2", b"1"),
        ("DELETED", "/b", b"gone", b"1"),
    ]
    await again.close()


async def test_a_closed_store_refuses_writes(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    write = asyncio.ensure_future(store.commit([Put("/a", b"1")]))
    await store.close()
    assert await write == 2
    with pytest.raises(StoreError, match="closed"):
        store.commit([Put("/a", b"2")])


async def test_a_second_store_on_the_same_file_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="in use by another process"):
        Store.open(tmp_path / "state.db")


async def test_a_cancelled_wait_does_not_take_a_write_back(store: Store) -> None:
    async def write() -> None:
        await store.commit([Put("/a", b"1")])

    waiting = asyncio.create_task(write())
    await asyncio.sleep(0)
    waiting.cancel()
    await store.commit([Put("/b", b"1")])
    assert store.get("/a") is not None


@pytest.mark.parametrize("batches", [1, 2])
async def test_closing_finishes_writes_that_nobody_waits_for(tmp_path: Path, batches: int) -> None:
    store = Store.open(tmp_path / "state.db")
    for number in range(batches):
        waiting = asyncio.ensure_future(store.commit([Put(f"/{number}", b"1")]))
        waiting.cancel()
        if number < batches - 1:
            await asyncio.sleep(0)  # sealed: the next one is in another batch
    await store.close()
    again = Store.open(tmp_path / "state.db")
    assert len(again) == batches
    await again.close()


async def test_closing_does_not_hang_on_a_batch_that_cannot_be_rendered(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    await store.commit([Put("/quota", b"0")])
    first = asyncio.ensure_future(store.commit([Put("/a", b"1")]))
    await asyncio.sleep(0)
    broken = asyncio.ensure_future(store.commit([Put("/b", b"1")], {"/quota": lambda revision: b"%d" % (1 // 0)}))
    await asyncio.wait_for(store.close(), 10)
    assert await first == 3
    with pytest.raises(StoreError, match="cannot render a coalesced value"):
        await broken


async def test_a_value_that_is_not_bytes_is_refused_at_once(store: Store) -> None:
    with pytest.raises(TypeError, match="must be bytes, not str"):
        store.commit([Put("/a", b"1"), Put("/b", lambda revision: "text")])  # type: ignore[arg-type, return-value]
    assert store.get("/a", pending=True) is None
    assert await store.commit([Put("/a", b"1", expect=0)]) == 2


async def test_waiters_of_a_failed_batch_undo_before_the_next_batch_is_rendered(tmp_path: Path) -> None:
    """A ledger charged for writes that failed is credited before anybody's usage is written."""
    store = Store.open(tmp_path / "small.db", max_bytes=400_000)
    await store.commit([Put("/quota", b"used=0")])
    used = 0

    async def charge(key: str, size: int) -> None:
        nonlocal used
        used += 1
        try:
            await store.commit([Put(key, b"x" * size)], {"/quota": lambda revision: b"used=%d" % used})
        except StoreError:
            used -= 1

    async def retry() -> None:
        await charge("/big", 1_000_000)
        await charge("/small", 10)

    await asyncio.gather(*(retry() for _ in range(1)), *(charge(f"/big/{n}", 1_000_000) for n in range(5)))
    await charge("/last", 10)
    assert store.get("/quota").value == b"used=2"  # type: ignore[union-attr]
    await store.close()
