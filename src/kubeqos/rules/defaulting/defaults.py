"""What the API fills in: defaults of fields, and what a create adds before an object is judged.

The API server calls `apply_defaults` on every decoded object in canonical form, then its mutating admission, then
`prepare_create` for new objects. All of it works in place on the raw tree. A value that is already there always wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kubeqos.model.objects import PodSpec
from kubeqos.model.remember import remembered
from kubeqos.rules.defaulting.labelkeys import merge_label_keys
from kubeqos.rules.defaulting.moredefaults import DEFAULTS as MORE_DEFAULTS
from kubeqos.rules.defaulting.moredefaults import PREPARED as MORE_PREPARED
from kubeqos.rules.defaulting.moredefaults import (
    default_cron_spec,
    default_daemon_set,
    default_failure_policy,
    default_job_spec,
    default_stateful_set,
    select_own_pods,
)
from kubeqos.rules.qos.podqos import class_of_spec, default_pod_level, default_requests

Raw = dict[str, Any]

GRACE_SECONDS = 30
TOLERATED_SECONDS = 300
_FILE_MODE = 0o644
_MESSAGE_PATH = "/dev/termination-log"
_COUNTED = ("initContainers", "containers", "resources")
"""The fields of a pod that decide its QoS class and its effective requests."""
_MODES = ("secret", "configMap", "downwardAPI", "projected")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def apply_defaults(kind: str, raw: Raw) -> None:
    """Fill in the defaults of an object, in place."""
    fill = _DEFAULTS.get(kind)
    if fill is not None:
        fill(raw)


def prepare_create(kind: str, raw: Raw, now: str) -> None:
    """What a create resets or adds, whatever the client sent: status, generation, finalizers."""
    if kind in _GENERATIONS:
        raw.setdefault("metadata", {})["generation"] = 1
    prepare = _PREPARE.get(kind)
    if prepare is not None:
        prepare(raw, now)


# -- pods ----------------------------------------------------------------------------------------------------------


def _default_pod(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    if status := raw.get("status"):
        _align_addresses(status)
    default_pod_spec(spec)
    default_requests(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        for key in ("containers", "initContainers"):
            for container in spec.get(key) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort", 0)


def _align_addresses(status: Raw) -> None:
    """`podIP` is the first of `podIPs`; where they disagree the older field is meant."""
    first, addresses = status.get("podIP"), status.get("podIPs") or []
    if first and (not addresses or addresses[0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    elif not first and addresses and addresses[0].get("ip"):
        status["podIP"] = addresses[0]["ip"]


def default_pod_spec(spec: Raw) -> None:
    """Defaults that pods and pod templates share."""
    if spec.get("containers") is None:
        spec["containers"] = []
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(key) or ():
            _default_container(container)
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if "terminationGracePeriodSeconds" not in spec:
        spec["terminationGracePeriodSeconds"] = GRACE_SECONDS
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        account = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"


def _default_container(container: Raw) -> None:
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _default_references(source)
    for kind in _PROBES:
        probe = container.get(kind)
        if probe is not None:
            _default_probe(probe)
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            _default_handler(lifecycle[hook])
    if "resources" not in container:
        container["resources"] = {}
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = _MESSAGE_PATH
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))


def _default_references(source: Raw) -> None:
    field = source.get("fieldRef")
    if field is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    resource = source.get("resourceFieldRef")
    if resource is not None:
        resource.setdefault("divisor", "0")
    file = source.get("fileKeyRef")
    if file is not None:
        file.setdefault("optional", False)


def _default_probe(probe: Raw) -> None:
    _default_handler(probe)
    for field, number in _PROBE_NUMBERS.items():
        if not probe.get(field):
            probe[field] = number


def _default_handler(handler: Raw) -> None:
    http, grpc = handler.get("httpGet"), handler.get("grpc")
    if http is not None:
        http["path"] = http.get("path") or "/"
        http["scheme"] = http.get("scheme") or "HTTP"
    if grpc is not None:
        grpc.setdefault("service", "")


_SOURCE_DEFAULTS: Mapping[str, Raw] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def _default_volume(volume: Raw) -> None:
    if len(volume) == ("name" in volume):
        volume["emptyDir"] = {}
        return
    for kind in _MODES:
        source = volume.get(kind)
        if source is not None:
            source.setdefault("defaultMode", _FILE_MODE)
            for item in source.get("items") or ():
                _default_references(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_references(item)
    for kind, more in _SOURCE_DEFAULTS.items():
        if volume.get(kind) is not None:
            volume[kind].update(
                {field: value for field, value in more.items() if volume[kind].get(field) in (None, "")}
            )
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference", ""))
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


_COMPONENT = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_is_image = re.compile(
    rf"(?:{_HOST}/)?(?P<path>{_PATH}(?:/{_PATH})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?P<digest>@{_DIGEST})?", re.ASCII
).fullmatch


_LONGEST_REPOSITORY = 255


def _repository(path: str) -> str:
    """Where an image without a host and an owner is kept."""
    return path if "/" in path else f"library/{path}"


@remembered(4096)
def pull_policy(image: str) -> str:
    """Always for the tag `latest`, which is also meant when there is neither tag nor digest."""
    found = _is_image(image)
    if found is None or len(_repository(found["path"])) > _LONGEST_REPOSITORY:  # it cannot be read
        return "IfNotPresent"
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def add_default_tolerations(spec: Raw) -> None:
    """Admission: a pod stays five minutes on a node that is not ready or not reachable, unless it says otherwise."""
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _NODE_TROUBLES if not any(_speaks_of(one, key) for one in tolerations)]
    if missing:
        spec["tolerations"] = tolerations + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_SECONDS}
            for key in missing
        ]


def _speaks_of(toleration: Raw, key: str) -> bool:
    """Whether a toleration was written with such a taint in mind; whether it covers it is another question."""
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def _prepare_pod(raw: Raw, now: str) -> None:
    spec = raw["spec"]
    if spec.get("affinity") or spec.get("topologySpreadConstraints"):
        merge_label_keys(spec, raw["metadata"].get("labels") or {})
    counted = {key: spec[key] for key in _COUNTED if spec.get(key)}
    default_pod_level(counted)
    status: Raw = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": now}]
    status["qosClass"] = str(class_of_spec(PodSpec.of(counted)))
    raw["status"] = status


# -- templates and their controllers -------------------------------------------------------------------------------


def _default_template(holder: Raw) -> None:
    template = holder.get("template")
    if template is not None:
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))


def _default_replication_controller(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = raw.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)
    _default_template(spec)


def _default_replica_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _default_template(spec)


def _default_deployment(raw: Raw) -> None:
    _default_replica_set(raw)
    spec = raw["spec"]
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _default_job(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    default_job_spec(spec)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    metadata = raw.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    _default_template(spec)


def _default_cron_job(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    default_cron_spec(spec)
    job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    default_failure_policy(job)
    _default_template(job)


def _default_daemon_set(raw: Raw) -> None:
    default_daemon_set(raw.setdefault("spec", {}))
    _default_template(raw["spec"])


def _default_stateful_set(raw: Raw) -> None:
    default_stateful_set(raw.setdefault("spec", {}))
    _default_template(raw["spec"])


def _prepare_job(raw: Raw, now: str) -> None:
    select_own_pods(raw)
    raw["status"] = {}


def _prepare_without_status(raw: Raw, now: str) -> None:
    raw.pop("status", None)


def _prepare_replicas(raw: Raw, now: str) -> None:
    raw["status"] = {"replicas": 0}


def _prepare_deployment(raw: Raw, now: str) -> None:
    raw["status"] = {}


_DEFAULTS: dict[str, Callable[[Raw], None]] = {
    "Pod": _default_pod,
    "PodTemplate": _default_template,
    "ReplicationController": _default_replication_controller,
    "ReplicaSet": _default_replica_set,
    "Deployment": _default_deployment,
    "Job": _default_job,
    "CronJob": _default_cron_job,
    "DaemonSet": _default_daemon_set,
    "StatefulSet": _default_stateful_set,
    **MORE_DEFAULTS,
}
_PREPARE: dict[str, Callable[[Raw, str], None]] = {
    "Pod": _prepare_pod,
    "ResourceQuota": _prepare_without_status,
    "ReplicationController": _prepare_replicas,
    "ReplicaSet": _prepare_replicas,
    "Deployment": _prepare_deployment,
    "Job": _prepare_job,
    "CronJob": _prepare_deployment,
    "StatefulSet": _prepare_replicas,
    **MORE_PREPARED,
}
_GENERATIONS = frozenset(
    ("Pod", "PodTemplate", "PodDisruptionBudget", "PriorityClass", "ReplicationController", "ReplicaSet", "Deployment"),
)
