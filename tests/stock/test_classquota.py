"""Class quota kept by many hands: in every order of their steps a quota is never overrun, and nothing leaks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubeqos.codec import decode_json, encode_json
from kubeqos.rules.conforming import compiled
from kubeqos.stock import classquota
from kubeqos.stock.classquota import (
    RESERVED_SECONDS,
    GivenBack,
    NotCounted,
    NotReserved,
    QuotaExceeded,
    Reservation,
    Settled,
    Stored,
    Unknown,
    Wish,
    Write,
    confirm,
    recount,
    release,
    settle,
)
from kubeqos.stock.definitions import definitions

LEVEL = {"rdt"}


def quota(gold: int = 2, generation: int = 1) -> dict[str, Any]:
    classes = [{"name": "gold", "capacity": gold}, {"name": "bronze"}]
    spec = {"qosResources": {"container": [{"name": "rdt", "classes": classes}]}}
    metadata = {"name": "q", "namespace": "a", "generation": generation, "resourceVersion": "1"}
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": metadata, "spec": spec}


def pod(uid: str, cls: str = "gold", containers: int = 1, phase: str = "Running") -> dict[str, Any]:
    names = [f"c{place}" for place in range(containers)]
    annotations = {f"qos.kubeqos.io/container.{name}": f"rdt={cls}" for name in names}
    return {
        "metadata": {"name": uid, "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": name} for name in names]},
        "status": {"phase": phase},
    }


BY_OLDER_CONTROLLERS = {
    "name": "old",
    "at": "1970-01-01T00:00:30Z",
    "classes": [{"level": "container", "name": "rdt", "class": "gold", "count": 2}],
}
"""What they noted of a reservation, where we write a line."""


def reserve(raw: dict[str, Any], asking: dict[str, Any], level: set[str], now: float) -> object:
    return classquota.reserve(raw, Reservation.of(asking), level, now)


def counted(raw: dict[str, Any]) -> dict[str, int]:
    [one] = raw["status"]["qosResourcesUsage"]["container"]
    return {cls["name"]: cls.get("capacity", 0) for cls in one["classes"]}


def written(raw: dict[str, Any], answer: object) -> dict[str, Any]:
    assert isinstance(answer, Write)
    return {**raw, "status": answer.status}


def fresh(gold: int = 2) -> dict[str, Any]:
    return written(quota(gold), recount(quota(gold), [], 0.0))


def test_a_quota_that_was_never_counted_says_so() -> None:
    assert isinstance(reserve(quota(), pod("1"), LEVEL, 0.0), Unknown)
    assert isinstance(reserve({**fresh(), "metadata": quota(generation=2)["metadata"]}, pod("1"), LEVEL, 0.0), Unknown)


def test_reserved_until_it_is_stored_then_counted_once() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    assert counted(held) == {"gold": 1, "bronze": 0}
    assert isinstance(reserve(held, pod("1"), LEVEL, 0.0), NotCounted), "asked again, it is not counted again"
    stored = written(held, recount(held, [pod("1")], 1.0))
    assert counted(stored) == {"gold": 1, "bronze": 0}
    assert stored["status"]["reserved"] == {}
    assert isinstance(recount(stored, [pod("1")], 2.0), NotCounted)


def test_what_is_over_or_not_listed_is_refused_with_the_numbers() -> None:
    full = written(fresh(), reserve(fresh(), pod("1", containers=2), LEVEL, 0.0))
    over = reserve(full, pod("2"), LEVEL, 0.0)
    assert isinstance(over, QuotaExceeded)
    assert over.message == (
        "exceeded quota: q, requested: container.rdt/gold=1, used: container.rdt/gold=2, limited: container.rdt/gold=2"
    )
    other = reserve(full, pod("2", "silver"), LEVEL, 0.0)
    assert isinstance(other, QuotaExceeded)
    assert "not allowed (allowed: gold, bronze)" in other.message
    assert isinstance(reserve(full, pod("3", "bronze"), LEVEL, 0.0), Write), "without a capacity there is no end"


def test_who_never_came_and_who_ended_give_back() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    early = recount(held, [], RESERVED_SECONDS - 1)
    assert isinstance(early, NotCounted), "its create may still be under way"
    assert counted(written(held, recount(held, [], RESERVED_SECONDS))) == {"gold": 0, "bronze": 0}
    assert counted(written(held, recount(held, [], 1.0, gone=["1"]))) == {"gold": 0, "bronze": 0}, "it came and went"
    stored = written(held, recount(held, [pod("1")], 1.0))
    ended = recount(stored, [pod("1", phase="Succeeded")], 2.0)
    assert counted(written(stored, ended)) == {"gold": 0, "bronze": 0}


def test_what_was_reserved_in_vain_is_given_back_once() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    given = written(held, release(held, "1"))
    assert counted(given) == {"gold": 0, "bronze": 0}
    assert isinstance(release(given, "1"), NotCounted)
    stored = written(held, recount(held, [pod("1")], 1.0))
    assert isinstance(release(stored, "1"), NotCounted), "a pod that is stored keeps its place"


def test_who_was_seen_stored_is_counted_and_no_longer_noted() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    seen = written(held, confirm(held, "1"))
    assert counted(seen) == {"gold": 1, "bronze": 0}
    assert seen["status"]["reserved"] == {}
    assert isinstance(recount(seen, [pod("1")], 1.0), NotCounted), "as a count would have it"
    assert isinstance(confirm(seen, "1"), NotReserved), "counted, or past the webhooks: only a list can tell"
    assert isinstance(confirm(quota(), "1"), Unknown)


def test_a_write_takes_out_who_was_seen_and_is_not_made_for_that() -> None:
    held = written(fresh(9), reserve(fresh(9), pod("1"), LEVEL, 0.0))
    both = settle(held, [Reservation.of(pod("2"))], LEVEL, 0.0, stored=["1", "unknown"])
    assert isinstance(both, Settled)
    assert both.status is not None
    assert list(both.status["reserved"]) == ["2"]
    assert counted({"status": both.status})["gold"] == 2
    assert settle(held, [Reservation.of(pod("1"))], LEVEL, 0.0, stored=["1"]) == Settled((None,), None)
    again = settle(held, [Reservation.of(pod("1")), Reservation.of(pod("2"))], LEVEL, 0.0, stored=["1"])
    assert isinstance(again, Settled)
    assert counted({"status": again.status})["gold"] == 2, "asked about again, it is not counted again"
    told = settle(held, [Stored("1"), Stored("other")], LEVEL, 0.0)
    assert isinstance(told, Settled)
    assert [bool(answer) for answer in told.answers] == [False, True]


def test_what_is_noted_of_a_pod_is_one_line() -> None:
    held = written(fresh(), reserve(fresh(), pod("1", containers=2), LEVEL, 60.0))
    assert held["status"]["reserved"] == {"1": "1970-01-01T00:01:00Z container:rdt=gold*2 1"}


@pytest.mark.parametrize(
    "note",
    [
        BY_OLDER_CONTROLLERS,
        "1970-01-01T00:00:30Z container:rdt=gold*2 old",
        "1970-01-01T00:00:30Z pod:example.com/net=vendor.io/fast*1,container:rdt=gold*2 old",
    ],
    ids=["an object, of older controllers", "a line", "a line with names that have slashes"],
)
def test_notes_are_read_in_every_form(note: object) -> None:
    held = written(quota(9), recount({**quota(9), "status": {"reserved": {"old": note}}}, [], 40.0))
    assert counted(held)["gold"] == 2
    assert held["status"]["reserved"] == {"old": note}
    more = written(held, reserve(held, pod("new"), LEVEL, 40.0))
    assert counted(more)["gold"] == 3
    assert isinstance(reserve(more, pod("old"), LEVEL, 40.0), NotCounted)
    assert counted(written(more, release(more, "old")))["gold"] == 1
    assert counted(written(more, confirm(more, "old")))["gold"] == 3
    assert counted(written(more, recount(more, [pod("old", containers=2)], 41.0)))["gold"] == 3
    late = written(more, recount(more, [], 30.0 + RESERVED_SECONDS))
    assert list(late["status"]["reserved"]) == ["new"]


def test_what_nobody_can_read_is_in_nobodys_way() -> None:
    held = {**fresh(), "status": {**fresh()["status"], "reserved": {"x": "whatever", "y": ""}}}
    assert isinstance(release(held, "x"), Write)
    assert written(held, recount(held, [], 200.0))["status"]["reserved"] == {}


def test_wishes_that_come_together_see_what_those_before_them_took() -> None:
    wishes: list[Wish] = [Reservation.of(pod("probe", containers=2), dry_run=True)]
    wishes += [Reservation.of(pod(uid)) for uid in "123"]
    settled = settle(fresh(), wishes, LEVEL, 0.0)
    assert isinstance(settled, Settled)
    assert settled.answers[:3] == (None, None, None), "of a dry run nothing is kept"
    assert "used: container.rdt/gold=2" in (settled.answers[3] or "")
    assert settled.status is not None
    assert set(settled.status["reserved"]) == {"1", "2"}
    full = {**fresh(), "status": settled.status}
    moved = settle(full, [GivenBack("1"), Reservation.of(pod("3")), Reservation.of(pod("4"))], LEVEL, 0.0)
    assert isinstance(moved, Settled)
    assert [bool(answer) for answer in moved.answers] == [False, False, True]
    assert set((moved.status or {})["reserved"]) == {"2", "3"}
    assert settle(full, [Reservation.of(pod("2"))], LEVEL, 0.0) == Settled((None,), None), "nothing new to write"
    assert isinstance(settle(quota(), wishes, LEVEL, 0.0), Unknown)


def test_an_api_server_of_ours_takes_such_a_status_by_the_short_way() -> None:
    """Walking the schema took most of the time of a write, and pods wait for writes."""
    [raw] = definitions(("qosclassquotas",))
    conforms = compiled(raw["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    held = decode_json(encode_json(written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))))
    assert conforms(held)
    assert conforms({**held, "status": {**held["status"], "reserved": {"1": BY_OLDER_CONTROLLERS}}})
    assert not conforms({**held, "status": {**held["status"], "reserved": "1"}})
    assert not conforms({**held, "status": {**held["status"], "observedGeneration": "1"}})


# -- many hands ----------------------------------------------------------------------------------------------------


class World:
    """An API server with one quota for one class of one, whose writes have a condition, and the pods it has stored."""

    def __init__(self) -> None:
        self.now = 0.0
        self.quota = fresh(gold=1)
        self.pods: dict[str, dict[str, Any]] = {}

    def write(self, read: dict[str, Any], answer: object) -> bool:
        if not isinstance(answer, Write) or read["metadata"] != self.quota["metadata"]:
            return False
        version = int(read["metadata"]["resourceVersion"]) + 1
        self.quota = {
            **read,
            "metadata": {**read["metadata"], "resourceVersion": str(version)},
            "status": answer.status,
        }
        return True

    def webhook(self, *names: str) -> Iterator[None]:
        """Read, reserve for all who wait, and the server stores those that were let in; each at its own time."""
        read = self.quota
        yield
        admitted = self.settle(read, [Reservation.of(pod(name)) for name in names])
        for name, answer in zip(names, admitted or (), strict=admitted is not None):
            yield
            if answer is None:
                self.pods[name] = pod(name)

    def settle(
        self, read: dict[str, Any], wishes: list[Wish], stored: Collection[str] = ()
    ) -> tuple[str | None, ...] | None:
        """What all of them are told, or None where somebody else was faster."""
        settled = settle(read, wishes, LEVEL, self.now, stored)
        assert isinstance(settled, Settled)
        if settled.status is not None and not self.write(read, Write(settled.status)):
            return None
        return settled.answers

    def counter(self) -> Iterator[None]:
        read = self.quota
        yield
        listed = [*self.pods.values()]
        yield
        self.write(read, recount(read, listed, self.now))

    def patient_counter(self) -> Iterator[None]:
        """As above, but what was reserved before is long over by then."""
        self.now += RESERVED_SECONDS
        yield from self.counter()

    def watcher(self) -> Iterator[None]:
        """Sees what is stored, and some time later, by an old copy, takes out what is noted of it."""
        seen = [*self.pods]
        yield
        read = self.quota
        yield
        self.settle(read, [Stored(name) for name in seen])

    def deletion(self, name: str) -> Iterator[None]:
        yield
        self.pods.pop(name, None)

    def audit(self) -> None:
        self.now += RESERVED_SECONDS
        self.write(self.quota, recount(self.quota, self.pods.values(), self.now))


def orders(*steps: int) -> Iterator[tuple[int, ...]]:
    """Every order in which parties with so many steps each can take turns."""
    if not any(steps):
        yield ()
    for party, left in enumerate(steps):
        if left:
            rest = (*steps[:party], left - 1, *steps[party + 1 :])
            for order in orders(*rest):
                yield (party, *order)


@pytest.mark.parametrize(
    "parties",
    [
        lambda world: [world.webhook("a"), world.webhook("b"), world.counter()],
        lambda world: [world.webhook("a"), world.counter(), world.deletion("a")],
        lambda world: [world.webhook("a"), world.webhook("b"), world.deletion("a")],
        lambda world: [world.webhook("a", "b"), world.counter(), world.deletion("a")],
        lambda world: [world.webhook("a"), world.watcher(), world.deletion("a")],
        lambda world: [world.webhook("a"), world.watcher(), world.counter()],
        lambda world: [world.webhook("a"), world.webhook("b"), world.watcher()],
    ],
    ids=[
        "two webhooks and a counter",
        "a counter and a deletion",
        "two webhooks and a deletion",
        "two at once, a counter and a deletion",
        "a watcher and a deletion",
        "a watcher and a counter",
        "two webhooks and a watcher",
    ],
)
def test_in_every_order_the_quota_holds_and_nothing_leaks(parties: Callable[[World], list[Iterator[None]]]) -> None:
    lengths = [sum(1 for _ in party) + 1 for party in parties(World())]
    seen = 0
    for order in orders(*lengths):
        world = World()
        running = parties(world)
        for party in order:
            next(running[party], None)
            assert len(world.pods) <= 1, f"over the quota after {order}"
        world.audit()
        assert counted(world.quota)["gold"] == len(world.pods), f"wrong after {order}"
        seen += 1
    assert seen > 300


def test_a_reservation_outlives_every_request_but_not_the_count_after_it() -> None:
    world = World()
    for _ in world.webhook("a"):
        pass
    del world.pods["a"]  # as if somebody else had refused it
    for _ in world.patient_counter():
        pass
    assert counted(world.quota)["gold"] == 0
    for _ in world.webhook("b"):
        pass
    assert list(world.pods) == ["b"]


REPLICAS = 3
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, REPLICAS - 1), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.integers(0, REPLICAS - 1), st.booleans()),
    st.tuples(st.just("store"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("count"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("see"), st.integers(0, 9), st.booleans()),
)


LET_IN = [("ask", 0, 1), ("commit", 0, True), ("store", 1, 0)]


@given(capacity=st.integers(0, 4), steps=st.lists(STEPS, max_size=60))
@example(capacity=1, steps=[*LET_IN, ("see", 0, True), ("commit", 0, True), ("ask", 1, 1), ("commit", 1, True)])
@example(
    capacity=2,
    steps=[*LET_IN, ("see", 0, False), ("ask", 0, 1), ("commit", 0, True), ("ask", 1, 1), ("commit", 1, True)],
)
def test_replicas_with_old_copies_and_full_queues_never_overrun_a_quota_and_leak_nothing(
    capacity: int, steps: list[tuple[str, int, int]]
) -> None:
    """Each replica keeps a copy, which may be old, and a queue; some that were let in are refused by somebody else.

    The first one leads: it sees pods that are stored, some of them late, after they went.
    """
    world = World()
    world.quota = fresh(capacity)
    copies = [world.quota] * REPLICAS
    queues: list[list[Wish]] = [[] for _ in range(REPLICAS)]
    admitted: list[str] = []
    seen: set[str] = set()
    asked = told = 0
    for what, number, more in steps:
        if what == "ask":
            queues[number] += [Reservation.of(pod(f"p{asked + each}")) for each in range(more)]
            asked += more
        elif what == "commit" and queues[number]:
            copies[number] = world.quota if more else copies[number]
            answers = world.settle(copies[number], queues[number], () if number else seen)
            copies[number] = world.quota
            if answers is None:
                continue  # somebody else was faster: all of them are decided anew
            for wish, answer in zip(queues[number], answers, strict=True):
                admitted += [wish.uid] if answer is None and isinstance(wish, Reservation) else []
            told += sum(isinstance(wish, Reservation) for wish in queues[number])
            queues[number] = []
        elif what == "store" and admitted:
            name = admitted.pop(number % len(admitted))
            if number == 0:
                queues[0].append(GivenBack(name))  # another quota has refused it
            else:
                world.pods[name] = pod(name)
        elif what == "delete" and world.pods:
            del world.pods[sorted(world.pods)[number % len(world.pods)]]
        elif what == "see" and world.pods:
            name = sorted(world.pods)[number % len(world.pods)]
            seen.add(name)
            queues[0] += [Stored(name)] if more else []
        elif what == "count":
            world.write(world.quota, recount(world.quota, world.pods.values(), world.now))
        assert len(world.pods) + len(admitted) <= capacity, "those who were told that they may are never too many"
        assert len(world.pods) + len(admitted) <= counted(world.quota)["gold"], "nobody is forgotten"
    assert told + sum(isinstance(wish, Reservation) for queue in queues for wish in queue) == asked, "all are answered"
    for name in admitted:
        world.pods[name] = pod(name)
    world.audit()
    assert counted(world.quota)["gold"] == len(world.pods) <= capacity
    assert world.quota["status"]["reserved"] == {}
