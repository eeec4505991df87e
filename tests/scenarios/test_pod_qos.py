"""pod-qos in its own words: the criteria, the numbers and the exceptions of the proposal, one test for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import regular
from kubeqos.model.objects import PodView
from kubeqos.rules.offline import Offline
from kubeqos.rules.qos.podqos import QosClass, effective_limits, effective_requests, qos_class
from tests.node.admission.test_admission import cpuset, guaranteed
from tests.node.pods import pod as bound_pod
from tests.node.world import World
from tests.placement.playbook import given, node, priority
from tests.placement.playbook import pod as placed_pod
from tests.rules.quota.objects import container, pod

FULL = {"cpu": "1", "memory": "1Gi"}


def classified(*containers: dict[str, Any]) -> QosClass:
    return qos_class(PodView.of(pod("p", *containers))).qos_class


@pytest.mark.parametrize("missing", ["memory", "cpu"])
@pytest.mark.parametrize("side", ["requests", "limits"])
def test_every_container_of_a_guaranteed_pod_has_both_for_both(side: str, missing: str) -> None:
    assert classified(container(requests=FULL, limits=FULL), container("b", requests=FULL, limits=FULL)) is (
        QosClass.GUARANTEED
    )
    amounts: dict[str, Any] = {"requests": dict(FULL), "limits": dict(FULL)}
    del amounts[side][missing]
    other = "limits" if side == "requests" else "requests"
    if side == "requests":
        # The API server fills a request in from its limit, so that the class is the same again.
        stored = Offline().apply(pod("p", container(requests=amounts["requests"], limits=amounts["limits"])))
        assert stored.object is not None and stored.object["status"]["qosClass"] == "Guaranteed"
    assert classified(container(**{side: amounts[side], other: amounts[other]})) is QosClass.BURSTABLE


@pytest.mark.parametrize("resource", ["memory", "cpu"])
def test_limits_of_a_guaranteed_pod_equal_its_requests(resource: str) -> None:
    larger = {**FULL, resource: "2Gi" if resource == "memory" else "2"}
    assert classified(container(requests=FULL, limits=larger)) is QosClass.BURSTABLE


@pytest.mark.parametrize("resource", ["memory", "cpu"])
@pytest.mark.parametrize("side", ["requests", "limits"])
def test_one_request_or_limit_of_one_container_makes_a_pod_burstable(side: str, resource: str) -> None:
    assert classified(container(), container("b", **{side: {resource: "1"}})) is QosClass.BURSTABLE


def test_a_burstable_pod_may_have_a_container_without_any() -> None:
    assert classified(container(requests=FULL, limits=FULL), container("free")) is QosClass.BURSTABLE


def test_without_any_request_or_limit_a_pod_is_best_effort_whatever_else_it_asks_for() -> None:
    assert classified(container()) is QosClass.BEST_EFFORT
    others = {"example.com/gpu": "1", "ephemeral-storage": "1Gi"}
    assert classified(container(requests=others, limits=others)) is QosClass.BEST_EFFORT


def test_every_pod_has_one_of_the_three_classes_in_its_status() -> None:
    for number, (asked, limit) in enumerate(((FULL, FULL), (FULL, {}), ({}, {}))):
        stored = Offline().apply(pod(f"p{number}", container(requests=asked, limits=limit)))
        expected = ("Guaranteed", "Burstable", "BestEffort")[number]
        assert stored.object is not None and stored.object["status"]["qosClass"] == expected


async def test_on_16_cores_4_are_the_guaranteed_pods_and_12_are_left_to_best_effort(tmp_path: Path) -> None:
    machine = regular(cores_per_uncore=16, threads=1)
    async with World(tmp_path, machine=machine, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as world:
        free = await world.start(bound_pod("free"))
        assert len(CpuSet.parse(cpuset(world, free))) == 16
        owner = await world.start(bound_pod("owner", guaranteed("4")))
        owned = CpuSet.parse(cpuset(world, owner))
        left = CpuSet.parse(cpuset(world, free))
        assert len(owned) == 4 and len(left) == 12 and not owned & left


def test_requests_and_limits_of_a_pod_are_the_sums_over_its_containers() -> None:
    both = pod("p", container(requests={"cpu": "1"}, limits={"cpu": "2"}), container("b", requests=FULL, limits=FULL))
    spec = PodView.of(both).spec
    assert {name: str(amount) for name, amount in effective_requests(spec).items()} == {"cpu": "2", "memory": "1Gi"}
    assert str(effective_limits(spec)["cpu"]) == "3"


def test_preemption_does_not_look_at_the_class() -> None:
    """A Guaranteed pod of lower priority goes for one that is less promised, and a BestEffort pod beside it stays."""
    promised = priority(placed_pod("guaranteed", cpu="1"), 0)
    resources = promised["spec"]["containers"][0]["resources"]
    resources["requests"]["memory"] = "1Gi"
    resources["limits"] = dict(resources["requests"])
    assert qos_class(PodView.of(promised)).qos_class is QosClass.GUARANTEED
    world = given(node("a", cpu="1")).running(promised, on="a")
    world.running(priority(placed_pod("best-effort"), 0), on="a")
    assert world.preempts(priority(placed_pod("burstable", cpu="1"), 10)) == ("a", ["guaranteed"])
