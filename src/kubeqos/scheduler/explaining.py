"""Why a pod waits, in numbers: nodes by reason, and for what no node has enough of who comes nearest. Pure.

Asked by the core when it reports a pod that fits nowhere, for the pod's decision record, and by `kubeqos why`, which
looks at the nodes as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubeqos.model.decisions import RefusedNodes, Waiting
from kubeqos.model.quantity import Format, Quantity
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.counted import class_counts
from kubeqos.placement.fit import Explanation
from kubeqos.placement.indexes import Ints
from kubeqos.placement.shape import Shape
from kubeqos.rules.qos.classes import ClassKey

_NAMED = 3
_MOST_REASONS = 20


def waiting(cluster: Cluster, shape: Shape, explanation: Explanation) -> Waiting:
    """Why a pod of this shape fits nowhere."""
    return Waiting(
        message=explanation.message,
        refused=tuple(refused_nodes(explanation))[:_MOST_REASONS],
        nearest=tuple(nearest_misses(cluster, shape)),
    )


def refused_nodes(explanation: Explanation) -> list[RefusedNodes]:
    """The reasons with how many nodes give them and some of those, most of them first."""
    examples = explanation.examples(_NAMED)
    found = [RefusedNodes(reason, count, examples.get(reason, ())) for reason, count in explanation.counts().items()]
    return sorted(found, key=lambda one: (-one.count, one.reason))


def nearest_misses(cluster: Cluster, shape: Shape) -> list[str]:
    """For everything that the pod asks for and no node has free: what it needs, and who has the most."""
    found = []
    for name in short_of(cluster, shape):
        free = free_of(cluster, name)
        row = int(np.argmax(np.where(cluster.alive, free, np.iinfo(np.int64).min)))
        most = amount(name, max(0, int(free[row])))
        found.append(
            f"needs {amount(name, shape.requests[name])} {name}, most free is {most} on {cluster.node_name(row)}"
        )
    for key, holders in class_holders(cluster, shape).items():
        slots = sum(max(0, int(size)) for size in cluster.class_column(key).capacity[cluster.alive])
        found.append(f"needs class {key[1]}={key[2]}, of which all {slots} are taken: {named(holders)}")
    return found


def short_of(cluster: Cluster, shape: Shape) -> list[str]:
    """Resources that no node has enough of, free."""
    return [
        name
        for name, asked in sorted(shape.requests.items())
        if asked and cluster.alive.any() and not (cluster.alive & (free_of(cluster, name) >= asked)).any()
    ]


def free_of(cluster: Cluster, name: str) -> Ints:
    """What every node has free of a resource."""
    column = cluster.column(name)
    return column.capacity - column.used


def class_holders(cluster: Cluster, shape: Shape) -> dict[ClassKey, list[str]]:
    """Classes that the pod asks for and that are taken wherever they are limited, with the pods that hold them."""
    found: dict[ClassKey, list[str]] = {}
    for need in shape.class_needs:
        for key, count in class_counts(need):
            column = cluster.class_column(key)
            offered = cluster.alive & (column.capacity >= 0)
            if (
                not offered.any()
                or (offered & ((column.capacity == 0) | (column.used + count <= column.capacity))).any()
            ):
                continue
            found[key] = [
                pod.name
                for row in np.flatnonzero(offered).tolist()
                for pod in cluster.rows[row].pods.values()
                if key in set(cluster.rows[row].keys_of(pod))
            ]
    return found


def named(pods: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return ", ".join(sorted(pods)[:_NAMED]) + more


def amount(name: str, value: int) -> str:
    """The scheduler's integers as people write them."""
    if name == "cpu":
        return str(Quantity.from_milli(value))
    binary = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return str(Quantity.from_int(value, Format.BINARY_SI if binary else Format.DECIMAL_SI))
