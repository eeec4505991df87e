"""LimitRange: what is filled in, what is refused."""

from __future__ import annotations

import pytest

from kubeqos.rules.limits import default_limit_range
from kubeqos.rules.offline import Offline
from tests.rules.quota.objects import Raw, container, limit_range, pod, why

CONTAINER = "Container"


def cluster_with(*ranges: Raw) -> Offline:
    cluster = Offline()
    for raw in ranges:
        assert cluster.apply(raw).ok
    return cluster


def test_a_limit_range_is_completed_for_containers_only() -> None:
    raw = limit_range({"type": CONTAINER, "max": {"cpu": "1"}, "min": {"memory": "10Mi"}})
    default_limit_range(raw)
    [item] = raw["spec"]["limits"]
    assert (item["default"], item["defaultRequest"]) == ({"cpu": "1"}, {"memory": "10Mi", "cpu": "1"})
    untouched = limit_range({"type": "Pod", "max": {"cpu": "1"}})
    default_limit_range(untouched)
    assert untouched["spec"]["limits"] == [{"type": "Pod", "max": {"cpu": "1"}}]


def test_what_a_container_leaves_out_is_filled_in_and_told() -> None:
    cluster = cluster_with(limit_range({"type": CONTAINER, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}))
    stored = cluster.apply(pod("p", container("a"), initContainers=[container("i", requests={"cpu": "500m"})])).object
    assert stored is not None
    assert stored["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert stored["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: cpu request for container a; cpu limit for container a; "
            "cpu limit for init container i"
        )
    }
    assert stored["status"]["qosClass"] == "Burstable"


def test_of_two_limit_ranges_the_first_by_name_fills_in() -> None:
    cluster = cluster_with(
        limit_range({"type": CONTAINER, "defaultRequest": {"cpu": "2", "memory": "1Gi"}}, name="b"),
        limit_range({"type": CONTAINER, "defaultRequest": {"cpu": "1"}}, name="a"),
    )
    stored = cluster.apply(pod("p")).object
    assert stored is not None
    assert stored["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("item", "raw", "violations"),
    [
        (
            {"type": "Pod", "min": {"cpu": "100m"}},
            pod("p"),
            "minimum cpu usage per Pod is 100m.  No request is specified",
        ),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            pod("p", container(limits={"memory": "768Mi"}), container("side", limits={"memory": "768Mi"})),
            "maximum memory usage per Pod is 1Gi, but limit is 1536Mi",
        ),
        (
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
            pod("p", container(requests={"cpu": "100m"}, limits={"cpu": "250m"})),
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 2.500000",
        ),
        (
            {"type": CONTAINER, "min": {"memory": "10Mi"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}},
            pod("p", container(requests={"cpu": "100m", "memory": "5Mi"}, limits={"cpu": "2"})),
            "[minimum memory usage per Container is 10Mi, but request is 5Mi, "
            "maximum cpu usage per Container is 1, but limit is 2, "
            "cpu max limit to request ratio per Container is 2, but provided ratio is 20.000000]",
        ),
    ],
)
def test_bounds(item: Raw, raw: Raw, violations: str) -> None:
    assert why(cluster_with(limit_range(item)).apply(raw)) == f'pods "p" is forbidden: {violations}'


def test_amounts_beyond_all_measure_are_judged_too() -> None:
    cluster = cluster_with(limit_range({"type": "Pod", "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}))
    assert why(cluster.apply(pod("p", container(requests={"cpu": "1"}, limits={"cpu": "1e400"})))) == (
        'pods "p" is forbidden: [maximum cpu usage per Pod is 1, but limit is 10e399, '
        "cpu max limit to request ratio per Pod is 2, but provided ratio is 9223372036854775808.000000]"
    )


def test_overhead_is_not_the_users_to_answer_for() -> None:
    cluster = cluster_with(limit_range({"type": "Pod", "max": {"cpu": "1"}}))
    assert cluster.apply(pod("p", container(limits={"cpu": "1"}), overhead={"cpu": "1"})).ok


def test_claims_are_judged_by_what_they_request() -> None:
    cluster = cluster_with(
        limit_range({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
    )

    def claim(name: str, storage: str) -> Raw:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}

    assert cluster.apply(claim("fits", "2Gi")).ok
    assert why(cluster.apply(claim("large", "3Gi"))) == (
        'persistentvolumeclaims "large" is forbidden: '
        "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
    )
