"""Defaults of what is not a pod and makes none: nodes, namespaces, services, claims, and what other people's parts read
and write: storage, networking, devices, admission.

Of the same form as `defaults`, which lists them: functions that complete a raw object in place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from kubeqos.rules.limits import default_limit_range

Raw = dict[str, Any]

_RBAC_GROUP = "rbac.authorization.k8s.io"
_MAX_INT32 = (1 << 31) - 1
_MATCHES = ("namespaceSelector", "objectSelector")


def fill(holder: Raw, **values: Any) -> None:
    """Set what is not there or empty; a False or a 0 was meant."""
    for field, value in values.items():
        if holder.get(field) in (None, ""):
            holder[field] = value


def fill_unset(holder: Raw, **values: Any) -> None:
    """Set what nobody wrote: where Go has a pointer, an empty text was meant, and is judged."""
    for field, value in values.items():
        if holder.get(field) is None:
            holder[field] = value


def fill_zero(holder: Raw, **values: Any) -> None:
    """Set what is not there, empty or zero: where Go has a plain number, zero is nothing."""
    for field, value in values.items():
        if not holder.get(field):
            holder[field] = value


def _storage_class(raw: Raw) -> None:
    fill_unset(raw, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _persistent_volume(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain")
    fill_unset(spec, volumeMode="Filesystem")
    if spec.get("hostPath") is not None:
        fill_unset(spec["hostPath"], type="")
    fill(raw.setdefault("status", {}), phase="Pending")


def _csi_driver(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    flags = ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount")
    fill_unset(spec, attachRequired=True, fsGroupPolicy="ReadWriteOnceWithFSType", **dict.fromkeys(flags, False))
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _endpoint_ports(ports: list[Raw], *, named: bool) -> None:
    for port in ports:
        if named:
            fill_unset(port, protocol="TCP", name="")
        else:
            fill(port, protocol="TCP")


def _endpoint_slice(raw: Raw) -> None:
    _endpoint_ports(raw.get("ports") or [], named=True)


def _endpoints(raw: Raw) -> None:
    for subset in raw.get("subsets") or ():
        _endpoint_ports(subset.get("ports") or [], named=False)


def _network_policy(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            fill_unset(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(raw: Raw) -> None:
    if (parameters := (raw.get("spec") or {}).get("parameters")) is not None:
        fill_unset(parameters, scope="Cluster")


def _autoscaler(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := spec.get("behavior")) is not None:
        fill_unset(_part(behavior, "scaleUp"), stabilizationWindowSeconds=0, selectPolicy="Max")
        fill_unset(_part(behavior, "scaleDown"), selectPolicy="Max")
        behavior["scaleUp"].setdefault("policies", [_each_15_seconds("Pods", 4), _each_15_seconds("Percent", 100)])
        behavior["scaleDown"].setdefault("policies", [_each_15_seconds("Percent", 100)])


def _part(raw: Raw, name: str) -> Raw:
    found: Raw = raw.setdefault(name, {})
    return found


def _each_15_seconds(type: str, value: int) -> Raw:
    return {"type": type, "value": value, "periodSeconds": 15}


def _webhooks(raw: Raw) -> None:
    for hook in raw.get("webhooks") or ():
        fill_unset(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        for field in _MATCHES:
            hook.setdefault(field, {})
        for rule in hook.get("rules") or ():
            fill_unset(rule, scope="*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            fill_unset(service, port=443)


def _mutating_webhooks(raw: Raw) -> None:
    _webhooks(raw)
    for hook in raw.get("webhooks") or ():
        fill_unset(hook, reinvocationPolicy="Never")


def _admission_policy(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    fill_unset(spec, failurePolicy="Fail")
    _match(spec.get("matchConstraints"))


def _policy_binding(raw: Raw) -> None:
    _match((raw.get("spec") or {}).get("matchResources"))


def _match(found: Raw | None) -> None:
    if found is None:
        return
    fill_unset(found, matchPolicy="Equivalent")
    for field in _MATCHES:
        found.setdefault(field, {})
    for rule in [*(found.get("resourceRules") or ()), *(found.get("excludeResourceRules") or ())]:
        fill_unset(rule, scope="*")


def _flow_schema(raw: Raw) -> None:
    fill_zero(raw.setdefault("spec", {}), matchingPrecedence=1000)


def _priority_level(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    exempt, limited = spec.get("exempt"), spec.get("limited")
    if spec.get("type") == "Exempt":
        exempt = spec.setdefault("exempt", {})
    if exempt is not None:
        fill(exempt, nominalConcurrencyShares=0, lendablePercent=0)
    if limited is not None:
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        response = limited.setdefault("limitResponse", {})
        queuing = response.get("queuing")
        if queuing is not None:
            fill_zero(queuing, queues=64, handSize=8, queueLengthLimit=50)


def _device_claim(raw: Raw) -> None:
    _device_requests(raw.setdefault("spec", {}))


def _device_claim_template(raw: Raw) -> None:
    _device_requests(raw.setdefault("spec", {}).setdefault("spec", {}))


def _device_requests(spec: Raw) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exact = request.get("exactly")
        for one in [*([exact] if exact is not None else []), *(request.get("firstAvailable") or ())]:
            fill(one, allocationMode="ExactCount")
            if one["allocationMode"] == "ExactCount":
                one["count"] = one.get("count") or 1
            for toleration in one.get("tolerations") or ():
                fill(toleration, operator="Equal")


def _pod_certificate(raw: Raw) -> None:
    fill(raw.setdefault("spec", {}), maxExpirationSeconds=86400)


def _definition(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        fill(names, singular=kind.lower(), listKind=f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


# -- what every cluster has ---------------------------------------------------------------------------------------


def _service(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    kind = spec["type"] = spec.get("type") or "ClusterIP"
    affinity = spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    reachable = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if reachable and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in ((raw.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _api_service(raw: Raw) -> None:
    service = (raw.get("spec") or {}).get("service")
    if service is not None:
        service.setdefault("port", 443)


def _namespace(raw: Raw) -> None:
    meta = raw.setdefault("metadata", {})
    if meta.get("name"):
        meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    if not (raw.get("status") or {}).get("phase"):
        raw["status"] = {**(raw.get("status") or {}), "phase": "Active"}


def _prepared_namespace(raw: Raw, now: str) -> None:
    _namespace(raw)
    finalizers = (raw.get("spec") or {}).get("finalizers") or []
    raw["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
    raw["status"] = {"phase": "Active"}


def _node(raw: Raw) -> None:
    spec = raw.get("spec") or {}
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs")
    if first and (not ranges or ranges[0] != first):
        spec["podCIDRs"] = [first]
    elif ranges and not first:
        spec["podCIDR"] = ranges[0]
    status = raw.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _prepared_node(raw: Raw, now: str) -> None:
    """A new node takes no pods before it has said that it is ready (admission TaintNodesByCondition)."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = raw.setdefault("spec", {}).setdefault("taints", [])
    if not any((one.get("key"), one.get("effect")) == (taint["key"], taint["effect"]) for one in taints):
        taints.append(taint)


