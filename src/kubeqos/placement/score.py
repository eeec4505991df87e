"""Score: which of the nodes that fit is the best, as a weighted sum of points from 0 to 100.

Local scores look at one node alone, so that after a change only that node's points are computed again; like the checks
of `counted` they are stated once for one row and for many.
Relative scores compare nodes with each other and are normalised over the nodes that fit, as Kubernetes does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kubeqos.placement.cluster import SOFT_TAINT, Cluster
from kubeqos.placement.domains import domain_counts
from kubeqos.placement.indexes import Bools, Ints, Rows
from kubeqos.placement.rows import At, ManyRows, Number, OneRow
from kubeqos.placement.selectors import NamespaceLabels, term_matches
from kubeqos.placement.shape import Shape
from kubeqos.placement.spreading import MAX_POINTS, spread_points
from kubeqos.rules.taints import tolerates
from kubeqos.topology.claims.serving import Served

_MEGABYTE = 1 << 20
_IMAGE_FLOOR, _IMAGE_CEILING = 23 * _MEGABYTE, 1000 * _MEGABYTE


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each score counts; zero switches it off. `most_allocated` packs instead of spreading.

    `keep_classes` sends pods that ask for no class to nodes whose limited classes are taken, or that have none. It is
    off: placement of such pods is Kubernetes' own, and a few nodes without classes would draw all of them.
    """

    resources: int = 1
    balance: int = 1
    classes: int = 2
    keep_classes: int = 0
    images: int = 1
    node_affinity: int = 2
    taints: int = 3
    spread: int = 2
    pod_affinity: int = 2
    most_allocated: bool = False
    claims: int = 2


DEFAULT_WEIGHTS = Weights()


def allocation(used: Number, capacity: Number, size: Number, taken: bool) -> Number:
    """The used or the free part of a capacity in points; nothing for a node that has none or is over it."""
    wanted = used if taken else capacity - used
    return (used <= capacity) * wanted * MAX_POINTS // size


def balance(cpu_share: Number, memory_share: Number, before: Number, at: At) -> Number:
    """How far the pod evens out CPU and memory use, compared with the node before it."""
    gain = before - abs(at.smaller(cpu_share, 1.0) - at.smaller(memory_share, 1.0))
    return at.whole(MAX_POINTS * 0.75 + gain * (MAX_POINTS / 4))


def class_availability(cluster: Cluster, shape: Shape, at: At, taken: bool = False) -> Number:
    """Prefer nodes with the largest free share of the classes asked for, or the largest taken one, so that whole nodes
    keep theirs; who asks for none is scored as without."""
    points: Number = 0
    for key in shape.class_keys:
        column = cluster.class_column(key)
        capacity = at.read(column.capacity)  # -1 is a class that the node does not have, 0 one without limit
        used = at.smaller(at.read(column.used), capacity)
        part = used if taken else capacity - used
        points = points + (capacity == 0) * MAX_POINTS + (capacity > 0) * part * MAX_POINTS // at.larger(capacity, 1)
    return points // max(len(shape.class_keys), 1)


def claims_met(cluster: Cluster, shape: Shape, at: At) -> Number:
    """Prefer nodes that meet what claims wish for beside what they demand (KEP-3675: the attributes -PREFERRED)."""

    def points(row: int) -> int:
        found, need = cluster.rows[row].compute(), shape.compute
        answer = found.answer(need, cluster.served) if found is not None and need is not None else None
        return MAX_POINTS // (1 + len(answer.unmet)) if isinstance(answer, Served) else 0

    return at.count(at.among(cluster.computing), points)


def image_locality(cluster: Cluster, shape: Shape, rows: Rows) -> Ints:
    """Prefer nodes that have the pod's images already, weighed by size and by how widespread they are."""
    present = np.zeros(len(cluster.alive[rows]), dtype=np.float64)
    nodes = max(int(cluster.alive.sum()), 1)
    for image in shape.images:
        sizes = cluster.images.get(image)
        if sizes is not None:
            present += sizes[rows] * (np.count_nonzero(sizes) / nodes)
    ceiling = _IMAGE_CEILING * max(len(shape.images), 1)
    clipped = np.clip(present, _IMAGE_FLOOR, ceiling)
    return (MAX_POINTS * (clipped - _IMAGE_FLOOR) / (ceiling - _IMAGE_FLOOR)).astype(np.int64)


def local_points(cluster: Cluster, shape: Shape, rows: Rows, weights: Weights) -> Ints:
    """The weighted sum of the scores that look at one node alone."""
    points: Ints = image_points(cluster, shape, rows, weights)
    points += load_points(cluster, shape, ManyRows(cluster, rows), weights)
    return points


def load_points(cluster: Cluster, shape: Shape, at: At, weights: Weights) -> Number:
    """The part of the local points that pods change when they come and go, as if the pod were placed."""
    points: Number = 0
    for part in load_parts(cluster, shape, at, weights).values():
        points = points + part
    return points


