"""What would make a waiting pod run: every change that is told has been tried on the engine."""

from __future__ import annotations

from typing import Any

from kubeqos.placement.placer import Placer, Unplaced
from kubeqos.scheduler.explaining import nearest_misses
from kubeqos.simulation.remedies import Remedy, refused_by, remedies
from tests.placement.playbook import World, classes, given, node, pod

GOLD = classes(rdt={"gold": 1})


def unplaced(world: World, raw: dict[str, Any]) -> Unplaced:
    answer = Placer(world.cluster).place(world.shape(raw))
    assert isinstance(answer, Unplaced)
    return answer


def test_nodes_are_told_by_reason_most_of_them_first() -> None:
    world = given(node("a", cpu="2"), node("b", cpu="4"), node("c", taints=["x=y:NoSchedule"]))
    found = refused_by(unplaced(world, pod(cpu="8")))
    assert [(one.reason, one.nodes) for one in found] == [
        ("Insufficient cpu", ("a", "b")),
        ("node(s) had untolerated taint {x: y}", ("c",)),
    ]


def test_the_nearest_miss_has_numbers_and_a_name() -> None:
    world = given(node("n1", cpu="4"), node("n3", cpu="8")).running(pod("old", cpu="1"), on="n3")
    assert nearest_misses(world.cluster, world.shape(pod(cpu="100"))) == ["needs 100 cpu, most free is 7 on n3"]
    large = world.shape(pod(cpu="1", memory="64Gi"))
    assert nearest_misses(world.cluster, large) == ["needs 64Gi memory, most free is 8Gi on n1"]


def test_who_holds_a_class_is_named() -> None:
    world = given(node("a", container_classes=GOLD)).running(pod("old", uses={"rdt": "gold"}), on="a")
    assert nearest_misses(world.cluster, world.shape(pod(uses={"rdt": "gold"}))) == [
        "needs class rdt=gold, of which all 1 are taken: old"
    ]


def test_lower_the_request_to_what_is_free() -> None:
    world = given(node("a", cpu="4"), node("b", cpu="8")).running(pod("old", cpu="1"), on="b")
    assert remedies(world.cluster, pod(cpu="100", limits=True)) == [Remedy("lower cpu from 100 to 7", "b")]


def test_what_is_free_where_the_pod_may_not_run_is_not_offered() -> None:
    world = given(node("a", cpu="4"), node("b", cpu="8", taints=["x=y:NoSchedule"]))
    assert remedies(world.cluster, pod(cpu="6")) == [Remedy("tolerate the taint x:NoSchedule", "b")]
    assert remedies(world.cluster, pod(cpu="9")) == [Remedy("lower cpu from 9 to 4", "a")]


def test_another_place() -> None:
    world = given(node("a", labels={"disk": "ssd"}, cpu="1"), node("b"))
    asked = pod(cpu="2", spec={"nodeSelector": {"disk": "ssd"}})
    assert Remedy("remove disk=ssd from its nodeSelector", "b") in remedies(world.cluster, asked)
    assert asked["spec"]["nodeSelector"] == {"disk": "ssd"}  # what was asked for is left as it is


def test_free_a_class_slot() -> None:
    world = given(node("a", container_classes=GOLD), node("b", container_classes=GOLD))
    world.running(pod("one", uses={"rdt": "gold"}), on="a").running(pod("two", uses={"rdt": "gold"}), on="b")
    clock = world.cluster.clock
    found = remedies(world.cluster, pod(uses={"rdt": "gold"}))
    assert found == [Remedy("free one slot of rdt=gold, held by one, two", "a")]
    assert world.cluster.clock == clock and set(world.cluster.where) == {"one", "two"}


def test_what_runs_needs_nothing_and_what_nothing_helps_gets_nothing() -> None:
    world = given(node("a", cpu="4"))
    assert remedies(world.cluster, pod(cpu="1")) == []
    assert remedies(world.cluster, pod(uses={"rdt": "gold"})) == []
