"""quota-scoping in its own words: tracked resources, the four scopes, what each may track, and intersections."""

from __future__ import annotations

import pytest

from kubeqos.rules.offline import Offline
from tests.rules.quota.objects import Raw, container, pod, quota, used, why

COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
POD_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")


def busy(name: str, cpu: str = "1", memory: str = "1Gi", **spec: object) -> Raw:
    amounts = {"cpu": cpu, "memory": memory}
    return pod(name, container(requests=amounts, limits={"cpu": "2", "memory": "2Gi"}), **spec)


def test_requests_and_limits_are_tracked_under_the_six_names() -> None:
    cluster = Offline()
    assert cluster.apply(quota("q", dict.fromkeys(COMPUTE, "100Gi"))).ok
    assert cluster.apply(busy("web")).ok
    assert used(cluster, "q") == {
        "cpu": "1",
        "memory": "1Gi",
        "requests.cpu": "1",
        "requests.memory": "1Gi",
        "limits.cpu": "2",
        "limits.memory": "2Gi",
    }


def test_a_quota_of_limits_alone_leaves_requests_to_others() -> None:
    """The cluster-admin exposes the limit, and sets the request by other means."""
    cluster = Offline()
    assert cluster.apply(quota("q", {"limits.cpu": "3"})).ok
    assert cluster.apply(pod("a", container(limits={"cpu": "2"}, requests={"cpu": "100m"}))).ok
    assert "exceeded quota: q, requested: limits.cpu=2" in why(cluster.apply(pod("b", container(limits={"cpu": "2"}))))


def test_a_quota_of_requests_keeps_best_effort_pods_out_and_one_that_excludes_them_does_not() -> None:
    strict, fair = Offline(), Offline()
    hard = {"requests.cpu": "10", "requests.memory": "10Gi"}
    assert strict.apply(quota("q", hard)).ok and fair.apply(quota("q", hard, "NotBestEffort")).ok
    assert "must specify requests.cpu" in why(strict.apply(pod("free")))
    assert fair.apply(pod("free")).ok
    assert used(fair, "q") == {"requests.cpu": "0", "requests.memory": "0"}


def test_active_best_effort_pods_are_capped_by_number() -> None:
    cluster = Offline()
    assert cluster.apply(quota("q", {"pods": "1"}, "BestEffort")).ok
    assert cluster.apply(pod("one")).ok and cluster.apply(busy("other")).ok
    assert "exceeded quota: q" in why(cluster.apply(pod("two")))


@pytest.mark.parametrize(
    ("deadline", "scope"),
    [(0, "Terminating"), (600, "Terminating"), (None, "NotTerminating")],
    ids=["zero", "positive", "none"],
)
def test_a_deadline_of_0_or_more_is_terminating_and_none_is_not(deadline: int | None, scope: str) -> None:
    cluster = Offline()
    for each in ("Terminating", "NotTerminating"):
        assert cluster.apply(quota(each.lower(), {"pods": "9"}, each)).ok
    raw = busy("web", **({} if deadline is None else {"activeDeadlineSeconds": deadline}))
    answer = cluster.apply(raw)
    if deadline == 0:
        assert "must be between 1 and" in why(answer)  # Kubernetes' own validation takes the edge of the sentence away
        return
    assert answer.ok
    assert used(cluster, scope.lower()) == {"pods": "1"}
    other = {"terminating": "notterminating", "notterminating": "terminating"}[scope.lower()]
    assert used(cluster, other) == {"pods": "0"}


@pytest.mark.parametrize("resource", ["pods", *COMPUTE])
@pytest.mark.parametrize("scope", POD_SCOPES)
def test_what_a_scope_may_track(scope: str, resource: str) -> None:
    answer = Offline().apply(quota("q", {resource: "1"}, scope))
    if scope == "BestEffort" and resource != "pods":
        assert "unsupported scope applied to resource" in why(answer)
    else:
        assert answer.ok


@pytest.mark.parametrize("scope", POD_SCOPES)
def test_a_resource_outside_of_the_allowed_set_is_a_validation_error(scope: str) -> None:
    assert "unsupported scope applied to resource" in why(Offline().apply(quota("q", {"services": "1"}, scope)))


def test_a_quota_measures_the_intersection_of_its_scopes() -> None:
    cluster = Offline()
    assert cluster.apply(quota("q", {"pods": "9"}, "Terminating", "NotBestEffort")).ok
    for raw in (
        busy("both", activeDeadlineSeconds=60),
        busy("long"),
        pod("short", activeDeadlineSeconds=60),
        pod("neither"),
    ):
        assert cluster.apply(raw).ok
    assert used(cluster, "q") == {"pods": "1"}


@pytest.mark.parametrize(("one", "other"), [("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort")])
def test_scopes_that_exclude_each_other_are_refused(one: str, other: str) -> None:
    assert "conflicting scopes" in why(Offline().apply(quota("q", {"pods": "1"}, one, other)))


def test_without_scopes_a_quota_matches_all_objects() -> None:
    cluster = Offline()
    assert cluster.apply(quota("q", {"pods": "9", "services": "9"})).ok
    for raw in (pod("free"), busy("web"), busy("build", activeDeadlineSeconds=60)):
        assert cluster.apply(raw).ok
    assert used(cluster, "q") == {"pods": "3", "services": "0"}
