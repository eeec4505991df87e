"""What `kubectl get` prints for kinds that other people's parts read and write: Kubernetes' own columns.

Of the same form as `columns`; the table of kinds refers to these tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeqos.apiserver.present.columns import (
    AGE,
    NAME,
    SELECTOR,
    WORKLOAD,
    Cell,
    Column,
    access_modes,
    pairs,
    path,
    selector_text,
    size,
)
from kubeqos.codec import JsonObject, value_at
from kubeqos.model.timestamps import age_since, human_duration, seconds_of

_MOST_ENDPOINTS = 3
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def _unset(*steps: str, default: str = "<unset>") -> Cell:
    inner = path(*steps)
    return lambda obj, now: default if (found := inner(obj, now)) == "" else found


def _flag(*steps: str) -> Cell:
    return path(*steps, default=False)


def _joined(found: Iterable[str], most: int = 0) -> str:
    """A comma between them; of too many the first ones, and how many more there are."""
    shown = list(found)
    if most and len(shown) > most:
        return f"{','.join(shown[:most])} + {len(shown) - most} more..."
    return ",".join(shown) or "<none>"


def _volume_claim(volume: JsonObject, _now: float) -> str:
    reference = (volume.get("spec") or {}).get("claimRef") or {}
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def _phase(obj: JsonObject, _now: float) -> str:
    going = obj["metadata"].get("deletionTimestamp")
    return "Terminating" if going else str((obj.get("status") or {}).get("phase", ""))


def _endpoints(obj: JsonObject, _now: float) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or ()
        for address in subset.get("addresses") or ():
            ip = address.get("ip", "")
            found += [f"{ip}:{port.get('port')}" for port in ports] if ports else [ip]
    return _joined(found, _MOST_ENDPOINTS)


def _slice_ports(obj: JsonObject, _now: float) -> str:
    found = [str(port["port"]) if port.get("port") else "*" for port in obj.get("ports") or ()]
    return _joined(found, _MOST_ENDPOINTS) if found else "<unset>"


def _slice_addresses(obj: JsonObject, _now: float) -> str:
    addresses = [address for one in obj.get("endpoints") or () for address in one.get("addresses") or ()]
    return _joined(addresses, _MOST_ENDPOINTS) if addresses else "<unset>"


def _class_name(obj: JsonObject, _now: float) -> str:
    default = (obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    return f"{obj['metadata'].get('name', '')}{' (default)' if default else ''}"


def _tokens(driver: JsonObject, _now: float) -> str:
    found = (driver.get("spec") or {}).get("tokenRequests") or ()
    return ",".join(str(one.get("audience", "")) for one in found) or "<unset>"


def _modes(driver: JsonObject, _now: float) -> str:
    return ",".join((driver.get("spec") or {}).get("volumeLifecycleModes") or ()) or "<none>"


def _ingress_hosts(obj: JsonObject, _now: float) -> str:
    hosts = [rule["host"] for rule in (obj.get("spec") or {}).get("rules") or () if rule.get("host")]
    return _joined(hosts, 3) if hosts else "*"


def _ingress_address(obj: JsonObject, _now: float) -> str:
    found = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(str(one.get("ip") or one.get("hostname") or "") for one in found)


def _ingress_ports(obj: JsonObject, _now: float) -> str:
    return "80, 443" if (obj.get("spec") or {}).get("tls") else "80"


def _ingress_parameters(obj: JsonObject, _now: float) -> str:
    found = (obj.get("spec") or {}).get("parameters")
    if not found:
        return "<none>"
    group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
    return f"{found.get('kind', '')}{group}/{found.get('name', '')}"


def _scaled(obj: JsonObject, _now: float) -> str:
    found = (obj.get("spec") or {}).get("scaleTargetRef") or {}
    return f"{found.get('kind', '')}/{found.get('name', '')}"


def _scaling_targets(obj: JsonObject, _now: float) -> str:
    current = {_metric_name(one): one for one in (obj.get("status") or {}).get("currentMetrics") or ()}
    found = []
    for metric in (obj.get("spec") or {}).get("metrics") or ():
        name = _metric_name(metric)
        wanted, seen = _measured(metric, "target"), _measured(current.get(name, {}), "current")
        label = f"{name}: " if metric.get("type") == "Resource" else ""
        found.append(f"{label}{seen or '<unknown>'}/{wanted}")
    return _joined(found, 2)


def _metric_name(metric: JsonObject) -> str:
    source = metric.get(_source(metric)) or {}
    return str(source.get("name") or (source.get("metric") or {}).get("name") or "")


def _source(metric: JsonObject) -> str:
    kind = str(metric.get("type", ""))
    return kind[:1].lower() + kind[1:]


def _measured(metric: JsonObject, part: str) -> str:
    value = (metric.get(_source(metric)) or {}).get(part) or {}
    if value.get("averageUtilization") is not None:
        return f"{value['averageUtilization']}%"
    average = value.get("averageValue")
    return str(average if average is not None else value.get("value", ""))


def _request_condition(obj: JsonObject, _now: float) -> str:
    status = obj.get("status") or {}
    types = [one.get("type") for one in status.get("conditions") or ()]
    words = [word for word in ("Denied", "Approved", "Failed") if word in types] or ["Pending"]
    if status.get("certificate"):
        words.append("Issued")
    return ",".join(words)


def _request_duration(obj: JsonObject, _now: float) -> str:
    seconds = (obj.get("spec") or {}).get("expirationSeconds")
    return human_duration(seconds) if seconds is not None else "<none>"


def _owner(obj: JsonObject, _now: float) -> str:
    for one in obj["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one.get("apiVersion", "")).rpartition("/")[0]
            return f"{str(one.get('kind', '')).lower()}{f'.{group}' if group else ''}/{one.get('name', '')}"
    return "<none>"


def _parent(obj: JsonObject, _now: float) -> str:
    found = (obj.get("spec") or {}).get("parentRef") or {}
    named = [found.get("resource", ""), found.get("namespace", ""), found.get("name", "")]
    group = f".{found['group']}" if found.get("group") else ""
    return "/".join(part for part in (f"{named[0]}{group}", *named[1:]) if part)


def _cidrs(obj: JsonObject, _now: float) -> str:
    return ",".join((obj.get("spec") or {}).get("cidrs") or ()) or "<none>"


def _kind_reference(*steps: str) -> Cell:
    inner = path(*steps, default=None)

    def cell(obj: JsonObject, now: float) -> str:
        found = inner(obj, now)
        return f"{found.get('apiVersion', '')}/{found.get('kind', '')}" if found else "<unset>"

    return cell


def _parameter(obj: JsonObject, _now: float) -> str:
    found = (obj.get("spec") or {}).get("paramRef") or {}
    if not found:
        return "<unset>"
    return f"{found.get('namespace') or '*'}/{found.get('name') or '*'}"


def _pool(obj: JsonObject, _now: float) -> str:
    return str(((obj.get("spec") or {}).get("pool") or {}).get("name", ""))


def _device_claim_state(claim: JsonObject, _now: float) -> str:
    status, words = claim.get("status") or {}, []
    if claim["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    if status.get("allocation"):
        words.append("allocated")
    if status.get("reservedFor"):
        words.append("reserved")
    return ",".join(words) if status.get("allocation") else ",".join([*words, "pending"])


def _completions(job: JsonObject, _now: float) -> str:
    spec, done = job.get("spec") or {}, (job.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_status(job: JsonObject, _now: float) -> str:
    true = {one.get("type") for one in (job.get("status") or {}).get("conditions") or () if one.get("status") == "True"}
    for type, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if type in true:
            return word
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for type in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if type in true:
            return type
    return "Running"


def _job_duration(job: JsonObject, now: float) -> str:
    status = job.get("status") or {}
    began, ended = (seconds_of(status.get(field) or "") for field in ("startTime", "completionTime"))
    return "" if began is None else human_duration((now if ended is None else ended) - began)


def _last_schedule(cron: JsonObject, now: float) -> str:
    found = (cron.get("status") or {}).get("lastScheduleTime")
    return age_since(found, now) if found else "<none>"


def _cron_containers(field: str) -> Cell:
    inner = path("spec", "jobTemplate", "spec", "template", "spec", "containers", default=())
    return lambda obj, now: ",".join(str(one.get(field, "")) for one in inner(obj, now))


def _cron_selector(cron: JsonObject, _now: float) -> str:
    template = ((cron.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    return selector_text(template.get("selector"))


def _stateful_ready(obj: JsonObject, _now: float) -> str:
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{(obj.get('spec') or {}).get('replicas', 0)}"


def _node_selector(obj: JsonObject, _now: float) -> str:
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return pairs(template.get("nodeSelector"))


def _queuing(field: str) -> Cell:
    inner = path("spec", "limited", "limitResponse", "queuing", field, default=None)
    return lambda obj, now: "<none>" if (found := inner(obj, now)) is None else found


def _dangling(schema: JsonObject, _now: float) -> str:
    found = (schema.get("status") or {}).get("conditions") or ()
    return next((str(one.get("status")) for one in found if one.get("type") == "Dangling"), "?")


def _component(type: str) -> Cell:
    def cell(obj: JsonObject, _now: float) -> Any:
        conditions: list[JsonObject] = obj.get("conditions") or []
        found = next((one for one in conditions if one.get("type") == "Healthy"), JsonObject())
        if type == "status":
            return "Healthy" if found.get("status") == "True" else "Unhealthy"
        return found.get(type, "")

    return cell


def _migrated(obj: JsonObject, _now: float) -> str:
    found = (obj.get("spec") or {}).get("resource") or {}
    return f"{found.get('resource', '')}.{found.get('group', '')}".rstrip(".")


PERSISTENT_VOLUME = (
    NAME,
    Column("Capacity", path("spec", "capacity", "storage")),
    Column("Access Modes", access_modes("spec")),
    Column("Reclaim Policy", path("spec", "persistentVolumeReclaimPolicy")),
    Column("Status", _phase),
    Column("Claim", _volume_claim),
    Column("StorageClass", path("spec", "storageClassName")),
    Column("VolumeAttributesClass", _unset("spec", "volumeAttributesClassName")),
    Column("Reason", path("status", "reason")),
    AGE,
    Column("VolumeMode", _unset("spec", "volumeMode"), priority=1),
)
ENDPOINTS = (NAME, Column("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE = (
    NAME,
    Column("AddressType", path("addressType")),
    Column("Ports", _slice_ports),
    Column("Endpoints", _slice_addresses),
    AGE,
)


def _served_by(obj: JsonObject, _now: float) -> str:
    found = value_at(obj, ("spec", "service"))
    return f"{found.get('namespace', '')}/{found.get('name', '')}" if found else "Local"


def _available(obj: JsonObject, _now: float) -> str:
    conditions = value_at(obj, ("status", "conditions")) or ()
    found = next((one for one in conditions if one.get("type") == "Available"), {"status": "Unknown"})
    told = found.get("reason") if found["status"] != "True" else ""
    return f"{found['status']} ({told})" if told else str(found["status"])


COMPONENT_STATUS = (
    NAME,
    Column("Status", _component("status")),
    Column("Message", _component("message")),
    Column("Error", _component("error")),
)
STORAGE_CLASS = (
    Column("Name", _class_name, format="name"),
    Column("Provisioner", path("provisioner")),
    Column("ReclaimPolicy", path("reclaimPolicy", default="Delete")),
    Column("VolumeBindingMode", path("volumeBindingMode", default="Immediate")),
    Column("AllowVolumeExpansion", _flag("allowVolumeExpansion")),
    AGE,
)
CSI_NODE = (NAME, Column("Drivers", size("spec", "drivers"), "integer"), AGE)
CSI_DRIVER = (
    NAME,
    Column("AttachRequired", path("spec", "attachRequired", default=True), "boolean"),
    Column("PodInfoOnMount", _flag("spec", "podInfoOnMount"), "boolean"),
    Column("StorageCapacity", _flag("spec", "storageCapacity"), "boolean"),
    Column("TokenRequests", _tokens),
    Column("RequiresRepublish", _flag("spec", "requiresRepublish"), "boolean"),
    Column("Modes", _modes),
    AGE,
)
CSI_STORAGE_CAPACITY = (
    NAME,
    Column("StorageClassName", path("storageClassName")),
    Column("Capacity", _unset("capacity")),
)
VOLUME_ATTACHMENT = (
    NAME,
    Column("Attacher", path("spec", "attacher")),
    Column("PV", path("spec", "source", "persistentVolumeName")),
    Column("Node", path("spec", "nodeName")),
    Column("Attached", _flag("status", "attached"), "boolean"),
    AGE,
)
VOLUME_ATTRIBUTES_CLASS = (Column("Name", _class_name, format="name"), Column("DriverName", path("driverName")), AGE)
DEVICE_CLAIM = (NAME, Column("State", _device_claim_state), AGE)
RESOURCE_SLICE = (
    NAME,
    Column("Node", _unset("spec", "nodeName")),
    Column("Driver", path("spec", "driver")),
    Column("Pool", _pool),
    AGE,
)
RUNTIME_CLASS = (NAME, Column("Handler", path("handler")), AGE)
NETWORK_POLICY = (
    NAME,
    Column("Pod-Selector", lambda o, _n: selector_text((o.get("spec") or {}).get("podSelector"))),
    AGE,
)
INGRESS = (
    NAME,
    Column("Class", _unset("spec", "ingressClassName", default="<none>")),
    Column("Hosts", _ingress_hosts),
    Column("Address", _ingress_address),
    Column("Ports", _ingress_ports),
    AGE,
)
INGRESS_CLASS = (
    NAME,
    Column("Controller", path("spec", "controller")),
    Column("Parameters", _ingress_parameters),
    AGE,
)
AUTOSCALER = (
    NAME,
    Column("Reference", _scaled),
    Column("Targets", _scaling_targets),
    Column("MinPods", _unset("spec", "minReplicas")),
    Column("MaxPods", path("spec", "maxReplicas", default=0)),
    Column("Replicas", path("status", "currentReplicas", default=0)),
    AGE,
)
SIGNING_REQUEST = (
    NAME,
    AGE,
    Column("SignerName", path("spec", "signerName")),
    Column("Requestor", path("spec", "username")),
    Column("RequestedDuration", _request_duration),
    Column("Condition", _request_condition),
)
TRUST_BUNDLE = (NAME, Column("SignerName", path("spec", "signerName", default="<none>")))
POD_CERTIFICATE = (
    NAME,
    Column("PodName", path("spec", "podName")),
    Column("ServiceAccountName", path("spec", "serviceAccountName")),
    Column("NodeName", path("spec", "nodeName")),
    Column("SignerName", path("spec", "signerName")),
    Column("State", _request_condition),
    AGE,
)
CONTROLLER_REVISION = (
    NAME,
    Column("Controller", _owner),
    Column("Revision", path("revision", default=0)),
    AGE,
)
IP_ADDRESS = (NAME, Column("ParentRef", _parent))
SERVICE_CIDR = (NAME, Column("CIDRs", _cidrs), AGE)
ADMISSION_POLICY = (
    NAME,
    Column("Validations", size("spec", "validations"), "integer"),
    Column("ParamKind", _kind_reference("spec", "paramKind")),
    AGE,
)
MUTATING_POLICY = (
    NAME,
    Column("Mutations", size("spec", "mutations"), "integer"),
    Column("ParamKind", _kind_reference("spec", "paramKind")),
    AGE,
)
POLICY_BINDING = (NAME, Column("PolicyName", path("spec", "policyName")), Column("ParamRef", _parameter), AGE)
API_SERVICE = (
    NAME,
    Column("Service", _served_by, description="The reference to the service that hosts this API endpoint."),
    Column("Available", _available, description="Whether this service is available."),
    AGE,
)
WEBHOOKS = (NAME, Column("Webhooks", size("webhooks"), "integer"), AGE)
FLOW_SCHEMA = (
    NAME,
    Column("PriorityLevel", path("spec", "priorityLevelConfiguration", "name")),
    Column("MatchingPrecedence", path("spec", "matchingPrecedence", default=0)),
    Column("DistinguisherMethod", path("spec", "distinguisherMethod", "type", default="<none>")),
    AGE,
    Column("MissingPL", _dangling),
)
PRIORITY_LEVEL = (
    NAME,
    Column("Type", path("spec", "type")),
    Column("NominalConcurrencyShares", _unset("spec", "limited", "nominalConcurrencyShares", default="<none>")),
    Column("Queues", _queuing("queues")),
    Column("HandSize", _queuing("handSize")),
    Column("QueueLengthLimit", _queuing("queueLengthLimit")),
    AGE,
)
MIGRATION = (NAME, Column("Resource", _migrated))
JOB = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _completions),
    Column("Duration", _job_duration),
    AGE,
    *WORKLOAD,
    SELECTOR,
)
CRON_JOB = (
    NAME,
    Column("Schedule", path("spec", "schedule")),
    Column("Timezone", path("spec", "timeZone", default="<none>")),
    Column("Suspend", lambda o, now: str(bool(path("spec", "suspend")(o, now)))),
    Column("Active", size("status", "active"), "integer"),
    Column("Last Schedule", _last_schedule),
    AGE,
    Column("Containers", _cron_containers("name"), priority=1),
    Column("Images", _cron_containers("image"), priority=1),
    Column("Selector", _cron_selector, priority=1),
)
DAEMON_SET = (
    NAME,
    Column("Desired", path("status", "desiredNumberScheduled", default=0), "integer"),
    Column("Current", path("status", "currentNumberScheduled", default=0), "integer"),
    Column("Ready", path("status", "numberReady", default=0), "integer"),
    Column("Up-to-date", path("status", "updatedNumberScheduled", default=0), "integer"),
    Column("Available", path("status", "numberAvailable", default=0), "integer"),
    Column("Node Selector", _node_selector),
    AGE,
    *WORKLOAD,
    SELECTOR,
)
STATEFUL_SET = (NAME, Column("Ready", _stateful_ready), AGE, *WORKLOAD)
