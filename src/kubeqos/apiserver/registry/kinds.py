"""The kinds as they are served: whatever the API server knows about a kind is a column of this table.

Routing, discovery, OpenAPI, tables, field selectors, lifecycle and quota counting read it. Names and scope come from
`model.kinds`; every entry there has one here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kubeqos.apiserver.present import columns
from kubeqos.apiserver.present import morecolumns as more
from kubeqos.apiserver.present.columns import Column
from kubeqos.apiserver.registry import lifecycle
from kubeqos.apiserver.registry.lifecycle import Lifecycle
from kubeqos.apiserver.registry.views import AUTOSCALER_VIEW, EVENT_VIEW, View
from kubeqos.codec import JsonObject, value_at
from kubeqos.model import schema
from kubeqos.model.kinds import (
    ADMISSION,
    APIEXTENSIONS,
    APIREGISTRATION,
    APPS,
    AUTHENTICATION,
    AUTHORIZATION,
    AUTOSCALING,
    BATCH,
    BY_KIND,
    BY_VERSION,
    CERTIFICATES,
    COORDINATION,
    DECISIONS,
    DISCOVERY,
    EVENTS,
    FLOWCONTROL,
    METRICS,
    NETWORKING,
    NODE,
    POLICY,
    RBAC,
    RESOURCE,
    SCHEDULING,
    STORAGE,
    STORAGE_MIGRATION,
    ApiResource,
)
from kubeqos.model.schema import TypeSchema
from kubeqos.rules.requests import AdmissionRequest, Operation

if TYPE_CHECKING:
    from kubeqos.apiserver.registry.definitions import Definition

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
WRITABLE = ("get", "patch", "update")
ASKED = ("create",)

FieldReader = Callable[[JsonObject], str]


@dataclass(frozen=True, slots=True)
class Subresource:
    """Something below an object's path: `pods/NAME/status`."""

    name: str
    verbs: tuple[str, ...] = WRITABLE
    kind: str = ""  # the parent's when empty
    group: str = ""
    version: str = ""
    answers: str = ""  # what comes back where that is not the kind: Status, or text


