"""The resources that kubeqos itself speaks about, and their paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API: where its objects live."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (of one namespace or of all), an object or a subresource."""
        path = _collection(self, namespace)
        for part in (name, subresource):
            if part:
                path = f"{path}/{part if _is_plain(part) else quote(part, safe=':')}"
        return path


@lru_cache(maxsize=1024)
def _collection(resource: Resource, namespace: str) -> str:
    parts = ["/apis", resource.group, resource.version] if resource.group else ["/api", resource.version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    return "/".join([*parts, resource.plural])


_is_plain = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch
"""Names that a path shows as they are: nearly all."""


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RESOURCE_CLASSES = Resource("resource.k8s.io", "v1alpha1", "resourceclasses", "ResourceClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1alpha1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1alpha1", "resourceclaimtemplates", "ResourceClaimTemplate")
