"""What happens to an object of a kind besides admission: what a create fills in, what an update may not touch, how it
dies. Pure functions over raw objects; the table of kinds refers to the constants at the end, `writes` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import seconds_of
from kubeqos.rules.qos.allocated import resized_spec
from kubeqos.rules.validation.claims import known_sources
from kubeqos.web.identity import Identity

Create = Callable[[JsonObject], None]
Update = Callable[[JsonObject, JsonObject], None]  # new, old
Grace = Callable[[JsonObject, int | None], int]
Protect = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How objects of a kind are born, change and end."""

    generation: bool = False  # metadata.generation counts changes of the spec
    status: bool = False  # the main resource cannot write status; the status subresource writes nothing else
    upsert: bool = False  # PUT creates what is not there
    needs_version: bool = False  # PUT must say which version it replaces
    on_request: Callable[[JsonObject, Identity], None] | None = None  # what a create says about who asked for it
    on_create: Create | None = None
    on_update: Update | None = None
    on_status: Update | None = None
    status_keeps: JsonObject = field(default_factory=dict)  # metadata that a status write leaves, as a set of fields
    views: Mapping[str, Update] = field(default_factory=dict)  # what a write of another subresource may change
    grace: Grace | None = None  # seconds an object lives on after it was asked to end
    protect: Protect | None = None  # why an object of this name may not be deleted
    answers_object: bool = False  # a completed delete answers with the object instead of a Status
    orphans: bool = False  # dependents stay unless a delete says otherwise


# By its labels a slice is somebody's: who keeps it looks again by its generation.
_COUNTED_METADATA = {"Deployment": "annotations", "EndpointSlice": "labels"}


def generated(old: JsonObject, new: JsonObject) -> bool:
    """Did anything but metadata and status change? Some metadata is part of what an object of its kind wants."""
    skip = ("metadata", "status", "kind", "apiVersion")
    counted = _COUNTED_METADATA.get(new.get("kind", ""))
    if counted and (old["metadata"].get(counted) or {}) != (new["metadata"].get(counted) or {}):
        return True
    return {k: v for k, v in old.items() if k not in skip} != {k: v for k, v in new.items() if k not in skip}


def shortened(metadata: JsonObject, grace: int, now: float) -> tuple[float, int]:
    """When an object ends that is given less time than before, and with what grace: it counts from the first request.

    An end that is past is now; who asked for grace then still gets the least there is, so that its node lets it go.
    """
    begun = (seconds_of(metadata["deletionTimestamp"]) or now) - metadata.get("deletionGracePeriodSeconds", 0)
    if int(begun + grace) >= int(now):
        return begun + grace, grace
    return now, min(grace, 1)


def keep_all_but_status(new: JsonObject, old: JsonObject) -> None:
    """A status write takes the status and the metadata of the new object and the rest of the old one."""
    for name in [k for k in new if k not in ("metadata", "status", "kind", "apiVersion")]:
        del new[name]
    new.update({k: v for k, v in old.items() if k not in ("metadata", "status", "kind", "apiVersion")})


def keep_status(new: JsonObject, old: JsonObject) -> None:
    """A write of the main resource leaves the status as it was."""
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def _pod_status(new: JsonObject, old: JsonObject) -> None:
    """A node says how a pod is, not whose it is; the QoS class is decided once: an empty value means the old one."""
    keep_all_but_status(new, old)
    owners = old["metadata"].get("ownerReferences")
    if owners is None:
        new["metadata"].pop("ownerReferences", None)
    else:
        new["metadata"]["ownerReferences"] = owners
    status = new.setdefault("status", {})
    decided = (old.get("status") or {}).get("qosClass")
    if decided and not status.get("qosClass"):
        status["qosClass"] = decided
    seen = (old.get("status") or {}).get("observedGeneration")
    if seen and not status.get("observedGeneration"):
        status["observedGeneration"] = seen
    for condition in status.get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)


def keep_all(new: JsonObject, old: JsonObject) -> None:
    """Everything as it was; a view then takes its own part from what the client sent."""
    new.clear()
    new.update(old)
    new["metadata"] = dict(old["metadata"])


def _pod_resized(new: JsonObject, old: JsonObject) -> None:
    """A resize writes the resources of containers and of the pod, its classes among them, and nothing else."""
    asked = new.get("spec") or {}
    keep_all(new, old)
    new["spec"] = resized_spec(asked, old.get("spec") or {})


