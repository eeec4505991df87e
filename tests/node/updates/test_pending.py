"""Telling containers their CPUs in any order that is safe, while some of them cannot be told.

The law: whoever may still have a CPU keeps those from being told of it who own it, and delays nobody else.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.node.updates.pending import PendingUpdate, PendingUpdates
from kubeqos.node.updates.plan import Update
from kubeqos.plugins.managers import Grant
from kubeqos.topology.changes import Held

ALL = CpuSet.parse("0-7")


def key(name: str) -> tuple[str, str]:
    return name, "main"


def update(name: str, cpus: str) -> Update:
    return Update(key(name), Grant({"cpuset_cpus": cpus}))


def pending(*changes: tuple[str, str], **has: str) -> PendingUpdates:
    updates = PendingUpdates(ALL)
    for name, cpus in has.items():
        updates.has(key(name), Grant({"cpuset_cpus": cpus}))
    add(updates, *changes)
    return updates


def add(updates: PendingUpdates, *changes: tuple[str, str]) -> None:
    for one in updates.add(update(*change) for change in changes):
        one.recorded = True


def ready(updates: PendingUpdates) -> dict[str, PendingUpdate]:
    """What may be sent now, by pod."""
    return {one.key[0]: one for one in [updates.next(each.key) for each in list(updates)] if one is not None}


def test_who_gains_waits_for_who_loses_and_for_nobody_else() -> None:
    updates = pending(("web", "2-7"), ("owner", "0-1"), ("other", "5-6"), web="0-7", owner="1", other="5")
    first = ready(updates)
    assert first.keys() == {"web", "other"}, "web keeps 5-6, which it shares"
    assert updates.made(first["web"]) == [key("web"), key("owner")]
    assert ready(updates).keys() == {"owner"}


def test_nobody_is_told_before_the_ledger_knows() -> None:
    updates = PendingUpdates(ALL)
    [one] = updates.add([update("web", "2-7")])
    assert updates.next(key("web")) is None
    one.recorded = True
    assert updates.next(key("web")) is one


def test_a_container_that_starts_is_told_afterwards_and_only_those_who_get_its_cpus_wait() -> None:
    updates = pending(("web", "2-7"), web="0-7")
    updates.pause(key("web"))
    assert ready(updates) == {}
    assert [one.key for one in updates.in_the_way("owner", CpuSet.parse("0-1"))] == [key("web")]
    assert updates.in_the_way("another", CpuSet.parse("2-7")) == []
    assert updates.in_the_way("web", CpuSet.parse("0-1")) == [], "containers of one pod are no strangers"
    updates.resume(key("web"))
    updates.made(ready(updates)["web"])
    assert not updates and updates.in_the_way("owner", CpuSet.parse("0-1")) == []


def test_what_a_container_may_have_is_everything_until_it_is_known() -> None:
    updates = pending(("found", "2-7"))
    assert updates.in_the_way("owner", CpuSet.parse("1"))


def test_updates_that_could_not_be_sent_become_one() -> None:
    updates = pending(("web", "2-7"), ("web", "4-7"), ("web", "6-7"), web="0-7")
    assert [str(one.cpus) for one in updates] == ["6-7"]
    assert updates.in_the_way("owner", CpuSet.parse("4"))
    updates.pause(key("web"))
    add(updates, ("web", "0-7"))
    assert updates.in_the_way("owner", CpuSet.parse("4")) == [], "nothing is to be given up any more"


def test_a_failure_is_kept_and_tried_again() -> None:
    updates = pending(("web", "2-7"), ("owner", "0-1"), web="0-7", owner="1")
    updates.failed(ready(updates)["web"], RemoteError("no"))
    assert ready(updates) == {} and updates.in_the_way("owner", CpuSet.parse("0"))[0].error is not None
    assert set(updates.retry()) == {key("web"), key("owner")}
    assert ready(updates).keys() == {"web"}


def test_a_new_container_has_what_it_should_have() -> None:
    updates = pending(("web", "2-7"), ("owner", "0-1"), web="0-7", owner="1")
    late = ready(updates)["web"]
    assert updates.has(key("web"), Grant({"cpuset_cpus": "2-7"})) == [key("owner")]
    assert updates.made(late) == [], "nobody cares for the old one any more"
    assert ready(updates).keys() == {"owner"}
    assert updates.removed("owner") == [] and not updates


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


def grant(held: Held) -> Grant:
    return Grant({"cpuset_cpus": str(held.cpus)}, exclusive=held.cpus if held.owner else NO_CPUS)


class World:
    """What containers really have, and may have, while updates are made."""

    def __init__(self, draw: random.Random, stuck: frozenset[str]) -> None:
        self.draw, self.stuck = draw, stuck
        self.wanted = states(draw)
        self.may_have = {name: {held.cpus} for name, held in self.wanted.items()}
        self.updates = PendingUpdates(ALL)
        for name, held in self.wanted.items():
            self.updates.has(key(name), grant(held))
        self.flying: list[PendingUpdate] = []
        for name in stuck:
            self.updates.pause(key(name))

    def change(self) -> None:
        after = states(self.draw)
        grants = {key(name): grant(held) for name, held in after.items()}
        if self.updates.require(grants) is None:
            self.updates.record(self.updates.unrecorded())
            self.wanted = after

    def send(self) -> None:
        for name, one in ready(self.updates).items():
            self.flying.append(one)
            self.may_have[name].add(one.cpus)

    def land(self) -> None:
        if self.flying:
            one = self.flying.pop(self.draw.randrange(len(self.flying)))
            if self.draw.random() < 0.2:
                self.updates.failed(one, RemoteError("no"))
            else:
                self.may_have[one.key[0]] = {one.cpus}
                self.updates.made(one)

    def check(self) -> None:
        assert self.updates.validate() == []
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
    while world.updates:
        world.updates.retry()
        world.send()
        if not world.flying:
            break
        world.land()
        world.check()
    left = {one.key[0] for one in world.updates}
    for one in world.updates:
        first = next(each for each in world.updates if each.key == one.key)
        assert first.key[0] in stuck or first.waits_for, "nobody waits without a reason"
    assert bool(left) <= bool(stuck)
    for name, held in world.wanted.items():
        assert name in left or world.may_have[name] == {held.cpus}
    for name in stuck:
        world.updates.resume(key(name))
    while world.updates:
        world.updates.retry()
        world.send()
        world.land()
        world.check()
    assert world.may_have == {name: {held.cpus} for name, held in world.wanted.items()}
