"""The file: one SQLite table of rows by revision, through APSW.

`Database` is used by the store's two threads on two connections: the writer thread inserts batches and
compacts, the event loop reads history that is no longer in memory. A row's id is its revision and its place
in the transaction, so the table is append-only in revision order and needs one index, by key. Every row
carries a CRC, because SQLite does not notice a flipped bit inside a value.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from kubeqos.checkpoint import sync_directory
from kubeqos.errors import StateError
from kubeqos.store.errors import Full, ReadOnly, StoreError
from kubeqos.store.index import prefix_end
from kubeqos.store.records import Event, Stored

APPLICATION_ID = 0x6B716F73  # "kqos", at offset 68 of the SQLite header
SCHEMA_VERSION = 1
PLACE_BITS = 16  # at most 65,536 keys in one transaction
ROWS_PER_STATEMENT = 1000
COMPACTION_STEP = 500  # revisions per transaction: writes wait behind one step at most
END_OF_TIME = 1 << 46
LAST_TEXT = "\U0010ffff" * 8

SCHEMA = """
CREATE TABLE history (
    id      INTEGER PRIMARY KEY,  -- revision << 16 | place in the transaction
    key     TEXT NOT NULL,
    created INTEGER NOT NULL,     -- revision that created the key
    deleted INTEGER NOT NULL,
    crc     INTEGER NOT NULL,
    value   BLOB NOT NULL
);
CREATE INDEX history_by_key ON history (key, id, deleted);
CREATE TABLE compaction (revision INTEGER NOT NULL);
INSERT INTO compaction VALUES (0);
"""
LIVE_AT = """
    key > :after AND key >= :low AND key < :high AND id <= :upto AND NOT deleted
    AND NOT EXISTS (SELECT 1 FROM history AS n WHERE n.key = h.key AND n.id > h.id AND n.id <= :upto)
"""
NEXT_EVENTS = """
    SELECT id, key, created, deleted, crc, value,
           (SELECT value FROM history AS p WHERE p.key = h.key AND p.id < h.id ORDER BY p.id DESC LIMIT 1)
    FROM history AS h
    WHERE id > :above AND id <= :upto AND +key >= :low AND +key < :high  -- the + keeps to the order of ids
    ORDER BY id LIMIT :limit
"""
FORGET_SUPERSEDED = """
    DELETE FROM history WHERE id IN (
        SELECT older.id FROM history AS newer JOIN history AS older ON older.key = newer.key AND older.id < newer.id
        WHERE newer.id > :above AND newer.id <= :upto)
