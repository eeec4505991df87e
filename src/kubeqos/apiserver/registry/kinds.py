"""The one table of kinds: whatever the API server knows about a kind is a column of this table.

Routing, discovery, OpenAPI, tables, field selectors, lifecycle and quota counting read it; adding a kind is one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kubeqos.apiserver.present import columns
from kubeqos.apiserver.present.columns import Column
from kubeqos.apiserver.registry import lifecycle
from kubeqos.apiserver.registry.lifecycle import Lifecycle
from kubeqos.codec import JsonObject
from kubeqos.rules.admission import Operation, Request

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
WRITABLE = ("get", "patch", "update")

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
class Kind:
    """One kind of object as the API serves it. There is one entry per kind, so an entry is equal to itself alone."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[Column, ...] = columns.PLAIN
    fields: Mapping[str, FieldReader] = field(default_factory=dict)
    # Kinds that declare their own selectable fields refuse others with a different text than the rest do.
    declares_fields: bool = False
    lifecycle: Lifecycle = lifecycle.PLAIN
    stored: bool = True

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def prefix(self) -> str:
        """Where the store keeps this kind."""
        return f"/registry/{self.group or 'core'}/{self.plural}/"

    @cached_property
    def head(self) -> bytes:
        """How every stored object of this kind begins; its resourceVersion follows."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}","metadata":{{"resourceVersion":"'.encode()

    @cached_property
    def item_offset(self) -> int:
        """Items of a list leave kind and apiVersion out: where the rest of a stored object starts."""
        return len(f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",')

    @cached_property
    def quota_name(self) -> str:
        return f"count/{self.plural}.{self.group}" if self.group else f"count/{self.plural}"

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
    ) -> Request:
        """What admission is asked about a write of this kind."""
        namespace = namespace if self.namespaced else ""
        return Request(operation, self.plural, self.kind, self.group, namespace, subresource, old, new)

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
        found: object = obj
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
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


def _event_reporter(event: JsonObject) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")


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
NODE_SUBRESOURCES = (Subresource("proxy", ("get",), "NodeProxyOptions", "", "v1", answers="text"), STATUS)
NAMESPACE_SUBRESOURCES = (Subresource("finalize", ("update",)), STATUS)
RESOURCE, RBAC = "resource.k8s.io", "rbac.authorization.k8s.io"
METRICS = "metrics.k8s.io"
AUTHN, AUTHZ = "authentication.k8s.io", "authorization.k8s.io"


def review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Kind:
    """A question that is answered and never stored."""
    return Kind(group, "v1", plural, kind, namespaced, verbs=("create",), stored=False)


KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "bindings", "Binding", verbs=("create",), stored=False),
    Kind("", "v1", "configmaps", "ConfigMap", short=("cm",), columns=columns.CONFIG_MAP),
    Kind("", "v1", "events", "Event", short=("ev",), columns=columns.EVENT, fields=EVENT_FIELDS,
         declares_fields=True, lifecycle=lifecycle.EVENT),
    Kind("", "v1", "limitranges", "LimitRange", short=("limits",), columns=columns.LIMIT_RANGE,
         lifecycle=lifecycle.UPSERT),
    Kind("", "v1", "namespaces", "Namespace", False, short=("ns",), verbs=NO_COLLECTION_DELETE,
         subresources=NAMESPACE_SUBRESOURCES, columns=columns.NAMESPACE,
         fields={"status.phase": at("status", "phase")}, declares_fields=True, lifecycle=lifecycle.NAMESPACE),
    Kind("", "v1", "nodes", "Node", False, short=("no",), subresources=NODE_SUBRESOURCES, columns=columns.NODE,
         fields={"spec.unschedulable": flag("spec", "unschedulable")}, declares_fields=True,
         lifecycle=lifecycle.NODE),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), subresources=(STATUS,),
         columns=columns.PERSISTENT_VOLUME_CLAIM, lifecycle=lifecycle.PERSISTENT_VOLUME_CLAIM),
    Kind("", "v1", "pods", "Pod", short=("po",), categories=("all",), subresources=POD_SUBRESOURCES,
         columns=columns.POD, fields=POD_FIELDS, declares_fields=True, lifecycle=lifecycle.POD),
    Kind("", "v1", "podtemplates", "PodTemplate", columns=columns.POD_TEMPLATE, lifecycle=lifecycle.SPEC),
    Kind("", "v1", "replicationcontrollers", "ReplicationController", short=("rc",), categories=("all",),
         subresources=(SCALE, STATUS), columns=columns.REPLICATION_CONTROLLER,
         fields={"status.replicas": lambda o: str((o.get("status") or {}).get("replicas", 0))},
         declares_fields=True, lifecycle=lifecycle.REPLICATION_CONTROLLER),
    Kind("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), subresources=(STATUS,),
         columns=columns.RESOURCE_QUOTA, lifecycle=lifecycle.RESOURCE_QUOTA),
    Kind("", "v1", "secrets", "Secret", columns=columns.SECRET, fields={"type": at("type")}, declares_fields=True),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), subresources=(TOKEN,),
         lifecycle=lifecycle.RETURNED),
    Kind("", "v1", "services", "Service", short=("svc",), categories=("all",), subresources=(STATUS,),
         columns=columns.SERVICE, fields={"spec.clusterIP": at("spec", "clusterIP"), "spec.type": at("spec", "type")},
         declares_fields=True, lifecycle=lifecycle.SERVICE),
    Kind("apps", "v1", "deployments", "Deployment", short=("deploy",), categories=("all",),
         subresources=(SCALE, STATUS), columns=columns.DEPLOYMENT, lifecycle=lifecycle.WORKLOAD),
    Kind("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), categories=("all",),
         subresources=(SCALE, STATUS), columns=columns.REPLICA_SET, lifecycle=lifecycle.WORKLOAD),
    review(AUTHN, "selfsubjectreviews", "SelfSubjectReview"),
    review(AUTHN, "tokenreviews", "TokenReview"),
    review(AUTHZ, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    review(AUTHZ, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    review(AUTHZ, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    review(AUTHZ, "subjectaccessreviews", "SubjectAccessReview"),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", columns=columns.LEASE, lifecycle=lifecycle.LEASE),
    Kind(METRICS, "v1beta1", "nodes", "NodeMetrics", False, verbs=("get", "list"), stored=False),
    Kind(METRICS, "v1beta1", "pods", "PodMetrics", verbs=("get", "list"), stored=False),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), subresources=(STATUS,),
         columns=columns.POD_DISRUPTION_BUDGET, lifecycle=lifecycle.DISRUPTION_BUDGET),
    Kind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, columns=columns.ROLE_BINDING,
         lifecycle=lifecycle.UPSERT),
    Kind(RBAC, "v1", "clusterroles", "ClusterRole", False, columns=columns.CREATED_AT, lifecycle=lifecycle.UPSERT),
    Kind(RBAC, "v1", "rolebindings", "RoleBinding", columns=columns.ROLE_BINDING, lifecycle=lifecycle.UPSERT),
    Kind(RBAC, "v1", "roles", "Role", columns=columns.CREATED_AT, lifecycle=lifecycle.UPSERT),
    Kind(RESOURCE, "v1alpha1", "resourceclaims", "ResourceClaim", subresources=(STATUS,),
         columns=columns.RESOURCE_CLAIM, lifecycle=lifecycle.WITH_STATUS),
    Kind(RESOURCE, "v1alpha1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Kind(RESOURCE, "v1alpha1", "resourceclasses", "ResourceClass", False, columns=columns.RESOURCE_CLASS),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, short=("pc",),
         columns=columns.PRIORITY_CLASS, lifecycle=lifecycle.PRIORITY_CLASS),
)  # fmt: skip

BY_PATH: Mapping[tuple[str, str, str], Kind] = {(k.group, k.version, k.plural): k for k in KINDS}
GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(dict.fromkeys(k.version for k in KINDS if k.group == group))
    for group in dict.fromkeys(k.group for k in KINDS)
}


def kind_named(kind: str, group: str = "") -> Kind:
    """The entry of a kind: how our own code asks for one (`kind_named("Pod")`)."""
    return next(k for k in KINDS if k.kind == kind and k.group == group)


def stored_kinds(*, namespaced: bool | None = None) -> Iterator[Kind]:
    return (k for k in KINDS if k.stored and namespaced in (None, k.namespaced))