def _pod_debugged(new: JsonObject, old: JsonObject) -> None:
    asked = (new.get("spec") or {}).get("ephemeralContainers")
    keep_all(new, old)
    spec = new["spec"] = {k: v for k, v in (old.get("spec") or {}).items() if k != "ephemeralContainers"}
    if asked:
        spec["ephemeralContainers"] = asked


def _namespace_finalized(new: JsonObject, old: JsonObject) -> None:
    asked = (new.get("spec") or {}).get("finalizers")
    keep_all(new, old)
    new["spec"] = {"finalizers": asked} if asked else {}


def _pod_grace(pod: JsonObject, requested: int | None) -> int:
    """Bound pods get their grace period; nobody has to stop an unscheduled or a finished one."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if requested is None:
        found = spec.get("terminationGracePeriodSeconds")
        requested = 30 if found is None else found
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    return max(1, requested) if requested < 0 else requested


def _deployment_status(new: JsonObject, old: JsonObject) -> None:
    keep_all_but_status(new, old)
    new["metadata"].pop("labels", None)
    if labels := old["metadata"].get("labels"):
        new["metadata"]["labels"] = labels


def _namespace_updated(new: JsonObject, old: JsonObject) -> None:
    new["spec"] = old.get("spec") or {}
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]


def _namespace_protected(name: str) -> str | None:
    kept = name in ("default", "kube-system", "kube-public")
    return "this namespace may not be deleted" if kept else None


NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def _node_zeroes(node: JsonObject) -> None:
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {}).setdefault("Port", 0)
    info = status.setdefault("nodeInfo", {})
    for name in NODE_INFO:
        info.setdefault(name, "")


def _node_status(new: JsonObject, old: JsonObject) -> None:
    keep_all_but_status(new, old)
    _node_zeroes(new)


def _event_created(event: JsonObject) -> None:
    event.setdefault("eventTime", None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")
    for name in ("source", "involvedObject"):
        event.setdefault(name, {})
    for name in ("firstTimestamp", "lastTimestamp"):
        event.setdefault(name, None)


def _claim_made(claim: JsonObject) -> None:
    claim["spec"] = known_sources(claim.get("spec") or {}, None)


def _claim_updated(new: JsonObject, old: JsonObject) -> None:
    new["spec"] = known_sources(new.get("spec") or {}, old.get("spec") or {})


def _with_status(status: JsonObject) -> Create:
    def created(obj: JsonObject) -> None:
        obj["status"] = dict(status)

    return created


def _empty_spec(obj: JsonObject) -> None:
    obj.setdefault("spec", {})


def _service_created(service: JsonObject) -> None:
    service["status"] = {"loadBalancer": {}}


def _first_generation(obj: JsonObject) -> None:
    """Its value cannot change, so there is never a second one."""
    obj["metadata"]["generation"] = 1


def _priority_class_protected(name: str) -> str | None:
    system = name in ("system-node-critical", "system-cluster-critical")
    return "this is a system priority class and cannot be deleted" if system else None


def _signing_requested(obj: JsonObject, identity: Identity) -> None:
    """Who asks for a certificate is not for the client to say."""
    spec = obj.setdefault("spec", {})
    spec.update(username=identity.user, groups=list(identity.groups))
    for name in ("uid", "extra"):
        spec.pop(name, None)
    if identity.uid:
        spec["uid"] = identity.uid


def _signing_kept(new: JsonObject, old: JsonObject) -> None:
    """What was asked for stays as it was asked, whatever a later write says."""
    new["spec"] = old.get("spec") or {}


def _signing_status(new: JsonObject, old: JsonObject) -> None:
    """A signer says what it made; approving and denying is another subresource's."""
    keep_all_but_status(new, old)
    decided = [one for one in (old.get("status") or {}).get("conditions") or () if one.get("type") in _DECISIONS]
    status = new.setdefault("status", {})
    others = [one for one in status.get("conditions") or () if one.get("type") not in _DECISIONS]
    status["conditions"] = [*decided, *others]
    if not status["conditions"]:
        del status["conditions"]


def _signing_approved(new: JsonObject, old: JsonObject) -> None:
    conditions = (new.get("status") or {}).get("conditions")
    keep_all(new, old)
    new["status"] = {**(old.get("status") or {}), "conditions": conditions or []}


