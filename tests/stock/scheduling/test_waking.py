"""A kube-scheduler that was refused hears of the room that there is later, once, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.stock.names import ROOM
from kubeqos.stock.scheduling.extender import filtered
from kubeqos.stock.scheduling.waking import FORGET_SECONDS, Waking
from tests.stock.scheduling.stories import POOLS, WEB, Raw, Told, node, pod, report


class Nodes:
    """Notes which Nodes are written."""

    def __init__(self) -> None:
        self.touched: list[str] = []

    async def patch(self, resource: Any, name: str, patch: Raw) -> Raw:
        assert set(patch["metadata"]["annotations"]) == {ROOM}
        self.touched.append(name)
        return {}


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.told = Told(node("pools"), node("plain"), report("pools", POOLS, slow=1))
        self.nodes = Nodes()
        self.waking = Waking(self.nodes, self.told.core, lambda: self.now)  # type: ignore[arg-type]

    def ask(self, asking: Raw, *names: str) -> list[str]:
        """As a kube-scheduler does; the nodes that will do."""
        args = {"Pod": asking, "Nodes": None, "NodeNames": list(names or ("pools", "plain"))}
        answer = filtered(self.told.core, args)
        self.waking.answered(args, answer)
        return list(answer["NodeNames"])

    async def touched(self) -> list[str]:
        self.nodes.touched.clear()
        await self.waking.look()
        return self.nodes.touched


@pytest.fixture
def world() -> World:
    return World()


async def test_room_that_came_later_is_told_once(world: World) -> None:
    holder = pod("holder", asked="blockio=slow", on="pools")
    world.told.tell(holder)
    for name in ("first", "second"):
        assert world.ask(pod(name, asked="blockio=slow")) == []
    assert await world.touched() == [], "there is none yet"
    world.told.core.pod_changed(None, holder["metadata"]["uid"], 1.0)
    assert await world.touched() == ["pools"], "once, for everybody who waits for it"
    assert await world.touched() == []
    assert world.ask(pod("first", asked="blockio=slow")) == ["pools"]
    assert world.waking.refusals == {}


async def test_a_report_of_the_node_is_room_too(world: World) -> None:
    world.told.tell(pod("holder", asked="blockio=slow", on="pools"), pod("web", "1", on="pools", annotations=WEB))
    assert world.ask(pod("slow", asked="blockio=slow"), "pools") == []
    assert world.ask(pod("more", "1", annotations=WEB), "pools") == []
    assert await world.touched() == []
    world.told.tell(report("pools", POOLS, slow=2))
    assert await world.touched() == ["pools"]
    assert list(world.waking.refusals) == ["uid-more"], "the pool is as full as before"


async def test_who_had_a_choice_was_placed_or_has_waited_long_is_forgotten(world: World) -> None:
    world.told.tell(pod("holder", asked="blockio=slow", on="pools"))
    assert world.ask(pod("wide", "1")) == ["pools", "plain"]
    assert world.waking.refusals == {}
    placed, old = pod("placed", asked="blockio=slow"), pod("old", asked="blockio=slow")
    assert world.ask(placed) == world.ask(old) == []
    world.told.tell(pod("placed", asked="blockio=slow", on="plain"))
    assert await world.touched() == []
    assert list(world.waking.refusals) == [old["metadata"]["uid"]]
    world.now += FORGET_SECONDS + 1
    assert await world.touched() == []
    assert world.waking.refusals == {}
