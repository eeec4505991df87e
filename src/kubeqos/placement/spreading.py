"""Spreading as a wish: how much better a node is for a pod because few pods like it run there. Pure.

Constraints that say ScheduleAnyway, or Kubernetes' own for pods of a Service, ReplicaSet or StatefulSet that have none
(hostname 3, zone 5). The numbers are those of kube-scheduler's PodTopologySpread: for each constraint the pods in the
domain, weighed by the logarithm of the number of domains, plus maxSkew - 1; then on a scale of 0 to 100.
`score` asks for all rows at once, `placer` for groups of rows that have the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kubeqos.model.objects import LabelSelectorView, TopologySpread
from kubeqos.placement.cluster import HOSTNAME, Cluster
from kubeqos.placement.domains import selected_nodes
from kubeqos.placement.indexes import Bools, Floats, Ints
from kubeqos.placement.selectors import labels_predicate
from kubeqos.placement.shape import Shape

MAX_POINTS = 100
ZONE = "topology.kubernetes.io/zone"
SOFT = "ScheduleAnyway"
HOST_SKEW, ZONE_SKEW = 3, 5


def default_constraints(selector: LabelSelectorView) -> tuple[TopologySpread, ...]:
    """How pods that say nothing of spreading are spread (KubeSchedulerConfiguration, system defaulting)."""
    return tuple(
        TopologySpread(max_skew=skew, topology_key=key, when_unsatisfiable=SOFT, label_selector=selector)
        for key, skew in ((HOSTNAME, HOST_SKEW), (ZONE, ZONE_SKEW))
    )


def domain_weight(domains: int) -> float:
    """What a pod counts in a topology of so many domains."""
    return math.log(domains + 2)


def whole(raw: float) -> int:
    """Rounded as Go's math.Round does, for what is never negative."""
    return math.floor(raw + 0.5)


def spread_points(cluster: Cluster, shape: Shape, fits: Bools) -> Ints:
    """Points for every row; only those that fit decide the scale."""
    ignored = np.zeros(len(fits), dtype=np.bool_)
    if not shape.spread_by_default:  # a node without one of the labels is not compared with the others
        for constraint in shape.soft_spread:
            ignored |= cluster.labels.column(constraint.topology_key) == 0
    compared = fits & ~ignored
    raw: Floats = np.zeros(len(fits), dtype=np.float64)
    for constraint in shape.soft_spread:
        raw += _crowd(cluster, shape, constraint, compared, ignored)
    rounded = np.floor(raw + 0.5).astype(np.int64)
    points = np.full(len(fits), MAX_POINTS, dtype=np.int64)
    if compared.any() and (most := int(rounded[compared].max())):
        points = MAX_POINTS * (most + int(rounded[compared].min()) - rounded) // most
    points[ignored] = 0
    return points


def _crowd(cluster: Cluster, shape: Shape, constraint: TopologySpread, compared: Bools, ignored: Bools) -> Floats:
    """What one constraint counts against each row."""
    matches = labels_predicate(constraint.label_selector)
    pods = cluster.groups.counts(
        len(cluster.alive), lambda namespace, labels: namespace == shape.namespace and matches(labels)
    )
    domains = cluster.labels.column(constraint.topology_key)
    if constraint.topology_key == HOSTNAME:
        near, size = pods, int(compared.sum())
    else:
        size = len(np.unique(domains[compared]))  # nodes without the label are one more domain
        near = domain_pods(cluster, shape, constraint.topology_key, pods, ~ignored)[domains]
    found: Floats = np.where(domains != 0, near * domain_weight(size) + (constraint.max_skew - 1), 0.0)
    return found


def domain_pods(cluster: Cluster, shape: Shape, key: str, pods: Ints, among: Bools | None = None) -> Ints:
    """Pods by domain number, on the nodes that the pod's own selector and affinity leave."""
    domains, size = cluster.labels.column(key), len(cluster.labels.values(key))
    if size == 1:  # no node has the label
        return np.zeros(1, dtype=np.int64)
    if among is not None or shape.node_selector or shape.required_terms is not None:
        nodes = selected_nodes(cluster, shape) if among is None else among & selected_nodes(cluster, shape)
        domains, pods = domains[nodes], pods[nodes]
    return np.bincount(domains, weights=pods, minlength=size).astype(np.int64)


Place = tuple[int, int]
"""Pods of the selector on a node, and the number of its zone: nodes that have both alike get the same points."""


def default_points(sizes: Mapping[Place, int], zone_pods: Ints) -> dict[Place, int]:
    """The points of `spread_points` by system default: for the places of all nodes that fit, and how many of each."""
    host_weight = domain_weight(sum(sizes.values()))
    zone_weight = domain_weight(len({zone for _, zone in sizes}))
    raw: dict[Place, int] = {}
    for place in sizes:
        pods, zone = place
        crowd = pods * host_weight + (HOST_SKEW - 1)
        raw[place] = whole(crowd + (zone_pods.item(zone) * zone_weight + (ZONE_SKEW - 1) if zone else 0.0))
    least, most = min(raw.values()), max(raw.values())
    return {place: MAX_POINTS * (most + least - value) // most for place, value in raw.items()}
