"""Resources with their paths: those of the one table of kinds (`model.kinds`), by the names our own code calls them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from kubeqos.model import kinds
from kubeqos.model.kinds import (
    APPS,
    BATCH,
    BY_KIND,
    COORDINATION,
    CORE,
    DECISIONS,
    DISCOVERY,
    POLICY,
    RESOURCE,
    RESOURCES,
    SCHEDULING,
    STORAGE,
    ApiResource,
)


@dataclass(frozen=True)
class Resource(ApiResource):
    """A resource of the API: where its objects live."""

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


_TABLE = {
    (each.group, each.version, each.kind): Resource(
        each.group, each.version, each.plural, each.kind, each.namespaced, each.short, each.stored
    )
    for each in RESOURCES
}


def resource_named(kind: str, group: str = "") -> Resource:
    """The resource of a kind that is known to be there."""
    return _TABLE[group, BY_KIND[group, kind].version, kind]


def resource_of(api_version: str, kind: str) -> Resource | None:
    """The resource that a manifest's `apiVersion` and `kind` name, if there is one."""
    found = kinds.resource_of(api_version, kind)
    return _TABLE[found.group, found.version, found.kind] if found is not None else None


def known_resources(*kinds: tuple[str, str]) -> tuple[Resource, ...]:
    """The resources of these kinds (and groups), as far as they are in the table."""
    return tuple(resource_named(kind, group) for kind, group in kinds if (group, kind) in BY_KIND)


def stored_resources(*, namespaced: bool | None = None) -> list[Resource]:
    """Every resource whose objects are kept; of objects with several forms the one as which they are."""
    kept = (each for key, each in _TABLE.items() if each.stored and not kinds.BY_VERSION[key].kept_as)
    return [each for each in kept if namespaced in (None, each.namespaced)]


PODS = resource_named("Pod")
NODES = resource_named("Node")
NAMESPACES = resource_named("Namespace")
EVENTS = resource_named("Event")
CONFIG_MAPS = resource_named("ConfigMap")
RUNTIME_CLASSES = resource_named("RuntimeClass", "node.k8s.io")
SECRETS = resource_named("Secret")
SERVICES = resource_named("Service")
SERVICE_ACCOUNTS = resource_named("ServiceAccount")
RESOURCE_QUOTAS = resource_named("ResourceQuota")
LIMIT_RANGES = resource_named("LimitRange")
REPLICATION_CONTROLLERS = resource_named("ReplicationController")
PERSISTENT_VOLUME_CLAIMS = resource_named("PersistentVolumeClaim")
PERSISTENT_VOLUMES = resource_named("PersistentVolume")
STORAGE_CLASSES = resource_named("StorageClass", STORAGE)
REPLICA_SETS = resource_named("ReplicaSet", APPS)
DEPLOYMENTS = resource_named("Deployment", APPS)
POD_DISRUPTION_BUDGETS = resource_named("PodDisruptionBudget", POLICY)
DAEMON_SETS = resource_named("DaemonSet", APPS)
STATEFUL_SETS = resource_named("StatefulSet", APPS)
CONTROLLER_REVISIONS = resource_named("ControllerRevision", APPS)
JOBS = resource_named("Job", BATCH)
CRON_JOBS = resource_named("CronJob", BATCH)
ENDPOINT_SLICES = resource_named("EndpointSlice", DISCOVERY)
LEASES = resource_named("Lease", COORDINATION)
PRIORITY_CLASSES = resource_named("PriorityClass", SCHEDULING)
RESOURCE_CLASSES = resource_named("ResourceClass", RESOURCE)
RESOURCE_CLAIMS = resource_named("ResourceClaim", RESOURCE)
POD_DECISIONS = resource_named("PodDecisions", DECISIONS)
DECISION_BATCHES = resource_named("DecisionBatch", DECISIONS)
RESOURCE_CLAIM_TEMPLATES = resource_named("ResourceClaimTemplate", RESOURCE)
STORING = known_resources(
    *((kind, CORE) for kind in ("PersistentVolumeClaim", "PersistentVolume")),
    *((kind, STORAGE) for kind in ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity")),
)
"""What says where the volumes of a pod are."""
