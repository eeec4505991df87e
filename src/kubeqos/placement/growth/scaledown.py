"""The other way: which nodes of a group the cluster can do without. Pure.

A node can go when it is little used, its group may be smaller, and every pod on it has a place elsewhere and may be
moved there. Nodes are looked at one after the other, the dearest first, each on the cluster without those before it; so
all that are named can go together. What keeps a node is said.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.placement.cluster import Cluster, Column
from kubeqos.placement.growth.groups import NodeGroup, Occupant, Waiting
from kubeqos.placement.growth.scaleup import place_all

USED_AT_MOST = 0.5
"""A node that is used more than this stays, as in Kubernetes' autoscaler."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A node that can go, and where its pods would run then."""

    node: str
    group: str
    saves: float
    moves: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Nodes that can go, all of them together, and why the others of their groups stay."""

    removals: tuple[Removal, ...] = ()
    kept: dict[str, str] = field(default_factory=dict)


def unneeded(
    cluster: Cluster,
    groups: Sequence[NodeGroup],
    occupants: Mapping[str, Sequence[Occupant]],
    used_at_most: float = USED_AT_MOST,
) -> ScaleDown:
    """What a cluster in which nothing waits can do without; the cluster itself is not touched."""
    left = {group.name: len(group.members) for group in groups}
    candidates = [(group, node) for group in groups for node in group.members if node in cluster.row_of]
    candidates.sort(key=lambda one: (-one[0].cost, len(occupants.get(one[1], ())), one[1]))
    removals: list[Removal] = []
    kept: dict[str, str] = {}
    base, receives = cluster, dict[str, str]()
    for group, node in candidates:
        if node in receives:
            kept[node] = f"is to take pods of {receives[node]}"  # nobody is moved twice
            continue
        if left[group.name] <= group.least:
            kept[node] = f"group {group.name} has at least {group.least}"
            continue
        part, share = busiest(cluster, node)
        if share > used_at_most:
            kept[node] = f"{share:.0%} of its {part} are used"
            continue
        found = _without(base, node, occupants.get(node, ()))
        if isinstance(found, str):
            kept[node] = found
            continue
        base, moves = found
        receives |= dict.fromkeys(moves.values(), node)
        left[group.name] -= 1
        removals.append(Removal(node, group.name, group.cost, moves))
    return ScaleDown(tuple(removals), kept)


def _without(cluster: Cluster, node: str, here: Sequence[Occupant]) -> tuple[Cluster, dict[str, str]] | str:
    """The cluster without a node, its pods elsewhere; or why that cannot be."""
    if staying := next((one for one in here if one.stays), None):
        return f"{staying.name}: {staying.stays}"
    trial = copy.deepcopy(cluster)
    for uid in list(trial.rows[trial.row_of[node]].pods):
        trial.remove_pod(uid)
    trial.remove_node(node)
    moves: dict[str, str] = {}
    wanted = [Waiting(one.uid, one.name, one.shape) for one in here if not one.daemon]
    homeless = place_all(trial, sorted(wanted, key=lambda pod: -pod.shape.priority), moves)
    return f"{homeless[0].name} has no place elsewhere" if homeless else (trial, moves)


def busiest(cluster: Cluster, node: str) -> tuple[str, float]:
    """Which of its CPU, memory and limited classes is used the most, and how much of it."""
    row = cluster.row_of[node]
    columns: list[tuple[str, Column]] = [(name, cluster.column(name)) for name in ("cpu", "memory")]
    columns += [(f"{name}={cls}", column) for (_, name, cls), column in cluster.classes.items()]
    shares = [
        (name, column.used.item(row) / size) for name, column in columns if (size := column.capacity.item(row)) > 0
    ]
    return max(shares, key=lambda one: one[1], default=("cpu", 0.0))
