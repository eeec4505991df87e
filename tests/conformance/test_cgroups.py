"""Cgroup values, memory QoS and OOM scores as the real node computes them (`oom_memoryqos`)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.objects import PodSpec, convert
from kubeqos.rules.qos.cgroups import (
    CgroupSettings,
    CgroupValues,
    MemoryPolicy,
    NodeMemory,
    container_values,
    oom_score_adj,
    pod_values,
)
from kubeqos.rules.qos.podqos import spec_qos_class
from tests.conformance.recorded import cases


def shown(values: CgroupValues, memory_key: str) -> dict[str, Any]:
    """Our values under the recorded names, unset ones left out."""
    named = {
        "cpu_shares": values.cpu_shares,
        "cpu_quota": values.cpu_quota_us,
        "cpu_period": values.cpu_period_us,
        memory_key: values.memory_limit_bytes,
        "hugepages": values.hugepage_limits or None,
        "unified": values.unified or None,
    }
    return {name: value for name, value in named.items() if value is not None}


@pytest.mark.parametrize("case", cases("oom_memoryqos"), ids=lambda case: str(case["id"]))
def test_node_values(case: dict[str, Any]) -> None:
    spec, config = convert(case["pod_spec"], PodSpec), case["config"]
    qos = spec_qos_class(spec).qos_class
    policy = MemoryPolicy(config["reservation_policy"]) if config["memory_qos"] else MemoryPolicy.OFF
    settings = CgroupSettings(policy, config["throttling_factor"], config["cpu_cfs_quota"], config["cpu_cfs_period"])
    node = NodeMemory(case["node"]["memory_capacity"], case["node"]["memory_allocatable"])
    containers = [
        {
            "name": container.name,
            "oom_score_adj": oom_score_adj(spec, container, qos, node.capacity_bytes),
            **shown(container_values(spec, container, qos, node, settings), "memory_limit"),
        }
        for container in (*spec.init_containers, *spec.containers)
    ]
    assert str(qos) == case["qos_class"]
    assert shown(pod_values(spec, qos, node, settings), "memory") == case["pod_cgroup"]
    assert containers == case["containers"]