def _secret(raw: Raw) -> None:
    if not raw.get("type"):
        raw["type"] = "Opaque"
    text = raw.pop("stringData", None)
    if text:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
        raw["data"] = {**(raw.get("data") or {}), **encoded}


def _volume_claim(raw: Raw) -> None:
    raw.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    raw.setdefault("status", {}).setdefault("phase", "Pending")


def _prepared_volume_claim(raw: Raw, now: str) -> None:
    """A claim in use is not deleted under its user (admission StorageObjectInUseProtection)."""
    raw["status"] = {"phase": "Pending"}
    finalizers = raw["metadata"].setdefault("finalizers", [])
    if "kubernetes.io/pvc-protection" not in finalizers:
        finalizers.append("kubernetes.io/pvc-protection")


def _priority_class(raw: Raw) -> None:
    raw.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _event(raw: Raw) -> None:
    raw.setdefault("reportingComponent", "")
    raw.setdefault("reportingInstance", "")


def _role_binding(raw: Raw) -> None:
    role = raw.setdefault("roleRef", {})
    if not role.get("apiGroup"):
        role["apiGroup"] = _RBAC_GROUP
    for subject in raw.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC_GROUP


def _compute_claim(raw: Raw) -> None:
    raw.setdefault("spec", {}).setdefault("allocationMode", "WaitForFirstConsumer")


