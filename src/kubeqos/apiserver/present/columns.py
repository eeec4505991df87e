"""What `kubectl get` prints per kind: the columns of real Kubernetes, plus wide-only columns for classes and scopes.

A column is data (name, type, priority) and a pure function from an object and the present time to a cell. The table of
kinds refers to these tuples; `tables` renders them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.apiserver.present.podrow import pod_row, readiness_gates
from kubeqos.codec import JsonObject, value_at
from kubeqos.model.timestamps import age_since

Cell = Callable[[JsonObject, float], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; priority 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> JsonObject:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def path(*steps: str, default: Any = "") -> Cell:
    """A cell that walks into the object; missing on the way gives the default."""

    def cell(obj: JsonObject, _now: float) -> Any:
        found = value_at(obj, steps)
        return default if found is None else found

    return cell


def none_if_empty(*steps: str) -> Cell:
    inner = path(*steps)
    return lambda obj, now: inner(obj, now) or "<none>"


def size(*steps: str) -> Cell:
    inner = path(*steps, default=())
    return lambda obj, now: len(inner(obj, now))


def _age(obj: JsonObject, now: float) -> str:
    return age_since(obj["metadata"].get("creationTimestamp"), now)


def pairs(labels: Mapping[str, str] | None) -> str:
    """`a=b,c=d`, or `<none>`."""
    return ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())) or "<none>"


def selector_text(selector: JsonObject | None) -> str:
    """A label selector object as kubectl writes it."""
    found = selector or {}
    terms = [f"{k}={v}" for k, v in sorted((found.get("matchLabels") or {}).items())]
    for term in found.get("matchExpressions") or ():
        key, values = term.get("key", ""), ",".join(sorted(term.get("values") or ()))
        words = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(words.get(term.get("operator", ""), key))
    return ",".join(terms) or "<none>"


def _template_containers(obj: JsonObject) -> Iterable[JsonObject]:
    template = (obj.get("spec") or {}).get("template") or obj.get("template") or {}
    return (template.get("spec") or {}).get("containers") or ()


def _containers(obj: JsonObject, _now: float) -> str:
    return ",".join(c.get("name", "") for c in _template_containers(obj))


def _images(obj: JsonObject, _now: float) -> str:
    return ",".join(c.get("image", "") for c in _template_containers(obj))


def _template_labels(obj: JsonObject, _now: float) -> str:
    return pairs(((obj.get("template") or {}).get("metadata") or {}).get("labels"))


def _class_requests(pod: JsonObject, _now: float) -> str:
    """Requested QoS-class resources: `rdt=gold` of the pod, `c:blockio=slow` of a container (KEP-3008)."""
    spec = pod.get("spec") or {}
    found = [f"{r.get('name')}={r.get('class')}" for r in spec.get("qosResources") or ()]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        requests = (container.get("resources") or {}).get("qosResources") or ()
        found += [f"{container.get('name')}:{r.get('name')}={r.get('class')}" for r in requests]
    return ",".join(found) or "<none>"


def _node_status(node: JsonObject, _now: float) -> str:
    ready = [c for c in (node.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[-1].get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject, _now: float) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/") and len(key) > 24:
            roles.add(key[24:])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or "<none>"


def _address(kind: str) -> Cell:
    def cell(node: JsonObject, _now: float) -> str:
        found = (node.get("status") or {}).get("addresses") or ()
        return next((a.get("address", "") for a in found if a.get("type") == kind), "<none>")

    return cell


def _node_info(field: str) -> Cell:
    inner = path("status", "nodeInfo", field)
    return lambda node, now: inner(node, now) or "<unknown>"


def _kernel(node: JsonObject, _now: float) -> str:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    kernel, machine = info.get("kernelVersion") or "<unknown>", info.get("architecture")
    return f"{kernel} ({machine})" if machine else kernel


def _node_classes(node: JsonObject, _now: float) -> str:
    offered = (node.get("status") or {}).get("qosResources") or {}
    found = []
    for level in ("podQoSResources", "containerQoSResources"):
        for resource in offered.get(level) or ():
            names = "/".join(c.get("name", "") for c in resource.get("classes") or ())
            found.append(f"{resource.get('name')}={names}")
    return ",".join(found) or "<none>"


def _quota_usage(limits: bool) -> Cell:
    def cell(quota: JsonObject, _now: float) -> str:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        named = [name for name in sorted(hard) if name.startswith("limits.") is limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in named)

    return cell


def _quota_scopes(quota: JsonObject, _now: float) -> str:
    spec = quota.get("spec") or {}
    found = list(spec.get("scopes") or ())
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = ",".join(term.get("values") or ())
        found.append(f"{term.get('scopeName')} {term.get('operator')}{f' ({values})' if values else ''}")
    return ", ".join(found) or "<none>"


def _quota_classes(quota: JsonObject, _now: float) -> str:
    governed = (quota.get("spec") or {}).get("qosResources") or {}
    found = []
    for level in ("pod", "container"):
        for resource in governed.get(level) or ():
            for item in resource.get("classes") or ():
                capacity = item.get("capacity")
                found.append(
                    f"{level} {resource.get('name')}/{item.get('name')}" + (f"≤{capacity}" if capacity else "")
                )
    return ", ".join(found) or "<none>"


def _limit_classes(limits: JsonObject, _now: float) -> str:
    found = []
    for item in (limits.get("spec") or {}).get("limits") or ():
        for request in item.get("qosResources") or ():
            chosen = request.get("default") or request.get("class")
            found.append(f"{item.get('type')} {request.get('name')}={chosen}")
    return ", ".join(found) or "<none>"


def _event_last(event: JsonObject, now: float) -> str:
    series = event.get("series") or {}
    stamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return age_since(stamp, now)


def _event_first(event: JsonObject, now: float) -> str:
    return age_since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: JsonObject, _now: float) -> str:
    target = event.get("involvedObject") or {}
    kind, name = str(target.get("kind", "")).lower(), target.get("name", "")
    return f"{kind}/{name}" if name else kind


def _event_source(event: JsonObject, _now: float) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return ", ".join(part for part in (component, host) if part)


def _event_count(event: JsonObject, _now: float) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def _service_ports(service: JsonObject, _now: float) -> str:
    found = []
    for port in (service.get("spec") or {}).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        found.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(found) or "<none>"


def _service_external(service: JsonObject, _now: float) -> str:
    spec = service.get("spec") or {}
    ips = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "LoadBalancer":
            found = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            ips = [i.get("ip") or i.get("hostname") or "" for i in found] + ips
            return ",".join(ips) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return ",".join(ips) or "<none>"


_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_modes(part: str) -> Cell:
    """The modes in the spec of a volume, or in the status of a claim, by their short names."""
    return lambda obj, _now: ",".join(
        _SHORT_MODES.get(mode, mode) for mode in (obj.get(part) or {}).get("accessModes") or ()
    )


def _claim_phase(claim: JsonObject, _now: float) -> str:
    if claim["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((claim.get("status") or {}).get("phase", ""))


def _deployment_ready(obj: JsonObject, _now: float) -> str:
    desired = (obj.get("spec") or {}).get("replicas", 0)
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{desired}"


def _role_reference(binding: JsonObject, _now: float) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(binding: JsonObject, _now: float) -> str:
        names = []
        for subject in binding.get("subjects") or ():
            if subject.get("kind") == kind:
                owner = f"{subject.get('namespace')}/" if kind == "ServiceAccount" else ""
                names.append(owner + str(subject.get("name", "")))
        return ", ".join(names)

    return cell


def _budget(field: str) -> Cell:
    inner = path("spec", field)
    return lambda obj, now: str(v) if (v := inner(obj, now)) != "" else "N/A"


def _claim_parameters(claim: JsonObject, _now: float) -> str:
    reference = (claim.get("spec") or {}).get("parametersRef") or claim.get("parametersRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}" if reference else "<none>"


NAME = Column(
    "Name",
    lambda obj, _now: obj["metadata"].get("name", ""),
    format="name",
    description="Name must be unique within a namespace.",
)
AGE = Column("Age", _age, description="Time since the object was created.")
WORKLOAD = (Column("Containers", _containers, priority=1), Column("Images", _images, priority=1))
SELECTOR = Column("Selector", lambda o, _n: selector_text((o.get("spec") or {}).get("selector")), priority=1)
_RC_SELECTOR = Column("Selector", lambda o, _n: pairs((o.get("spec") or {}).get("selector")), priority=1)
_REPLICAS = (
    Column("Desired", path("spec", "replicas", default=0), "integer"),
    Column("Current", path("status", "replicas", default=0), "integer"),
    Column("Ready", path("status", "readyReplicas", default=0), "integer"),
    AGE,
    *WORKLOAD,
)

PLAIN = (NAME, AGE)
CREATED_AT = (NAME, Column("Created At", path("metadata", "creationTimestamp"), "date"))
CONFIG_MAP = (NAME, Column("Data", lambda o, _n: len(o.get("data") or ()) + len(o.get("binaryData") or ())), AGE)
SECRET = (NAME, Column("Type", path("type")), Column("Data", size("data")), AGE)
NAMESPACE = (NAME, Column("Status", path("status", "phase")), AGE)
LEASE = (NAME, Column("Holder", path("spec", "holderIdentity")), AGE)
SCALE = (
    NAME,
    Column("Desired", path("spec", "replicas", default=0), "integer"),
    Column("Available", path("status", "replicas", default=0), "integer"),
    AGE,
)
REPLICATION_CONTROLLER = (NAME, *_REPLICAS, _RC_SELECTOR)
REPLICA_SET = (NAME, *_REPLICAS, SELECTOR)
DEPLOYMENT = (
    NAME,
    Column("Ready", _deployment_ready),
    Column("Up-to-date", path("status", "updatedReplicas", default=0)),
    Column("Available", path("status", "availableReplicas", default=0)),
    AGE,
    *WORKLOAD,
    SELECTOR,
)
POD_TEMPLATE = (
    NAME,
    Column("Containers", _containers),
    Column("Images", _images),
    Column("Pod Labels", _template_labels),
)
POD = (
    NAME,
    Column("Ready", lambda o, _n: f"{(row := pod_row(o)).ready}/{row.total}"),
    Column("Status", lambda o, _n: pod_row(o).word),
    Column("Restarts", lambda o, now: pod_row(o).restarts_cell(now)),
    AGE,
    Column("IP", none_if_empty("status", "podIP"), priority=1),
    Column("Node", none_if_empty("spec", "nodeName"), priority=1),
    Column("Nominated Node", none_if_empty("status", "nominatedNodeName"), priority=1),
    Column("Readiness Gates", lambda o, _n: readiness_gates(o), priority=1),
    Column("QoS", none_if_empty("status", "qosClass"), priority=1, description="The pod's QoS class."),
    Column("Classes", _class_requests, priority=1, description="Requested QoS-class resources."),
)
NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", path("status", "nodeInfo", "kubeletVersion")),
    Column("Internal-IP", _address("InternalIP"), priority=1),
    Column("External-IP", _address("ExternalIP"), priority=1),
    Column("OS-Image", _node_info("osImage"), priority=1),
    Column("Kernel-Version", _kernel, priority=1),
    Column("Container-Runtime", _node_info("containerRuntimeVersion"), priority=1),
    Column("Classes", _node_classes, priority=1, description="QoS-class resources the node offers."),
)
RESOURCE_QUOTA = (
    NAME,
    Column("Request", _quota_usage(limits=False)),
    Column("Limit", _quota_usage(limits=True)),
    AGE,
    Column("Scopes", _quota_scopes, priority=1, description="Which pods the quota counts."),
    Column("Classes", _quota_classes, priority=1, description="QoS classes the quota allows."),
)
LIMIT_RANGE = (*CREATED_AT, Column("Classes", _limit_classes, priority=1, description="Default QoS classes."))
EVENT = (
    Column("Last Seen", _event_last),
    Column("Type", path("type")),
    Column("Reason", path("reason")),
    Column("Object", _event_object),
    Column("Subobject", path("involvedObject", "fieldPath"), priority=1),
    Column("Source", _event_source, priority=1),
    Column("Message", lambda o, _n: str(o.get("message", "")).strip()),
    Column("First Seen", _event_first, priority=1),
    Column("Count", _event_count, priority=1),
    Column("Name", path("metadata", "name"), format="name", priority=1),
)
SERVICE = (
    NAME,
    Column("Type", path("spec", "type")),
    Column("Cluster-IP", none_if_empty("spec", "clusterIP")),
    Column("External-IP", _service_external),
    Column("Port(s)", _service_ports),
    AGE,
    Column("Selector", lambda o, _n: pairs((o.get("spec") or {}).get("selector")), priority=1),
)
PERSISTENT_VOLUME_CLAIM = (
    NAME,
    Column("Status", _claim_phase),
    Column("Volume", path("spec", "volumeName")),
    Column("Capacity", path("status", "capacity", "storage")),
    Column("Access Modes", access_modes("status")),
    Column("StorageClass", path("spec", "storageClassName")),
    Column("VolumeAttributesClass", lambda o, now: path("spec", "volumeAttributesClassName")(o, now) or "<unset>"),
    AGE,
    Column("VolumeMode", lambda o, now: path("spec", "volumeMode")(o, now) or "<unset>", priority=1),
)
PRIORITY_CLASS = (
    NAME,
    Column("Value", path("value", default=0), "integer"),
    Column("Global-Default", path("globalDefault", default=False), "boolean"),
    AGE,
    Column("PreemptionPolicy", path("preemptionPolicy")),
)
ROLE_BINDING = (
    NAME,
    Column("Role", _role_reference),
    AGE,
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)
POD_DISRUPTION_BUDGET = (
    NAME,
    Column("Min Available", _budget("minAvailable")),
    Column("Max Unavailable", _budget("maxUnavailable")),
    Column("Allowed Disruptions", path("status", "disruptionsAllowed", default=0), "integer"),
    AGE,
)
RESOURCE_CLASS = (NAME, Column("Driver", path("driverName")), Column("Parameters", _claim_parameters, priority=1), AGE)
RESOURCE_CLAIM = (
    NAME,
    Column("Class", path("spec", "resourceClassName")),
    Column("State", lambda o, _n: _claim_state(o)),
    AGE,
    Column("Parameters", _claim_parameters, priority=1),
)


def _claim_state(claim: JsonObject) -> str:
    status = claim.get("status") or {}
    words = []
    if claim["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    words.append("allocated" if status.get("allocation") else "pending")
    if status.get("reservedFor"):
        words.append("reserved")
    return ",".join(words)
