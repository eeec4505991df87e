"""The one table of kinds: the group, version, plural, kind, scope and short names of every resource of the API.

The API server adds what serving takes (`apiserver.registry.kinds`), clients add paths (`client.resources`), the offline
server of `kubeqos check` reads it as it is. A kind is added here, and then where somebody has more to say about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

CORE, APPS, POLICY = "", "apps", "policy"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
COORDINATION, METRICS, RBAC = "coordination.k8s.io", "metrics.k8s.io", "rbac.authorization.k8s.io"
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

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _asked(group: str, plural: str, kind: str, *, namespaced: bool = False) -> ApiResource:
    """A question that is answered and never stored."""
    return ApiResource(group, "v1", plural, kind, namespaced, stored=False)


RESOURCES: tuple[ApiResource, ...] = (
    _asked(CORE, "bindings", "Binding", namespaced=True),
    ApiResource(CORE, "v1", "configmaps", "ConfigMap", short=("cm",)),
    ApiResource(CORE, "v1", "events", "Event", short=("ev",)),
    ApiResource(CORE, "v1", "limitranges", "LimitRange", short=("limits",)),
    ApiResource(CORE, "v1", "namespaces", "Namespace", False, short=("ns",)),
    ApiResource(CORE, "v1", "nodes", "Node", False, short=("no",)),
    ApiResource(CORE, "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",)),
    ApiResource(CORE, "v1", "pods", "Pod", short=("po",)),
    ApiResource(CORE, "v1", "podtemplates", "PodTemplate"),
    ApiResource(CORE, "v1", "replicationcontrollers", "ReplicationController", short=("rc",)),
    ApiResource(CORE, "v1", "resourcequotas", "ResourceQuota", short=("quota",)),
    ApiResource(CORE, "v1", "secrets", "Secret"),
    ApiResource(CORE, "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
    ApiResource(CORE, "v1", "services", "Service", short=("svc",)),
    ApiResource(APPS, "v1", "deployments", "Deployment", short=("deploy",)),
    ApiResource(APPS, "v1", "replicasets", "ReplicaSet", short=("rs",)),
    _asked(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    _asked(AUTHENTICATION, "tokenreviews", "TokenReview"),
    _asked(AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
    _asked(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _asked(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _asked(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
    ApiResource(COORDINATION, "v1", "leases", "Lease"),
    ApiResource(METRICS, "v1beta1", "nodes", "NodeMetrics", False, stored=False),
    ApiResource(METRICS, "v1beta1", "pods", "PodMetrics", stored=False),
    ApiResource(POLICY, "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",)),
    ApiResource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    ApiResource(RBAC, "v1", "clusterroles", "ClusterRole", False),
    ApiResource(RBAC, "v1", "rolebindings", "RoleBinding"),
    ApiResource(RBAC, "v1", "roles", "Role"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclaims", "ResourceClaim"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    ApiResource(RESOURCE, "v1alpha1", "resourceclasses", "ResourceClass", False),
    ApiResource(SCHEDULING, "v1", "priorityclasses", "PriorityClass", False, short=("pc",)),
)

BY_KIND: Mapping[tuple[str, str], ApiResource] = {(each.group, each.kind): each for each in RESOURCES}


def resource_of(api_version: str, kind: str) -> ApiResource | None:
    """The resource that a manifest's `apiVersion` and `kind` name, if there is one."""
    group, _, version = api_version.rpartition("/")
    found = BY_KIND.get((group, kind))
    return found if found is not None and found.version == version else None
