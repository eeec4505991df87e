"""What the relay decides, without any runtime: grants, changes, reloads, and the laws they keep."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.classes.decisions import (
    ClassChange,
    Denied,
    Follow,
    Move,
    Wish,
    adopted,
    annotation_wishes,
    assigned,
    broken_promises,
    change,
    follow,
    grant,
    unanswered,
)
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level, Place, Subject
from kubeqos.cri.status import FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED

GOLD, SILVER = ClassInfo("gold", 2), ClassInfo("silver")
OPEN = frozenset({"gold", "silver"})
RDT = Advertisement(
    "rdt", Level.CONTAINER, True, (GOLD, SILVER), "silver", "rdt", frozenset({"gold"}), by_annotation=OPEN
)
FIXED = Advertisement("ulimits", Level.CONTAINER, False, (GOLD, SILVER))
NET = Advertisement("net", Level.POD, False, (ClassInfo("fast"), ClassInfo("slow")), "slow")
OFFERS = {offer.name: offer for offer in (RDT, FIXED, NET)}
PLACE = Place(7, "/pod/c")


def offers(*changed: Advertisement, without: str = ""):
    return {n: o for n, o in (OFFERS | {o.name: o for o in changed}).items() if n != without}


def container(key: str = "c1", place: Place | None = PLACE, **classes: str) -> Holder:
    chosen = {name: Assignment(value, explicit=True) for name, value in classes.items()}
    implicit = {"rdt": Assignment("silver"), "ulimits": Assignment("")}
    return Holder(Subject(Level.CONTAINER, key, container_name=key), {**implicit, **chosen}, place=place)


def holding(*each: Holder) -> ClassHolders:
    holders = ClassHolders()
    for holder in each:
        holders.put(holder.subject.id, holder)
    return holders


def test_requested_classes_and_the_defaults_of_the_rest():
    assert grant(OFFERS, ClassHolders(), Level.CONTAINER, [Wish("ulimits", "gold")]) == {
        "rdt": Assignment("silver"),
        "ulimits": Assignment("gold", explicit=True),
    }
    assert grant(OFFERS, ClassHolders(), Level.POD, []) == {"net": Assignment("slow")}


@pytest.mark.parametrize(
    ("wishes", "code", "text"),
    [
        ([Wish("rdt", "platinum")], INVALID_ARGUMENT, "unavailable class 'platinum' of QoS resource 'rdt'"),
        ([Wish("rdt", "")], INVALID_ARGUMENT, "known here: gold, silver"),
        ([Wish("rtd", "gold")], INVALID_ARGUMENT, "type 'rtd' (qos_resources): did you mean 'rdt'?"),
        ([Wish("net", "fast")], INVALID_ARGUMENT, "request it in PodSandboxConfig.qos_resources"),
        ([Wish("rdt", "gold"), Wish("rdt", "silver")], INVALID_ARGUMENT, "'rdt' is requested twice"),
    ],
)
def test_what_cannot_be_granted_says_why(wishes, code, text):
    denied = grant(OFFERS, ClassHolders(), Level.CONTAINER, wishes)
    assert isinstance(denied, Denied)
    assert denied.code == code
    assert text in denied.message


def test_a_full_class_is_a_shortage():
    full = holding(container("a", rdt="gold"), container("b", rdt="gold"))
    denied = grant(OFFERS, full, Level.CONTAINER, [Wish("rdt", "gold")])
    assert isinstance(denied, Denied)
    assert (denied.code, denied.shortage) == (RESOURCE_EXHAUSTED, True)
    assert not isinstance(grant(OFFERS, full, Level.CONTAINER, [Wish("rdt", "silver")]), Denied)


def test_pod_qos_never_fails_a_request_and_is_never_assigned():
    for level in Level:
        assert "pod-qos" not in grant(OFFERS, ClassHolders(), level, [Wish("pod-qos", "Guaranteed")])


ANNOTATIONS = [
    ({}, {}, None),
    ({"io.kubernetes.cri.rdt-class": "silver"}, {"rdt.resources.beta.kubernetes.io/pod": "x"}, "silver"),
    ({}, {"rdt.resources.beta.kubernetes.io/container.main": "silver",
          "rdt.resources.beta.kubernetes.io/pod": "x"}, "silver"),
    ({}, {"rdt.resources.beta.kubernetes.io/pod": "silver"}, "silver"),
    ({}, {"rdt.resources.beta.kubernetes.io/container.other": "silver"}, None),
    ({"io.kubernetes.cri.rdt-class": "gold"}, {}, "gold"),
]  # fmt: skip


@pytest.mark.parametrize(("own", "pod", "expected"), ANNOTATIONS)
def test_annotations_by_precedence(own, pod, expected):
    wishes = annotation_wishes(OFFERS, "main", own, pod)
    assert not isinstance(wishes, Denied)
    assert [wish.class_name for wish in wishes] == ([expected] if expected else [])


def test_a_class_may_be_closed_to_pod_annotations():
    denied = annotation_wishes(OFFERS, "main", {}, {"rdt.resources.beta.kubernetes.io/pod": "gold"})
    assert isinstance(denied, Denied)
    assert "may not be requested with annotation" in denied.message


def test_annotations_open_nothing_by_themselves():
    closed = offers(dataclasses.replace(RDT, by_annotation=frozenset()))
    assert annotation_wishes(closed, "main", {"io.kubernetes.cri.rdt-class": "silver"}, {}) == []
    partly = offers(dataclasses.replace(RDT, by_annotation=frozenset({"silver"})))
    denied = annotation_wishes(partly, "main", {"io.kubernetes.cri.rdt-class": "gold"}, {})
    assert isinstance(denied, Denied)
    assert denied.message == ("class 'gold' of 'rdt' may not be requested with annotation io.kubernetes.cri.rdt-class")


def test_annotations_that_nobody_answers_are_told():
    closed = offers(dataclasses.replace(RDT, by_annotation=frozenset()))
    asking = {
        "rdt.resources.beta.kubernetes.io/pod": "gold",
        "net.resources.beta.kubernetes.io/container.main": "fast",
        "example.com/note": "x",
        "blockio.resources.beta.kubernetes.io/pod": "",
    }
    assert unanswered(closed, {"io.kubernetes.cri.turbo-class": "on"}, asking) == [
        ("rdt.resources.beta.kubernetes.io/pod", "'rdt' gives no class to annotations; name some under `annotations`"),
        ("net.resources.beta.kubernetes.io/container.main", "no resource here is asked for with annotations of 'net'"),
        ("io.kubernetes.cri.turbo-class", "no resource here is asked for with annotations of 'turbo'"),
    ]
    assert unanswered(OFFERS, {}, {"rdt.resources.beta.kubernetes.io/pod": "gold"}) == []
    misspelt = "rdt.resources.beta.kubernetes.io/containers.main"
    assert unanswered(OFFERS, {}, {misspelt: "gold"}) == [
        (misspelt, "it names neither pod nor container.NAME: 'containers.main'")
    ]


def test_the_cri_field_wins_over_annotations():
    granted = grant(
        OFFERS, ClassHolders(), Level.CONTAINER, [Wish("rdt", "silver")], [Wish("rdt", "gold", "annotation")]
    )
    assert not isinstance(granted, Denied)
    assert granted["rdt"] == Assignment("silver", explicit=True)


def test_a_change_moves_only_what_differs():
    holder = container(rdt="gold", ulimits="gold")
    wishes = [Wish("rdt", "silver"), Wish("ulimits", "gold")]
    done = change(OFFERS, holding(holder), "c1", holder, wishes, holder.subject)
    assert isinstance(done, ClassChange)
    assert done.moves == (Move("c1", "rdt", "gold", "silver"),)
    assert done.holder.classes["rdt"] == Assignment("silver", explicit=True)


def test_an_immutable_resource_stops_the_whole_change():
    holder = container(rdt="gold", ulimits="gold")
    wishes = [Wish("rdt", "silver"), Wish("ulimits", "silver")]
    denied = change(OFFERS, holding(holder), "c1", holder, wishes, holder.subject)
    assert isinstance(denied, Denied)
    assert denied.code == FAILED_PRECONDITION
    assert "immutable" in denied.message


def test_asking_for_the_class_one_has_by_default_is_charged_but_moves_nothing():
    holder = container()
    done = change(OFFERS, holding(holder), "c1", holder, [Wish("rdt", "silver")], holder.subject)
    assert isinstance(done, ClassChange)
    assert done.moves == ()
    assert done.holder.classes["rdt"].explicit


def test_a_full_class_takes_nobody_by_update_but_keeps_its_own():
    first, second, third = (container(key, rdt="gold") for key in "abc")
    third = dataclasses.replace(third, classes={"rdt": Assignment("silver", explicit=True)})
    holders = holding(first, second, third)
    assert isinstance(change(OFFERS, holders, "c", third, [Wish("rdt", "gold")], third.subject), Denied)
    assert isinstance(change(OFFERS, holders, "a", first, [Wish("rdt", "gold")], first.subject), ClassChange)


def test_status_shows_every_resource_of_the_level():
    assert assigned(OFFERS, Level.CONTAINER, container(rdt="gold")) == [("rdt", "gold"), ("ulimits", "")]
    assert assigned(OFFERS, Level.POD, None) == [("net", "")]


def test_who_was_there_before_gets_the_defaults_that_can_still_be_enforced():
    defaults = offers(dataclasses.replace(FIXED, default="gold"))
    one = Subject(Level.CONTAINER)
    assert adopted(defaults, one, running=True) == {"rdt": Assignment("silver"), "ulimits": Assignment("")}
    assert adopted(defaults, one, running=False)["ulimits"] == Assignment("gold")
    withheld = offers(dataclasses.replace(RDT, handlers={"kata": frozenset({"gold"})}))
    assert adopted(withheld, dataclasses.replace(one, runtime_handler="kata"), True)["rdt"] == Assignment("")


def test_an_unchanged_configuration_changes_nothing():
    for holder in (container(), container(rdt="gold")):
        assert follow(OFFERS, OFFERS, "c1", holder) == Follow(holder)


def test_a_new_default_moves_those_who_asked_for_nothing():
    new = offers(dataclasses.replace(RDT, default="gold"))
    done = follow(OFFERS, new, "a", container("a"))
    assert done.leave == (Move("a", "rdt", "silver", ""),)
    assert done.enter == (Move("a", "rdt", "", "gold"),)
    asked = container("b", rdt="silver")
    assert follow(OFFERS, new, "b", asked) == Follow(asked)


def test_a_new_type_takes_running_containers_in_only_if_they_can_be_moved():
    extra = Advertisement("extra", Level.CONTAINER, True, (SILVER,), "silver")
    stiff = Advertisement("stiff", Level.CONTAINER, False, (SILVER,), "silver")
    running = follow(OFFERS, offers(extra, stiff), "a", container("a"))
    assert running.enter == (Move("a", "extra", "", "silver"),)
    assert running.holder.classes["stiff"] == Assignment("")
    created = follow(OFFERS, offers(extra, stiff), "b", container("b", place=None))
    assert created.enter == ()
    assert created.holder.classes["stiff"] == Assignment("silver")


def test_a_removed_type_is_left_by_those_who_did_not_ask():
    done = follow(OFFERS, offers(without="rdt"), "a", container("a"))
    assert done.leave == (Move("a", "rdt", "silver", ""),)
    assert "rdt" not in done.holder.classes


def test_what_was_asked_of_a_provider_that_is_away_waits_for_its_return():
    without = offers(without="rdt")
    waiting = follow(without, without, "a", container("a", rdt="gold"))
    assert waiting == Follow(container("a", rdt="gold"))
    back = follow(without, OFFERS, "a", container("a", rdt="gold"))
    assert (back.leave, back.enter) == ((), (Move("a", "rdt", "", "gold"),))


def test_redefined_classes_are_left_and_entered_again():
    done = follow(OFFERS, OFFERS, "a", container("a", rdt="gold"), redefined=("rdt",))
    assert (done.leave, done.enter) == ((Move("a", "rdt", "gold", ""),), (Move("a", "rdt", "", "gold"),))


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (offers(without="rdt"), "class 'gold' of 'rdt' is gone but still holds 2, among them container 'a'"),
        (offers(dataclasses.replace(RDT, classes=(SILVER,))), "class 'gold' of 'rdt' is gone but still holds 2"),
        (offers(dataclasses.replace(RDT, level=Level.POD)), "is gone but still holds 2"),
    ],
)
def test_a_promise_is_not_broken_by_a_new_configuration(new, text):
    refusals = broken_promises(OFFERS, new, holding(container("a", rdt="gold"), container("b", rdt="gold")))
    assert text in refusals[0]
    assert broken_promises(OFFERS, new, holding(container("a"), container("b"))) == []


CLASS = st.sampled_from(["gold", "silver", "bronze", ""])
NAME = st.sampled_from(["rdt", "ulimits", "net", "pod-qos", "nothing"])
WISHES = st.lists(st.builds(Wish, NAME, CLASS), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["create", "update", "end"]), st.integers(0, 5), WISHES), max_size=25))
@settings(max_examples=150)
def test_no_history_overfills_a_class(history):
    """Whatever is created, updated and ended: capacity holds, and only offered classes are given."""
    holders = ClassHolders()
    for action, number, wishes in history:
        key, holder = f"c{number}", holders.get(f"c{number}")
        if action == "create":
            granted = grant(OFFERS, holders, Level.CONTAINER, wishes)
            if holder is None and not isinstance(granted, Denied):
                holders.put(key, Holder(Subject(Level.CONTAINER, key), granted))
        elif holder is not None and action == "update":
            done = change(OFFERS, holders, key, holder, wishes, holder.subject)
            if isinstance(done, ClassChange):
                holders.put(key, done.holder)
        else:
            holders.remove(key)
        holders.validate()
        for offer in OFFERS.values():
            for info in offer.classes:
                assert not info.capacity or holders.used(offer.name, info.name) <= info.capacity
        for _, known in holders:
            assert all(a.class_name in ("", "gold", "silver") for a in known.classes.values())


@given(default=st.sampled_from(["", "gold", "silver"]), mutable=st.booleans(), started=st.booleans(), asked=CLASS)
@settings(max_examples=60)
def test_taking_on_a_configuration_twice_is_taking_it_on_once(default, mutable, started, asked):
    new = offers(dataclasses.replace(RDT, default=default, mutable=mutable))
    wanted = {"rdt": asked} if asked in ("gold", "silver") else {}
    holder = container("a", place=PLACE if started else None, **wanted)
    once = follow(OFFERS, new, "a", holder).holder
    assert follow(new, new, "a", once) == Follow(once)
