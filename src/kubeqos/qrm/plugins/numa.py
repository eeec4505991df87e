"""Which NUMA nodes a bound role may use, and the hints that follow: pure, shared by the CPU and memory plugins.

Two pods of different roles keep apart in the scope of a NUMA node, two of one role may share it (KEP-3461, example 2
and 3); a role may name others that it stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kubeqos.model.cpuset import NumaSet
from kubeqos.qrm.plugins.roles import Numa, Role
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.alignment.masks import ENUMERATED, all_masks, fewest_nodes, to_mask, useful_masks


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod that is bound to NUMA nodes."""

    role: str
    numa: NumaSet
    alone: bool = False


def open_nodes(nodes: NumaSet, name: str, role: Role, tenants: Iterable[Tenant]) -> NumaSet:
    """The nodes on which a pod of this role may be bound."""
    closed = 0
    for tenant in tenants:
        friendly = tenant.role == name or tenant.role in role.beside
        if tenant.alone or role.numa is Numa.EXCLUSIVE or not friendly:
            closed |= tenant.numa.mask
    return NumaSet(nodes.mask & ~closed)


def bound_hints(
    nodes: NumaSet, need: float, free: Mapping[int, float], allocatable: Mapping[int, float]
) -> tuple[Hint, ...]:
    """Placements on `nodes` that hold `need`; preferred are those on as few nodes as an empty machine would take."""
    smallest = fewest_nodes(need, allocatable.values())
    fits: Callable[[tuple[int, ...]], bool] = lambda mask: sum(free[node] for node in mask) >= need  # noqa: E731
    able = list(nodes)
    if len(able) <= ENUMERATED:
        masks = [mask for mask in all_masks(able) if len(mask) >= smallest and fits(mask)]
    else:
        masks = useful_masks(able, sorted(able, key=lambda node: (-free[node], node)), smallest, fits)
    return tuple(Hint(NumaSet(to_mask(mask)), len(mask) == smallest) for mask in masks)


def choose(hints: tuple[Hint, ...], asked: NumaSet | None) -> NumaSet | None:
    """The best of our placements inside the one that the manager asks for: preferred, few nodes, low numbers."""
    inside = [hint for hint in hints if hint.numa is not None and (asked is None or hint.numa <= asked)]
    ranked = sorted((not h.preferred, len(h.numa), h.numa.mask) for h in inside if h.numa is not None)
    return NumaSet(ranked[0][2]) if ranked else None
