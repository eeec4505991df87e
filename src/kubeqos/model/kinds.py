"""The one table of kinds: the group, version, plural, kind, scope and short names of every resource of the API.

The API server adds what serving takes (`apiserver.registry.kinds`), clients add paths (`client.resources`), the offline
server of `kubeqos check` reads it as it is. A kind is added here, and then where somebody has more to say about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

CORE, APPS, AUTOSCALING, BATCH, POLICY = "", "apps", "autoscaling", "batch", "policy"
ADMISSION, APIEXTENSIONS = "admissionregistration.k8s.io", "apiextensions.k8s.io"
APIREGISTRATION = "apiregistration.k8s.io"
CERTIFICATES, DISCOVERY, EVENTS = "certificates.k8s.io", "discovery.k8s.io", "events.k8s.io"
FLOWCONTROL, NETWORKING, NODE = "flowcontrol.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io"
STORAGE, STORAGE_MIGRATION = "storage.k8s.io", "storagemigration.k8s.io"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
COORDINATION, METRICS, RBAC = "coordination.k8s.io", "metrics.k8s.io", "rbac.authorization.k8s.io"
DECISIONS = "decisions.kubeqos.io"
RESOURCE, SCHEDULING = "resource.k8s.io", "scheduling.k8s.io"


@dataclass(frozen=True, eq=False)
class ApiResource:
    """One resource as discovery lists it. `stored` is False for what is only asked and answered."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = field(default=(), compare=False)
    stored: bool = field(default=True, compare=False)
    kept_as: str = field(default="", compare=False)
    """The version as which objects are kept, where that is another: both are forms of the same objects."""

    @cached_property
    def rules(self) -> str:
        """The name by which defaults, validation and admission know the kind.

        It is the kind's own, but for a second version that has nothing in common with the first.
        """
        known = BY_KIND.get((self.group, self.kind))
        if known is None:  # of a definition: whatever it is called, it is none of ours
            return f"{self.kind}.{self.group}"
        return self.kind if known.version == self.version else f"{self.version} {self.kind}"

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _asked(group: str, plural: str, kind: str, *, namespaced: bool = False) -> ApiResource:
    """A question that is answered and never stored."""
    return ApiResource(group, "v1", plural, kind, namespaced, stored=False)


