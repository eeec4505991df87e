"""Static defaults: what Kubernetes fills in for a field that an object leaves out, whatever else is in the cluster.

Called first of all for every object that is written, by the API server and by `kubeqos check`; defaults that depend on
LimitRanges, priority classes or the QoS class come later, in admission. Objects are changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Raw = dict[str, Any]
_FILE_MODE = 0o644
_RBAC = "rbac.authorization.k8s.io"


def apply_defaults(kind: str, raw: Raw) -> None:
    """Fill in the defaults of one object."""
    rule = _KINDS.get(kind)
    if rule is not None:
        rule(raw)


def pull_policy(image: str) -> str:
    """`:latest`, or no tag at all, is pulled each time."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _pod(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def pod_spec(spec: Raw) -> None:
    """A pod's spec, or that of a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    host_network = spec.get("hostNetwork")
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            _container(container, host_network)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def _container(container: Raw, host_network: Any) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env") or ():
        _field_reference(variable.get("valueFrom"))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe) is not None:
            _probe(container[probe])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http_get(hook)


def _field_reference(source: Any) -> None:
    reference = source.get("fieldRef") if isinstance(source, dict) else None
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _probe(probe: Raw) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _http_get(probe)
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


def _http_get(handler: Raw) -> None:
    action = handler.get("httpGet")
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _volume(volume: Raw) -> None:
    if not any(key != "name" for key in volume):
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", _FILE_MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_reference(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_reference(item)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _template(raw: Raw) -> None:
    spec = raw.setdefault("template", {}).setdefault("spec", {})
    pod_spec(spec)


def _replicated(raw: Raw) -> Raw:
    spec: Raw = raw.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    if spec.get("template") is not None:
        _template(spec)
    return spec


def _template_labels(spec: Raw) -> Raw:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}


def _replication_controller(raw: Raw) -> None:
    spec = _replicated(raw)
    labels = _template_labels(spec)
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        raw["metadata"].setdefault("labels", dict(labels))


def _replica_set(raw: Raw) -> None:
    _replicated(raw)


def _deployment(raw: Raw) -> None:
    spec = _replicated(raw)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _service(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    if spec.setdefault("sessionAffinity", "None") == "ClientIP":
        affinity = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        affinity.setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _secret(raw: Raw) -> None:
    raw.setdefault("type", "Opaque")


def _claim(raw: Raw) -> None:
    raw.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _priority_class(raw: Raw) -> None:
    raw.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _binding(raw: Raw) -> None:
    reference = raw.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in raw.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _node(raw: Raw) -> None:
    spec = raw.get("spec") or {}
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    status = raw.get("status") or {}
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])


_KINDS: Mapping[str, Callable[[Raw], None]] = {
    "Pod": _pod,
    "PodTemplate": _template,
    "ReplicationController": _replication_controller,
    "ReplicaSet": _replica_set,
    "Deployment": _deployment,
    "Service": _service,
    "Secret": _secret,
    "PersistentVolumeClaim": _claim,
    "PriorityClass": _priority_class,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "Node": _node,
}
