"""Who uses which class on which node, counted from API objects: for `classes`, `describe` and `top`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.classes import Catalog, ClassKey, Level, catalog, demand


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


def running_on(pods: Iterable[PodView]) -> dict[str, list[PodView]]:
    """Pods that hold resources, by node."""
    placed: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_terminal:
            placed.setdefault(pod.spec.node_name, []).append(pod)
    return placed


def used_classes(pods: Iterable[PodView], offered: Catalog) -> Counter[ClassKey]:
    """Assignments of each class that these pods take on a node with this catalog."""
    container_level = {kind.name for kind in offered.of_level(Level.CONTAINER)}
    used: Counter[ClassKey] = Counter()
    for pod in pods:
        used.update(demand(pod.spec, container_level))
    return used


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
                found.append(ClassUse(node.metadata.name, kind.level, kind.name, cls, kind.mutable, capacity, count))
    return found
