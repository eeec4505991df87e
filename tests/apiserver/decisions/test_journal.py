"""The file of records: what is kept, what goes, and what a damaged file costs."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import NoReturn

import apsw
import pytest

from kubeqos.apiserver.decisions.journal import KEPT_SECONDS, LONGEST_OBJECT, Departed, Journal
from kubeqos.model.decisions import LONGEST, Entry, Placement, PodRef, Waiting


def ref(number: int) -> PodRef:
    return PodRef("default", f"p{number}", f"u{number}")


def placed(number: int, node: str = "n1") -> Entry:
    return Entry(ref(number), Placement(at="t", by="s", node=node))


def test_a_record_outlives_the_process_and_the_pod(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "d.db")
    journal.write([placed(1), Departed(ref(1), "n1", 100.0, b'{"kind":"Pod"}')], 100.0)
    journal.close()
    found = Journal(tmp_path / "d.db").of_uid("u1")
    assert found is not None
    assert (found.pod, found.node, found.gone, found.object) == (
        ref(1),
        "n1",
        "1970-01-01T00:01:40Z",
        {"kind": "Pod"},
    )
    assert [one.by for one in found.decisions] == ["s"]


def test_the_last_of_a_name_is_found_by_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "d.db")
    old, new = PodRef("default", "web", "old"), PodRef("default", "web", "new")
    journal.write([Departed(old, "", 1.0, b"{}")], 1.0)
    journal.write([Departed(new, "", 2.0, b"{}")], 2.0)
    found = journal.last_named("default", "web")
    assert found is not None and found.pod == new
    assert journal.last_named("other", "web") is None
    assert [one.pod for one in journal.listed("", 10)] == [new, old]
    assert [one.pod for one in journal.listed("default", 1)] == [new]


def test_who_is_gone_for_an_hour_is_forgotten_and_who_lives_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "d.db")
    journal.write([placed(1), placed(2), Departed(ref(2), "n1", 0.0, b"{}")], 0.0)
    journal.sweep(KEPT_SECONDS - 1)
    assert len(journal) == 2
    journal.sweep(KEPT_SECONDS + 1)
    assert journal.of_uid("u2") is None
    assert journal.of_uid("u1") is not None


def test_of_too_many_those_go_that_have_not_changed_for_longest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "d.db")
    for number in range(5):
        journal.write([placed(number)], float(number))
    journal.write([placed(0, "n2")], 9.0)
    journal.sweep(10.0, most=2)
    assert {one.pod.name for one in journal.listed("", 10)} == {"p0", "p4"}


def test_what_is_too_long_is_not_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "d.db")
    journal.write([Entry(ref(1), Waiting(message="x" * LONGEST)), placed(2)], 1.0)
    assert journal.of_uid("u1") is None
    journal.write([Departed(ref(2), "n1", 2.0, b'"%s"' % (b"x" * LONGEST_OBJECT))], 2.0)
    found = journal.of_uid("u2")
    assert found is not None and found.gone and found.object is None


def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(b"this is no database, and long enough to be taken for one" * 40)
    journal = Journal(path)
    journal.write([placed(1)], 1.0)
    assert journal.of_uid("u1") is not None
    assert path.with_name("d.db.damaged").exists()


def test_a_file_with_other_tables_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE records (uid TEXT)")
    other.close()
    Journal(path).write([placed(1)], 1.0)
    assert path.with_name("d.db.damaged").exists()


def test_a_log_of_the_damaged_file_is_not_played_into_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    for tail in ("", "-wal", "-journal"):
        path.with_name(path.name + tail).write_bytes(b"this is no database, and long enough to be taken for one" * 40)
    journal = Journal(path)
    journal.write([placed(1)], 1.0)
    journal.close()
    assert Journal(path).of_uid("u1") is not None


def test_a_lock_that_another_holds_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was killed may still have it for a moment: its records are as good as ever."""
    monkeypatch.setattr("kubeqos.apiserver.decisions.journal._BUSY_MILLISECONDS", 50)
    path = tmp_path / "d.db"
    first = Journal(path)
    first.write([placed(1)], 1.0)
    first.close()
    other = apsw.Connection(str(path))
    other.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    other.execute("BEGIN EXCLUSIVE").fetchall()
    locked = Journal(path)
    locked.write([placed(2)], 1.0)
    assert len(locked) == 1, "in memory"
    other.close()
    assert not path.with_name("d.db.damaged").exists()
    assert Journal(path).of_uid("u1") is not None


def test_kills_damage_nothing(tmp_path: Path) -> None:
    """Each life writes until it is killed, at the first moments of the file among others."""
    path, chance = tmp_path / "d.db", Random(23)
    heard, told = os.pipe()
    for life in range(40):
        pid = os.fork()
        if pid == 0:
            write_until_killed(path, life, told)
        if life < 39:
            time.sleep(chance.random() * chance.choice([0.005, 0.02, 0.1]))
        else:
            assert os.read(heard, 1) == b"w"  # on a busy machine none of the others may have come so far
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(heard)
    os.close(told)
    assert len(Journal(path)) > 0
    assert not path.with_name("d.db.damaged").exists()


def write_until_killed(path: Path, life: int, told: int) -> NoReturn:
    try:
        journal = Journal(path)
        for number in itertools.count():
            pod = PodRef("default", f"p{number}", f"{life}-{number}")
            journal.write([Departed(pod, "n1", float(number), os.urandom(5000))], 1.0)
            if number == 0:
                os.write(told, b"w")
            if number % 20 == 19:
                journal.sweep(float(number), 50)
    finally:
        os._exit(1)
    raise AssertionError("unreachable")


def test_without_a_place_for_a_file_records_are_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "missing" / "d.db")
    journal.write([placed(1)], 1.0)
    assert len(journal) == 1
