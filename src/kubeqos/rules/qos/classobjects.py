"""`QOSClass` and `QOSResource` objects (KEP-3008, API objects for resources and classes): names that the administrator
adds to the official ones, which namespaces may ask for a class, what may never change in place. Pure.

Read by admission (strict names, allowed namespaces, resize) and by nodes (strict names at registration). The objects
have the form that `stock/crds/qosclasses.yaml` and `qosresources.yaml` define; where nobody has defined them, nothing
is said here. What an object's status says of use is counted here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.allocated import held_classes
from kubeqos.rules.qos.classes import WELL_KNOWN, ClassKey, Level, catalog, raw_class_requests, requested_raw

QOS_CLASSES = "qosclasses.kubeqos.io"
QOS_CLASSES_PATH = ("kubeqos.io", "v1alpha1", "qosclasses")
QOS_RESOURCES = "qosresources.kubeqos.io"
QOS_RESOURCES_PATH = ("kubeqos.io", "v1alpha1", "qosresources")
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClassObjects:
    """What all objects say together."""

    levels: Mapping[str, Level] = field(default_factory=lambda: WELL_KNOWN)
    """Official resources and those that objects name; an official one keeps the level that it has."""
    namespaces: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """The only namespaces that may ask for a class, or with the class "" for any of a resource; of several objects for
    one class all must agree."""
    fixed: frozenset[str] = frozenset()
    """Resources whose classes may not change in place, whatever nodes can do."""

    @classmethod
    def of(cls, classes: Iterable[Raw], resources: Iterable[Raw] = ()) -> ClassObjects:
        """All of them. Of a resource its own object says the level, before those of its classes."""
        levels: dict[str, Level] = {}
        fixed = set()
        allowed: dict[tuple[str, str], frozenset[str]] = {}
        for obj in (*resources, *classes):
            spec = obj.get("spec") or {}
            resource, name, level = (str(spec.get(key) or "") for key in ("resource", "class", "level"))
            if level in set(Level):
                levels.setdefault(resource, Level(level))
            if not name and spec.get("mutable") is False:
                fixed.add(resource)
            if isinstance(spec.get("allowedNamespaces"), list):
                here = frozenset(map(str, spec["allowedNamespaces"]))
                allowed[resource, name] = allowed.get((resource, name), here) & here
        return cls({**levels, **WELL_KNOWN}, allowed, frozenset(fixed))

    def refusal(self, namespace: str, spec: Mapping[str, Any]) -> str:
        """Why a pod of a namespace may not ask for what it asks; nothing when it may."""
        asked = raw_class_requests(spec)
        found = (self.withheld(namespace, one.get("name", ""), one.get("class", "")) for one in asked)
        return next(filter(None, found), "")

    def withheld(self, namespace: str, resource: str, name: str) -> str:
        """Why a namespace may not ask for a class; nothing when it may."""
        for key, what in (
            ((resource, name), f"QoS class {resource}={name} is for {{}} ({QOS_CLASSES})"),
            ((resource, ""), f"QoS resource {resource} is for {{}} ({QOS_RESOURCES})"),
        ):
            allowed = self.namespaces.get(key)
            if allowed is not None and namespace not in allowed:
                return what.format(f"namespaces {', '.join(sorted(allowed))}" if allowed else "no namespace")
        return ""

    def changes_fixed(self, spec: Raw, before: Raw) -> Iterator[tuple[str, str]]:
        """(path, why not) of what a resize changes although its resource is not to change."""
        lists = [("spec.qosResources", spec.get("qosResources"), before.get("qosResources"))] if self.fixed else []
        for key in ("initContainers", "containers") if self.fixed else ():
            pairs = zip(spec.get(key) or (), before.get(key) or (), strict=False)
            for index, (new, old) in enumerate(pairs):
                has, had = ((one.get("resources") or {}).get("qosResources") for one in (new, old))
                lists.append((f"spec.{key}[{index}].resources.qosResources", has, had))
        for path, has, had in lists:
            now, was = requested_raw(has), requested_raw(had)
            for name in sorted(one for one in self.fixed if now.get(one) != was.get(one)):
                yield path, f"classes of {name} may not change while a pod runs ({QOS_RESOURCES})"


# -- what statuses say ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ClassTotal:
    """One class over all nodes."""

    level: str = "container"
    mutable: bool = True
    nodes: int = 0
    capacity: int = 0
    used: int = 0
    counted: bool = False

    def add(self, *, capacity: int, used: int, mutable: bool) -> None:
        """One node more that offers the class."""
        self.nodes += 1
        self.used += used
        self.capacity += capacity
        self.counted |= bool(capacity)
        self.mutable &= mutable

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = {"nodes": self.nodes, "used": self.used}
        return {**told, "capacity": self.capacity} if self.counted else told


NOWHERE = ClassTotal()


def class_totals(nodes: Iterable[NodeView], pods: Iterable[PodView]) -> dict[tuple[str, str], ClassTotal]:
    """Every class that some node offers, with what the pods there hold of it."""
    offers = {node.metadata.name: catalog(node.status.qos_resources) for node in nodes}
    containers = {name: {kind.name for kind in one.of_level(Level.CONTAINER)} for name, one in offers.items()}
    used: dict[str, Counter[ClassKey]] = {name: Counter() for name in offers}
    for pod in pods:
        if pod.spec.node_name in used:
            used[pod.spec.node_name].update(held_classes(pod, containers[pod.spec.node_name]))
    found: dict[tuple[str, str], ClassTotal] = {}
    for node, offered in offers.items():
        for kind in offered.types.values():
            for name, capacity in kind.classes.items():
                total = found.setdefault((kind.name, name), ClassTotal(kind.level))
                total.add(capacity=capacity, used=used[node][kind.level, kind.name, name], mutable=kind.mutable)
    return found


def resource_status(resource: str, totals: Mapping[tuple[str, str], ClassTotal]) -> dict[str, Any]:
    """What the object of a resource says of its classes together."""
    own = {name: total for (of, name), total in totals.items() if of == resource}
    nodes = max((total.nodes for total in own.values()), default=0)
    return {"nodes": nodes, "used": sum(total.used for total in own.values()), "classes": sorted(own)}