_DECISIONS = ("Approved", "Denied")
_OWN_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")


def _csi_status(new: JsonObject, old: JsonObject) -> None:
    """What a status may say is behind a gate that is off (CSIVolumeHealth): Kubernetes drops it."""
    _status_alone(new, old)
    new["status"] = old.get("status") or {}


def _api_service_created(obj: JsonObject) -> None:
    """What this server serves itself is there; of another server nobody here knows."""
    obj["status"] = {}
    if (obj.get("spec") or {}).get("service") is None:
        condition = {"type": "Available", "status": "True", "reason": "Local"}
        condition["message"] = "Local APIServices are always available"
        obj["status"]["conditions"] = [{**condition, "lastTransitionTime": obj["metadata"]["creationTimestamp"]}]


def _status_alone(new: JsonObject, old: JsonObject) -> None:
    """A status write leaves metadata, too, as it was."""
    keep_all_but_status(new, old)
    for name in _OWN_METADATA:
        new["metadata"].pop(name, None)
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]


PLAIN = Lifecycle()
GENERATED = Lifecycle(generation=True)
VERSIONED = Lifecycle(needs_version=True)
RUNTIME_CLASS = Lifecycle(upsert=True, needs_version=True)
VERSIONED_SPEC = Lifecycle(generation=True, needs_version=True)
INGRESS = Lifecycle(generation=True, status=True, on_create=_with_status({"loadBalancer": {}}))
PERSISTENT_VOLUME = Lifecycle(status=True, on_create=_with_status({"phase": "Pending"}), answers_object=True)
SIGNING_REQUEST = Lifecycle(
    status=True, on_request=_signing_requested, on_create=_with_status({}), on_status=_signing_status,
    on_update=_signing_kept,
    views={"approval": _signing_approved},
)  # fmt: skip
SPEC = Lifecycle(generation=True, answers_object=True)
UPSERT = Lifecycle(upsert=True)
EVENT = Lifecycle(upsert=True, on_create=_event_created)
LEASE = Lifecycle(upsert=True, needs_version=True, on_create=_empty_spec)
RETURNED = Lifecycle(answers_object=True)
WITH_STATUS = Lifecycle(status=True, on_create=_with_status({}))
VERSIONED_WITH_STATUS = replace(WITH_STATUS, needs_version=True)
CSI_NODE = replace(
    VERSIONED_WITH_STATUS,
    on_status=_csi_status,
    status_keeps={"f:metadata": {f"f:{name}": {} for name in _OWN_METADATA}},
)
API_SERVICE = replace(CSI_NODE, on_create=_api_service_created, on_status=_status_alone)
RESOURCE_QUOTA = Lifecycle(status=True, on_create=_with_status({}), answers_object=True)
WORKLOAD = Lifecycle(generation=True, status=True)
VERSIONED_WORKLOAD = replace(WORKLOAD, needs_version=True)
DEPLOYMENT = replace(WORKLOAD, on_status=_deployment_status, status_keeps={"f:metadata": {"f:labels": {}}})
REPLICATION_CONTROLLER = replace(WORKLOAD, orphans=True)
JOB = replace(WORKLOAD, orphans=True)
SERVICE = Lifecycle(status=True, upsert=True, on_create=_service_created, answers_object=True)
PERSISTENT_VOLUME_CLAIM = Lifecycle(
    status=True, answers_object=True, on_create=_claim_made, on_update=_claim_updated,
)  # fmt: skip
NODE = Lifecycle(status=True, on_create=_node_zeroes, on_status=_node_status)
NAMESPACE = Lifecycle(
    status=True, views={"finalize": _namespace_finalized},
    on_update=_namespace_updated, protect=_namespace_protected,
    answers_object=True,
)  # fmt: skip
POD = Lifecycle(
    generation=True, status=True, on_status=_pod_status, grace=_pod_grace, answers_object=True,
    status_keeps={"f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}},
    views={"resize": _pod_resized, "ephemeralcontainers": _pod_debugged},
)  # fmt: skip
PRIORITY_CLASS = Lifecycle(on_create=_first_generation, protect=_priority_class_protected)
DISRUPTION_BUDGET = Lifecycle(
    generation=True,
    status=True,
    needs_version=True,
    on_create=_with_status({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
)
