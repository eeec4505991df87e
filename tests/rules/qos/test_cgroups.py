"""Cgroup values, memory QoS and OOM scores."""

from __future__ import annotations

from typing import Any

from kubeqos.model.objects import PodSpec, PodView, convert
from kubeqos.rules.qos.cgroups import (
    CgroupSettings,
    MemoryPolicy,
    NodeMemory,
    cgroup_parent,
    container_values,
    oom_score_adj,
    pod_values,
    weight,
)
from kubeqos.rules.qos.podqos import QosClass

GI = 1 << 30
NODE = NodeMemory(capacity_bytes=64 * GI, allocatable_bytes=60 * GI)


def spec(requests: dict[str, str], limits: dict[str, str], **more: Any) -> PodSpec:
    resources = {"requests": requests, "limits": limits}
    return convert({"containers": [{"name": "c", "resources": resources}], **more}, PodSpec)


def test_memory_qos_reserves_the_request_and_throttles_before_the_limit() -> None:
    pod = spec({"memory": "1Gi"}, {"memory": "2Gi"})
    values = container_values(pod, pod.containers[0], QosClass.BURSTABLE, NODE, CgroupSettings())
    assert values.unified == {"memory.min": str(GI), "memory.high": str(int(1.9 * GI) // 4096 * 4096)}


def test_without_a_limit_throttling_is_measured_against_the_node() -> None:
    pod = spec({"memory": "10Gi"}, {})
    values = container_values(pod, pod.containers[0], QosClass.BURSTABLE, NODE, CgroupSettings())
    assert values.unified["memory.high"] == str(int(10 * GI + 50 * GI * 0.9) // 4096 * 4096)


def test_a_container_without_limits_is_not_held_back_and_so_is_its_pod() -> None:
    """pod-qos, Burstable: such a pod "can try to use any amount of node resource"."""
    limited = {"name": "limited", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    pod = convert({"containers": [{"name": "free"}, limited]}, PodSpec)
    for values in (
        container_values(pod, pod.containers[0], QosClass.BURSTABLE, NODE, CgroupSettings()),
        pod_values(pod, QosClass.BURSTABLE, NODE, CgroupSettings()),
    ):
        assert not values.cpu_quota_us and not values.memory_limit_bytes  # 0 is none


def test_guaranteed_memory_is_reserved_and_never_throttled() -> None:
    pod = spec({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
    values = container_values(pod, pod.containers[0], QosClass.GUARANTEED, NODE, CgroupSettings())
    assert values.unified == {"memory.min": str(GI)}


def test_the_tiered_policy_protects_burstable_pods_softly() -> None:
    pod = spec({"memory": "1Gi"}, {"memory": "2Gi"})
    settings = CgroupSettings(MemoryPolicy.TIERED, throttling_factor=None)
    assert pod_values(pod, QosClass.BURSTABLE, NODE, settings).unified == {"memory.low": str(GI)}


def test_oom_scores_follow_the_class() -> None:
    pod = spec({"memory": "32Gi"}, {})
    only = pod.containers[0]
    assert oom_score_adj(pod, only, QosClass.GUARANTEED, NODE.capacity_bytes) == -997
    assert oom_score_adj(pod, only, QosClass.BEST_EFFORT, NODE.capacity_bytes) == 1000
    assert oom_score_adj(pod, only, QosClass.BURSTABLE, NODE.capacity_bytes) == 500


def test_cgroup_names_of_both_drivers() -> None:
    pod = PodView.of({"metadata": {"uid": "a-b"}})
    assert cgroup_parent(pod, QosClass.GUARANTEED) == "/kubepods/poda-b"
    assert cgroup_parent(pod, QosClass.BURSTABLE) == "/kubepods/burstable/poda-b"
    assert (
        cgroup_parent(pod, QosClass.BEST_EFFORT, "systemd")
        == "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"
    )


def test_shares_become_weights() -> None:
    assert (weight(2), weight(1024), weight(262144)) == (1, 39, 10000)
