"""Who uses which class on which node, counted from API objects: for `classes`, `describe` and `top`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.objects import NodeView, PodView, QosResourceRequest
from kubeqos.rules.qos.allocated import held_classes, held_spec
from kubeqos.rules.qos.classes import Catalog, ClassKey, Level, catalog, demand


@dataclass(frozen=True, slots=True)
class ClassUse:
    """One class on one node. Capacity 0 is unlimited."""

    node: str
    level: Level
    resource: str
    cls: str
    mutable: bool
    capacity: int
    used: int
    not_for: tuple[str, ...] = ()
    """Runtime handlers whose pods are not offered the class here."""


def running_on(pods: Iterable[PodView]) -> dict[str, list[PodView]]:
    """Pods that hold resources, by node."""
    placed: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_terminal:
            placed.setdefault(pod.spec.node_name, []).append(pod)
    return placed


def used_classes(pods: Iterable[PodView], offered: Catalog) -> Counter[ClassKey]:
    """Assignments of each class that these pods hold on a node with this catalog."""
    container_level = {kind.name for kind in offered.of_level(Level.CONTAINER)}
    used: Counter[ClassKey] = Counter()
    for pod in pods:
        used.update(held_classes(pod, container_level))
    return used


@dataclass(frozen=True, slots=True)
class ClassHolder:
    """A pod that holds a class on its node, whether the node still offers it or not."""

    resource: str
    cls: str
    level: str
    node: str
    namespace: str
    pod: str
    priority: int
    count: int
    standing: str
    """`has it`, or that it is on its way into or out of the class."""


def holders(pods: Iterable[PodView], nodes: Mapping[str, NodeView]) -> Iterator[ClassHolder]:
    """Every pod that has a node with every class that it holds."""
    for node, here in running_on(pods).items():
        offered = catalog(nodes[node].status.qos_resources) if node in nodes else Catalog()
        container_level = {kind.name for kind in offered.of_level(Level.CONTAINER)}
        for pod in here:
            asked = demand(pod.spec, container_level)
            held = held_classes(pod, container_level)
            for (level, name, cls), count in held.items():
                between = any(key[:2] == (level, name) and key[2] != cls for key in held)
                leaving = (level, name, cls) not in asked
                standing = "leaves it" if leaving else _pending(pod) if between else "has it"
                meta = pod.metadata
                yield ClassHolder(
                    name, cls, str(level), node, meta.namespace, meta.name, pod.spec.priority or 0, count, standing
                )


def _pending(pod: PodView) -> str:
    pending = next((one.reason for one in pod.status.conditions if one.type == "PodResizePending"), "")
    return f"waits for it ({pending})" if pending else "moves"


def pod_holdings(pod: PodView) -> dict[str, str]:
    """Every class the pod holds; a container's own are named after it, and `gold+silver` is on its way between two."""
    spec = held_spec(pod)
    found = _joined("", spec.qos_resources)
    for container in (*spec.init_containers, *spec.containers):
        found |= _joined(f"{container.name}:", container.resources.qos_resources)
    return found


def counted_against(pod: PodView, node: NodeView) -> list[dict[str, Any]]:
    """How often the pod counts in each class of its node, and how many the node has of it; 0 is without limit."""
    offered = catalog(node.status.qos_resources)
    containers = {kind.name for kind in offered.of_level(Level.CONTAINER)}
    return [
        {"resource": name, "class": cls, "count": count, "capacity": offered.types[name].classes[cls]}
        for (level, name, cls), count in sorted(held_classes(pod, containers).items())
        if name in offered.types and offered.types[name].level is level and cls in offered.types[name].classes
    ]


def given_by_runtime(pod: PodView) -> list[dict[str, str]]:
    """Classes that nobody asked for: the runtime's own defaults, by container; those of the whole pod under no name."""
    wide = {one.name for one in pod.spec.qos_resources}
    asked = {
        one.name: wide | {each.name for each in one.resources.qos_resources}
        for one in (*pod.spec.init_containers, *pod.spec.containers)
    }
    told = [
        (one.name, one.qos_resources) for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ]
    return [
        {"container": name, "resource": one.name, "class": one.class_}
        for name, classes in (("", pod.status.qos_resources), *told)
        for one in classes
        if one.name not in asked.get(name, wide)
    ]


def _joined(owner: str, classes: Iterable[QosResourceRequest]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in classes:
        key = f"{owner}{one.name}"
        found[key] = f"{one.class_}+{found[key]}" if key in found else one.class_
    return found


def class_use(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[ClassUse]:
    """Every class of every node with its use."""
    placed = running_on(PodView.of(dict(pod)) for pod in pods)
    found: list[ClassUse] = []
    for raw in nodes:
        node = NodeView.of(dict(raw))
        offered = catalog(node.status.qos_resources)
        used = used_classes(placed.get(node.metadata.name, ()), offered)
        for kind in offered.types.values():
            for cls, capacity in kind.classes.items():
                count = used[(kind.level, kind.name, cls)]
                not_for = tuple(sorted(one for one in kind.handlers if not kind.is_for(one, cls)))
                found.append(
                    ClassUse(node.metadata.name, kind.level, kind.name, cls, kind.mutable, capacity, count, not_for)
                )
    return found
