"""Alignment: whether a node's topology manager would let a pod in, by what the node publishes of each NUMA node.

A node publishes what is free and who holds the rest. Pods that it has not told of yet are put where it would put them,
so that a burst is not sent where only its first pods fit; where that cannot be foreseen nothing is free until the node
tells. Pods that have gone give back what they held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kubeqos.model.annotations.topologysummary import ByNuma, TopologySummary
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
        sizes = capacities(summary)
        for shape in unseen:
            if not (_take(summary, free, sizes, shape) and _is_foreseen(summary, sizes, shape)):
                _forget(free, shape)
    return free


def capacities(summary: TopologySummary) -> dict[str, list[int]]:
    """What each NUMA node could hold of each resource, the largest first."""
    whole = {resource: dict(amounts) for resource, amounts in summary.free.items()}
    for held in summary.held.values():
        _add(whole, held)
    return {resource: sorted(amounts.values(), reverse=True) for resource, amounts in whole.items()}


def can_align(summary: TopologySummary, free: Free, shape: Shape) -> bool:
    """Whether the pod would be let in."""
    trial = {resource: dict(amounts) for resource, amounts in free.items()}
    return _take(summary, trial, capacities(summary), shape)


def _take(summary: TopologySummary, free: Free, sizes: Mapping[str, list[int]], shape: Shape) -> bool:
    """Give each unit the first NUMA node that holds all of it, as the merge of hints does; False if there is none."""
    for unit in (shape.aligned_pod,) if summary.scope == "pod" else shape.aligned:
        wanted = [(resource, amount) for resource, amount in unit.amounts.items() if resource in free]
        if not wanted:
            continue
        widths = {_width(amount, sizes[resource]) for resource, amount in wanted}
        if summary.policy == "restricted" and widths != {1}:
            if len(widths) > 1:
                return False  # one resource prefers fewer NUMA nodes than another: never what both prefer
            continue  # a group of nodes will do, which one is up to the node
        node = _first(free, wanted)
        if node is None:
            return False
        if unit.stays:
            for resource, amount in wanted:
                free[resource][node] -= amount
    return True


def _is_foreseen(summary: TopologySummary, sizes: Mapping[str, list[int]], shape: Shape) -> bool:
    """Whether each unit goes to one NUMA node. Which ones become a group, and close to others, is up to the node."""
    units = (shape.aligned_pod,) if summary.scope == "pod" else shape.aligned
    wanted = [(resource, amount) for unit in units for resource, amount in unit.amounts.items() if resource in sizes]
    return all(_width(amount, sizes[resource]) == 1 for resource, amount in wanted)


def _forget(free: Free, shape: Shape) -> None:
    """Nobody knows what is left of the resources that the pod wants."""
    for resource in {resource for unit in shape.aligned for resource in unit.amounts} & free.keys():
        free[resource] = dict.fromkeys(free[resource], 0)


def _width(amount: int, sizes: Sequence[int]) -> int:
    """How many NUMA nodes an empty machine would take for it."""
    held = 0
    for count, size in enumerate(sizes, 1):
        held += size
        if held >= amount:
            return count
    return len(sizes) + 1


def _first(free: Free, wanted: Collection[tuple[str, int]]) -> int | None:
    nodes = sorted(set.intersection(*(set(free[resource]) for resource, _ in wanted)))
    return next((n for n in nodes if all(amount <= free[resource][n] for resource, amount in wanted)), None)


def _add(free: Free, held: Mapping[str, ByNuma]) -> None:
    for resource, amounts in held.items():
        for node, amount in amounts.items():
            into = free.setdefault(resource, {})
            into[node] = into.get(node, 0) + amount
