"""Telling containers their CPUs in any order that is safe, while some of them cannot be told.

The law: whoever may still have a CPU keeps those from being told of it who own it, and delays nobody else.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.updates.pending import Owed, OwedUpdates
from kubeqos.plugins.managers import ContainerKind, ContainerRef, Grant, Update
from kubeqos.topology.answers import Refused
from kubeqos.topology.changes import Held, plan_changes

ALL = CpuSet.parse("0-7")


def key(name: str) -> tuple[str, str]:
    return name, "main"


def update(name: str, cpus: str) -> Update:
    return Update(ContainerRef(name, "main", ContainerKind.APP, 0), Grant({"cpuset_cpus": cpus}))


def owing(*changes: tuple[str, str], **has: str) -> OwedUpdates:
    owed = OwedUpdates(ALL)
    for name, cpus in has.items():
        owed.has(key(name), CpuSet.parse(cpus))
    add(owed, *changes)
    return owed


def add(owed: OwedUpdates, *changes: tuple[str, str]) -> None:
    for one in owed.add(update(*change) for change in changes):
        one.recorded = True


def ready(owed: OwedUpdates) -> dict[str, Owed]:
    """What may be sent now, by pod."""
    return {one.ref.pod_uid: one for one in [owed.next(each.key) for each in list(owed)] if one is not None}


def test_who_gains_waits_for_who_loses_and_for_nobody_else() -> None:
    owed = owing(("web", "2-7"), ("owner", "0-1"), ("other", "5-6"), web="0-7", owner="1", other="5")
    first = ready(owed)
    assert first.keys() == {"web", "other"}, "web keeps 5-6, which it shares"
    assert owed.told(first["web"]) == [key("web"), key("owner")]
    assert ready(owed).keys() == {"owner"}


def test_nobody_is_told_before_the_ledger_knows() -> None:
    owed = OwedUpdates(ALL)
    [one] = owed.add([update("web", "2-7")])
    assert owed.next(key("web")) is None
    one.recorded = True
    assert owed.next(key("web")) is one


def test_a_container_that_starts_is_told_afterwards_and_only_those_who_get_its_cpus_wait() -> None:
    owed = owing(("web", "2-7"), web="0-7")
    owed.hold(key("web"))
    assert ready(owed) == {}
    assert [one.key for one in owed.in_the_way("owner", CpuSet.parse("0-1"))] == [key("web")]
    assert owed.in_the_way("another", CpuSet.parse("2-7")) == []
    assert owed.in_the_way("web", CpuSet.parse("0-1")) == [], "containers of one pod are no strangers"
    owed.let_go(key("web"))
    owed.told(ready(owed)["web"])
    assert not owed and owed.in_the_way("owner", CpuSet.parse("0-1")) == []


def test_what_a_container_may_have_is_everything_until_it_is_known() -> None:
    owed = owing(("found", "2-7"))
    assert owed.in_the_way("owner", CpuSet.parse("1"))


def test_updates_that_could_not_be_sent_become_one() -> None:
    owed = owing(("web", "2-7"), ("web", "4-7"), ("web", "6-7"), web="0-7")
    assert [str(one.cpus) for one in owed] == ["6-7"]
    assert owed.in_the_way("owner", CpuSet.parse("4"))
    owed.hold(key("web"))
    add(owed, ("web", "0-7"))
    assert owed.in_the_way("owner", CpuSet.parse("4")) == [], "nothing is to be given up any more"


def test_a_failure_is_kept_and_tried_again() -> None:
    owed = owing(("web", "2-7"), ("owner", "0-1"), web="0-7", owner="1")
    owed.failed(ready(owed)["web"], RemoteError("no"))
    assert ready(owed) == {} and owed.in_the_way("owner", CpuSet.parse("0"))[0].error is not None
    assert set(owed.retry()) == {key("web"), key("owner")}
    assert ready(owed).keys() == {"web"}


def test_a_new_container_has_what_it_should_have() -> None:
    owed = owing(("web", "2-7"), ("owner", "0-1"), web="0-7", owner="1")
    late = ready(owed)["web"]
    assert owed.has(key("web"), CpuSet.parse("2-7")) == [key("owner")]
    assert owed.told(late) == [], "nobody cares for the old one any more"
    assert ready(owed).keys() == {"owner"}
    assert owed.gone("owner") == [] and not owed


# ---- Laws

SHARED, OWNERS = ("s1", "s2", "s3"), ("x1", "x2")


def states(draw: random.Random) -> dict[str, Held]:
    """Who has what: owners alone, the others together."""
    cpus = list(range(8))
    draw.shuffle(cpus)
    found = {}
    for name in OWNERS:
        mine = [cpus.pop() for _ in range(draw.randint(1, 2))]
        found[name] = Held(CpuSet.from_ids(mine), name)
    for name in SHARED:
        found[name] = Held(CpuSet.from_ids(draw.sample(cpus, draw.randint(1, len(cpus)))))
    return found


class World:
    """What containers really have, and may have, while updates are made."""

    def __init__(self, draw: random.Random, stuck: frozenset[str]) -> None:
        self.draw, self.stuck = draw, stuck
        self.wanted = states(draw)
        self.may_have = {name: {held.cpus} for name, held in self.wanted.items()}
        self.owed = owing(**{name: str(held.cpus) for name, held in self.wanted.items()})
        self.flying: list[Owed] = []
        for name in stuck:
            self.owed.hold(key(name))

    def change(self) -> None:
        after = states(self.draw)
        plan = plan_changes(self.wanted, after)
        if not isinstance(plan, Refused):
            add(self.owed, *((one.container, str(one.cpus)) for one in plan))
            self.wanted = after

    def send(self) -> None:
        for name, one in ready(self.owed).items():
            self.flying.append(one)
            self.may_have[name].add(one.cpus)

    def land(self) -> None:
        if self.flying:
            one = self.flying.pop(self.draw.randrange(len(self.flying)))
            if self.draw.random() < 0.2:
                self.owed.failed(one, RemoteError("no"))
            else:
                self.may_have[one.ref.pod_uid] = {one.cpus}
                self.owed.told(one)

    def check(self) -> None:
        assert self.owed.validate() == []
        for owner in OWNERS:
            for mine in self.may_have[owner]:
                for other, sets in self.may_have.items():
                    assert other == owner or not any(mine & cpus for cpus in sets), (owner, other)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.frozensets(st.sampled_from(SHARED + OWNERS), max_size=2))
def test_no_cpu_has_two_owners_and_only_those_wait_who_must(draw: random.Random, stuck: frozenset[str]) -> None:
    world = World(draw, stuck)
    for _ in range(30):
        draw.choice((world.change, world.send, world.land, world.land))()
        world.check()
    while world.owed:
        world.owed.retry()
        world.send()
        if not world.flying:
            break
        world.land()
        world.check()
    left = {one.ref.pod_uid for one in world.owed}
    for one in world.owed:
        first = next(each for each in world.owed if each.key == one.key)
        assert first.ref.pod_uid in stuck or first.waits_for, "nobody waits without a reason"
    assert bool(left) <= bool(stuck)
    for name, held in world.wanted.items():
        assert name in left or world.may_have[name] == {held.cpus}
    for name in stuck:
        world.owed.let_go(key(name))
    while world.owed:
        world.owed.retry()
        world.send()
        world.land()
        world.check()
    assert world.may_have == {name: {held.cpus} for name, held in world.wanted.items()}