@dataclass(frozen=True, eq=False)
class Kind(ApiResource):
    """One kind of object as the API serves it. There is one entry per kind, so an entry is equal to itself alone."""

    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[Column, ...] = columns.PLAIN
    fields: Mapping[str, FieldReader] = field(default_factory=dict)
    # Kinds that declare their own selectable fields refuse others with a different text than the rest do.
    declares_fields: bool = False
    lifecycle: Lifecycle = lifecycle.PLAIN
    deprecated: str = ""  # what every client of the kind is warned of
    # A kind that is stored as another: its objects are turned into one another at the edge.
    view: View | None = None
    # What a CustomResourceDefinition says about the kind; built-in kinds have their rules elsewhere.
    definition: Definition | None = None

    @cached_property
    def storage(self) -> Kind:
        """The kind as which objects are kept: itself, unless it is a view of another."""
        if self.view is None:
            return self
        found: Kind = self.view.of or kind_named(self.view.kind, self.view.group)
        return found

    @cached_property
    def schema(self) -> TypeSchema:
        """The type of its objects."""
        if self.definition is not None:
            return self.definition.type_schema
        return schema.kind(self.group, self.version, self.kind)

    @cached_property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def prefix(self) -> str:
        """Where the store keeps this kind. Versions that have nothing in common do not share a place."""
        if self.view is not None:
            return self.storage.prefix
        home = self.group or "core"
        if self.definition is not None:
            return f"/registry/{home}/{self.plural}/"
        return (
            f"/registry/{home}/{self.plural}/"
            if self.rules == self.kind
            else (f"/registry/{home}/{self.version}/{self.plural}/")
        )

    @cached_property
    def head(self) -> bytes:
        """How every stored object of this kind begins; its resourceVersion follows."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}","metadata":{{"resourceVersion":"'.encode()

    @cached_property
    def item_offset(self) -> int:
        """Items of a list leave kind and apiVersion out: where the rest of a stored object starts."""
        return len(f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",')

    @cached_property
    def verb_of_subresource(self) -> Mapping[str, tuple[str, ...]]:
        return {sub.name: sub.verbs for sub in self.subresources}

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else self.prefix + name

    def range_prefix(self, namespace: str) -> str:
        return f"{self.prefix}{namespace}/" if self.namespaced and namespace else self.prefix

    def request(
        self,
        operation: Operation,
        namespace: str,
        new: JsonObject | None,
        old: JsonObject | None = None,
        subresource: str = "",
        *,
        whole: bool = False,
    ) -> AdmissionRequest:
        """What admission is asked about a write of this kind."""
        place = (self.plural, self.kind, self.group, namespace if self.namespaced else "", subresource)
        return AdmissionRequest(operation, *place, old, new, self.rules, defaulted=True, whole=whole)

    def read_field(self, obj: JsonObject, name: str) -> str:
        """The value a field selector compares."""
        if name in ("metadata.name", "metadata.namespace"):
            return str(obj["metadata"].get(name[9:], ""))
        return self.fields[name](obj)

    def selects(self, name: str) -> bool:
        return name in self.fields or name == "metadata.name" or (name == "metadata.namespace" and self.namespaced)

    def unknown_field(self, name: str) -> str:
        if self.declares_fields:
            return f"field label not supported: {name}"
        return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def at(*steps: str) -> FieldReader:
    """Reads one string, number or boolean; absent is the empty string."""

    def read(obj: JsonObject) -> str:
        found = value_at(obj, steps)
        if isinstance(found, bool):
            return "true" if found else "false"
        return "" if found is None else str(found)

    return read


def flag(*steps: str) -> FieldReader:
    inner = at(*steps)
    return lambda obj: inner(obj) or "false"


def _pod_ips(pod: JsonObject) -> str:
    found = (pod.get("status") or {}).get("podIPs") or ()
    return ",".join(str(item.get("ip", "")) for item in found)


def _event_source(event: JsonObject) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


POD_FIELDS: Mapping[str, FieldReader] = {
    "spec.nodeName": at("spec", "nodeName"),
    "spec.restartPolicy": at("spec", "restartPolicy"),
    "spec.schedulerName": at("spec", "schedulerName"),
    "spec.serviceAccountName": at("spec", "serviceAccountName"),
    "spec.hostNetwork": flag("spec", "hostNetwork"),
    "status.phase": at("status", "phase"),
    "status.podIP": at("status", "podIP"),
    "status.podIPs": _pod_ips,
    "status.nominatedNodeName": at("status", "nominatedNodeName"),
}
EVENT_FIELDS: Mapping[str, FieldReader] = {
    **{
        f"involvedObject.{name}": at("involvedObject", name)
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": at("reason"),
    "reportingComponent": at("reportingComponent"),
    "source": _event_source,
    "type": at("type"),
}
REGARDING_FIELDS: Mapping[str, FieldReader] = {
    name.replace("involvedObject", "regarding").replace("reportingComponent", "reportingController"): read
    for name, read in EVENT_FIELDS.items()
    if name != "source"
}
"""Of the newer form of events, read from the older one, as which they are kept."""
POD_CERTIFICATE_FIELDS: Mapping[str, FieldReader] = {
    f"spec.{name}": at("spec", name) for name in ("nodeName", "podName", "serviceAccountName", "signerName")
}
EXTENSIONS = ("api-extensions",)
STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")
TOKEN = Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1")
POD_SUBRESOURCES = (
    Subresource("attach", ("create", "get"), "PodAttachOptions", "", "v1"),
    Subresource("binding", ("create",), "Binding", "", "v1", answers="Status"),
    Subresource("ephemeralcontainers"),
    Subresource("eviction", ("create",), "Eviction", "policy", "v1", answers="Status"),
    Subresource("exec", ("create", "get"), "PodExecOptions", "", "v1"),
    Subresource("log", ("get",), answers="text"),
    Subresource("portforward", ("create", "get"), "PodPortForwardOptions", "", "v1"),
    Subresource("resize"),
    STATUS,
)
# As in Kubernetes every verb is passed on and checked; our nodes answer to GET alone.
PROXIED = ("create", "delete", "get", "patch", "update")
NODE_SUBRESOURCES = (Subresource("proxy", PROXIED, "NodeProxyOptions", "", "v1", answers="text"), STATUS)
NAMESPACE_SUBRESOURCES = (Subresource("finalize", ("update",)), STATUS)


def served(kind: str, group: str = "", version: str = "", **columns: Any) -> Kind:
    """A kind of the model's table, with what only its server has to know."""
    named = BY_VERSION[group, version, kind] if version else BY_KIND[group, kind]
    return Kind(
        named.group, named.version, named.plural, named.kind, named.namespaced, named.short, named.stored, **columns
    )


