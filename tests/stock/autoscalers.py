"""Autoscalers in both of their forms, and what is done to them: for `test_same_answers`."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
ALPHA = "autoscaling.alpha.kubernetes.io/"
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
MEMORY = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "0.5Gi"}}
METRIC = {
    "name": "queue",
    "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]},
}
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
METRICS: list[Raw] = [
    {"type": "Resource", "resource": CPU},
    {"type": "Resource", "resource": MEMORY},
    {"type": "ContainerResource", "containerResource": {**MEMORY, "container": "web"}},
    {"type": "Pods", "pods": {"metric": METRIC, "target": {"type": "AverageValue", "averageValue": "1k"}}},
    {"type": "Object", "object": {"metric": {"name": "hits<>&"}, "describedObject": INGRESS,
                                  "target": {"type": "Value", "value": "10"}}},
    {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": INGRESS,
                                  "target": {"type": "AverageValue", "averageValue": "10"}}},
    {"type": "External", "external": {"metric": METRIC, "target": {"type": "Value", "value": "30"}}},
    {"type": "External", "external": {"metric": METRIC, "target": {"type": "AverageValue", "averageValue": "30"}}},
]  # fmt: skip
SEEN: list[Raw] = [
    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "3m"}}},
    {"type": "Pods", "pods": {"metric": METRIC, "current": {"averageValue": "2"}}},
    {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": INGRESS, "current": {"value": "1"}}},
    {"type": "External", "external": {"metric": METRIC, "current": {"averageValue": "4"}}},
    {"type": "ContainerResource",
     "containerResource": {"name": "cpu", "container": "web", "current": {"averageUtilization": 9}}},
]  # fmt: skip
RULE = '{"StabilizationWindowSeconds":1,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":9}]}'
RULES = f'{{"ScaleUp":{RULE},"ScaleDown":{RULE}}}'
CONDITION = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Ready"}


def newer(name: str, **spec: Any) -> Raw:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": ref, "maxReplicas": 5, **spec}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


def older(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    made = newer(name, **spec) | {"apiVersion": "autoscaling/v1"}
    return made if annotations is None else made | {"metadata": {"name": name, "annotations": annotations}}


MADE: list[Raw] = [
    newer("plain"),
    newer("all", metrics=METRICS, minReplicas=2),
    newer("behaves", behavior={"scaleDown": {"stabilizationWindowSeconds": 60, "tolerance": "0.05"}}),
    newer("policies", behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 9}]}}),
    older("old"),
    older("old-cpu", targetCPUUtilizationPercentage=33),
    older("old-kept", {f"{ALPHA}metrics": '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"2"}}]',
                       f"{ALPHA}behavior": RULES, "mine": "stays"},
          targetCPUUtilizationPercentage=10),
    older("old-broken", {f"{ALPHA}metrics": "[{", f"{ALPHA}behavior": "7", f"{ALPHA}conditions": '["x"]'}),
    older("old-wrong", {f"{ALPHA}metrics": '[{"type":"Pods","pods":{"targetAverageValue":"much"}}]'}),
    older("Refused", targetCPUUtilizationPercentage=33),
    older("old-words", targetCPUUtilizationPercentage="many"),
]  # fmt: skip
STATUS = {"observedGeneration": 3, "lastScaleTime": "2026-01-02T03:04:05Z", "currentReplicas": 2, "desiredReplicas": 4}
CHANGES: list[tuple[str, str, str, Any]] = [
    ("v1", "all", "", {"spec": {"maxReplicas": 7}}),
    ("v1", "all", "", {"spec": {"targetCPUUtilizationPercentage": 60}}),
    ("v2", "all", "/status", {"status": {**STATUS, "currentMetrics": SEEN, "conditions": [CONDITION]}}),
    ("v1", "all", "", {"metadata": {"labels": {"a": "b"}}}),
    ("v1", "all", "", {"metadata": {"annotations": {f"{ALPHA}metrics": None}}}),
    ("v1", "old", "/status", {"status": {**STATUS, "currentCPUUtilizationPercentage": 12}}),
    ("v2", "old", "", {"spec": {"metrics": [{"type": "Resource", "resource": MEMORY}]}}),
    ("v1", "behaves", "", {"spec": {"minReplicas": 2}}),
    ("v1", "behaves", "", {"metadata": {"annotations": {f"{ALPHA}behavior": RULES}}}),
    ("v1", "plain", "", {"spec": {"targetCPUUtilizationPercentage": None}}),
]
"""Version, name, subresource, merge patch."""
