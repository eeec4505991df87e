"""What objects cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.objects import PodView
from kubeqos.rules.quota import Charge, charge_of, charge_pod, costs_the_same
from kubeqos.rules.quota.charge import is_tracked
from tests.rules.quota.objects import Raw, container, pod

MEGA = {"cpu": "1", "memory": "1Mi"}


def shown(charge: Charge | None) -> dict[str, str]:
    assert charge is not None
    return {name: str(amount) for name, amount in charge.amounts.items()}


def cost(raw: Raw, **more: Any) -> dict[str, str]:
    return shown(charge_pod(PodView.of(raw), **more))


def test_a_pod_is_counted_under_every_name_its_requests_have() -> None:
    requests = {"cpu": "100m", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/dongle": "2"}
    assert cost(pod("p", container(requests=requests, limits={"cpu": "200m", "hugepages-2Mi": "4Mi"}))) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "100m",
        "requests.cpu": "100m",
        "ephemeral-storage": "1Gi",
        "requests.ephemeral-storage": "1Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.com/dongle": "2",
        "limits.cpu": "200m",
    }


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_only_a_record(phase: str) -> None:
    assert cost({**pod("p", container(requests=MEGA)), "status": {"phase": phase}}) == {"count/pods": "1"}


def test_a_pod_whose_grace_period_is_over_is_only_a_record() -> None:
    assert cost(pod("p", container(requests=MEGA)), expired=True) == {"count/pods": "1"}


def test_during_a_resize_the_larger_of_wanted_and_given_counts() -> None:
    raw = pod("p", container(requests={"cpu": "1"}))
    raw["status"] = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}
    assert cost(raw)["requests.cpu"] == "2"
    raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert cost(raw)["requests.cpu"] == "3"
    raw["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert cost(raw)["requests.cpu"] == "2"


@pytest.mark.parametrize(
    ("spec", "costs"),
    [
        ({"ports": [{}, {}]}, {}),
        ({"type": "NodePort", "ports": [{}, {}]}, {"services.nodeports": "2"}),
        ({"type": "LoadBalancer", "ports": [{}]}, {"services.nodeports": "1", "services.loadbalancers": "1"}),
        (
            {"type": "LoadBalancer", "ports": [{}, {"nodePort": 30000}], "allocateLoadBalancerNodePorts": False},
            {"services.nodeports": "1", "services.loadbalancers": "1"},
        ),
    ],
)
def test_services(spec: Raw, costs: dict[str, str]) -> None:
    assert shown(charge_of("services", {"spec": spec})) == {"services": "1", "count/services": "1", **costs}


def test_claims_count_whole_bytes_and_also_by_storage_class() -> None:
    spec = {"storageClassName": "gold", "resources": {"requests": {"storage": "1000000000001m"}}}
    assert shown(charge_of("persistentvolumeclaims", {"spec": spec})) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "requests.storage": "1000000001",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1000000001",
    }


def test_a_claim_that_was_given_more_counts_more() -> None:
    raw = {
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "2Gi"}},
    }
    assert shown(charge_of("persistentvolumeclaims", raw))["requests.storage"] == "2Gi"


def test_everything_else_is_counted_by_its_resource() -> None:
    assert shown(charge_of("deployments", {}, group="apps")) == {"count/deployments.apps": "1"}
    assert shown(charge_of("secrets", {})) == {"count/secrets": "1", "secrets": "1"}
    assert charge_of("events", {}) is None


@pytest.mark.parametrize(
    ("name", "tracked"),
    [
        ("requests.example.com/dongle", True),
        ("count/widgets.example.com", True),
        ("gold.storageclass.storage.k8s.io/requests.storage", True),
        ("hugepages-1Gi", True),
        ("limits.example.com/dongle", False),
        ("example.com/dongle", False),
        ("count/events", False),
    ],
)
def test_usage_is_reported_only_for_what_is_measured(name: str, tracked: bool) -> None:
    assert is_tracked(name) is tracked


# -- versions of one pod ---------------------------------------------------------------------------------------

SET_ASIDE = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "other"])},
    optional={
        "ready": st.booleans(),
        "resources": st.sampled_from([{}, {"requests": {"cpu": "2"}}, {"limits": {"cpu": "3"}}]),
        "allocatedResources": st.sampled_from([{"cpu": "4"}, {}]),
    },
)
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
VERSIONS = st.fixed_dictionaries(
    {"spec": st.fixed_dictionaries(
        {"containers": st.sampled_from([[container(requests=MEGA)], [container()], [container(limits=MEGA)]])},
        optional={
            "nodeName": st.sampled_from(["n1", "n2"]),
            "activeDeadlineSeconds": st.sampled_from([0, 60]),
            "priorityClassName": st.just("urgent"),
            "overhead": st.just({"cpu": "1"}),
        },
    )},
    optional={"status": st.fixed_dictionaries({}, optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        "qosClass": st.sampled_from(["BestEffort", "Burstable"]),
        "podIP": st.just("10.0.0.1"),
        "conditions": st.lists(st.sampled_from([INFEASIBLE, {"type": "Ready", "status": "True"}]), max_size=2),
        "containerStatuses": st.lists(SET_ASIDE, max_size=2),
    })},
)  # fmt: skip


@given(old=VERSIONS, new=VERSIONS)
def test_versions_that_cost_the_same_have_equal_charges(old: Raw, new: Raw) -> None:
    if costs_the_same(old, new):
        before, after = charge_pod(PodView.of(old)), charge_pod(PodView.of(new))
        for what in ("amounts", "standing", "class_names", "ended"):
            assert getattr(before, what) == getattr(after, what)


def test_a_node_and_a_report_cost_nothing() -> None:
    waiting = {"spec": {"containers": [container(requests=MEGA)]}, "status": {"phase": "Pending"}}
    bound = {
        "spec": {**waiting["spec"], "nodeName": "n"},
        "status": {"phase": "Pending", "conditions": [{"type": "A"}]},
    }
    running = {**bound, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    assert costs_the_same(waiting, bound)
    assert costs_the_same(bound, running)
    assert not costs_the_same(running, {**running, "status": {"phase": "Failed"}})
    assert not costs_the_same(running, {**running, "spec": {**bound["spec"], "activeDeadlineSeconds": 5}})
