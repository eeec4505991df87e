"""What a new class file would change on nodes, and whom it would hurt. Pure.

Asked by `kubeqos classes plan` before the file is put on a node. What nodes do with such a file is in
`cri.providers.retiring`: who has a class keeps it, and nobody new gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classes import Catalog, Level, ResourceType, catalog, demand
from kubeqos.views.usage import ClassHolder, holders


@dataclass(frozen=True, slots=True)
class NewResource:
    """One resource of the new file: its classes with their capacity (0 is unlimited), and those nobody new gets."""

    level: Level
    classes: Mapping[str, int]
    retired: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClassChange:
    """What becomes of one class on one node; `hurts` says whether somebody would notice."""

    resource: str
    cls: str
    node: str
    change: str
    used: int
    outcome: str
    hurts: bool = False
    pods: tuple[str, ...] = ()


def plan(
    new: Mapping[str, NewResource], nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> list[ClassChange]:
    """Every difference, by class and node."""
    views = {node.metadata.name: node for node in (NodeView.of(dict(raw)) for raw in nodes)}
    everybody = [PodView.of(dict(raw)) for raw in pods]
    held: dict[tuple[str, str, str], list[ClassHolder]] = {}
    for one in holders(everybody, views):
        held.setdefault((one.node, one.resource, one.cls), []).append(one)
    waiting = _waiting(everybody, new)
    changes = [
        change
        for name, node in sorted(views.items())
        for change in _on_node(name, catalog(node.status.qos_resources), new, held, waiting)
    ]
    return sorted(changes, key=lambda one: (one.resource, one.cls, one.node))


def _waiting(pods: Iterable[PodView], new: Mapping[str, NewResource]) -> dict[tuple[str, str], list[str]]:
    """Pods without a node that ask for a class."""
    container_level = {name for name, one in new.items() if one.level is Level.CONTAINER}
    found: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if pod.spec.node_name or pod.is_terminal:
            continue
        for _, name, cls in demand(pod.spec, container_level):
            found.setdefault((name, cls), []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return found


def _on_node(
    node: str,
    now: Catalog,
    new: Mapping[str, NewResource],
    held: Mapping[tuple[str, str, str], list[ClassHolder]],
    waiting: Mapping[tuple[str, str], list[str]],
) -> Iterator[ClassChange]:
    for name in sorted({*now.types, *new}):
        before, after = now.types.get(name), new.get(name)
        for cls in sorted({*(before.classes if before else ()), *(after.classes if after else ())}):
            who = held.get((node, name, cls), [])
            used, pods = sum(one.count for one in who), tuple(f"{one.namespace}/{one.pod}" for one in who)
            change, outcome, hurts = _judged(cls, before, after, used)
            if not change:
                continue
            asking = waiting.get((name, cls), []) if change in ("removed", "retired") else []
            if asking:
                outcome, hurts = f"{outcome}; {len(asking)} waiting cannot come here", True
            yield ClassChange(name, cls, node, change, used, outcome, hurts, (*pods, *asking))


def _judged(cls: str, before: ResourceType | None, after: NewResource | None, used: int) -> tuple[str, str, bool]:
    """(change, outcome, whether it hurts) of one class; no change is empty."""
    keep = f"{used} keep it until they end" if used else "nobody has it"
    if before is None or cls not in before.classes:
        gone = after is None or cls in after.retired
        return ("", "", False) if gone else ("new", "open to everybody", False)
    if after is None or cls not in after.classes:
        return "removed", keep, bool(used)
    if after.level is not before.level:
        refused = f"refused while {used} have it" if used else "nobody has it"
        return f"{before.level.value} → {after.level.value}", refused, bool(used)
    if cls in after.retired:
        return "retired", keep, bool(used)
    had, has = before.classes[cls], after.classes[cls]
    if had == has:
        return "", "", False
    words = f"capacity {had or 'inf'} → {has or 'inf'}"
    if has and used > has:
        return words, f"over by {used - has}: nobody new until {used - has + 1} have ended", True
    return words, "nobody is hurt", False
