"""Kinds that are stored for others, and sets of pods: what somebody meets who writes one by hand.

All that can be wrong with them is asked of a real server too (`tests/stock/test_same_kinds.py`).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeqos.model import schema
from kubeqos.model.kinds import RESOURCES
from kubeqos.rules.validation.stored.rules import RULES
from kubeqos.rules.validation.stored.walk import TYPES
from tests.apiserver.examples import BODIES, TEMPLATE
from tests.rules.validation.test_validation import made, messages

Raw = dict[str, Any]
GROUPS = {each.kind: (each.group, each.version) for each in reversed(RESOURCES) if not each.kept_as}
CLUSTER_WIDE = {each.kind for each in RESOURCES if not each.namespaced}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
BACKEND = {"service": {"name": "x", "port": {"number": 80}}}


def said(kind: str, body: Raw) -> list[str]:
    meta = {"name": "x"} if kind in CLUSTER_WIDE else {"name": "x", "namespace": "n"}
    return messages(kind, made(kind, {"metadata": meta, **body}, *GROUPS[kind]))


def autoscaler(**spec: Any) -> list[str]:
    return said("HorizontalPodAutoscaler", {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}})


def metric(**fields: Any) -> Raw:
    return copy.deepcopy({**CPU, **fields})


def test_every_type_that_a_table_speaks_of_is_in_the_schema() -> None:
    for key, fields in TYPES.items():
        known = schema.type_named(key).fields
        assert set(fields) - {""} <= set(known), key


def test_every_kind_of_the_tables_is_served() -> None:
    assert set(RULES) <= {(each.group, each.version, each.kind) for each in RESOURCES}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, []),
        ({"maxReplicas": 0}, ["spec.maxReplicas: Required value",
                              "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`"]),
        ({"minReplicas": 4}, ["spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"]),
        ({"minReplicas": 0}, ["spec.metrics: Forbidden: must specify at least one Object or External metric to support "
                              "scaling to zero replicas"]),
        ({"scaleTargetRef": {"kind": "Deployment", "name": "x"}},
         ['spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group']),
        ({"metrics": [metric(type="Weather")]},
         ['spec.metrics[0].type: Unsupported value: "Weather": supported values: "ContainerResource", "External", '
          '"Object", "Pods", "Resource"']),
        ({"metrics": [{"type": "Pods"}]},
         ["spec.metrics[0].pods: Required value: must populate information for the given metric source"]),
        ({"metrics": [metric(pods={"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}})]},
         ["spec.metrics[0].pods: Forbidden: must populate the given metric source only"]),
        ({"metrics": [metric(resource={"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}})]},
         ["spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"]),
        ({"metrics": [metric(resource={"name": "cpu", "target": {"type": "Value", "value": "-1"}})]},
         ['spec.metrics[0].resource.target.value: Invalid value: "-1": must be positive',
          "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a "
          "target utilization"]),
        ({"behavior": {"scaleUp": {"policies": []}}},
         ["spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"]),
        ({"behavior": {"scaleDown": {"selectPolicy": "Some", "stabilizationWindowSeconds": 3601}}},
         ['spec.behavior.scaleDown.selectPolicy: Unsupported value: "Some": supported values: "Disabled", "Max", "Min"',
          "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to "
          "3600"]),
        ({"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 1801}]}}},
         ["spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
          "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero"]),
    ],
)  # fmt: skip
def test_an_autoscaler_that_could_not_scale(spec: Raw, wanted: list[str]) -> None:
    assert sorted(autoscaler(**spec)) == sorted(wanted)


def test_the_status_of_an_autoscaler_counts_from_zero() -> None:
    meta = {"name": "x", "namespace": "n"}
    old = made("HorizontalPodAutoscaler", {"metadata": meta, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}},
               "autoscaling", "v2")  # fmt: skip
    new = {**old, "status": {"currentReplicas": -1, "desiredReplicas": 0}}
    found = messages("HorizontalPodAutoscaler", new, old=old, operation="update", subresource="status")
    assert found == ["status.currentReplicas: Invalid value: -1: must be greater than or equal to 0"]


def ingress_path(**fields: Any) -> Raw:
    path = {"path": "/a", "pathType": "Prefix", "backend": BACKEND, **fields}
    return {"spec": {"rules": [{"http": {"paths": [path]}}]}}


PATH = "spec.rules[0].http.paths[0]"


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("Ingress", ingress_path(), []),
        ("Ingress", ingress_path(pathType="Regex"),
         [f'{PATH}.pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", '
          '"Prefix"']),
        ("Ingress", ingress_path(pathType=None), [f"{PATH}.pathType: Required value: pathType must be specified"]),
        ("Ingress", ingress_path(path="a"), [f'{PATH}.path: Invalid value: "a": must be an absolute path']),
        ("Ingress", ingress_path(backend={"service": {"name": "x"}}),
         [f"{PATH}.backend: Required value: port name or number is required"]),
        ("Ingress", {"spec": {}}, ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
        ("NetworkPolicy", {"spec": {"ingress": [{"from": [{}]}]}},
         ["spec.ingress[0].from[0]: Required value: must specify a peer"]),
        ("NetworkPolicy", {"spec": {"egress": [{"ports": [{"endPort": 9}]}]}},
         ["spec.egress[0].ports[0].endPort: Invalid value: 9: may not be specified when `port` is not specified"]),
        ("NetworkPolicy",
         {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}]}]}},
         ['spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "11.0.0.0/8": must be a strict subset of '
          "`cidr`"]),
        ("PersistentVolume", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}},
         ["spec: Required value: must specify a volume type"]),
        ("PersistentVolume",
         {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/x"}}},
         ["spec.nodeAffinity: Required value: Local volume requires node affinity"]),
        ("StorageClass", {"provisioner": "x.example", "volumeBindingMode": "Later"},
         ['volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"']),
        ("EndpointSlice", {"addressType": "IPv6", "endpoints": [{"addresses": ["192.0.2.1"]}]},
         ['endpoints[0].addresses: Invalid value: "192.0.2.1": must be an IPv6 address']),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]},
         ['subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, '
          "::1/128)"]),
        ("ValidatingWebhookConfiguration",
         {"webhooks": [{"name": "a.b.c", "clientConfig": {"url": "http://x/"}, "sideEffects": "None",
                        "admissionReviewVersions": ["v1"], "timeoutSeconds": 31}]},
         ["webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired "
          "format: https://host[/path]",
          "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"]),
        ("PriorityLevelConfiguration", {"spec": {"type": "Limited"}},
         ["spec.limited: Required value"]),
    ],
)  # fmt: skip
def test_what_people_get_wrong(kind: str, body: Raw, wanted: list[str]) -> None:
    assert said(kind, body) == wanted


@pytest.mark.parametrize(
    ("kind", "change", "wanted"),
    [
        ("DaemonSet", {}, []),
        ("DaemonSet", {"selector": {"matchLabels": {"app": "y"}}},
         ['spec.template.metadata.labels: Invalid value: {"app":"x"}: `selector` does not match template `labels`']),
        ("DaemonSet", {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}},
         ["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]),
        ("DaemonSet", {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
         ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"']),
        ("StatefulSet", {}, []),
        ("StatefulSet", {"replicas": -1}, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        ("StatefulSet", {"podManagementPolicy": "Any"},
         ["spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'"]),
        ("StatefulSet", {"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["Mine"]}}]},
         ['spec.volumeClaimTemplates[0].spec.accessModes: Unsupported value: "Mine": supported values: "ReadOnlyMany", '
          '"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
          "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"]),
    ],
)  # fmt: skip
def test_sets_are_judged_as_deployments_are(kind: str, change: Raw, wanted: list[str]) -> None:
    assert said(kind, {"spec": {**BODIES[kind]["spec"], **change}}) == wanted


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("DaemonSet", "selector", {"matchLabels": {"a": "b"}}), ("StatefulSet", "serviceName", "other")],
)
def test_what_a_set_is_cannot_change(kind: str, field: str, value: Any) -> None:
    old = made(kind, {"metadata": {"name": "x", "namespace": "n"}, **BODIES[kind]}, "apps")
    new = {**old, "spec": {**old["spec"], field: value}}
    found = messages(kind, new, old=old, operation="update")
    assert [one for one in found if one.startswith(f"spec.{field}: ") and one.endswith("field is immutable")]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"succeededIndexes": "0,2-3"}, []),
        ({"succeededIndexes": "2,1"}, ["succeededIndexes"]),
        ({"succeededIndexes": "0-9"}, ["succeededIndexes"]),
        ({"succeededIndexes": "0-1", "succeededCount": 3}, ["succeededCount"]),
        ({}, [""]),
    ],
)
def test_when_a_job_has_succeeded(rule: Raw, wanted: list[str]) -> None:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    spec = {"completionMode": "Indexed", "completions": 5, "template": template, "successPolicy": {"rules": [rule]}}
    found = said("Job", {"spec": spec})
    assert [one.partition(":")[0] for one in found if "successPolicy" in one] == [
        "spec.successPolicy.rules[0]" + (f".{field}" if field else "") for field in wanted
    ]
