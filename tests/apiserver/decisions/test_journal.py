"""The file of records: what is kept, what goes, and what a damaged file costs."""

from __future__ import annotations

from pathlib import Path

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


def test_without_a_place_for_a_file_records_are_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "missing" / "d.db")
    journal.write([placed(1)], 1.0)
    assert len(journal) == 1