KINDS: tuple[Kind, ...] = (
    served("Binding", verbs=ASKED),
    served("ComponentStatus", verbs=("get", "list"), columns=more.COMPONENT_STATUS,
           deprecated="v1 ComponentStatus is deprecated in v1.19+"),
    served("ConfigMap", columns=columns.CONFIG_MAP),
    served("Endpoints", columns=more.ENDPOINTS, lifecycle=lifecycle.UPSERT,
           deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    served("Event", columns=columns.EVENT, fields=EVENT_FIELDS, declares_fields=True, lifecycle=lifecycle.EVENT),
    served("LimitRange", columns=columns.LIMIT_RANGE, lifecycle=lifecycle.UPSERT),
    served("Namespace", verbs=NO_COLLECTION_DELETE, subresources=NAMESPACE_SUBRESOURCES, columns=columns.NAMESPACE,
           fields={"status.phase": at("status", "phase")}, declares_fields=True, lifecycle=lifecycle.NAMESPACE),
    served("Node", subresources=NODE_SUBRESOURCES, columns=columns.NODE,
           fields={"spec.unschedulable": flag("spec", "unschedulable")}, declares_fields=True,
           lifecycle=lifecycle.NODE),
    served("PersistentVolumeClaim", subresources=(STATUS,), columns=columns.PERSISTENT_VOLUME_CLAIM,
           lifecycle=lifecycle.PERSISTENT_VOLUME_CLAIM),
    served("PersistentVolume", subresources=(STATUS,), columns=more.PERSISTENT_VOLUME,
           lifecycle=lifecycle.PERSISTENT_VOLUME),
    served("Pod", categories=("all",), subresources=POD_SUBRESOURCES, columns=columns.POD, fields=POD_FIELDS,
           declares_fields=True, lifecycle=lifecycle.POD),
    served("PodTemplate", columns=columns.POD_TEMPLATE, lifecycle=lifecycle.SPEC),
    served("ReplicationController", categories=("all",), subresources=(SCALE, STATUS),
           columns=columns.REPLICATION_CONTROLLER,
           fields={"status.replicas": lambda o: str((o.get("status") or {}).get("replicas", 0))},
           declares_fields=True, lifecycle=lifecycle.REPLICATION_CONTROLLER),
    served("ResourceQuota", subresources=(STATUS,), columns=columns.RESOURCE_QUOTA,
           lifecycle=lifecycle.RESOURCE_QUOTA),
    served("Secret", columns=columns.SECRET, fields={"type": at("type")}, declares_fields=True),
    served("ServiceAccount", subresources=(TOKEN,), lifecycle=lifecycle.RETURNED),
    served("Service", categories=("all",), subresources=(STATUS,), columns=columns.SERVICE,
           fields={"spec.clusterIP": at("spec", "clusterIP"), "spec.type": at("spec", "type")},
           declares_fields=True, lifecycle=lifecycle.SERVICE),
    served("MutatingAdmissionPolicy", ADMISSION, categories=EXTENSIONS, columns=more.MUTATING_POLICY,
           lifecycle=lifecycle.VERSIONED_SPEC),
    served("MutatingAdmissionPolicyBinding", ADMISSION, categories=EXTENSIONS, columns=more.POLICY_BINDING,
           lifecycle=lifecycle.VERSIONED_SPEC),
    served("MutatingWebhookConfiguration", ADMISSION, categories=EXTENSIONS, columns=more.WEBHOOKS,
           lifecycle=lifecycle.VERSIONED_SPEC),
    served("ValidatingAdmissionPolicy", ADMISSION, categories=EXTENSIONS, subresources=(STATUS,),
           columns=more.ADMISSION_POLICY, lifecycle=lifecycle.VERSIONED_WORKLOAD),
    served("ValidatingAdmissionPolicyBinding", ADMISSION, categories=EXTENSIONS, columns=more.POLICY_BINDING,
           lifecycle=lifecycle.VERSIONED_SPEC),
    served("ValidatingWebhookConfiguration", ADMISSION, categories=EXTENSIONS, columns=more.WEBHOOKS,
           lifecycle=lifecycle.VERSIONED_SPEC),
    served("CustomResourceDefinition", APIEXTENSIONS, categories=EXTENSIONS, subresources=(STATUS,),
           columns=columns.CREATED_AT, lifecycle=lifecycle.VERSIONED_WORKLOAD),
    served("APIService", APIREGISTRATION, categories=EXTENSIONS, subresources=(STATUS,), columns=more.API_SERVICE,
           lifecycle=lifecycle.API_SERVICE),
    served("ControllerRevision", APPS, columns=more.CONTROLLER_REVISION),
    served("DaemonSet", APPS, categories=("all",), subresources=(STATUS,), columns=more.DAEMON_SET,
           lifecycle=lifecycle.WORKLOAD),
    served("Deployment", APPS, categories=("all",), subresources=(SCALE, STATUS), columns=columns.DEPLOYMENT,
           lifecycle=lifecycle.DEPLOYMENT),
    served("ReplicaSet", APPS, categories=("all",), subresources=(SCALE, STATUS), columns=columns.REPLICA_SET,
           lifecycle=lifecycle.WORKLOAD),
    served("StatefulSet", APPS, categories=("all",), subresources=(SCALE, STATUS), columns=more.STATEFUL_SET,
           lifecycle=lifecycle.WORKLOAD),
    served("SelfSubjectReview", AUTHENTICATION, verbs=ASKED),
    served("TokenReview", AUTHENTICATION, verbs=ASKED),
    served("LocalSubjectAccessReview", AUTHORIZATION, verbs=ASKED),
    served("SelfSubjectAccessReview", AUTHORIZATION, verbs=ASKED),
    served("SelfSubjectRulesReview", AUTHORIZATION, verbs=ASKED),
    served("SubjectAccessReview", AUTHORIZATION, verbs=ASKED),
    served("HorizontalPodAutoscaler", AUTOSCALING, categories=("all",), subresources=(STATUS,),
           columns=more.AUTOSCALER, lifecycle=lifecycle.WORKLOAD),
    served("HorizontalPodAutoscaler", AUTOSCALING, "v1", categories=("all",), subresources=(STATUS,),
           columns=more.AUTOSCALER, lifecycle=lifecycle.WORKLOAD, view=AUTOSCALER_VIEW),
    served("CronJob", BATCH, categories=("all",), subresources=(STATUS,), columns=more.CRON_JOB,
           lifecycle=lifecycle.WORKLOAD),
    served("Job", BATCH, categories=("all",), subresources=(STATUS,), columns=more.JOB,
           fields={"status.successful": lambda o: str((o.get("status") or {}).get("succeeded", 0))},
           declares_fields=True, lifecycle=lifecycle.JOB),
    served("CertificateSigningRequest", CERTIFICATES, subresources=(Subresource("approval"), STATUS),
           columns=more.SIGNING_REQUEST, fields={"spec.signerName": at("spec", "signerName")}, declares_fields=True,
           lifecycle=lifecycle.SIGNING_REQUEST),
    served("ClusterTrustBundle", CERTIFICATES, columns=more.TRUST_BUNDLE,
           fields={"spec.signerName": at("spec", "signerName")}, declares_fields=True, lifecycle=lifecycle.VERSIONED),
    served("PodCertificateRequest", CERTIFICATES, subresources=(STATUS,), columns=more.POD_CERTIFICATE,
           fields=POD_CERTIFICATE_FIELDS, declares_fields=True, lifecycle=lifecycle.VERSIONED_WITH_STATUS),
    served("Lease", COORDINATION, columns=columns.LEASE, lifecycle=lifecycle.LEASE),
    served("DecisionBatch", DECISIONS, verbs=ASKED),
    served("PodDecisions", DECISIONS, verbs=("get", "list")),
    served("EndpointSlice", DISCOVERY, columns=more.ENDPOINT_SLICE, lifecycle=lifecycle.GENERATED),
    served("Event", EVENTS, columns=columns.EVENT, fields=REGARDING_FIELDS, declares_fields=True,
           lifecycle=lifecycle.EVENT, view=EVENT_VIEW),
    served("FlowSchema", FLOWCONTROL, subresources=(STATUS,), columns=more.FLOW_SCHEMA, lifecycle=lifecycle.WORKLOAD),
    served("PriorityLevelConfiguration", FLOWCONTROL, subresources=(STATUS,), columns=more.PRIORITY_LEVEL,
           lifecycle=lifecycle.WORKLOAD),
    served("NodeMetrics", METRICS, verbs=("get", "list")),
    served("PodMetrics", METRICS, verbs=("get", "list")),
    served("IngressClass", NETWORKING, columns=more.INGRESS_CLASS, lifecycle=lifecycle.GENERATED),
    served("Ingress", NETWORKING, subresources=(STATUS,), columns=more.INGRESS, lifecycle=lifecycle.INGRESS),
    served("IPAddress", NETWORKING, columns=more.IP_ADDRESS,
           fields={"spec.parentRef.name": at("spec", "parentRef", "name")}, declares_fields=True),
    served("NetworkPolicy", NETWORKING, columns=more.NETWORK_POLICY, lifecycle=lifecycle.GENERATED),
    served("ServiceCIDR", NETWORKING, subresources=(STATUS,), columns=more.SERVICE_CIDR,
           lifecycle=lifecycle.WITH_STATUS),
    served("RuntimeClass", NODE, columns=more.RUNTIME_CLASS, lifecycle=lifecycle.RUNTIME_CLASS),
    served("PodDisruptionBudget", POLICY, subresources=(STATUS,), columns=columns.POD_DISRUPTION_BUDGET,
           lifecycle=lifecycle.DISRUPTION_BUDGET),
    served("ClusterRoleBinding", RBAC, columns=columns.ROLE_BINDING, lifecycle=lifecycle.UPSERT),
    served("ClusterRole", RBAC, columns=columns.CREATED_AT, lifecycle=lifecycle.UPSERT),
    served("RoleBinding", RBAC, columns=columns.ROLE_BINDING, lifecycle=lifecycle.UPSERT),
    served("Role", RBAC, columns=columns.CREATED_AT, lifecycle=lifecycle.UPSERT),
    served("ResourceClaim", RESOURCE, subresources=(STATUS,), columns=columns.RESOURCE_CLAIM,
           lifecycle=lifecycle.WITH_STATUS),
    served("ResourceClaimTemplate", RESOURCE),
    served("ResourceClass", RESOURCE, columns=columns.RESOURCE_CLASS),
    served("DeviceClass", RESOURCE, lifecycle=lifecycle.GENERATED),
    served("DeviceTaintRule", RESOURCE, subresources=(STATUS,), lifecycle=lifecycle.VERSIONED_WORKLOAD),
    served("ResourceClaim", RESOURCE, "v1", subresources=(STATUS,), columns=more.DEVICE_CLAIM,
           lifecycle=lifecycle.WITH_STATUS),
    served("ResourceClaimTemplate", RESOURCE, "v1"),
    served("ResourceSlice", RESOURCE, columns=more.RESOURCE_SLICE,
           fields={"spec.nodeName": at("spec", "nodeName"), "spec.driver": at("spec", "driver")},
           declares_fields=True, lifecycle=lifecycle.GENERATED),
    served("PriorityClass", SCHEDULING, columns=columns.PRIORITY_CLASS, lifecycle=lifecycle.PRIORITY_CLASS),
    served("CSIDriver", STORAGE, columns=more.CSI_DRIVER, lifecycle=lifecycle.VERSIONED_SPEC),
    served("CSINode", STORAGE, subresources=(STATUS,), columns=more.CSI_NODE, lifecycle=lifecycle.CSI_NODE),
    served("CSIStorageCapacity", STORAGE, columns=more.CSI_STORAGE_CAPACITY, lifecycle=lifecycle.VERSIONED),
    served("StorageClass", STORAGE, columns=more.STORAGE_CLASS),
    served("VolumeAttachment", STORAGE, subresources=(STATUS,), columns=more.VOLUME_ATTACHMENT,
           lifecycle=lifecycle.VERSIONED_WITH_STATUS),
    served("VolumeAttributesClass", STORAGE, columns=more.VOLUME_ATTRIBUTES_CLASS),
    served("StorageVersionMigration", STORAGE_MIGRATION, subresources=(STATUS,), columns=more.MIGRATION,
           lifecycle=lifecycle.VERSIONED_WITH_STATUS),
)  # fmt: skip

BY_PATH: Mapping[tuple[str, str, str], Kind] = {(k.group, k.version, k.plural): k for k in KINDS}
GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(dict.fromkeys(k.version for k in KINDS if k.group == group))
    for group in dict.fromkeys(k.group for k in KINDS)
}


def kind_named(kind: str, group: str = "") -> Kind:
    """The entry of a kind: how our own code asks for one (`kind_named("Pod")`). Of several versions the first."""
    return next(k for k in KINDS if k.kind == kind and k.group == group)
