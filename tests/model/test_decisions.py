"""The record of a pod: one form on the wire, bounded, and no names for those who may not see them."""

from __future__ import annotations

import msgspec
import pytest

from kubeqos.model import decisions as d

WEB = d.PodRef("shop", "web", "u1")


def restart(number: int, container: str = "c") -> d.Restart:
    return d.Restart(
        at=f"2026-11-16T04:00:{number:02}Z", node="n1", container=container, reason="Error", exit_code=number
    )


def test_a_record_reads_back_as_it_was_written() -> None:
    ranking = (d.RankedPod(d.PodRef("other", "db", "u2"), "BestEffort", 1), d.RankedPod(WEB, "within its request"))
    told: tuple[d.AnyDecision, ...] = (
        d.Admission(quotas=(d.QuotaCharge("q", ("BestEffort",), {"pods": "1"}, {"pods": "2"}),)),
        d.Placement(node="n1", because="best", best=(d.NodeScore("n1", 90, {"least used": 90}),)),
        d.NodeAdmission(node="n1", admitted=True, containers=(d.ContainerGrant("c", cpus="0-3"),)),
        d.Eviction(node="n1", reason="Evicted", message="low on memory", signal="memory.available", ranking=ranking),
    )
    record = d.PodDecisions(WEB, told, "n1", gone="2026-11-16T04:00:00Z", object={"kind": "Pod"})
    raw = msgspec.json.decode(msgspec.json.encode(record.wire()))
    assert (raw["kind"], raw["apiVersion"]) == ("PodDecisions", "decisions.kubeqos.io/v1")
    assert raw["metadata"] == {"name": "web", "namespace": "shop", "uid": "u1"}
    assert [one["type"] for one in raw["decisions"]] == ["Admission", "Placement", "NodeAdmission", "Eviction"]
    assert d.PodDecisions.of(raw) == record


def test_what_a_newer_server_says_is_left_out() -> None:
    raw = d.PodDecisions(WEB, (restart(1),)).wire()
    raw["decisions"] = [{"type": "Migration", "to": "n2"}, {**raw["decisions"][0], "mood": "bad"}]
    assert d.PodDecisions.of(raw).decisions == (restart(1),)


def test_the_same_again_counts_and_another_is_added() -> None:
    record = d.merged((), restart(1))
    again = msgspec.structs.replace(restart(1), at="2026-11-16T05:00:00Z")
    (one,) = d.merged(record, again)
    assert (one.times, one.at, one.last) == (2, "2026-11-16T04:00:01Z", "2026-11-16T05:00:00Z")
    assert len(d.merged((one,), restart(2))) == 2


def test_what_came_between_does_not_keep_the_same_from_counting() -> None:
    waiting = d.Waiting(at="a", message="0/1 nodes are available")
    record = d.merged(d.merged((), waiting), restart(1))
    assert [one.times for one in d.merged(record, msgspec.structs.replace(waiting, at="b"))] == [2, 1]


def test_a_record_is_bounded_and_keeps_the_first_of_each_type() -> None:
    record: tuple[d.AnyDecision, ...] = (d.Placement(node="n1"),)
    for number in range(3 * d.MOST_DECISIONS):
        record = d.merged(record, restart(number))
    assert len(record) == d.MOST_DECISIONS
    assert record[0] == d.Placement(node="n1")
    assert record[1] == restart(0)
    assert record[-1] == restart(3 * d.MOST_DECISIONS - 1)


def test_names_of_other_namespaces_are_for_those_who_may_see_them() -> None:
    other, same = d.PodRef("bank", "vault", "u9"), d.PodRef("shop", "db", "u3")
    record = d.PodDecisions(
        WEB,
        (
            d.Preempted(node="n1", preemptor=other),
            d.Preemption(node="n1", victims=(other, same)),
            d.Eviction(node="n1", reason="Evicted", message="m", ranking=(d.RankedPod(other, "x", 1),)),
            restart(1),
        ),
    )
    assert d.seen_by(record, lambda _: True) == record
    preempted, preemption, eviction, last = d.seen_by(record, lambda namespace: namespace != "bank").decisions
    assert isinstance(preempted, d.Preempted) and str(preempted.preemptor) == "a pod of another namespace"
    assert isinstance(preemption, d.Preemption) and preemption.victims == (d.PodRef(), same)
    assert isinstance(eviction, d.Eviction) and eviction.ranking == (d.RankedPod(d.PodRef(), "x", 1),)
    assert last == restart(1)


def test_a_decision_may_not_be_longer_than_is_kept() -> None:
    assert d.fits(restart(1))
    assert not d.fits(d.Waiting(message="x" * d.LONGEST))


@pytest.mark.parametrize("kind", sorted(d.TYPES))
def test_the_schema_names_every_type(kind: str) -> None:
    assert kind in d.json_schema()["$defs"]
