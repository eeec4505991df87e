"""Score: which of the nodes that fit is the best, as a weighted sum of points from 0 to 100.

Local scores look at one node alone, so that after a change only that node's points are computed again.
Relative scores compare nodes with each other and are normalised over the nodes that fit, as Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kubeqos.model.objects import Taint
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.domains import domain_counts, spread_counts
from kubeqos.placement.fit import Surroundings, tolerates
from kubeqos.placement.indexes import Bools, Ints, Rows
from kubeqos.placement.selectors import term_matches
from kubeqos.placement.shape import Shape
from kubeqos.rules.classes import ClassKey, Level

MAX_POINTS = 100
_MEGABYTE = 1 << 20
_IMAGE_FLOOR, _IMAGE_CEILING = 23 * _MEGABYTE, 1000 * _MEGABYTE


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each score counts; zero switches it off. `most_allocated` packs instead of spreading."""

    resources: int = 1
    balance: int = 1
    classes: int = 2
    images: int = 1
    node_affinity: int = 2
    taints: int = 3
    spread: int = 2
    pod_affinity: int = 2
    most_allocated: bool = False


DEFAULT_WEIGHTS = Weights()

LocalScore = Callable[[Cluster, Shape, Rows, Weights], Ints]


def allocation(cluster: Cluster, shape: Shape, rows: Rows, weights: Weights) -> Ints:
    """The mean free (or used) share of CPU and memory with the pod placed."""
    cpu, memory = (
        _share(used, capacity, weights.most_allocated) for used, capacity in _fractions(cluster, shape, rows)
    )
    return (cpu + memory) // 2


def _share(used: Ints, capacity: Ints, taken: bool) -> Ints:
    """The used or the free part of a capacity in points; nothing for a node that has none or is over it."""
    wanted = used if taken else capacity - used
    return np.where(used > capacity, 0, wanted) * MAX_POINTS // np.maximum(capacity, 1)


def balance(cluster: Cluster, shape: Shape, rows: Rows, _: Weights) -> Ints:
    """How far the pod evens out CPU and memory use, compared with the node before it."""
    if shape.best_effort:
        return np.zeros(len(cluster.alive[rows]), dtype=np.int64)
    (cpu, cpu_capacity), (memory, memory_capacity) = _fractions(cluster, shape, rows)
    cpu_share = np.minimum(cpu / np.maximum(cpu_capacity, 1), 1.0)
    memory_share = np.minimum(memory / np.maximum(memory_capacity, 1), 1.0)
    gain = cluster.unevenness[rows] - np.abs(cpu_share - memory_share)
    points: Ints = (MAX_POINTS * 0.75 + gain * (MAX_POINTS / 4)).astype(np.int64)
    return points


def _fractions(cluster: Cluster, shape: Shape, rows: Rows) -> list[tuple[Ints, Ints]]:
    """Used and available CPU and memory, with the pod placed."""
    cpu = cluster.scoring_cpu[rows] + shape.scoring_cpu_milli
    memory = cluster.scoring_memory[rows] + shape.scoring_memory
    return [(cpu, cluster.column("cpu").capacity[rows]), (memory, cluster.column("memory").capacity[rows])]


def class_availability(cluster: Cluster, shape: Shape, rows: Rows, _: Weights) -> Ints:
    """Prefer nodes with the largest free share of the classes asked for, and keep scarce classes for those who ask.

    A pod without class requests gets more points on nodes whose limited classes are all taken or that have none.
    """
    if shape.class_needs:
        return _wanted_classes(cluster, shape, rows)
    return MAX_POINTS - cluster.scarce_free[rows]


