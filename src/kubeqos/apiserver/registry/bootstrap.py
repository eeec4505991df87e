"""What an empty cluster starts with: system namespaces, system priority classes, the default RBAC objects."""

from __future__ import annotations

from kubeqos.apiserver.auth import default_objects
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.writes import Write, create
from kubeqos.codec import JsonObject

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


async def bootstrap(core: Core) -> None:
    """Create what is missing; what an administrator changed stays changed."""
    for kind, obj in initial_objects():
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        if core.store.get(kind.key(namespace, metadata["name"])) is None:
            await create(core, Write(kind, namespace), obj)
