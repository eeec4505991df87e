"""What the store says when the file, the disk or a caller is broken, and that it touches nothing then."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
from collections.abc import Awaitable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kubeqos.errors import StateError
from kubeqos.store import Conflict, Full, Put, ReadOnly, Store, StoreError
from kubeqos.store.database import Database
from tests.shared.victims import nursery

ROW = b"x" * 5000


async def filled(path: Path) -> None:
    store = Store.open(path)
    await asyncio.gather(*(store.commit([Put(f"/pods/{n:03}", ROW + b"%d" % n)]) for n in range(200)))
    await store.close()


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith((".lock", "-shm"))}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"apiVersion: v1\nkind: Pod\n" * 10, "file is not a database"),
        (b"SQLite format 3\0" + b"\0" * 200, "made by another program"),
        (b"S", "file is not a database"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StateError, match=message) as error:
        Store.open(path)
    assert error.value.where == str(path)
    assert error.value.remedy
    assert files(tmp_path) == {"state.db": content}


def test_another_program_s_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE history (a)")
    other.close()
    before = files(tmp_path)
    with pytest.raises(StateError, match="made by another program"):
        Store.open(path)
    assert files(tmp_path) == before


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await Store.open(path).close()
    content = bytearray(path.read_bytes())
    content[60:64] = (9).to_bytes(4)
    path.write_bytes(content)
    with pytest.raises(StateError, match="format 9"):
        Store.open(path)


async def test_a_flipped_bit_in_a_value_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await filled(path)
    content = bytearray(path.read_bytes())
    content[content.index(ROW + b"77") + 2500] ^= 4
    path.write_bytes(content)
    before = files(tmp_path)
    with pytest.raises(StateError, match="/pods/077 does not match its checksum"):
        Store.open(path)
    assert files(tmp_path).items() >= before.items()


@pytest.mark.parametrize("keep", [20_000, 200_000, 900_000])
async def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "state.db"
    await filled(path)
    path.write_bytes(path.read_bytes()[:keep])
    before = files(tmp_path)
    with pytest.raises(StateError, match="database is damaged"):
        Store.open(path)
    assert files(tmp_path).items() >= before.items()


async def test_a_log_without_its_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.with_name("state.db-wal").write_bytes(b"writes that someone was promised")
    with pytest.raises(StateError, match=r"write-ahead log state\.db-wal is there"):
        Store.open(path)
    assert not path.exists()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot open the database: No such file") as error:
        Store.open(tmp_path / "nowhere" / "state.db")
    assert "data directory" in (error.value.remedy or "")


async def test_a_full_disk_fails_the_batch_and_the_store_goes_on(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", max_bytes=1_000_000)
    await store.commit([Put("/kept", b"1")])
    with pytest.raises(StoreError, match="disk is full") as error:
        for n in range(1000):
            await store.commit([Put(f"/pods/{n}", ROW)])
    assert error.value.remedy == "free space or raise the limit, then write again"
    stored = len(store.range("/pods/").items)
    assert store.get(f"/pods/{stored}", pending=True) is None
    assert await store.commit([Put("/small", b"1")]) > store.get("/kept").revision  # type: ignore[union-attr]
    await store.close()
    again = Store.open(tmp_path / "state.db")
    assert len(again.range("/pods/").items) == stored
    await again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this user cannot mount a small file system: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


async def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    store = Store.open(small_disk / "state.db")
    acknowledged = []
    with pytest.raises(StoreError, match="disk is full"):
        for n in range(1000):
            await store.commit([Put(f"/pods/{n:04}", ROW)])
            acknowledged.append(f"/pods/{n:04}")
    ballast.unlink()
    await store.commit([Put("/pods/more", ROW)])  # space was freed: it goes on without a restart
    await store.close()
    again = Store.open(small_disk / "state.db")
    assert [item.key for item in again.range("/pods/").items] == [*acknowledged, "/pods/more"]
    await again.close()


async def test_a_full_disk_gives_up_history_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", max_bytes=1_000_000)
    for n in range(1000):  # one object rewritten: far more history than fits
        try:
            await store.commit([Put("/pods/a", ROW + b"%d" % n)])
        except StoreError:
            await asyncio.sleep(0.01)
    final = await store.commit([Put("/pods/a", b"final")])
    assert store.compacted > 1
    assert store.get("/pods/a").revision == final  # type: ignore[union-attr]
    await store.close()


async def test_a_write_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    settings = database.settings()
    database.close(clean=True)
    assert settings == {"journal_mode": "wal", "synchronous": 2}  # 2: FULL, the log is synced by every commit


async def test_writes_built_on_a_failed_write_fail_with_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", max_bytes=400_000)
    big = store.commit([Put("/big", b"x" * 1_000_000)])
    await asyncio.sleep(0)  # sealed: the next one is in another batch
    await asyncio.sleep(0)
    built_on = store.commit([Put("/big", b"small", expect=store.get("/big", pending=True).revision)])  # type: ignore[union-attr]
    results = await asyncio.gather(big, built_on, return_exceptions=True)
    assert [type(result) for result in results] == [Full, Full]
    assert store.get("/big", pending=True) is None
    with pytest.raises(Conflict):
        store.commit([Put("/big", b"", expect=2)])
    await store.commit([Put("/big", b"small", expect=0)])
    await store.close()


async def test_a_ledger_is_rebuilt_when_submitted_writes_are_thrown_away(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db", max_bytes=400_000)
    await store.commit([Put("/quota", b"0"), Put("/pods/a", b"1")])
    used = 1

    def recount() -> None:
        nonlocal used
        used = len(store.range("/pods/").items) + len(store.pending_keys("/pods/"))

    store.on_discard(recount)

    def charge(key: str, value: bytes) -> Awaitable[int]:
        nonlocal used
        used += 1
        return store.commit([Put(key, value)], {"/quota": lambda revision: b"%d" % used})

    writes = [charge("/pods/big", b"x" * 1_000_000)]
    await asyncio.sleep(0)
    writes.append(charge("/pods/built-on-it", b"1"))
    assert used == 3
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [Full, Full]
    assert used == 1
    await charge("/pods/b", b"1")
    assert store.get("/quota").value == b"2"  # type: ignore[union-attr]
    await store.close()


async def test_a_coalesced_value_that_cannot_be_rendered_fails_its_batch(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    await store.commit([Put("/quota", b"0")])

    def broken(revision: int) -> bytes:
        raise ZeroDivisionError("no ledger")

    with pytest.raises(StoreError, match="no ledger"):
        await store.commit([Put("/pods/a", b"1")], {"/quota": broken})
    assert store.get("/pods/a", pending=True) is None
    await store.commit([Put("/pods/a", b"1", expect=0)])
    await store.close()


async def test_a_coalesced_value_never_resurrects_a_key(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    assert await store.commit([], {"/quota": lambda revision: b"used"}) == store.revision
    assert store.get("/quota") is None
    await store.close()


@pytest.mark.parametrize("key", ["", "/pods/\ud800"])
async def test_keys_that_cannot_be_stored_are_refused(tmp_path: Path, key: str) -> None:
    store = Store.open(tmp_path / "state.db")
    with pytest.raises(ValueError):
        store.commit([Put(key, b"")])
    with pytest.raises(ValueError):
        store.commit([Put("/a", b""), Put("/a", b"")])
    await store.close()


def write_until_the_kernel_refuses(path: Path, answer: Connection) -> None:
    async def write() -> None:
        store = Store.open(path)
        await store.commit([Put("/kept", b"1")])
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
        try:
            for n in range(1000):
                await store.commit([Put(f"/pods/{n}", ROW)])
        except ReadOnly as error:
            answer.send((error.lines(), store.get("/kept") is not None))
        try:
            store.commit([Put("/more", b"1")])
        except ReadOnly as error:
            answer.send(error.what)

    asyncio.run(write())


def test_an_io_error_makes_the_store_read_only_with_its_reason(tmp_path: Path) -> None:
    context = nursery()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=write_until_the_kernel_refuses, args=(tmp_path / "state.db", theirs))
    process.start()
    theirs.close()
    lines, readable = ours.recv()
    assert lines[0].startswith("the database is read-only after an I/O error")
    assert lines[2] == "  check the disk, then start again"
    assert readable
    assert ours.recv().startswith("the database is read-only")
    process.join()


def hold(path: Path, answer: Connection) -> None:
    Store.open(path)
    answer.send("open")
    answer.recv()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    context = nursery()
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path / "state.db", theirs))
    process.start()
    assert ours.recv() == "open"
    with pytest.raises(StateError, match=rf"in use by another process \(pid {process.pid}\)"):
        Store.open(tmp_path / "state.db")
    process.kill()
    process.join()
    asyncio.run(Store.open(tmp_path / "state.db").close())


async def test_what_a_dead_server_left_unsynced_is_synced_before_anybody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be told of, and be gone after a power cut: who dies between a write and its sync leaves such a thing."""
    store = Store.open(tmp_path / "state.db")
    await store.commit([Put("/a", b"1")])
    for name, content in files(tmp_path).items():
        (tmp_path / f"left-{name}").write_bytes(content)
    await store.close()
    synced, real = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    found = Store.open(tmp_path / "left-state.db")
    assert synced == ["left-state.db-wal", "left-state.db"]
    assert [item.key for item in found.range("").items] == ["/a"]
    await found.close()