def _wanted_classes(cluster: Cluster, shape: Shape, rows: Rows) -> Ints:
    points = np.zeros(len(cluster.alive[rows]), dtype=np.int64)
    keys = wanted_keys(shape)
    for key in keys:
        column = cluster.class_column(key)
        capacity = column.capacity[rows]
        free = np.maximum(capacity - column.used[rows], 0)
        share = np.where(capacity == 0, MAX_POINTS, free * MAX_POINTS // np.maximum(capacity, 1))
        points += np.where(capacity < 0, 0, share)
    return points // max(len(keys), 1)


def wanted_keys(shape: Shape) -> list[ClassKey]:
    """Every class that a pod may take, whatever the level at which a node offers it."""
    keys: list[ClassKey] = []
    for need in shape.class_needs:
        keys += [(Level.CONTAINER, need.resource, cls) for cls in need.container_classes]
        if need.pod_class is not None:
            keys.append((Level.POD, need.resource, need.pod_class))
    return keys


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


LOCAL: Mapping[str, LocalScore] = {
    "resources": allocation,
    "balance": balance,
    "classes": class_availability,
}


def local_points(cluster: Cluster, shape: Shape, rows: Rows, weights: Weights) -> Ints:
    """The weighted sum of the scores that look at one node alone."""
    points = image_points(cluster, shape, rows, weights)
    for name, score in LOCAL.items():
        weight = getattr(weights, name)
        if weight:
            points += weight * score(cluster, shape, rows, weights)
    return points


def image_points(cluster: Cluster, shape: Shape, rows: Rows, weights: Weights) -> Ints:
    """The part of the local points that pods coming and going do not change."""
    if not weights.images or not cluster.images:
        return np.zeros(len(cluster.alive[rows]), dtype=np.int64)
    return weights.images * image_locality(cluster, shape, rows)


# -- relative scores -----------------------------------------------------------------------------------------------


def needs_relative(cluster: Cluster, shape: Shape) -> bool:
    """Whether nodes must be compared with each other for this pod."""
    return bool(shape.preferred_terms) or shape.looks_at_other_nodes or bool(_preferred_taints(cluster))


def relative_points(cluster: Cluster, shape: Shape, fits: Bools, weights: Weights, around: Surroundings) -> Ints:
    """The weighted sum of the normalised scores, over all rows; only those that fit decide the scale."""
    points = np.zeros(len(fits), dtype=np.int64)
    points += weights.node_affinity * _scaled(_preferred_affinity(cluster, shape), fits)
    if _preferred_taints(cluster):
        points += weights.taints * _scaled(_intolerable(cluster, shape), fits, reverse=True)
    soft = [each for each in shape.spread if each.when_unsatisfiable == "ScheduleAnyway"]
    if soft:
        crowd = np.zeros(len(fits), dtype=np.int64)
        for constraint in soft:
            per_domain, _ = spread_counts(cluster, shape, constraint)
            crowd += per_domain[cluster.labels.column(constraint.topology_key)]
        points += weights.spread * _scaled(crowd, fits, reverse=True)
    if shape.preferred_affinity or shape.preferred_anti_affinity:
        points += weights.pod_affinity * _scaled(_company(cluster, shape, around), fits)
    return points


def _preferred_affinity(cluster: Cluster, shape: Shape) -> Ints:
    points = np.zeros(len(cluster.alive), dtype=np.int64)
    for preferred in shape.preferred_terms:
        points += preferred.weight * term_matches(cluster, preferred.preference, slice(None))
    return points


def _preferred_taints(cluster: Cluster) -> list[tuple[Taint, ...]]:
    return [each for each in cluster.taint_sets.values if any(taint.effect == "PreferNoSchedule" for taint in each)]


def _intolerable(cluster: Cluster, shape: Shape) -> Ints:
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not any(tolerates(one, taint) for one in shape.tolerations)
            for taint in each
        )
        for each in cluster.taint_sets.values
    ]
    return np.array(counts, dtype=np.int64)[cluster.taint_set]


def _company(cluster: Cluster, shape: Shape, around: Surroundings) -> Ints:
    points = np.zeros(len(cluster.alive), dtype=np.int64)
    for sign, terms in ((1, shape.preferred_affinity), (-1, shape.preferred_anti_affinity)):
        for weighted in terms:
            term = weighted.pod_affinity_term
            near = domain_counts(cluster, term, shape.namespace, around.namespaces)
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
