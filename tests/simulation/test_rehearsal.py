"""Rehearsed pods: decided as the scheduler would, on a copy."""

from __future__ import annotations

from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster, NodeFacts, PlacedPod
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.simulation.rehearsal import Rehearsed, rehearse_pods
from kubeqos.simulation.scaleup import Waiting


def shape(cpu: str, priority: int = 0, **spec: Any) -> Shape:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return compile_shape(
        PodView.of({"metadata": {}, "spec": {"priority": priority, "containers": [container], **spec}})
    )


def cluster(**cpus: str) -> Cluster:
    made = Cluster()
    for name, cpu in cpus.items():
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        made.set_node(NodeFacts(NodeView.of({"metadata": {"name": name}, "status": {"allocatable": amounts}})))
    return made


def waiting(name: str, cpu: str, priority: int = 0, **spec: Any) -> Waiting:
    return Waiting(name, name, shape(cpu, priority, **spec))


def test_pods_take_their_places_one_after_the_other() -> None:
    answers = rehearse_pods(cluster(a="2", b="1"), [waiting("x", "2"), waiting("y", "1"), waiting("z", "1")])
    assert [(one.pod, one.node) for one in answers] == [("x", "a"), ("y", "b"), ("z", "")]
    assert answers[2].because.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_the_most_important_is_decided_first_and_answers_keep_their_order() -> None:
    answers = rehearse_pods(cluster(a="1"), [waiting("low", "1"), waiting("high", "1", 5)])
    assert [(one.pod, one.node, one.fits) for one in answers] == [("low", "", False), ("high", "a", True)]


def test_victims_are_named_and_the_cluster_is_left_as_it_was() -> None:
    here = cluster(a="2")
    here.add_pod("a", PlacedPod("v1", "default/v1", shape("1")))
    here.add_pod("a", PlacedPod("v2", "default/v2", shape("1", 3)))
    (answer,) = rehearse_pods(here, [waiting("new", "1", 9)])
    assert answer == Rehearsed("new", "a", ("default/v1",), "0/1 nodes are available: 1 Insufficient cpu.")
    assert set(here.where) == {"v1", "v2"}


def test_a_pod_that_never_preempts_evicts_nobody() -> None:
    here = cluster(a="1")
    here.add_pod("a", PlacedPod("v", "default/v", shape("1")))
    (answer,) = rehearse_pods(here, [waiting("new", "1", 9, preemptionPolicy="Never")])
    assert not answer.fits
    assert answer.evicts == ()
