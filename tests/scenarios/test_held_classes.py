"""Held, not asked: what pods hold of classes is counted everywhere, whatever is changed, refused or put off meanwhile.

First the two ways round it that were once open, then the law: containers in a class are never more than a quota or a
capacity that held when they got in, and the scheduler never binds what the node refuses.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.rules.qos import classes
from tests.rules.quota.objects import why
from tests.scenarios.trio import Trio, quota_of

PENDING = "PodResizePending"
RDT, BLOCKIO, NETWORK = ("gold", "exclusive", "silver"), ("high-prio", "throttled"), ("fast", "slow")


def offers(
    gold: int = 2, exclusive: int = 1, high: int = 2, *, fast: int = 2, gone: Collection[str] = ()
) -> tuple[Advertisement, ...]:
    """What a node offers; classes that are `gone` are not in its file any more."""

    def listed(*classes: ClassInfo) -> tuple[ClassInfo, ...]:
        return tuple(one for one in classes if one.name not in gone)

    rdt = listed(ClassInfo("gold", gold), ClassInfo("exclusive", exclusive), ClassInfo("silver"))
    return (
        Advertisement("rdt", Level.CONTAINER, True, rdt),
        Advertisement("blockio", Level.CONTAINER, False, listed(ClassInfo("high-prio", high), ClassInfo("throttled"))),
        Advertisement("network", Level.POD, True, listed(ClassInfo("fast", fast), ClassInfo("slow"))),
    )


async def test_an_infeasible_resize_does_not_give_back_what_the_container_keeps(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers(high=4)) as trio:
        assert trio.api.apply(quota_of(blockio={"high-prio": 1, "throttled": None})).ok
        assert trio.create("a", blockio="high-prio").ok
        await trio.comes_to_rest()
        assert trio.resize("a", blockio="throttled").ok
        await trio.comes_to_rest()
        [pending] = [one for one in trio.pod("a")["status"]["conditions"] if one["type"] == PENDING]
        assert pending["reason"] == "Infeasible"
        assert trio.quota_use() == {("blockio", "high-prio"): 1, ("blockio", "throttled"): 1}
        assert why(trio.create("b", blockio="high-prio")).endswith(
            "requested: container.blockio/high-prio=1, used: container.blockio/high-prio=1, "
            "limited: container.blockio/high-prio=1"
        )
        assert trio.really_in() == {("blockio", "high-prio"): 1}


async def test_a_deferred_resize_keeps_its_place_until_it_is_granted(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers(gold=2, exclusive=1)) as trio:
        assert trio.create("owner", rdt="exclusive").ok
        assert trio.create("mover", rdt="gold").ok
        await trio.comes_to_rest()
        assert trio.resize("mover", rdt="exclusive").ok
        assert trio.create("one", rdt="gold").ok
        assert trio.create("two", rdt="gold").ok
        await trio.comes_to_rest()
        [pending] = [one for one in trio.pod("mover")["status"]["conditions"] if one["type"] == PENDING]
        assert pending["reason"] == "Deferred"
        assert "nodeName" in trio.pod("one")["spec"]
        assert "nodeName" not in trio.pod("two")["spec"], "the place of the pod that waits to move was given away"
        trio.delete("owner")
        await trio.comes_to_rest()
        await trio.passes(60)
        await trio.comes_to_rest()
        assert trio.really_in() == {("rdt", "exclusive"): 1, ("rdt", "gold"): 2}
        assert trio.refused() == []


async def test_a_wish_that_is_taken_back_counts_until_the_node_has_seen_that(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers()) as trio:
        assert trio.api.apply(quota_of(rdt={"gold": None, "exclusive": 1})).ok
        assert trio.create("a", rdt="gold").ok
        await trio.comes_to_rest()
        assert trio.resize("a", rdt="exclusive").ok
        await trio.node_hears()  # and grants it, of which nobody knows yet
        assert trio.resize("a", rdt="gold").ok
        assert not trio.create("b", rdt="exclusive").ok
        await trio.comes_to_rest()
        assert trio.create("b", rdt="exclusive").ok
        await trio.comes_to_rest()
        assert (trio.refused(), trio.really_in()) == ([], {("rdt", "gold"): 1, ("rdt", "exclusive"): 1})


async def test_a_pod_of_which_the_node_has_said_nothing_cannot_change_its_class(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers()) as trio:
        assert trio.create("a", rdt="gold").ok
        assert trio.resize("a", rdt="silver").ok, "nobody runs it yet"
        trio.schedule()
        assert why(trio.resize("a", rdt="gold")) == (
            'Pod "a" is invalid: spec.containers[0].resources.qosResources: Forbidden: node "n1" has yet to report the '
            "class of rdt that the container has; try again when the pod runs"
        )


async def test_a_class_of_a_whole_pod_is_changed_in_its_sandbox(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers(fast=1)) as trio:
        assert trio.api.apply(quota_of(pod={"network": {"fast": 1, "slow": None}})).ok
        assert trio.create("a", pod={"network": "slow"}).ok
        assert trio.create("b", pod={"network": "fast"}).ok
        await trio.comes_to_rest()
        assert "limited: pod.network/fast=1" in why(trio.resize("a", network="fast"))
        assert trio.resize("b", network="slow").ok
        assert trio.quota_use()["network", "fast"] == 1, "its node may not have told it yet"
        await trio.comes_to_rest()
        assert trio.pod("b")["status"]["qosResources"] == [{"name": "network", "class": "slow"}]
        assert trio.resize("a", network="fast").ok
        await trio.comes_to_rest()
        assert trio.pod("a")["status"]["resources"] == {"qosResources": [{"name": "network", "class": "fast"}]}
        assert (trio.refused(), trio.really_in()) == ([], {("network", "fast"): 1, ("network", "slow"): 1})
        assert not trio.create("c", pod={"network": "fast"}).ok


async def test_a_class_of_a_whole_pod_that_cannot_change_says_so(tmp_path: Path) -> None:
    fixed = Advertisement("network", Level.POD, False, (ClassInfo("fast", 1), ClassInfo("slow")))
    async with Trio(tmp_path, (fixed,)) as trio:
        assert trio.create("a", pod={"network": "fast"}).ok
        await trio.comes_to_rest()
        assert trio.resize("a", network="slow").ok
        assert trio.create("b", pod={"network": "fast"}).ok
        await trio.comes_to_rest()
        [pending] = [one for one in trio.pod("a")["status"]["conditions"] if one["type"] == PENDING]
        assert (pending["reason"], pending["message"]) == (
            "Infeasible",
            "QoS resource network cannot be changed while the pod runs",
        )
        assert "nodeName" not in trio.pod("b")["spec"], "the class that the pod keeps was given away"
        assert trio.really_in() == {("network", "fast"): 1}


async def test_a_default_of_containers_that_the_pod_asks_for_is_changed_in_all_of_them(tmp_path: Path) -> None:
    async with Trio(tmp_path, offers(exclusive=1)) as trio:
        assert trio.create("a", pod={"rdt": "gold"}).ok
        await trio.comes_to_rest()
        assert trio.resize("a", rdt="exclusive").ok
        await trio.comes_to_rest()
        assert (trio.refused(), trio.really_in()) == ([], {("rdt", "exclusive"): 1})
        assert trio.pod("a")["status"]["containerStatuses"][0]["qosResources"][0] == {
            "name": "rdt",
            "class": "exclusive",
        }


class AnyOrder(RuleBasedStateMachine):
    """Whatever users, the scheduler, the node and the administrator do, in any order."""

    names = Bundle("names")
    played: ClassVar[Counter[str]] = Counter()
    """Examples so far, and in how many of them a change was granted, put off or refused."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.made = 0
        self.asked: dict[str, set[tuple[str, str]]] = {}
        self.seen = {"examples"}

    def do(self, work: Any) -> None:
        self.loop.run_until_complete(work)

    @initialize()
    def start(self) -> None:
        async def made() -> Trio:
            return await Trio(Path(self.folder.name), offers()).__aenter__()

        self.trio = self.loop.run_until_complete(made())
        self.had: dict[str, dict[tuple[str, str], int]] = {"node": {}, "quota": {}}
        self.most: dict[str, dict[tuple[str, str], int]] = {"node": _capacities(offers()), "quota": {}}
        self.edit_quota(2, 1, 2, 2)

    def teardown(self) -> None:
        if hasattr(self, "trio"):
            AnyOrder.played.update(self.seen)
            self.do(self.trio.__aexit__())
        self.loop.close()
        self.folder.cleanup()

    def alive(self, name: str) -> bool:
        return self.trio.api.get("pods", "default", name) is not None

    # ---- Users

    @rule(
        target=names,
        rdt=st.sampled_from(RDT),
        blockio=st.sampled_from(BLOCKIO),
        network=st.sampled_from(NETWORK),
        wide=st.booleans(),
        runs=st.booleans(),
    )
    def create(self, rdt: str, blockio: str, network: str, wide: bool, runs: bool) -> str:
        """`wide`: the container's class is asked for by the pod; `runs`: nothing else happens before it does."""
        self.made += 1
        pod = {"network": network} | ({"rdt": rdt} if wide else {})
        own = {"blockio": blockio} | ({} if wide else {"rdt": rdt})
        self.trio.create(f"p{self.made}", pod, **own)
        self.asked[f"p{self.made}"] = {*pod.items(), *own.items()}
        if runs:
            self.everything_comes_to_rest()
        return f"p{self.made}"

    @rule(name=names, network=st.sampled_from(NETWORK), heard=st.booleans())
    def change_the_pods_own(self, name: str, network: str, heard: bool) -> None:
        self.resize(name, heard, network=network)

    @rule(name=names, rdt=st.sampled_from(RDT), heard=st.booleans())
    def change(self, name: str, rdt: str, heard: bool) -> None:
        self.resize(name, heard, rdt=rdt)

    @rule(name=names, blockio=st.sampled_from(BLOCKIO), heard=st.booleans())
    def change_what_cannot_be(self, name: str, blockio: str, heard: bool) -> None:
        self.resize(name, heard, blockio=blockio)

    def resize(self, name: str, heard: bool, **classes: str) -> None:
        """`heard`: everybody has heard of it before anything else happens."""
        if self.alive(name) and self.trio.resize(name, **classes).ok and heard:
            self.everything_comes_to_rest()

    @rule(name=names)
    def delete(self, name: str) -> None:
        if self.alive(name):
            self.trio.delete(name)

    # ---- The cluster

    @rule(step=st.sampled_from(["schedule", "node hears", "time passes", "node is heard"]))
    def something_happens(self, step: str) -> None:
        match step:
            case "schedule":
                self.trio.schedule()
            case "node hears":
                self.do(self.trio.node_hears())
            case "time passes":
                self.do(self.trio.passes(20))
            case _:
                self.trio.node_is_heard()

    @rule()
    def everything_comes_to_rest(self) -> None:
        self.do(self.trio.comes_to_rest())

    @rule(node=st.booleans())
    def restart(self, node: bool) -> None:
        if node:
            self.do(self.trio.restart_node())
        else:
            self.trio.restart_scheduler()

    # ---- The administrator

    @rule(
        gold=st.integers(1, 3),
        exclusive=st.integers(1, 2),
        high=st.integers(1, 3),
        fast=st.integers(1, 3),
        gone=st.sets(st.sampled_from(["gold", "silver", "high-prio", "fast"]), max_size=2),
    )
    def change_classes(self, gold: int, exclusive: int, high: int, fast: int, gone: set[str]) -> None:
        self.do(self.trio.offer(offers(gold, exclusive, high, fast=fast, gone=gone)))
        limited = _capacities(offers(gold, exclusive, high, fast=fast))
        self.most["node"] = {(name, cls): 0 if cls in gone else most for (name, cls), most in limited.items()}

    @rule(gold=st.integers(1, 4), exclusive=st.integers(1, 2), high=st.integers(1, 3), fast=st.integers(1, 3))
    def edit_quota(self, gold: int, exclusive: int, high: int, fast: int) -> None:
        rules = quota_of(
            pod={"network": {"fast": fast, "slow": None}},
            rdt={"gold": gold, "exclusive": exclusive, "silver": None},
            blockio={"high-prio": high, "throttled": None},
        )
        assert self.trio.api.apply(rules).ok
        limits = {("rdt", "gold"): gold, ("rdt", "exclusive"): exclusive, ("blockio", "high-prio"): high}
        self.most["quota"] = {**limits, ("network", "fast"): fast}

    # ---- The law

    @invariant()
    def nobody_is_over(self) -> None:
        """What is held may grow up to a limit; what was held when the limit was lowered may stay."""
        if not hasattr(self, "trio"):
            return
        for whose, held in self.held().items():
            for key, most in self.most[whose].items():
                had = self.had[whose].get(key, 0)
                assert held.get(key, 0) <= max(most, had), (
                    f"{held} are held after {had}, {whose} allows {most} of {key}"
                )
        self.had = self.held()

    @invariant()
    def changes_are_seen(self) -> None:
        for raw in self.trio.pods() if hasattr(self, "trio") else ():
            asked, status = self.asked[raw["metadata"]["name"]], raw.get("status") or {}
            self.seen |= {one.get("reason") for one in status.get("conditions") or () if one["type"] == PENDING}
            for one in (*status.get("containerStatuses", ()), status):
                has = {(of["name"], of["class"]) for of in one.get("qosResources") or ()}
                self.seen |= {"Granted"} if has - asked else set()

    def held(self) -> dict[str, dict[tuple[str, str], int]]:
        """By the books of the node and of the quota."""
        assert self.trio.world.agent.classes is not None
        node = self.trio.world.agent.classes.used()
        return {
            "node": {(name, cls): count for (_, name, cls), count in node.items()},
            "quota": self.trio.quota_use(),
        }

    @invariant()
    def the_node_never_refuses(self) -> None:
        if hasattr(self, "trio"):
            assert self.trio.refused() == []

    @invariant()
    def everybody_counts_at_least_what_is_there(self) -> None:
        if not hasattr(self, "trio"):
            return
        trio, held, inside = self.trio, self.held(), self.trio.really_in()
        cluster = trio.scheduler.cluster
        for key, count in inside.items():
            assert held["quota"][key] >= count, f"the quota counts {held['quota']}, {inside} are there"
            assert held["node"].get(key, 0) >= count, f"the node counts {held['node']}, {inside} are there"
        for (name, cls), count in held["node"].items():
            level = classes.Level.POD if name == "network" else classes.Level.CONTAINER
            counted = cluster.class_column((level, name, cls)).used[cluster.row_of["n1"]]
            assert counted >= count, f"the scheduler counts {counted} of {cls}, the node {count}"
        assert trio.scheduler.validate() == []
        trio.world.validate()


def _capacities(offered: tuple[Advertisement, ...]) -> dict[tuple[str, str], int]:
    return {(offer.name, cls.name): cls.capacity for offer in offered for cls in offer.classes if cls.capacity}


def play(examples: int) -> None:
    AnyOrder.played = Counter()
    run_state_machine_as_test(AnyOrder, settings=settings(max_examples=examples, stateful_step_count=50))
    print(f"the law held: {dict(AnyOrder.played)}")
    assert AnyOrder.played["examples"] >= examples


def test_the_law_in_short() -> None:
    play(40)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_law() -> None:
    play(2000)
    assert {"Granted", "Deferred", "Infeasible"} <= AnyOrder.played.keys(), "so many examples see all of it"
