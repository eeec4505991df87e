"""Rehearsed growth: which nodes would help, starting from none."""

from __future__ import annotations

from pathlib import Path

from kubeqos.cli.rehearse.groups import read_groups
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import Waiting
from kubeqos.placement.growth.scaleup import rehearse
from tests.placement.test_stories import GOLD, cluster, node, shape

GROUPS = read_groups(Path(__file__).parents[3] / "examples/simulate/groups.yaml")


def waiting(count: int, **more: object) -> list[Waiting]:
    return [Waiting(f"p{n}", f"p{n}", shape(**more)) for n in range(count)]  # type: ignore[arg-type]


def test_pods_that_ask_for_a_class_need_nodes_that_have_it() -> None:
    outcome = rehearse(Cluster(), waiting(3, classes=[("rdt", "gold")]), GROUPS)
    assert outcome.added == {"plain": 0, "gold": 2}
    assert len(outcome.placed) == 3


def test_the_group_that_takes_most_is_added_first() -> None:
    outcome = rehearse(Cluster(), waiting(10, cpu="1"), GROUPS)
    assert outcome.added == {"plain": 1, "gold": 1}
    assert outcome.trail[0] == "gold-1 takes 8 of 10 waiting pods"


def test_room_that_exists_is_used_before_nodes_are_added() -> None:
    existing = cluster(node("here", classes=GOLD))
    outcome = rehearse(existing, waiting(1, classes=[("rdt", "gold")]), GROUPS)
    assert outcome.added == {"plain": 0, "gold": 0}
    assert outcome.placed == {"p0": "here"}
    assert len(existing.where) == 0


def test_what_no_group_can_serve_says_why() -> None:
    outcome = rehearse(Cluster(), waiting(1, cpu="64"), GROUPS)
    assert outcome.unplaced == {"p0": "no group helps: 0/2 nodes are available: 2 Insufficient cpu."}


def test_groups_stop_at_their_limit() -> None:
    outcome = rehearse(Cluster(), waiting(6, classes=[("rdt", "gold")]), GROUPS)
    assert outcome.added["gold"] == 2
    assert len(outcome.unplaced) == 2
    assert all(why.startswith("groups are at their limit") for why in outcome.unplaced.values())
