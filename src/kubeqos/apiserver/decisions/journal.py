"""The file of decision records: one row per pod, bounded, through APSW. Used by one thread, the keeper's own.

A crash loses the last half second. A file that is damaged is set aside and begun anew, one that cannot be opened now
stays as it is: records are worth no refusal to start, and no hasty judgement.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from kubeqos.codec import decode_json, encode_json
from kubeqos.logs import logger
from kubeqos.model.decisions import AnyDecision, Entry, PodDecisions, PodRef, fits, merged, read_decisions
from kubeqos.model.timestamps import timestamp

KEPT_SECONDS = 3600.0
"""How long the record of a pod is kept that is gone."""
MOST_RECORDS = 20_000
LONGEST_OBJECT = 256 << 10
"""Bytes of a pod that is gone; longer ones are not kept."""
_BUSY_MILLISECONDS = 10_000
"""How long whoever has the file is waited for: a server that was killed may still be on its way out."""
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError)
"""What says that the file itself is wrong: its pages, or the tables in it."""
_MOST_PAGES = (256 << 20) // 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    uid       TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    node      TEXT NOT NULL,
    changed   REAL NOT NULL,
    gone      REAL,
    object    BLOB,             -- of a pod that is gone, compressed
    decisions BLOB NOT NULL     -- JSON
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_by_name ON records (namespace, name);
CREATE INDEX IF NOT EXISTS records_by_age ON records (changed);
"""
_COLUMNS = "uid, namespace, name, node, gone, object, decisions"
log = logger("kubeqos.apiserver")


@dataclass(frozen=True, slots=True)
class Departed:
    """A pod that is gone, or was never taken: what was last known of it."""

    pod: PodRef
    node: str
    at: float
    value: bytes


Item = Entry | Departed


class Journal:
    """The records of one API server."""

    def __init__(self, path: Path) -> None:
        self._connection = _opened(path)

    def write(self, items: Iterable[Item], now: float) -> bool:
        """Keep what was gathered, in one transaction."""
        with self._connection:
            for item in items:
                if isinstance(item, Departed):
                    self._depart(item)
                elif fits(item.decision):
                    self._add(item, now)
        return True

    def _add(self, entry: Entry, now: float) -> None:
        pod, decision = entry.pod, entry.decision
        row = self._connection.execute("SELECT decisions FROM records WHERE uid = ?", (pod.uid,)).fetchone()
        known: tuple[AnyDecision, ...] = read_decisions(row[0]) if row else ()
        node = getattr(decision, "node", "")
        self._connection.execute(
            "INSERT INTO records (uid, namespace, name, node, changed, decisions) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (uid) DO UPDATE SET changed = excluded.changed, decisions = excluded.decisions, "
            "node = CASE WHEN excluded.node = '' THEN node ELSE excluded.node END",
            (pod.uid, pod.namespace, pod.name, node, now, encode_json(merged(known, decision))),
        )

    def _depart(self, one: Departed) -> None:
        packed = zlib.compress(one.value, 1) if len(one.value) <= LONGEST_OBJECT else None
        self._connection.execute(
            "INSERT INTO records (uid, namespace, name, node, changed, gone, object, decisions) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, '[]') ON CONFLICT (uid) DO UPDATE "
            "SET changed = excluded.changed, gone = excluded.gone, object = excluded.object, node = excluded.node",
            (one.pod.uid, one.pod.namespace, one.pod.name, one.node, one.at, one.at, packed),
        )

    def of_uid(self, uid: str) -> PodDecisions | None:
        return next(self._read("WHERE uid = ?", uid), None)

    def last_named(self, namespace: str, name: str) -> PodDecisions | None:
        """The last pod of this name."""
        return next(self._read("WHERE namespace = ? AND name = ? ORDER BY changed DESC LIMIT 1", namespace, name), None)

    def listed(self, namespace: str, limit: int) -> list[PodDecisions]:
        """Those that changed last; of one namespace, or of all."""
        where = "WHERE namespace = ? " if namespace else ""
        order = f"{where}ORDER BY changed DESC LIMIT ?"
        return list(self._read(order, *([namespace] if namespace else []), limit, objects=False))

    def node_of(self, uid: str) -> str | None:
        """The node of a pod that is known here."""
        row = self._connection.execute("SELECT node FROM records WHERE uid = ?", (uid,)).fetchone()
        return str(row[0]) if row else None

    def sweep(self, now: float, most: int = MOST_RECORDS) -> None:
        """Forget those that are gone for too long, and of too many those that have not changed for longest."""
        with self._connection:
            self._connection.execute("DELETE FROM records WHERE gone < ?", (now - KEPT_SECONDS,))
            self._connection.execute(
                "DELETE FROM records WHERE uid IN (SELECT uid FROM records ORDER BY changed DESC LIMIT -1 OFFSET ?)",
                (most,),
            )

    def __len__(self) -> int:
        return sum(1 for _ in self._connection.execute("SELECT uid FROM records"))

    def close(self) -> None:
        self._connection.close()

    def _read(self, where: str, *values: str | int, objects: bool = True) -> Iterator[PodDecisions]:
        for row in self._connection.execute(f"SELECT {_COLUMNS} FROM records {where}", values):
            uid, namespace, name, node, gone, packed, decisions = row
            yield PodDecisions(
                PodRef(namespace, name, uid),
                read_decisions(decisions),
                node,
                "" if gone is None else timestamp(gone),
                decode_json(zlib.decompress(packed)) if packed is not None and objects else None,
            )


def _opened(path: Path) -> apsw.Connection:
    """The file; a new one where it is damaged, and one in memory where it cannot be had now."""
    for _ in range(2):
        try:
            return _connected(str(path))
        except _DAMAGED as error:
            log.warning("the decision records cannot be used, and begin anew", path=str(path), error=str(error))
            _set_aside(path)
        except apsw.Error as error:
            # A lock that somebody holds, a full or broken disk: none of it says anything about the records.
            log.warning("the decision records stay in memory for now", path=str(path), error=str(error))
            break
    return _connected(":memory:")


def _set_aside(path: Path) -> None:
    """With everything that belongs to it: a log that is left would be played into the next file of the name."""
    with contextlib.suppress(OSError):
        path.rename(path.with_name(path.name + ".damaged"))
    for tail in ("-wal", "-shm", "-journal"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + tail).unlink()


def _connected(name: str) -> apsw.Connection:
    connection = apsw.Connection(name)
    try:
        connection.set_busy_timeout(_BUSY_MILLISECONDS)
        # A checkpoint is synced, a commit is not: whole after a crash, though a little older.
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", f"max_page_count = {_MOST_PAGES}"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        connection.execute(_SCHEMA)
        connection.execute(f"SELECT {_COLUMNS} FROM records LIMIT 1").fetchall()
    except apsw.Error:
        # Now, not when it is collected: the last one to close a file removes the log of that name.
        connection.close()
        raise
    return connection