def _compute_claim_template(raw: Raw) -> None:
    raw.setdefault("spec", {}).setdefault("spec", {}).setdefault("allocationMode", "WaitForFirstConsumer")


def _prepared_service(raw: Raw, now: str) -> None:
    """The address of a service is the first of its addresses, too."""
    spec = raw.get("spec") or {}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


# -- workloads, for `defaults`, which knows their pods ------------------------------------------------------------


def default_job_spec(spec: Raw) -> None:
    """What a job is when it says nothing about it."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill_unset(
        spec,
        parallelism=1,
        backoffLimit=6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed",
        manualSelector=False,
    )
    default_failure_policy(spec)


def default_failure_policy(spec: Raw) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            fill(pattern, status="True")


def default_cron_spec(spec: Raw) -> None:
    fill(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)


def select_own_pods(raw: Raw) -> None:
    """A job's pods carry its uid and its name; its selector asks for the uid."""
    metadata, spec = raw["metadata"], raw["spec"]
    if spec.get("manualSelector"):
        return
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}controller-uid", metadata.get("uid", ""))
    selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selector.setdefault("batch.kubernetes.io/controller-uid", metadata.get("uid", ""))


def default_daemon_set(spec: Raw) -> None:
    strategy = spec.setdefault("updateStrategy", {})
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    fill(spec, revisionHistoryLimit=10)


def default_stateful_set(spec: Raw) -> None:
    fill(spec, podManagementPolicy="OrderedReady", revisionHistoryLimit=10, replicas=1)
    strategy = spec.setdefault("updateStrategy", {})
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    fill(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}), whenDeleted="Retain", whenScaled="Retain")


DEFAULTS: dict[str, Callable[[Raw], None]] = {
    "Service": _service,
    "Namespace": _namespace,
    "Node": _node,
    "LimitRange": default_limit_range,
    "Secret": _secret,
    "PersistentVolumeClaim": _volume_claim,
    "PriorityClass": _priority_class,
    "Event": _event,
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
    "ResourceClaim": _compute_claim,
    "ResourceClaimTemplate": _compute_claim_template,
    "APIService": _api_service,
    "CustomResourceDefinition": _definition,
    "StorageClass": _storage_class,
    "PersistentVolume": _persistent_volume,
    "CSIDriver": _csi_driver,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "IngressClass": _ingress_class,
    "NetworkPolicy": _network_policy,
    "HorizontalPodAutoscaler": _autoscaler,
    "MutatingWebhookConfiguration": _mutating_webhooks,
    "ValidatingWebhookConfiguration": _webhooks,
    "ValidatingAdmissionPolicy": _admission_policy,
    "ValidatingAdmissionPolicyBinding": _policy_binding,
    "MutatingAdmissionPolicy": _admission_policy,
    "MutatingAdmissionPolicyBinding": _policy_binding,
    "FlowSchema": _flow_schema,
    "PriorityLevelConfiguration": _priority_level,
    "v1 ResourceClaim": _device_claim,
    "v1 ResourceClaimTemplate": _device_claim_template,
    "PodCertificateRequest": _pod_certificate,
}
PREPARED: dict[str, Callable[[Raw, str], None]] = {
    "Namespace": _prepared_namespace,
    "Node": _prepared_node,
    "PersistentVolumeClaim": _prepared_volume_claim,
    "Service": _prepared_service,
}
