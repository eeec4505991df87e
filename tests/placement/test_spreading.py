"""Spreading as a wish: kube-scheduler's points, and the same answer whether nodes are compared or kept in groups."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from kubeqos.model.objects import LabelSelectorView, PodView
from kubeqos.placement import placer as placing
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.score import Weights
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.placement.spreading import ZONE, default_constraints
from tests.placement.playbook import Raw, given, matching, node, pod, spread
from tests.placement.strategies import nodes, pods
from tests.placement.test_placer import NAMES, cluster_of

ONLY_SPREAD = Weights(0, 0, 0, 0, 0, 0, 0, 1, 0)
WEB = LabelSelectorView(match_labels={"app": "web"})


def replica(raw: Raw, selector: LabelSelectorView = WEB) -> Shape:
    """The shape of a pod that is spread by default."""
    made = compile_shape(PodView.of(raw))
    return dataclasses.replace(made, soft_spread=default_constraints(selector), spread_by_default=True)


def test_replicas_take_turns_on_equal_nodes() -> None:
    world = given(*(node(name, cpu="64") for name in "abcde"))
    shape, placer = replica(pod(labels={"app": "web"}, cpu="100m")), Placer(world.cluster)
    went = []
    for number in range(10):
        answer = placer.place(shape)
        assert isinstance(answer, Placed)
        world.cluster.add_pod(answer.node, PlacedPod(str(number), "web", shape))
        went.append(answer.node)
    assert sorted(went[:5]) == sorted(went[5:]) == list("abcde")


def test_points_are_those_of_kube_scheduler() -> None:
    """Of two nodes that fit a pod counts log(4). With one on a: 2 + 1.39 and 2, rounded 3 and 2."""
    world = given(node("a"), node("b")).running(pod("old", labels={"app": "web"}), on="a")
    answer = Placer(world.cluster, ONLY_SPREAD).place(replica(pod()))
    assert round(math.log(4) + 2) == 3
    assert answer == Placed("b", 100 * (3 + 2 - 2) // 3)


def test_zones_count_beside_nodes() -> None:
    world = given(*(node(name, labels={ZONE: name[0]}) for name in ("a1", "a2", "a3", "b1")))
    world.running(pod("old", labels={"app": "web"}), on="a1")
    answer = Placer(world.cluster, ONLY_SPREAD).place(replica(pod(labels={"app": "web"})))
    assert isinstance(answer, Placed) and answer.node == "b1"


def test_pods_of_others_do_not_count() -> None:
    world = given(node("a"), node("b"))
    world.running(pod("x", labels={"app": "db"}), pod("y", namespace="far", labels={"app": "web"}), on="a")
    assert Placer(world.cluster, ONLY_SPREAD).place(replica(pod())) == Placed("a", 100)


def test_a_node_without_the_label_of_an_own_constraint_gets_nothing() -> None:
    world = given(node("a"), node("b", labels={"zone": "z"})).weighing(spread=1)
    constraint = spread("zone", matching(app="web"), soft=True)
    assert world.goes_to(pod(labels={"app": "web"}, spec={"topologySpreadConstraints": [constraint]})) == "b"


@pytest.mark.parametrize("few_rows", [0, 8])
@settings(max_examples=60, deadline=None)
@for_all(st.tuples(*(nodes(name) for name in NAMES)), st.lists(pods(), min_size=1, max_size=3), st.data())
def test_groups_of_nodes_give_the_answer_of_comparing_all(
    few_rows: int, raw: tuple[dict[str, Any], ...], templates: list[dict[str, Any]], data: st.DataObject
) -> None:
    """What is kept between decisions may be left out: then all nodes are compared for every pod."""
    for one in raw:
        if zone := one["metadata"]["labels"].pop("zone", None):
            one["metadata"]["labels"][ZONE] = zone
    cluster = cluster_of(raw)
    placer = Placer(cluster, few_rows=few_rows)
    shapes = []
    for template in templates:
        labels = data.draw(st.sampled_from([{"app": "web"}, {"app": "db"}]))
        template["metadata"]["labels"] = labels
        shapes.append(replica(template, LabelSelectorView(match_labels=labels)))
    running: list[str] = []
    for step in range(14):
        shape = data.draw(st.sampled_from(shapes))
        answer, compared = placer.place(shape), placer._compare(shape)
        if isinstance(answer, Placed):
            assert compared == (cluster.row_of[answer.node], answer.points)
            cluster.add_pod(answer.node, PlacedPod(str(step), str(step), shape))
            running.append(str(step))
        else:
            assert compared is None
        if running and data.draw(st.integers(0, 3)) == 0:
            cluster.remove_pod(running.pop(data.draw(st.integers(0, len(running) - 1))))


@settings(max_examples=60, deadline=None)
@for_all(st.tuples(*(nodes(name) for name in NAMES)), st.lists(pods(), min_size=1, max_size=6), st.booleans())
def test_the_nodes_that_are_told_to_come_next_do(
    raw: tuple[dict[str, Any], ...], arriving: list[dict[str, Any]], spread_by_default: bool
) -> None:
    cluster = cluster_of(raw)
    placer = Placer(cluster)
    for number, each in enumerate(arriving):
        each["metadata"]["labels"] = {"app": "web"}
        shape = replica(each) if spread_by_default else compile_shape(PodView.of(each))
        answer = placer.place(shape)
        if not isinstance(answer, Placed) or placer._compared is not None:
            continue
        leaders = placer._rankings[shape].leaders(cluster, shape, placer.weights)
        placer._compare(shape)
        assert placer._compared is not None and leaders == placing._leaders(placer._compared, 3)
        cluster.add_pod(answer.node, PlacedPod(str(number), str(number), shape))
