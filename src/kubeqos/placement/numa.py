"""Alignment: whether a node's topology manager would let a pod in, by what the node publishes of each NUMA node.

A node publishes what is free and who holds the rest. Pods that it has not told of yet are put where it would put them,
so that a burst is not sent where only its first pods fit; pods that have gone give back what they held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kubeqos.model.topologysummary import ByNuma, TopologySummary
from kubeqos.placement.shape import Shape

Free = dict[str, ByNuma]


def free_now(summary: TopologySummary, pods: Mapping[str, Shape]) -> Free:
    """What is free for alignment once everybody who is on the node has been let in."""
    free = {resource: dict(amounts) for resource, amounts in summary.free.items()}
    for uid, held in summary.held.items():
        if uid not in pods:
            _add(free, held)
    unseen = [shape for uid, shape in pods.items() if shape.aligned and uid not in summary.held]
    if unseen:
        most = capacities(summary)
        for shape in unseen:
            _take(summary, free, most, shape)
    return free


def capacities(summary: TopologySummary) -> dict[str, int]:
    """The most of each resource that one NUMA node could hold."""
    whole = {resource: dict(amounts) for resource, amounts in summary.free.items()}
    for held in summary.held.values():
        _add(whole, held)
    return {resource: max(amounts.values(), default=0) for resource, amounts in whole.items()}


def can_align(summary: TopologySummary, free: Free, shape: Shape) -> bool:
    """Whether the pod would be let in."""
    trial = {resource: dict(amounts) for resource, amounts in free.items()}
    return _take(summary, trial, capacities(summary), shape)


def _take(summary: TopologySummary, free: Free, most: Mapping[str, int], shape: Shape) -> bool:
    """Give each unit the first NUMA node that holds all of it, as the merge of hints does; False if there is none."""
    for unit in (shape.aligned_pod,) if summary.scope == "pod" else shape.aligned:
        wanted = [(resource, amount) for resource, amount in unit.amounts.items() if resource in free]
        if not wanted or (summary.policy == "restricted" and any(amount > most[r] for r, amount in wanted)):
            continue  # nothing to align, or more than one NUMA node has: a group of them will do
        node = _first(free, wanted)
        if node is None:
            return False
        if unit.stays:
            for resource, amount in wanted:
                free[resource][node] -= amount
    return True


def _first(free: Free, wanted: Collection[tuple[str, int]]) -> int | None:
    nodes = sorted(set.intersection(*(set(free[resource]) for resource, _ in wanted)))
    return next((n for n in nodes if all(amount <= free[resource][n] for resource, amount in wanted)), None)


def _add(free: Free, held: Mapping[str, ByNuma]) -> None:
    for resource, amounts in held.items():
        for node, amount in amounts.items():
            into = free.setdefault(resource, {})
            into[node] = into.get(node, 0) + amount