"""


class Row(NamedTuple):
    """One write as it goes to disk."""

    id: int
    key: str
    created: int
    deleted: bool
    value: bytes

    @property
    def revision(self) -> int:
        return self.id >> PLACE_BITS


def row_id(revision: int, place: int) -> int:
    return revision << PLACE_BITS | place


def last_id(revision: int) -> int:
    return row_id(revision + 1, 0) - 1


def sync_file(path: Path) -> None:
    """What a server wrote that died before it synced is read by the next one, which may tell of it: not before it is
    durable, or it would be gone again when the power is.
    """
    if path.exists():
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise unusable(path, error) from error


class Database:
    """An open database file, locked against every other process."""

    def __init__(self, path: Path, *, max_bytes: int = 0) -> None:
        self.path = path.resolve()
        self._lock = lock_file(self.path)
        try:
            if not self.path.exists() or self.path.stat().st_size == 0:
                refuse_orphaned_log(self.path)
                create_file(self.path)
            check_header(self.path)
            for written in (self.path.with_name(f"{self.path.name}-wal"), self.path):
                sync_file(written)
            self._writer = self._connect(max_bytes)
            self._reader = self._connect(0)
            self._compacted = self._compacted_on_disk()
        except BaseException:
            os.close(self._lock)
            raise

    def _connect(self, max_bytes: int) -> apsw.Connection:
        try:
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            # A file that turns out to be damaged must be left as it was, its write-ahead log included.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(10_000)
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL").fetchall()
            if max_bytes:
                page_size = connection.pragma("page_size")
                connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_size)}").fetchall()
        except apsw.Error as error:
            raise unusable(self.path, error) from error
        return connection

    def close(self, *, clean: bool) -> None:
        """Let go of the file; a clean close folds the write-ahead log into it."""
        if clean:
            self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self._reader.close()
        self._writer.close()
        os.close(self._lock)

    def settings(self) -> dict[str, object]:
        """What SQLite says about how it writes."""
        return {name: self._writer.pragma(name) for name in ("journal_mode", "synchronous")}

    # writer thread

    def insert(self, rows: Sequence[Row]) -> None:
        """All rows or none, durable when this returns."""
        if len(rows) <= ROWS_PER_STATEMENT:
            if rows:
                self._insert_some(rows)
            return
        self._writer.execute("BEGIN IMMEDIATE")
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            self._insert_some(rows[start : start + ROWS_PER_STATEMENT])
        self._writer.execute("COMMIT")

    def _insert_some(self, rows: Sequence[Row]) -> None:
        # One statement for all rows: the interpreter lock is given up and fought for once, not once per row.
        values = ",".join(["(?,?,?,?,?,?)"] * len(rows))
        bindings = [
            field
            for row in rows
            for field in (row.id, row.key, row.created, row.deleted, checksum(row.key, row.value), row.value)
        ]
        self._writer.execute(f"INSERT INTO history VALUES {values}", bindings, can_cache=len(rows) <= 64)

    def explain(self, error: Exception) -> StoreError:
        """End a failed insert: what went wrong, and whether the store can go on.

        A full disk leaves the file as it was. After any other error the kernel may have dropped pages that a
        later sync would report as written (Rebello et al., ATC 2020), so nothing more is written to this
        file.
        """
        with contextlib.suppress(apsw.Error):  # some errors have already rolled it back
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        failure: StoreError
        if isinstance(error, apsw.FullError):
            failure = Full(
                "the disk is full, or the database reached its size limit",
                where=str(self.path),
                remedy="free space or raise the limit, then write again",
            )
        else:
            failure = ReadOnly(
                f"the database is read-only after an I/O error: {error}",
                where=str(self.path),
                remedy="check the disk, then start again",
            )
        failure.__cause__ = error
        return failure

    def compact(self, target: int) -> bool:
        """Forget one step of what revisions up to `target` superseded; False when all of it is done."""
        start, end = self._compacted, min(self._compacted + COMPACTION_STEP, target)
        if start >= end:
            return False
        window = {"above": last_id(start), "upto": last_id(end)}
        with self._writer:
            self._writer.execute(FORGET_SUPERSEDED, window)
            self._writer.execute("DELETE FROM history WHERE id > :above AND id <= :upto AND deleted", window)
            self._writer.execute("UPDATE compaction SET revision = ?", (end,))
        self._compacted = end
        return end < target

    # event loop

    def load(self) -> tuple[list[Stored], int, int]:
        """The newest state of every key in key order, the newest revision and the compacted one."""
        with self._reading():
            newest = self._reader.execute("SELECT max(id) FROM history").get
        items = self.range("", "", 0, END_OF_TIME)
        return items, max(1, self._compacted, (newest or 0) >> PLACE_BITS), self._compacted

    def _compacted_on_disk(self) -> int:
        with self._reading():
            return int(self._reader.execute("SELECT revision FROM compaction").get)

    def range(self, prefix: str, after: str, limit: int, revision: int) -> list[Stored]:
        """Keys as they were at a revision."""
        query = f"SELECT id, key, created, crc, value FROM history AS h WHERE {LIVE_AT} ORDER BY key LIMIT :limit"
        items = []
        with self._reading():
            bindings = {**live_bindings(prefix, after, revision), "limit": limit or -1}
            for row, key, created, crc, value in self._reader.execute(query, bindings):
                self._verify(key, value, crc)
                items.append(Stored(key, value, row >> PLACE_BITS, created))
        return items

    def count(self, prefix: str, after: str, revision: int) -> int:
        """How many keys there were at a revision."""
        query = f"SELECT count(*) FROM history AS h WHERE {LIVE_AT}"
        with self._reading():
            return int(self._reader.execute(query, live_bindings(prefix, after, revision)).get)

    def events(self, prefix: str, after: int, upto: int, limit: int) -> list[Event]:
        """The next events in revision order: about `limit`, never part of a revision."""
        events = self._events(prefix, last_id(after), last_id(upto), limit)
        if len(events) == limit:
            last = events[-1].revision
            whole = [event for event in events if event.revision < last]
            events = whole + self._events(prefix, row_id(last, 0) - 1, last_id(last), -1)
        return events

    def _events(self, prefix: str, above: int, upto: int, limit: int) -> list[Event]:
        bindings = {"above": above, "upto": upto, "low": prefix, "high": text_end(prefix), "limit": limit}
        events = []
        with self._reading():
            for row, key, created, deleted, crc, value, previous in self._reader.execute(NEXT_EVENTS, bindings):
                self._verify(key, value, crc)
                revision = row >> PLACE_BITS
                if deleted:
                    events.append(Event("DELETED", key, value, revision, previous))
                elif created == revision:
                    events.append(Event("ADDED", key, value, revision, None))
                else:
                    events.append(Event("MODIFIED", key, value, revision, previous))
        return events

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise unusable(self.path, error) from error

    def _verify(self, key: str, value: bytes, crc: int) -> None:
        if checksum(key, value) != crc:
            raise damaged(self.path, f"the stored value of {key} does not match its checksum")


def live_bindings(prefix: str, after: str, revision: int) -> dict[str, apsw.SQLiteValue]:
    return {"after": after, "low": prefix, "high": text_end(prefix), "upto": last_id(revision)}


def text_end(prefix: str) -> str:
    return prefix_end(prefix) or LAST_TEXT


def checksum(key: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key.encode()))


def lock_file(path: Path) -> int:
    """Keep every other process away from the database; the kernel lets go when this process dies."""
    try:
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(
            f"cannot open the database: {error.strerror}",
            where=str(path),
            remedy="check that the data directory exists and is writable",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise StateError(
            f"database is in use by another process{f' (pid {owner})' if owner else ''}",
            where=str(path),
            remedy="stop that process or choose another data directory",
        ) from error
    with contextlib.suppress(OSError):  # the number is for people; a full disk must not keep the store from opening
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def create_file(path: Path) -> None:
    """A new database appears whole or not at all: it is made beside its place and renamed."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(str(temporary))
        connection.execute("PRAGMA page_size = 16384")
        with connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute(SCHEMA)
        connection.close()
        os.replace(temporary, path)
        sync_directory(path.parent)
    except (OSError, apsw.Error) as error:
        raise StateError(
            f"cannot create the database: {error}",
            where=str(path),
            remedy="free space or fix the permissions of the data directory",
        ) from error


