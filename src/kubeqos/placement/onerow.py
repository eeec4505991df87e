"""Fit and score of one row, in plain numbers: what `fit` and `score` say about it, as far as pods can change that.

Placing a pod changes one row, and the next pod of its shape asks for that row alone. On an array of one, numpy takes a
microsecond for every step and there are fifty of them; here they cost a tenth. `placer` uses this for the few rows that
pods changed; what only the node itself decides (taints, labels, images) it keeps from the last time it looked at all.
"""

from __future__ import annotations

from kubeqos.placement.cluster import LEVELS, Cluster
from kubeqos.placement.fit import class_counts, is_odd
from kubeqos.placement.pools import WHOLE, pool_need
from kubeqos.placement.score import MAX_POINTS, Weights, wanted_keys
from kubeqos.placement.shape import Shape
from kubeqos.rules.classes import Level


def has_room(cluster: Cluster, shape: Shape, row: int) -> bool:
    """Whether the filters that count pods, resources, classes, pools and NUMA nodes let the pod in.

    Host ports are not looked at.
    """
    pods = cluster.column("pods")
    if pods.used.item(row) + 1 > pods.capacity.item(row):
        return False
    for name, amount in shape.requests.items():
        if amount and name not in shape.ignored:
            column = cluster.column(name)
            if amount > column.capacity.item(row) - column.used.item(row):
                return False
    if shape.class_needs and not _has_classes(cluster, shape, row):
        return False
    if row in cluster.divided and not _has_pools(cluster, shape, row):
        return False
    return not shape.aligned or row not in cluster.aligning or cluster.rows[row].can_align(shape)


def _has_classes(cluster: Cluster, shape: Shape, row: int) -> bool:
    for need in shape.class_needs:
        level = cluster.level_column(need.resource).item(row)
        if level == 0 or (need.asked_by_containers and level == LEVELS[Level.POD]):
            return False
        for key, count in class_counts(need):
            if level != LEVELS[key[0]]:
                continue
            column = cluster.class_column(key)
            capacity = column.capacity.item(row)
            if capacity < 0 or 0 < capacity < column.used.item(row) + count:
                return False
    return True


def _has_pools(cluster: Cluster, shape: Shape, row: int) -> bool:
    held = cluster.rows[row]
    for resource, rules in held.rules.items():
        need = pool_need(shape, resource, rules)
        if need is None:
            continue
        for pool, amount in need.wanted:
            column = cluster.pool_column((resource, pool))
            capacity = column.capacity.item(row)
            free = capacity - column.used.item(row)
            if capacity < 0 or amount > free:
                return False
            if pool == WHOLE and amount == free and held.would_starve(shape, resource):
                return False
        if is_odd(resource, need):
            return False
        if need.is_bound:
            whole = cluster.pool_column((resource, WHOLE))
            left = whole.capacity.item(row) - whole.used.item(row)
            if held.waits_to_hear(resource) or held.is_short_of_open(shape, resource, need, left):
                return False
    return True


def points_but_images(cluster: Cluster, shape: Shape, row: int, weights: Weights) -> int:
    """The weighted sum of the local scores, image locality excepted."""
    points = 0
    cpu_capacity, memory_capacity = (
        cluster.column("cpu").capacity.item(row),
        cluster.column("memory").capacity.item(row),
    )
    cpu = cluster.scoring_cpu.item(row) + shape.scoring_cpu_milli
    memory = cluster.scoring_memory.item(row) + shape.scoring_memory
    if weights.resources:
        taken = weights.most_allocated
        shares = _share(cpu, cpu_capacity, taken) + _share(memory, memory_capacity, taken)
        points += weights.resources * (shares // 2)
    if weights.balance and not shape.best_effort:
        cpu_share = min(cpu / max(cpu_capacity, 1), 1.0)
        memory_share = min(memory / max(memory_capacity, 1), 1.0)
        gain = cluster.unevenness.item(row) - abs(cpu_share - memory_share)
        points += weights.balance * int(MAX_POINTS * 0.75 + gain * (MAX_POINTS / 4))
    if weights.classes:
        points += weights.classes * _class_availability(cluster, shape, row)
    return points


def _share(used: int, capacity: int, taken: bool) -> int:
    if used > capacity:
        return 0
    return (used if taken else capacity - used) * MAX_POINTS // max(capacity, 1)


def _class_availability(cluster: Cluster, shape: Shape, row: int) -> int:
    if not shape.class_needs:
        return MAX_POINTS - cluster.scarce_free.item(row)
    points, keys = 0, wanted_keys(shape)
    for key in keys:
        column = cluster.class_column(key)
        capacity = column.capacity.item(row)
        if capacity == 0:
            points += MAX_POINTS
        elif capacity > 0:
            points += max(capacity - column.used.item(row), 0) * MAX_POINTS // capacity
    return points // max(len(keys), 1)
