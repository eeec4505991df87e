"""Quota scoping and LimitRanges with kubectl: the proposal's own scenario, with its own numbers."""

from __future__ import annotations

import re

import pytest

from tests.scenarios.kubectl import Kubectl, Refused, pod

pytestmark = pytest.mark.kubectl


def quota(name: str, hard: dict[str, str], *scopes: str) -> dict[str, object]:
    spec: dict[str, object] = {"hard": hard, "scopes": list(scopes)}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}


def used(kubectl: Kubectl, namespace: str, name: str) -> dict[str, str]:
    found: dict[str, str] = kubectl.object("get", "quota", name, "-n", namespace)["status"]["used"]
    return found


def test_scoped_quotas_count_what_their_scopes_say(kubectl: Kubectl) -> None:
    """resource-quota-scoping, scenario 1: long-running, terminating and best-effort pods have budgets of their own."""
    kubectl("create", "namespace", "scoped")
    here = ("-n", "scoped")
    kubectl("create", "-f", "-", *here, stdin=quota("quota", {"pods": "100"}))
    long_running = {"pods": "4", "limits.memory": "4G", "limits.cpu": "4"}
    terminating = {"pods": "2", "limits.memory": "2G", "limits.cpu": "2"}
    kubectl("create", "-f", "-", *here, stdin=quota("long", long_running, "NotTerminating", "NotBestEffort"))
    kubectl("create", "-f", "-", *here, stdin=quota("short", terminating, "Terminating", "NotBestEffort"))
    kubectl("create", "quota", "besteffort", "--hard=pods=1", "--scopes=BestEffort", *here)
    limits = {"cpu": "1", "memory": "1G"}
    for index in range(4):
        kubectl("create", "-f", "-", *here, stdin=pod(f"web-{index}", limits=limits))
    with pytest.raises(Refused, match="exceeded quota: long, requested: "):
        kubectl("create", "-f", "-", *here, stdin=pod("web-4", limits=limits))
    for index in range(2):
        kubectl("create", "-f", "-", *here, stdin=pod(f"job-{index}", limits=limits, activeDeadlineSeconds=60))
    with pytest.raises(Refused, match="exceeded quota: short, requested: "):
        kubectl("create", "-f", "-", *here, stdin=pod("job-2", limits=limits, activeDeadlineSeconds=60))
    kubectl("create", "-f", "-", *here, stdin=pod("idle"))
    with pytest.raises(Refused, match="exceeded quota: besteffort, requested: pods=1, used: pods=1, limited: pods=1"):
        kubectl("create", "-f", "-", *here, stdin=pod("idle-2"))
    assert used(kubectl, "scoped", "long") == {"limits.cpu": "4", "limits.memory": "4G", "pods": "4"}
    assert used(kubectl, "scoped", "short") == {"limits.cpu": "2", "limits.memory": "2G", "pods": "2"}
    assert used(kubectl, "scoped", "quota") == {"pods": "7"}
    assert "limits.memory  4G    4G" in kubectl("describe", "quota", "long", *here)
    kubectl("delete", "pod", "web-0", *here)
    assert used(kubectl, "scoped", "long")["pods"] == "3"
    kubectl("create", "-f", "-", *here, stdin=pod("web-5", limits=limits))


def test_misspelt_names_are_corrected(kubectl: Kubectl) -> None:
    with pytest.raises(Refused, match=r"limits\.memory"):
        kubectl("create", "-f", "-", stdin=quota("wrong", {"memory.limit": "1Gi"}))


def test_a_limit_range_fills_in_and_bounds(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "limited")
    item = {"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [item]}}
    kubectl("create", "-f", "-", "-n", "limited", stdin=body)
    assert re.search(r"Container +cpu +- +1 +100m +200m", kubectl("describe", "limits", "l", "-n", "limited"))
    kubectl("create", "-f", "-", "-n", "limited", stdin=pod("plain"))
    found = kubectl.object("get", "pod", "plain", "-n", "limited")
    assert found["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}}
    assert found["metadata"]["annotations"]["kubernetes.io/limit-ranger"].startswith("LimitRanger plugin set: cpu")
    with pytest.raises(Refused, match="maximum cpu usage per Container is 1, but limit is 2"):
        kubectl("create", "-f", "-", "-n", "limited", stdin=pod("big", limits={"cpu": "2"}))