def check_header(path: Path) -> None:
    """Refuse a file that is not ours before SQLite touches it."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except OSError as error:
        raise StateError(f"cannot read the database: {error.strerror}", where=str(path)) from error
    remedy = "choose another data directory, or move the file away; it was left as it is"
    if header[:16] != b"SQLite format 3\0":
        raise StateError("file is not a database", where=str(path), remedy=remedy)
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise StateError("database was made by another program", where=str(path), remedy=remedy)
    version = int.from_bytes(header[60:64])
    if version > SCHEMA_VERSION:
        raise StateError(
            f"database has format {version}, this kubeqos reads formats up to {SCHEMA_VERSION}",
            where=str(path),
            remedy="use the newer kubeqos that wrote it",
        )


def refuse_orphaned_log(path: Path) -> None:
    """A write-ahead log without its database holds acknowledged writes: a new database would swallow them."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise damaged(path, f"the file is missing or empty, but its write-ahead log {log.name} is there")


def unusable(path: Path, error: apsw.Error | OSError) -> StateError:
    """What an error of SQLite, or of the disk, means for somebody who wants to use the file."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError):
        return damaged(path, str(error))
    if isinstance(error, apsw.FullError):
        return StateError("cannot open the database: the disk is full", where=str(path), remedy="free space")
    return StateError(
        f"cannot open or read the database: {error}",
        where=str(path),
        remedy="check the permissions of the data directory and the health of its disk",
    )


def damaged(path: Path, how: str) -> StateError:
    return StateError(
        f"database is damaged: {how}",
        where=str(path),
        remedy="restore the file from a backup; it was left as it is",
    )
