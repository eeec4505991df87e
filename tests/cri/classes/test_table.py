"""The table of classes: what each event leads to, and what holds whatever happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import decode_json, encode_json
from kubeqos.cri.classes.decisions import Denied, Offers, Wish
from kubeqos.cri.classes.table import ClassTable, Enforce, Found, Missed, Weigh, Withdraw
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level, Place, Subject

OFFERS = {
    "rdt": Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("gold", 1), ClassInfo("bronze")), "bronze"),
    "ulimits": Advertisement("ulimits", Level.CONTAINER, False, (ClassInfo("few", 2),)),
}
GOLD, FEW = Assignment("gold", explicit=True), Assignment("few", explicit=True)
BRONZE, NONE = Assignment("bronze"), Assignment("")
HERE = Place(7, "/here")


def asks(offers: Offers, subject: Subject, annotations: dict[str, str]) -> list[Wish] | Denied:
    return Denied(0, annotations["wrong"]) if "wrong" in annotations else [Wish(*one) for one in annotations.items()]


def subject(id: str = "c1", **more: Any) -> Subject:
    return Subject(Level.CONTAINER, id, "s1", "u1", "team", "web", "main", **more)


def found(id: str = "c1", noted: dict[str, Assignment] | None = None, **more: Any) -> Found:
    return Found(subject(id), noted=Holder(subject(id), noted) if noted is not None else None, **more)


def table() -> ClassTable:
    return ClassTable(OFFERS, asks=asks)


def classes(one: ClassTable, key: str) -> dict[str, Assignment] | None:
    holder = one.holders.get(key)
    return None if holder is None else dict(holder.classes)


def test_a_container_from_its_reservation_to_its_end() -> None:
    node = table()
    held = node.reserve("reserved:1", subject(""), [Wish("rdt", "gold")])
    assert isinstance(held, Holder) and held.classes == {"rdt": GOLD, "ulimits": NONE}
    full = node.reserve("reserved:2", subject(""), [Wish("rdt", "gold")])
    assert isinstance(full, Denied) and full.shortage
    node.made("reserved:1", "c1")
    node.placed("c1", HERE)
    assert node.ended("c1") == [Weigh(subject())]
    assert node.ended("c1") == [], "once"
    held = replace(held, subject=subject(), alive=False)
    assert node.gone("c1") == [Withdraw("c1", held), Weigh(subject())]
    assert node.validate() == [] and not len(node.holders)
    assert node.story("u1") == [
        "main reserved: rdt=gold",
        "main refused: insufficient class 'gold' of QoS resource 'rdt': capacity 1, in use 1",
        "main made: rdt=gold",
        "main placed: rdt=gold",
        "main ended: rdt=gold",
        "main gone",
    ]


def test_room_belongs_first_to_whom_it_was_given_then_to_the_oldest() -> None:
    gold = {"rdt": "gold"}
    given = found("given", {"rdt": GOLD}, created_at=9)
    old = found("old", pod_annotations=gold, created_at=1)
    node = table()
    effects = node.synchronize([old, given])
    assert effects == [
        Missed(old.subject, "insufficient class 'gold' of QoS resource 'rdt': capacity 1, in use 1"),
        Enforce("given"),
    ]
    assert classes(node, "given") == {"rdt": GOLD, "ulimits": NONE}
    node = table()
    node.synchronize([found("young", pod_annotations=gold, created_at=2), old])
    assert classes(node, "old") == {"rdt": GOLD, "ulimits": NONE} and classes(node, "young") is None


def test_who_misses_something_gets_the_rest_of_what_it_asked_for_and_is_told_of_once() -> None:
    node = table()
    late = found(pod_annotations={"rdt": "gold", "ulimits": "few"})
    reason = "container 'main' of pod team/web started without its class ulimits=few, which cannot be entered later"
    assert node.synchronize([late]) == [Missed(late.subject, reason), Enforce("c1")]
    assert classes(node, "c1") == {"rdt": GOLD}
    assert node.synchronize([late]) == []
    assert node.dump() == {}, "whoever comes next has to tell of it again"
    nothing = found("c2", pod_annotations={"wrong": "what is that?"})
    assert node.synchronize([late, nothing]) == [Missed(nothing.subject, "what is that?")]
    assert classes(node, "c2") is None


def test_what_has_ended_is_told_of_by_nobody() -> None:
    node = table()
    assert node.synchronize([found(pod_annotations={"ulimits": "few", "rdt": "no"}, alive=False, running=False)]) == []
    assert node.holders.used("ulimits", "few") == 0


def test_what_cannot_carry_a_note_may_be_ours() -> None:
    node = table()
    assert node.synchronize([found(pod_annotations={"ulimits": "few"}, can_be_noted=False)]) == [Enforce("c1")]
    assert node.holders.used("ulimits", "few") == 1


def test_only_who_was_here_when_the_runtime_was_asked_can_have_gone() -> None:
    node = table()
    node.synchronize([found("old")])
    before = node.known()
    node.reserve("reserved:1", subject(""), [])
    node.made("reserved:1", "new")
    node.synchronize([], before)
    assert node.known() == ["new"]


def test_after_a_reconnection_everybody_is_let_in_again_with_the_amounts_of_now() -> None:
    node = table()
    node.synchronize([found()])
    now = replace(found(place=HERE), subject=subject(cpu_shares=512))
    assert node.synchronize([now]) == []
    assert node.synchronize([now], again=True) == [Enforce("c1", HERE)]
    held = node.holders.get("c1")
    assert held is not None and held.subject.cpu_shares == 512


def test_a_class_whose_provider_is_away_waits_for_it() -> None:
    turbo = {"turbo": Assignment("high", explicit=True), "heat": Assignment("low")}
    node = table()
    node.synchronize([found(noted=turbo)])
    assert classes(node, "c1") == {"rdt": BRONZE, "ulimits": NONE, "turbo": Assignment("high", explicit=True)}


IDS = ("a", "b", "c", "d")
ASKED = st.fixed_dictionaries(
    {}, optional={"rdt": st.sampled_from(["gold", "bronze", "purple"]), "ulimits": st.just("few")}
)
NOTES = st.none() | st.fixed_dictionaries({}, optional={"ulimits": st.just(FEW)})
WORLD = st.fixed_dictionaries(
    {
        id: st.builds(
            lambda asked, noted, age, can, id=id: found(
                id, noted, pod_annotations=asked, created_at=age, can_be_noted=can
            ),
            ASKED, NOTES, st.integers(0, 3), st.booleans(),
        )
        for id in IDS
    }
)  # fmt: skip
STEPS = st.tuples(st.sampled_from(["come", "run", "end", "go", "create", "leave"]), st.sampled_from(IDS))


def alive(node: ClassTable) -> dict[str, Holder]:
    return {key: holder for key, holder in node.holders if holder.alive}


@settings(max_examples=200)
@given(WORLD, st.lists(STEPS, max_size=20))
def test_no_class_is_overrun_and_whoever_comes_back_knows_the_same(
    world: dict[str, Found], steps: list[tuple[str, str]]
) -> None:
    node, there = table(), dict[str, Found]()
    for what, id in steps:
        match what:
            case "come" if id not in there:
                there[id] = replace(world[id], running=False)
            case "run" if id in there and there[id].alive:
                there[id] = replace(there[id], running=True)
            case "end" if id in there:
                there[id] = replace(there[id], alive=False, running=False)
            case "go":
                there.pop(id, None)
            case "create" if id not in there and not isinstance(
                made := node.reserve(id, subject(id), [Wish("rdt", "gold")]), Denied
            ):
                there[id] = found(id, dict(made.classes))
            case "leave":
                node = ClassTable(OFFERS, ClassHolders.load(decode_json(encode_json(node.dump()))), asks)
        had = node.holders.used("ulimits", "few")
        given = sum(bool(one.noted and one.noted.classes.get("ulimits") == FEW) for one in there.values() if one.alive)
        node.synchronize(list(there.values()))
        assert node.synchronize(list(there.values())) == [] and node.validate() == []
        assert node.holders.used("rdt", "gold") <= 1
        # Who was given a class keeps it, however many they are.
        assert node.holders.used("ulimits", "few") <= max(2, given, had)
        again = ClassTable(OFFERS, ClassHolders.load(decode_json(encode_json(node.dump()))), asks)
        again.synchronize(list(there.values()))
        kept = {key: one for key, one in alive(node).items() if key in node.dump()}
        assert {key: alive(again).get(key) for key in kept} == kept, "with its file"
        from_notes = table()
        from_notes.synchronize(list(there.values()))
        assert {key for key in kept if there[key].noted} <= set(alive(from_notes)), "and without it"
