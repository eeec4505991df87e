"""Random changes of objects: the same change for both servers, made from what each of them holds.

A change is data (edits of paths, a patch, a body for a subresource), so that it can be sent to two servers whose
objects differ in uid, version and times.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Obj = dict[str, Any]
Edit = tuple[tuple[str | int, ...], Any]
GONE = object()
"""The value of an edit that takes a field away."""

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass
class Change:
    """One request, but for what it takes from the object that a server holds."""

    method: str
    subresource: str = ""
    edits: list[Edit] = field(default_factory=list)
    body: Any = None
    content_type: str = "application/json"
    query: str = ""

    def sent(self, held: Obj) -> Any:
        """The body for a server that holds this object."""
        if self.method != "PUT":
            return self.body
        obj = copy.deepcopy(held)
        for path, value in self.edits:
            edit(obj, path, value)
        return obj


def edit(obj: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Set or take away what is at a path; parents that are missing are made."""
    for key, following in pairwise(path):
        if isinstance(key, int):
            if not isinstance(obj, list) or key >= len(obj):
                return
            obj = obj[key]
        else:
            if obj.get(key) is None:
                obj[key] = [] if isinstance(following, int) else {}
            obj = obj[key]
    last = path[-1]
    if isinstance(last, int):
        if last < len(obj):
            obj[last] = value
        elif value is not GONE:
            obj.append(value)
    elif value is GONE:
        obj.pop(last, None)
    else:
        obj[last] = value


