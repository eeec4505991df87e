"""What to add and what to take away: never past a limit, nothing unused, nobody left without a place (Hypothesis)."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.decision import Decision, decide
from kubeqos.placement.growth.groups import NodeGroup, Occupant, Waiting, named
from kubeqos.placement.growth.scaleup import place_all
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.shape import Shape
from tests.placement.test_stories import cluster, node, shape

PLAIN = node("template", cpu="4", classes=[])
GOLD = node("template", cpu="8", classes=[{"name": "rdt", "classes": [{"name": "gold", "capacity": 2}]}])
SHAPES = (shape("1"), shape("3"), shape("500m", classes=[("rdt", "gold")]), shape("9"))


def groups(plain: int = 0, gold: int = 0, **more: Any) -> list[NodeGroup]:
    """Two groups with so many nodes; `least` and `cost` of both, `most` 4."""

    def group(name: str, template: Any, size: int) -> NodeGroup:
        members = tuple(f"{name}-{number}" for number in range(1, size + 1))
        least, cost = more.get(f"least_{name}", 0), more.get(f"cost_{name}", 1.0)
        return NodeGroup(name, template, 4, least, cost, members)

    return [group("plain", PLAIN, plain), group("gold", GOLD, gold)]


def grown(owned: list[NodeGroup]) -> Cluster:
    made = Cluster()
    for group in owned:
        for member in group.members:
            made.set_node(named(group.template, member))
    return made


def waiting(*shapes: Shape) -> list[Waiting]:
    return [Waiting(f"w{number}", f"w{number}", each) for number, each in enumerate(shapes)]


def occupants(made: Cluster, **stays: str) -> dict[str, list[Occupant]]:
    return {
        name: [Occupant(one.uid, one.name, one.shape, stays.get(one.uid, "")) for one in made.rows[row].pods.values()]
        for name, row in made.row_of.items()
    }


def test_a_class_that_is_wanted_brings_the_group_that_has_it_from_zero() -> None:
    found = decide(Cluster(), waiting(SHAPES[2], SHAPES[2], SHAPES[2]), groups(), {})
    assert found.up.added == {"plain": 0, "gold": 2}
    assert found.up.new_nodes == {"gold-1": "gold", "gold-2": "gold"}
    assert (found.bill, found.bill_after) == (0, 2)


def test_the_cheapest_place_is_taken() -> None:
    dear = decide(Cluster(), waiting(SHAPES[0]), groups(cost_gold=3.0), {})
    assert dear.up.added == {"plain": 1, "gold": 0}
    many = decide(Cluster(), waiting(*[SHAPES[0]] * 8), groups(cost_gold=1.5), {})
    assert many.up.added == {"plain": 0, "gold": 1}, "eight places for 1.5 are cheaper than four for 1"


def test_what_is_there_is_used_first_and_names_are_not_given_twice() -> None:
    owned = groups(plain=1)
    assert decide(grown(owned), waiting(SHAPES[1]), owned, {}).up.added == {"plain": 0, "gold": 0}
    more = decide(grown(owned), waiting(SHAPES[1], SHAPES[1]), owned, {})
    assert more.up.new_nodes == {"plain-2": "plain"}


def test_an_idle_node_goes_and_the_dearest_first() -> None:
    owned = groups(plain=1, gold=1, cost_gold=3.0)
    found = decide(grown(owned), [], owned, {})
    assert [one.node for one in found.down.removals] == ["gold-1", "plain-1"]
    assert (found.bill, found.bill_after) == (4.0, 0.0)
    kept = decide(grown(owned), [], groups(plain=1, gold=1, least_plain=1), {})
    assert kept.down.kept == {"plain-1": "group plain has at least 1"}


def test_pods_move_or_their_node_stays() -> None:
    owned = groups(plain=2, least_plain=1)
    made = grown(owned)
    made.add_pod("plain-1", PlacedPod("a", "default/a", SHAPES[0]))
    made.add_pod("plain-2", PlacedPod("b", "default/b", SHAPES[0]))
    found = decide(made, [], owned, occupants(made))
    assert [(one.node, one.moves) for one in found.down.removals] == [("plain-1", {"default/a": "plain-2"})]
    stuck = decide(made, [], owned, occupants(made, a="a PodDisruptionBudget allows no eviction now"))
    assert [one.node for one in stuck.down.removals] == ["plain-2"]
    assert stuck.down.kept["plain-1"] == "default/a: a PodDisruptionBudget allows no eviction now"


def test_a_class_that_is_nowhere_else_keeps_its_node() -> None:
    owned = groups(plain=1, gold=1)
    made = grown(owned)
    made.add_pod("gold-1", PlacedPod("g", "default/g", SHAPES[2]))
    found = decide(made, [], owned, occupants(made))
    assert found.down.kept == {"gold-1": "default/g has no place elsewhere"}
    made.add_pod("gold-1", PlacedPod("h", "default/h", SHAPES[2]))
    assert decide(made, [], owned, occupants(made)).down.kept == {"gold-1": "100% of its rdt=gold are used"}


def test_nothing_goes_while_somebody_waits_for_more_or_is_about_to_come() -> None:
    owned = groups(plain=2)
    assert decide(grown(owned), waiting(SHAPES[2]), owned, {}).down.removals == ()
    assert decide(grown(owned), waiting(SHAPES[0]), owned, {}).down.removals == ()
    hopeless = decide(grown(owned), waiting(SHAPES[3]), owned, {})
    assert len(hopeless.down.removals) == 2, "who can never be helped keeps no node"


# ---- The laws


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Cluster, list[Waiting], list[NodeGroup], dict[str, list[Occupant]]]:
    owned = groups(
        draw(st.integers(0, 4)),
        draw(st.integers(0, 3)),
        least_plain=draw(st.integers(0, 2)),
        least_gold=draw(st.integers(0, 1)),
        cost_gold=draw(st.sampled_from([0.5, 1.0, 4.0])),
    )
    made = grown(owned)
    running = [Waiting(f"r{n}", f"r{n}", draw(st.sampled_from(SHAPES))) for n in range(draw(st.integers(0, 8)))]
    place_all(made, running, {})
    fixed = {f"r{n}": "alone" for n in draw(st.sets(st.integers(0, 7), max_size=2))}
    asked = waiting(*draw(st.lists(st.sampled_from(SHAPES), max_size=6)))
    return made, asked, owned, occupants(made, **fixed)


@given(worlds())
def test_growth_stays_within_limits_and_adds_only_what_is_used(world: Any) -> None:
    made, asked, owned, here = world
    before = copy.deepcopy(made)
    found = decide(made, asked, owned, here)
    assert made.row_of == before.row_of and made.where == before.where, "the cluster itself is not touched"
    for group in owned:
        assert len(group.members) + found.up.added[group.name] <= max(group.most, len(group.members))
    assert set(found.up.new_nodes) <= set(found.up.placed.values()), "a node that nobody needs"
    assert set(found.up.placed) | set(found.up.unplaced) == {one.name for one in asked}
    after = carried_out(made, found, owned)
    left = place_all(after, sorted(asked, key=lambda pod: -pod.shape.priority), {})
    assert {one.name for one in left} == set(found.up.unplaced), "what was promised holds"


@given(worlds())
def test_what_is_taken_away_is_missed_by_nobody(world: Any) -> None:
    made, asked, owned, here = world
    found = decide(made, asked, owned, here)
    assert not (found.down.removals and any(found.up.added.values()))
    for group in owned:
        gone = found.removed_from(group.name)
        assert gone == 0 or len(group.members) - gone >= group.least
    for removal in found.down.removals:
        assert not any(one.stays for one in here[removal.node])
        assert set(removal.moves) == {one.name for one in here[removal.node]}
    after = carried_out(made, found, owned)
    assert len(after.where) == len(made.where), "a pod was lost"
    smaller = [resized(group, after) for group in owned]
    again = decide(after, [], smaller, occupants(after))
    assert not any(again.up.added.values()), "what was taken away is not brought back"


@given(worlds())
def test_the_bill_is_that_of_the_nodes(world: Any) -> None:
    made, asked, owned, here = world
    found = decide(made, asked, owned, here)
    after = [resized(group, carried_out(made, found, owned)) for group in owned]
    assert abs(found.bill_after - sum(group.bill for group in after)) < 1e-9


def carried_out(made: Cluster, found: Decision, owned: list[NodeGroup]) -> Cluster:
    """The cluster as it is once the decision is carried out."""
    after = copy.deepcopy(made)
    templates = {group.name: group.template for group in owned}
    for name, group in found.up.new_nodes.items():
        after.set_node(named(templates[group], name))
    for removal in found.down.removals:
        moving = [after.remove_pod(uid) for uid in list(after.rows[after.row_of[removal.node]].pods)]
        after.remove_node(removal.node)
        for pod in moving:
            where = removal.moves[pod.name]
            rows = Placer(after).place(dataclasses.replace(pod.shape, node_name=where))
            assert isinstance(rows, Placed), "there is room for everybody who is to move"
            after.add_pod(where, pod)
    return after


def resized(group: NodeGroup, made: Cluster) -> NodeGroup:
    members = tuple(name for name in made.row_of if name.startswith(f"{group.name}-"))
    return NodeGroup(group.name, group.template, group.most, group.least, group.cost, members)


def test_nodes_of_nobody_are_left_alone() -> None:
    made = cluster(node("own"))
    assert decide(made, [], groups(), {}).down.removals == ()
