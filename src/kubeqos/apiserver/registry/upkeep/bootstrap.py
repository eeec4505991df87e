"""What an empty cluster starts with: system namespaces, system priority classes, the default RBAC objects, and where
other servers read how this one authenticates its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from copy import deepcopy

from kubeqos.apiserver.auth import default_objects
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.writes import Write, create
from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import timestamp

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITY_CLASSES = (
    (
        "system-node-critical",
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)


def authentication(authority: str) -> JsonObject:
    """The ConfigMap from which scheduler, controller manager and extension servers learn whom to trust."""
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"client-ca-file": authority}}


def token_tracking(today: str) -> JsonObject:
    """Since when nobody gets tokens that never end: here nobody ever did."""
    metadata = {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"since": today}}


def initial_objects() -> list[tuple[Kind, JsonObject]]:
    """Every object that must exist, in the order in which they can be created."""
    found: list[tuple[Kind, JsonObject]] = [
        (kind_named("Namespace"), {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    priorities = kind_named("PriorityClass", "scheduling.k8s.io")
    for name, value, about in PRIORITY_CLASSES:
        body = {"value": value, "description": about, "preemptionPolicy": "PreemptLowerPriority"}
        found.append((priorities, {"metadata": {"name": name}, **body}))
    for obj in default_objects():
        group = str(obj["apiVersion"]).rpartition("/")[0]
        found.append((kind_named(obj["kind"], group), obj))
    return found


async def bootstrap(core: Core, authority: str = "", definitions: Iterable[JsonObject] = ()) -> None:
    """Create what is missing; what an administrator changed stays changed."""
    found = initial_objects()
    found += [(kind_named("CustomResourceDefinition", "apiextensions.k8s.io"), deepcopy(one)) for one in definitions]
    if authority:
        told = (authentication(authority), token_tracking(timestamp(core.clock())[:10]))
        found += [(kind_named("ConfigMap"), obj) for obj in told]
    first, others = found[: len(NAMESPACES)], found[len(NAMESPACES) :]
    for group in (first, others):  # each group in one trip to the disk; the others need the namespaces
        await asyncio.gather(*(_create_missing(core, kind, obj) for kind, obj in group))


async def _create_missing(core: Core, kind: Kind, obj: JsonObject) -> None:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    if core.store.get(kind.key(namespace, metadata["name"])) is None:
        await create(core, Write(kind, namespace), obj)