META: list[Edit] = [
    (("metadata", "labels"), {"app": "web"}), (("metadata", "labels"), {"app": "bad value"}),
    (("metadata", "labels"), GONE), (("metadata", "annotations"), {"a": "b"}), (("metadata", "annotations"), {"": "b"}),
    (("metadata", "finalizers"), ["example.com/x"]), (("metadata", "finalizers"), ["x"]), (("metadata",
    "finalizers"), GONE),
    (("metadata", "name"), "other"), (("metadata", "namespace"), "other"), (("metadata", "uid"), "other"),
    (("metadata", "resourceVersion"), "1"), (("metadata", "resourceVersion"), GONE), (("metadata", "generation"), 7),
    (("metadata", "creationTimestamp"), "2020-01-01T00:00:00Z"), (("metadata", "creationTimestamp"), GONE),
    (("metadata", "deletionTimestamp"), "2020-01-01T00:00:00Z"), (("metadata", "generateName"), "x-"),
    (("metadata", "deletionGracePeriodSeconds"), 3),
    (("metadata", "managedFields"), []), (("metadata", "namespace"), GONE),
    (("metadata", "ownerReferences"), [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]),
    (("metadata", "ownerReferences"), [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]),
    (("kind",), "Service"), (("apiVersion",), "v2"), (("kind",), GONE), (("unknown",), 1),
]  # fmt: skip
TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
POD: list[Edit] = [
    (("spec", "containers", 0, "image"), "app:2"), (("spec", "containers", 0, "image"), ""),
    (("spec", "containers", 0, "image"), " app"), (("spec", "containers", 0, "name"), "other"),
    (("spec", "containers", 0, "resources"), {"requests": {"cpu": "2"}}), (("spec", "containers", 0, "resources"), {}),
    (("spec", "containers", 0, "env"), [{"name": "A", "value": "b"}]), (("spec", "containers"), []),
    (("spec", "containers", 1), {"name": "second", "image": "x"}), (("spec", "activeDeadlineSeconds"), 5),
    (("spec", "activeDeadlineSeconds"), 50), (("spec", "activeDeadlineSeconds"), GONE),
    (("spec", "activeDeadlineSeconds"), -1), (("spec", "terminationGracePeriodSeconds"), 1),
    (("spec", "terminationGracePeriodSeconds"), 7), (("spec", "tolerations"), [TOLERATION]),
    (("spec", "tolerations"), GONE), (("spec", "tolerations", 9), TOLERATION),
    (("spec", "tolerations", 9), {**TOLERATION, "tolerationSeconds": 9}), (("spec", "tolerations", 9),
    {"operator": "Bad"}),
    (("spec", "nodeName"), "n2"), (("spec", "nodeName"), GONE), (("spec", "schedulingGates"),
    [{"name": "example.com/a"}]),
    (("spec", "schedulingGates"), GONE), (("spec", "schedulingGates"), [{"name": "example.com/b"}]),
    (("spec", "nodeSelector"), {"disk": "ssd"}), (("spec", "nodeSelector"), GONE), (("spec", "priority"), 5),
    (("spec", "priorityClassName"), "system-node-critical"), (("spec", "serviceAccountName"), "robot"),
    (("spec", "hostNetwork"), True), (("spec", "restartPolicy"), "Never"), (("spec", "runtimeClassName"), "kata"),
    (("spec", "volumes"), [{"name": "w", "emptyDir": {}}]), (("spec", "preemptionPolicy"), "Never"),
    (("spec", "ephemeralContainers"), [{"name": "debug", "image": "x"}]), (("spec", "dnsPolicy"), "Default"),
    (("spec", "initContainers", 0, "image"), "init:2"), (("spec", "schedulerName"), "other"),
    (("spec", "securityContext"), {"runAsUser": 5}), (("spec",), GONE),
]  # fmt: skip
RUNNING = {"name": "main", "image": "app:1", "imageID": "i", "ready": True, "restartCount": 0, "state": {"running": {}}}
ENDED = {"terminated": {"exitCode": 1}}
POD_STATUS: list[Edit] = [
    (("status", "phase"), "Running"), (("status", "phase"), "Bogus"), (("status", "phase"), "Succeeded"),
    (("status", "podIP"), "10.0.0.1"), (("status", "podIP"), "bad"), (("status", "podIP"), GONE),
    (("status", "podIPs"), [{"ip": "10.0.0.2"}]), (("status", "podIPs"), [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]),
    (("status", "podIPs"), [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]), (("status", "podIPs"), [{"ip": "x"}]),
    (("status", "podIPs"), GONE), (("status", "hostIP"), "10.1.0.1"), (("status", "hostIPs"), [{"ip": "10.1.0.1"}]),
    (("status", "hostIPs"), [{"ip": "10.1.0.2"}]), (("status", "hostIP"), GONE), (("status", "hostIPs"), GONE),
    (("status", "nominatedNodeName"), "n1"), (("status", "nominatedNodeName"), "Bad Name"),
    (("status", "nominatedNodeName"), GONE), (("status", "qosClass"), "Guaranteed"), (("status", "qosClass"), GONE),
    (("status", "conditions"), [{"type": "Ready", "status": "True"}]),
    (("status", "conditions"), [{"type": "Ready", "status": "Perhaps"}]),
    (("status", "conditions"), [{"type": "Bad Type", "status": "True"}]),
    (("status", "containerStatuses"), [RUNNING]), (("status", "containerStatuses"), [{**RUNNING, "state": ENDED}]),
    (("status", "containerStatuses"), [{**RUNNING, "name": "stranger"}]), (("status", "containerStatuses"), GONE),
    (("status", "containerStatuses"), [RUNNING, RUNNING]), (("status", "resize"), "Deferred"),
    (("status", "message"), "m"), (("status", "reason"), "r"), (("status", "observedGeneration"), 3),
    (("status", "observedGeneration"), -3), (("status", "startTime"), "2020-01-01T00:00:00Z"), (("status",), GONE),
    (("status", "resourceClaimStatuses"), [{"name": "nobody"}]), (("metadata", "labels"), {"by": "status"}),
    (("spec", "nodeName"), "n3"), (("spec", "containers", 0, "image"), "app:3"), (("metadata", "finalizers"),
    ["a.b/c"]),
    (("metadata", "ownerReferences"), [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]),
]  # fmt: skip
RESIZE: list[Edit] = [
    (("spec", "containers", 0, "resources"), {"requests": {"cpu": cpu}, "limits": {"cpu": limit}})
    for cpu in ("100m", "1", "x", "-1") for limit in ("1", "2", "50m")
] + [
    (("spec", "containers", 0, "resources"), {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}),
    (("spec", "containers", 0, "resources"), {}), (("spec", "containers", 0, "resources"), GONE),
    (("spec", "containers", 0, "resources", "requests", "cpu"), "300m"),
    (("spec", "containers", 0, "resources", "requests", "example.com/x"), "1"),
    (("spec", "containers", 0, "resizePolicy"), [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
    (("spec", "containers", 0, "image"), "app:4"), (("spec", "initContainers", 0, "resources"),
    {"requests": {"cpu": "1"}}),
    (("metadata", "labels"), {"by": "resize"}), (("spec", "nodeName"), "n4"), (("status", "phase"), "Running"),
]  # fmt: skip
EPHEMERAL: list[Edit] = [
    (("spec", "ephemeralContainers", 9), {"name": name, "image": "x", **more})
    for name in ("debug", "second", "main", "Bad Name")
    for more in ({}, {"targetContainerName": "main"}, {"targetContainerName": "nobody"},
        {"ports": [{"containerPort": 1}]})
] + [(("spec", "ephemeralContainers"), GONE), (("spec", "containers", 0, "image"), "app:5")]  # fmt: skip
OTHERS: dict[str, list[Edit]] = {
    "configmaps": [
        (("data",), {"a": "b"}), (("data",), {"bad key": "b"}), (("binaryData",), {"a": "YQ=="}), (("immutable",),
        True),
        (("immutable",), False), (("data",), GONE), (("binaryData",), {"b": "no base64!"}),
    ],
    "secrets": [
        (("data",), {"a": "YQ=="}), (("stringData",), {"s": "t"}), (("type",), "kubernetes.io/tls"),
        (("immutable",), True),
        (("data",), {"a": 1}), (("type",), GONE), (("immutable",), GONE),
    ],
    "limitranges": [
        (("spec", "limits"), [{"type": "Container", "max": {"cpu": "1"}}]), (("spec", "limits"), [{"type": "Bogus"}]),
        (("spec", "limits"), [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]), (("spec",), GONE),
    ],
    "resourcequotas": [
        (("spec", "hard"), {"pods": "1"}), (("spec", "hard"), {"pods": "-1"}), (("spec", "scopes"), ["BestEffort"]),
        (("spec", "scopes"), GONE), (("spec", "hard"), {"requests.cpu": "1"}), (("spec",), GONE),
    ],
    "namespaces": [
        (("spec", "finalizers"), ["example.com/a"]), (("spec", "finalizers"), GONE), (("spec",), GONE),
        (("status", "phase"), "Terminating"), (("status", "phase"), "Bogus"), (("status",), GONE),
    ],
    "nodes": [
        (("spec", "unschedulable"), True), (("spec", "taints"), [{"key": "a", "effect": "NoSchedule"}]),
        (("spec", "taints"), [{"key": "a", "effect": "Bogus"}]), (("spec", "podCIDR"), "10.0.0.0/24"),
        (("spec", "podCIDRs"), ["10.0.1.0/24"]), (("spec", "providerID"), "p://1"), (("spec", "providerID"), "p://2"),
        (("status", "capacity"), {"cpu": "4"}), (("status", "capacity"), {"cpu": "-4"}),
        (("status", "conditions"), [{"type": "Ready", "status": "True"}]), (("spec", "externalID"), "x"),
        (("status", "addresses"), [{"type": "InternalIP", "address": "10.0.0.1"}] * 2), (("spec",), GONE),
    ],
    "deployments": [
        (("spec", "replicas"), 3), (("spec", "replicas"), -3), (("spec", "replicas"), GONE), (("spec", "paused"), True),
        (("spec", "selector"), {"matchLabels": {"app": "other"}}), (("spec", "template", "metadata", "labels"),
        {"app": "x"}),
        (("spec", "template", "spec", "containers", 0, "image"), "app:2"), (("spec", "minReadySeconds"), -1),
        (("spec", "template", "spec", "restartPolicy"), "Never"), (("spec", "strategy"), {"type": "Recreate"}),
        (("spec", "strategy"), {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}), (("spec",
        "revisionHistoryLimit"), -1),
        (("spec", "progressDeadlineSeconds"), 1), (("status", "replicas"), 2), (("status", "readyReplicas"), 5),
        (("status", "observedGeneration"), 1), (("spec", "template", "spec", "activeDeadlineSeconds"), 4),
    ],
    "services": [
        (("spec", "ports"), [{"port": 81}]), (("spec", "ports"), []), (("spec", "selector"), {"app": "y"}),
        (("spec", "clusterIP"), "10.0.0.200"), (("spec", "sessionAffinity"), "ClientIP"), (("spec", "type"), "Bogus"),
        (("spec", "ports"), [{"port": 81, "name": "a"}, {"port": 82}]), (("spec", "externalName"), "x.y"),
        (("spec", "ipFamilyPolicy"), "RequireDualStack"), (("spec", "ipFamilyPolicy"), "PreferDualStack"),
        (("spec", "ipFamilyPolicy"), "SingleStack"), (("spec", "ipFamilyPolicy"), "Bogus"), (("spec", "ipFamilyPolicy"),
        GONE),
        (("spec", "ipFamilies"), ["IPv6"]), (("spec", "ipFamilies"), ["IPv4", "IPv6"]), (("spec", "ipFamilies"), GONE),
        (("spec", "ipFamilies"), ["IPv4", "IPv4"]), (("spec", "ipFamilies"), ["IPv5"]), (("spec", "clusterIP"), "None"),
        (("spec", "clusterIP"), GONE), (("spec", "clusterIPs"), ["None"]), (("spec", "clusterIPs"), GONE),
        (("spec", "clusterIPs"), ["10.0.0.200", "fd00::1"]), (("spec", "type"), "NodePort"), (("spec", "type"),
        "ClusterIP"),
        (("spec", "type"), "LoadBalancer"), (("spec", "selector"), GONE),
        (("spec", "internalTrafficPolicy"), "Local"), (("spec", "externalTrafficPolicy"), "Local"),
        (("spec", "externalTrafficPolicy"), "Bogus"), (("spec", "sessionAffinity"), "None"), (("spec",
        "sessionAffinityConfig"), {"clientIP": {"timeoutSeconds": 5}}), (("spec", "publishNotReadyAddresses"), True),
        (("spec", "externalIPs"), ["192.0.2.7"]), (("spec", "externalIPs"), ["x"]), (("spec", "loadBalancerClass"),
        "a/b"),
        (("spec", "allocateLoadBalancerNodePorts"), False), (("spec", "trafficDistribution"), "PreferClose"),
        (("spec", "trafficDistribution"), "Bogus"), (("spec", "ports", 0, "targetPort"), "web"),
        (("spec", "ports", 0, "nodePort"), 1), (("spec", "loadBalancerSourceRanges"), ["192.0.2.0/24"]),
        (("status", "loadBalancer"), {"ingress": [{"ip": "192.0.2.1"}]}), (("spec",), GONE),
        (("status", "loadBalancer"), {"ingress": [{"ip": "x"}]}), (("status", "loadBalancer"), GONE),
    ],
    "poddisruptionbudgets": [
        (("spec", "minAvailable"), 2), (("spec", "maxUnavailable"), 1), (("spec", "minAvailable"), "x%"),
        (("spec", "minAvailable"), GONE), (("status", "disruptionsAllowed"), 1), (("status", "disruptionsAllowed"), -1),
        (("spec", "selector"), {"matchLabels": {"app": "z"}}), (("spec", "unhealthyPodEvictionPolicy"), "Bogus"),
    ],
    "priorityclasses": [
        (("value",), 6), (("description",), "d"), (("globalDefault",), True), (("preemptionPolicy",), "Never"),
    ],
    "serviceaccounts": [
        (("secrets",), [{"name": "s"}]), (("imagePullSecrets",), [{"name": "s"}]),
        (("automountServiceAccountToken",), False),
    ],
}  # fmt: skip
BINDINGS: list[Obj] = [
    {"target": {"kind": "Node", "name": "n1"}}, {"target": {"name": "n1"}}, {"target": {"kind": "Pod", "name": "n1"}},
    {"target": {}}, {"target": {"name": "n1"}, "metadata": {"uid": "other"}},
    {"target": {"name": "n1"}, "metadata": {"annotations": {"x": "y"}}}, {"metadata": {"name": "other"},
        "target": {"name": "n"}},
    {"target": {"name": "n1"}, "metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}},
    {"target": {"name": "Bad Name"}}, {"metadata": {"namespace": "other"}, "target": {"name": "n1"}},
]  # fmt: skip
DELETIONS: list[Obj | None] = [
    None, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"gracePeriodSeconds": -1},
        {"propagationPolicy": "Orphan"},
    {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Bogus"}, {"preconditions": {"uid": "other"}},
    {"preconditions": {"resourceVersion": "1"}}, {"orphanDependents": True}, {"dryRun": ["All"]}, {"dryRun": ["Some"]},
    {"orphanDependents": True, "propagationPolicy": "Orphan"},
]  # fmt: skip

EVICTIONS: list[Obj] = [
    {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"propagationPolicy": "Orphan"}, {"dryRun": ["All"]},
    {"preconditions": {"uid": "other"}}, {"preconditions": {"resourceVersion": "1"}}, {"dryRun": ["Some"]},
]  # fmt: skip
"""Options that cannot be are left out: a real server marks the pod as disrupted before it refuses them."""


class Changer:
    """Makes changes for objects of one kind."""

    def __init__(self, plural: str, seed: int) -> None:
        self.plural = plural
        self.random = random.Random(f"{plural} {seed}")
        self.edits = [*META, *(POD if plural == "pods" else OTHERS[plural])]

    def pick(self, values: list[Any]) -> Any:
        return copy.deepcopy(self.random.choice(values))

    def some(self, edits: list[Edit], most: int = 2) -> list[Edit]:
        return [self.random.choice(edits) for _ in range(self.random.randint(0, most))]

    def ways(self) -> list[Callable[[], Change]]:
        ways = [self.put, self.patch, self.patch, self.status, self.apply]
        if self.plural == "pods":
            ways += [self.put, self.status, self.binding, self.resize, self.ephemeral, self.eviction, self.deletion]
        elif self.random.random() < 0.2:
            ways += [self.deletion]
        return ways

    def changes(self, count: int) -> Iterator[Change]:
        for _ in range(count):
            yield self.random.choice(self.ways())()

    def put(self, edits: list[Edit] | None = None, subresource: str = "") -> Change:
        return Change("PUT", subresource, self.some(edits or self.edits))

    def status(self) -> Change:
        edits = POD_STATUS if self.plural == "pods" else self.edits
        if self.plural in ("configmaps", "secrets", "limitranges", "priorityclasses", "serviceaccounts"):
            return self.put()
        return self.put(edits, "status") if self.random.random() < 0.6 else self.patch(edits, "status")

    def resize(self) -> Change:
        return self.put(RESIZE, "resize") if self.random.random() < 0.5 else self.patch(RESIZE, "resize")

    def ephemeral(self) -> Change:
        return self.put(EPHEMERAL, "ephemeralcontainers")

    def patch(self, edits: list[Edit] | None = None, subresource: str = "") -> Change:
        chosen = self.some(edits or self.edits) or self.some(edits or self.edits, 1)
        way = self.random.choice([JSON, MERGE, MERGE, STRATEGIC, STRATEGIC])
        if way == JSON:
            verbs = ["add", "replace", "remove", "test"]
            return Change("PATCH", subresource, body=[self.json_step(one, verbs) for one in chosen], content_type=way)
        body: Obj = {}
        for path, value in chosen:
            number = next((i for i, key in enumerate(path) if isinstance(key, int)), None)
            if number is not None and number + 1 < len(path):  # an element of a list is named by its key
                inner: Obj = {"name": "main"}
                edit(inner, path[number + 1 :], None if value is GONE else copy.deepcopy(value))
                path, value = path[:number], [inner]
            elif number is not None:
                path, value = path[:number], [copy.deepcopy(value)]
            edit(body, path, None if value is GONE else copy.deepcopy(value))
        return Change("PATCH", subresource, body=body, content_type=way)

    def json_step(self, one: Edit, verbs: list[str]) -> Obj:
        path, value = one
        pointer = "".join(
            "/" + (("-" if key == 9 else str(key)) if isinstance(key, int) else escaped(key)) for key in path
        )
        if value is GONE:
            return {"op": "remove", "path": pointer}
        verb = self.random.choices(verbs, [6, 3, 1, 1])[0]
        return {"op": verb, "path": pointer, **({"value": copy.deepcopy(value)} if verb != "remove" else {})}

    def apply(self) -> Change:
        body = self.patch().body
        while not isinstance(body, dict):
            body = self.patch().body
        head = {"apiVersion": VERSIONS.get(self.plural, "v1"), "kind": KINDS[self.plural]}
        body = {**head, **without_nulls(body)}
        manager, force = self.random.choice(["tests", "other"]), self.random.choice(["", "&force=true"])
        query = f"fieldManager={manager}{force}"
        return Change("PATCH", body=json.dumps(body), content_type=APPLY, query=query)

    def binding(self) -> Change:
        return Change("POST", "binding", body={"apiVersion": "v1", "kind": "Binding", **self.pick(BINDINGS)})

    def eviction(self) -> Change:
        body: Obj = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
        if self.random.random() < 0.4:
            body["deleteOptions"] = self.pick(EVICTIONS)
        return Change("POST", "eviction", body=body)

    def deletion(self) -> Change:
        collection = self.random.random() < 0.3
        query = self.random.choice(["labelSelector=app=web", "fieldSelector=metadata.name=web", "labelSelector=a in"])
        return Change("DELETE", "*" if collection else "", body=self.pick(DELETIONS), query=query if collection else "")


KINDS = {
    "pods": "Pod", "configmaps": "ConfigMap", "secrets": "Secret", "limitranges": "LimitRange", "services": "Service",
    "resourcequotas": "ResourceQuota", "namespaces": "Namespace", "nodes": "Node", "deployments": "Deployment",
    "poddisruptionbudgets": "PodDisruptionBudget", "priorityclasses": "PriorityClass",
        "serviceaccounts": "ServiceAccount",
}  # fmt: skip
VERSIONS = {"deployments": "apps/v1", "poddisruptionbudgets": "policy/v1", "priorityclasses": "scheduling.k8s.io/v1"}


def without_nulls(value: Any) -> Any:
    """A configuration to apply; what it does not want to say it leaves out."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