def load_parts(cluster: Cluster, shape: Shape, at: At, weights: Weights) -> dict[str, Number]:
    """The same by score."""
    parts: dict[str, Number] = {}
    cpu = at.read(cluster.scoring_cpu) + shape.scoring_cpu_milli
    memory = at.read(cluster.scoring_memory) + shape.scoring_memory
    cpu_capacity, memory_capacity = at.read(cluster.cpu.capacity), at.read(cluster.memory.capacity)
    cpu_size, memory_size = at.larger(cpu_capacity, 1), at.larger(memory_capacity, 1)  # to divide by
    if weights.resources:
        taken = weights.most_allocated
        shares = allocation(cpu, cpu_capacity, cpu_size, taken) + allocation(
            memory, memory_capacity, memory_size, taken
        )
        parts["resources"] = weights.resources * (shares // 2)
    if weights.balance and not shape.best_effort:
        gained = balance(cpu / cpu_size, memory / memory_size, at.read(cluster.unevenness), at)
        parts["balance"] = weights.balance * gained
    if shape.class_needs and weights.classes:
        taken = weights.most_allocated
        parts["classes"] = weights.classes * class_availability(cluster, shape, at, taken)
    if shape.compute is not None and weights.claims:
        parts["claims"] = weights.claims * claims_met(cluster, shape, at)
    if weights.keep_classes and not shape.class_needs:
        parts["no scarce classes"] = weights.keep_classes * (MAX_POINTS - at.read(cluster.scarce_free))
    return parts


def image_points(cluster: Cluster, shape: Shape, rows: Rows, weights: Weights) -> Ints:
    """The part of the local points that pods coming and going do not change."""
    if not weights.images or not cluster.images:
        return np.zeros(len(cluster.alive[rows]), dtype=np.int64)
    return weights.images * image_locality(cluster, shape, rows)


def score_parts(cluster: Cluster, shape: Shape, row: int, weights: Weights, total: int) -> dict[str, int]:
    """The points of a node by score; what nodes are compared by is the rest of the total."""
    parts = load_parts(cluster, shape, OneRow(row), weights)
    if cluster.images:
        parts["images"] = int(image_points(cluster, shape, np.array([row]), weights)[0])
    rest = total - sum(parts.values())
    others = {
        "affinity": shape.preferred_terms,
        "taints": cluster.has_soft_taints,
        "spread": shape.soft_spread,
        "pods nearby": shape.preferred_affinity or shape.preferred_anti_affinity,
    }
    parts[" and ".join(name for name, present in others.items() if present) or "rest"] = rest
    return {name: value for name, value in parts.items() if value}


# -- relative scores -----------------------------------------------------------------------------------------------


def needs_relative(cluster: Cluster, shape: Shape) -> bool:
    """Whether nodes must be compared with each other for this pod."""
    return cluster.has_soft_taints or bool(shape.preferred_terms) or shape.looks_at_other_nodes


def relative_points(cluster: Cluster, shape: Shape, fits: Bools, weights: Weights, namespaces: NamespaceLabels) -> Ints:
    """The weighted sum of the normalised scores, over all rows; only those that fit decide the scale."""
    points = np.zeros(len(fits), dtype=np.int64)
    points += weights.node_affinity * _scaled(_preferred_affinity(cluster, shape), fits)
    if cluster.has_soft_taints:
        points += weights.taints * _scaled(_intolerable(cluster, shape), fits, reverse=True)
    if shape.soft_spread and weights.spread:
        points += weights.spread * spread_points(cluster, shape, fits)
    if shape.preferred_affinity or shape.preferred_anti_affinity:
        points += weights.pod_affinity * _scaled(_company(cluster, shape, namespaces), fits)
    return points


def _preferred_affinity(cluster: Cluster, shape: Shape) -> Ints:
    points = np.zeros(len(cluster.alive), dtype=np.int64)
    for preferred in shape.preferred_terms:
        points += preferred.weight * term_matches(cluster, preferred.preference, slice(None))
    return points


def _intolerable(cluster: Cluster, shape: Shape) -> Ints:
    counts = [
        sum(
            taint.effect == SOFT_TAINT and not any(tolerates(one, taint) for one in shape.tolerations) for taint in each
        )
        for each in cluster.taint_sets.values
    ]
    return np.array(counts, dtype=np.int64)[cluster.taint_set]


def _company(cluster: Cluster, shape: Shape, namespaces: NamespaceLabels) -> Ints:
    points = np.zeros(len(cluster.alive), dtype=np.int64)
    for sign, terms in ((1, shape.preferred_affinity), (-1, shape.preferred_anti_affinity)):
        for weighted in terms:
            term = weighted.pod_affinity_term
            near = domain_counts(cluster, term, shape.namespace, namespaces)
            points += sign * weighted.weight * near[cluster.labels.column(term.topology_key)]
    return points


def _scaled(values: Ints, fits: Bools, *, reverse: bool = False) -> Ints:
    """Values on a scale of 0 to 100 between the smallest and the largest among the nodes that fit."""
    among = values[fits]
    if not len(among) or among.max() == among.min():
        return np.full(len(values), MAX_POINTS if reverse else 0, dtype=np.int64)
    low, high = int(among.min()), int(among.max())
    scaled = (np.clip(values, low, high) - low) * MAX_POINTS // (high - low)
    return MAX_POINTS - scaled if reverse else scaled