RESOURCES: tuple[ApiResource, ...] = (
    _asked(CORE, "bindings", "Binding", namespaced=True),
    ApiResource(CORE, "v1", "componentstatuses", "ComponentStatus", False, short=("cs",), stored=False),
    ApiResource(CORE, "v1", "configmaps", "ConfigMap", short=("cm",)),
    ApiResource(CORE, "v1", "endpoints", "Endpoints", short=("ep",)),
    ApiResource(CORE, "v1", "events", "Event", short=("ev",)),
    ApiResource(CORE, "v1", "limitranges", "LimitRange", short=("limits",)),
    ApiResource(CORE, "v1", "namespaces", "Namespace", False, short=("ns",)),
    ApiResource(CORE, "v1", "nodes", "Node", False, short=("no",)),
    ApiResource(CORE, "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",)),
    ApiResource(CORE, "v1", "persistentvolumes", "PersistentVolume", False, short=("pv",)),
    ApiResource(CORE, "v1", "pods", "Pod", short=("po",)),
    ApiResource(CORE, "v1", "podtemplates", "PodTemplate"),
    ApiResource(CORE, "v1", "replicationcontrollers", "ReplicationController", short=("rc",)),
    ApiResource(CORE, "v1", "resourcequotas", "ResourceQuota", short=("quota",)),
    ApiResource(CORE, "v1", "secrets", "Secret"),
    ApiResource(CORE, "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
    ApiResource(CORE, "v1", "services", "Service", short=("svc",)),
    ApiResource(ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False),
    ApiResource(ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False),
    ApiResource(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    ApiResource(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
    ApiResource(ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    ApiResource(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    ApiResource(
        APIEXTENSIONS, "v1", "customresourcedefinitions", "CustomResourceDefinition", False, short=("crd", "crds")
    ),
    ApiResource(APIREGISTRATION, "v1", "apiservices", "APIService", False),
    ApiResource(APPS, "v1", "controllerrevisions", "ControllerRevision"),
    ApiResource(APPS, "v1", "daemonsets", "DaemonSet", short=("ds",)),
    ApiResource(APPS, "v1", "deployments", "Deployment", short=("deploy",)),
    ApiResource(APPS, "v1", "replicasets", "ReplicaSet", short=("rs",)),
    ApiResource(APPS, "v1", "statefulsets", "StatefulSet", short=("sts",)),
    _asked(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    _asked(AUTHENTICATION, "tokenreviews", "TokenReview"),
    _asked(AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    _asked(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _asked(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _asked(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
    ApiResource(AUTOSCALING, "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short=("hpa",)),
    ApiResource(AUTOSCALING, "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short=("hpa",), kept_as="v2"),
    ApiResource(BATCH, "v1", "cronjobs", "CronJob", short=("cj",)),
    ApiResource(BATCH, "v1", "jobs", "Job"),
    ApiResource(CERTIFICATES, "v1", "certificatesigningrequests", "CertificateSigningRequest", False, short=("csr",)),
    ApiResource(CERTIFICATES, "v1", "clustertrustbundles", "ClusterTrustBundle", False),
    ApiResource(CERTIFICATES, "v1", "podcertificaterequests", "PodCertificateRequest"),
    ApiResource(COORDINATION, "v1", "leases", "Lease"),
    _asked(DECISIONS, "decisionbatches", "DecisionBatch"),
    ApiResource(DECISIONS, "v1", "poddecisions", "PodDecisions", stored=False),
    ApiResource(DISCOVERY, "v1", "endpointslices", "EndpointSlice"),
    ApiResource(EVENTS, "v1", "events", "Event", short=("ev",)),
    ApiResource(FLOWCONTROL, "v1", "flowschemas", "FlowSchema", False),
    ApiResource(FLOWCONTROL, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False),
    ApiResource(METRICS, "v1beta1", "nodes", "NodeMetrics", False, stored=False),
    ApiResource(METRICS, "v1beta1", "pods", "PodMetrics", stored=False),
    ApiResource(NETWORKING, "v1", "ingressclasses", "IngressClass", False),
    ApiResource(NETWORKING, "v1", "ingresses", "Ingress", short=("ing",)),
    ApiResource(NETWORKING, "v1", "ipaddresses", "IPAddress", False, short=("ip",)),
    ApiResource(NETWORKING, "v1", "networkpolicies", "NetworkPolicy", short=("netpol",)),
    ApiResource(NETWORKING, "v1", "servicecidrs", "ServiceCIDR", False),
    ApiResource(NODE, "v1", "runtimeclasses", "RuntimeClass", False),
    ApiResource(POLICY, "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",)),
    ApiResource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    ApiResource(RBAC, "v1", "clusterroles", "ClusterRole", False),
    ApiResource(RBAC, "v1", "rolebindings", "RoleBinding"),
    ApiResource(RBAC, "v1", "roles", "Role"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclaims", "ResourceClaim"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclasses", "ResourceClass", False),
    ApiResource(RESOURCE, "v1", "deviceclasses", "DeviceClass", False),
    ApiResource(RESOURCE, "v1", "devicetaintrules", "DeviceTaintRule", False),
    ApiResource(RESOURCE, "v1", "resourceclaims", "ResourceClaim"),
    ApiResource(RESOURCE, "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    ApiResource(RESOURCE, "v1", "resourceslices", "ResourceSlice", False),
    ApiResource(SCHEDULING, "v1", "priorityclasses", "PriorityClass", False, short=("pc",)),
    ApiResource(STORAGE, "v1", "csidrivers", "CSIDriver", False),
    ApiResource(STORAGE, "v1", "csinodes", "CSINode", False),
    ApiResource(STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity"),
    ApiResource(STORAGE, "v1", "storageclasses", "StorageClass", False, short=("sc",)),
    ApiResource(STORAGE, "v1", "volumeattachments", "VolumeAttachment", False),
    ApiResource(STORAGE, "v1", "volumeattributesclasses", "VolumeAttributesClass", False, short=("vac",)),
    ApiResource(STORAGE_MIGRATION, "v1", "storageversionmigrations", "StorageVersionMigration", False),
)

BY_VERSION: Mapping[tuple[str, str, str], ApiResource] = {
    (each.group, each.version, each.kind): each for each in RESOURCES
}
BY_KIND: Mapping[tuple[str, str], ApiResource] = {(each.group, each.kind): each for each in reversed(RESOURCES)}
"""Of a kind with several versions the one that comes first in the table."""


def resource_of(api_version: str, kind: str) -> ApiResource | None:
    """The resource that a manifest's `apiVersion` and `kind` name, if there is one."""
    group, _, version = api_version.rpartition("/")
    return BY_VERSION.get((group, version, kind))
