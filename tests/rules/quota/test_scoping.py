"""Scenario 1 of the quota-scoping proposal, with its own numbers and its own manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.codec import decode_yaml_all
from kubeqos.rules.offline import Offline
from tests.rules.quota.objects import Raw, container, pod, quota, used, why

EXAMPLES = Path(__file__).parents[3] / "examples" / "quota-scoping"


def manifests(name: str) -> list[Raw]:
    return decode_yaml_all((EXAMPLES / name).read_bytes())


@pytest.fixture
def cluster() -> Offline:
    """A namespace with the four quotas of the scenario."""
    cluster = Offline()
    for raw in manifests("scenario-1.yaml"):
        assert cluster.apply(raw).verb == "created"
    return cluster


def best_effort(name: str) -> Raw:
    return pod(name)


def build(name: str, cpu: str = "1", memory: str = "512Mi") -> Raw:
    return pod(name, container(limits={"cpu": cpu, "memory": memory}), activeDeadlineSeconds=600)


def web(name: str, cpu: str = "1", memory: str = "1Gi") -> Raw:
    return pod(name, container(limits={"cpu": cpu, "memory": memory}))


@pytest.mark.parametrize("name", ["quota-best-effort.yaml", "quota.yaml"])
def test_these_manifests_of_the_proposal_are_accepted_as_they_are(name: str) -> None:
    [raw] = manifests(name)
    assert Offline().apply(raw).line == f"resourcequota/{raw['metadata']['name']} created"


@pytest.mark.parametrize("name", ["quota-terminating.yaml", "quota-longrunning.yaml"])
def test_these_manifests_use_names_that_do_not_exist_and_are_told_the_right_ones(name: str) -> None:
    [raw] = manifests(name)
    said = why(Offline().apply(raw))
    for wrong, right in (("memory.limit", "limits.memory"), ("cpu.limit", "limits.cpu")):
        assert f"spec.hard[{wrong}]" in said
        assert right in said


def test_two_best_effort_pods_fit_and_a_third_does_not(cluster: Offline) -> None:
    assert cluster.apply(best_effort("a")).ok
    assert cluster.apply(best_effort("b")).ok
    assert why(cluster.apply(best_effort("c"))) == (
        'pods "c" is forbidden: exceeded quota: quota-best-effort, requested: pods=1, used: pods=2, limited: pods=2'
    )


def test_builds_share_one_gibibyte_and_two_cores(cluster: Offline) -> None:
    assert cluster.apply(build("a")).ok
    assert why(cluster.apply(build("b", memory="513Mi"))) == (
        'pods "b" is forbidden: exceeded quota: quota-terminating, '
        "requested: limits.memory=513Mi, used: limits.memory=512Mi, limited: limits.memory=1Gi"
    )
    assert cluster.apply(build("b")).ok
    assert used(cluster, "quota-terminating") == {"limits.cpu": "2", "limits.memory": "1Gi", "pods": "2"}
    assert used(cluster, "quota-longrunning") == {"limits.cpu": "0", "limits.memory": "0", "pods": "0"}


def test_every_pod_counts_in_the_quota_without_scopes(cluster: Offline) -> None:
    for number in range(4):
        assert cluster.apply(web(f"web-{number}")).ok
    assert cluster.apply(build("build")).ok
    assert cluster.apply(best_effort("idle")).ok
    assert used(cluster, "quota") == {"pods": "6", "replicationcontrollers": "0"}
    assert why(cluster.apply(best_effort("one-too-many"))) == (
        'pods "one-too-many" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=6, limited: pods=6'
    )


def test_a_refused_pod_is_charged_nowhere(cluster: Offline) -> None:
    before = {q.name: q.status() for q in cluster.ledger.quotas("default")}
    assert not cluster.apply(build("large", cpu="3")).ok
    assert {q.name: q.status() for q in cluster.ledger.quotas("default")} == before


def test_every_quota_that_refuses_is_named(cluster: Offline) -> None:
    cluster.apply(quota("cores", {"limits.cpu": "1"}))
    answer = cluster.apply(build("large", cpu="3"))
    assert [reason.split(",")[0] for reason in answer.outcome.because] == [
        "exceeded quota: cores",
        "exceeded quota: quota-terminating",
    ]


def test_a_pod_that_gets_a_deadline_moves_from_one_quota_to_the_other(cluster: Offline) -> None:
    cluster.apply(web("job", memory="512Mi"))
    moved = web("job", memory="512Mi")
    moved["spec"]["activeDeadlineSeconds"] = 60
    moved["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "512Mi"}
    assert cluster.apply(moved).verb == "configured"
    assert used(cluster, "quota-longrunning")["pods"] == "0"
    assert used(cluster, "quota-terminating") == {"limits.cpu": "1", "limits.memory": "512Mi", "pods": "1"}


def test_a_pod_may_not_move_into_a_quota_that_is_full(cluster: Offline) -> None:
    cluster.apply(build("a"))
    cluster.apply(build("b"))
    cluster.apply(web("job"))
    moved = web("job")
    moved["spec"]["activeDeadlineSeconds"] = 60
    assert why(cluster.apply(moved)) == (
        'pods "job" is forbidden: exceeded quota: quota-terminating, '
        "requested: limits.cpu=1,limits.memory=1Gi,pods=1, used: limits.cpu=2,limits.memory=1Gi,pods=2, "
        "limited: limits.cpu=2,limits.memory=1Gi,pods=2"
    )


def test_example_pods_run_under_the_scenario(cluster: Offline) -> None:
    lines = [cluster.apply(raw).line for raw in manifests("pods.yaml")]
    assert lines == ["pod/best-effort created", "pod/build created", "pod/web created"]
    assert used(cluster, "quota-longrunning") == {"limits.cpu": "1", "limits.memory": "1Gi", "pods": "1"}
