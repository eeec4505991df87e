"""One node as placement sees it: what it says of itself, and the pods on it. The rows of a cluster are such nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kubeqos.model.annotations.topologysummary import NO_SUMMARY, TopologySummary
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeView
from kubeqos.placement.published.computing import NodeCompute, compute_now, is_settled
from kubeqos.placement.published.numa import Free, can_align, free_now
from kubeqos.placement.published.pools import Need, PoolKey, RuleSet, is_short_of_open, pool_need, pool_use, shares
from kubeqos.placement.shape import HostPort, Shape
from kubeqos.rules.qos.classes import Catalog, ClassKey, Level


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as placement sees it: the API object, and what its agent publishes beside it."""

    view: NodeView
    drivers: frozenset[str] = frozenset()
    topology: TopologySummary = NO_SUMMARY
    machine: Machine | None = None
    """Where it matters: on nodes whose compute drivers hand out CPUs."""


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that holds resources on a node."""

    uid: str
    name: str
    shape: Shape
    started: float = 0.0
    """Seconds; later pods are preempted first among equals."""
    preemptible: bool = True


@dataclass(slots=True)
class Row:
    """What a row holds that is no number."""

    facts: NodeFacts
    classes: Catalog
    rules: dict[str, RuleSet] = field(default_factory=dict)
    """How plugins divide each resource."""
    pods: dict[str, PlacedPod] = field(default_factory=dict)
    ports: list[HostPort] = field(default_factory=list)
    aligned_free: Free | None = None
    """What is free on each NUMA node; None when that has to be worked out anew."""
    claimants: set[str] = field(default_factory=set)
    """The pods that have claims."""
    computing: NodeCompute | None = None
    """Who holds which CPUs by claims; None when that has to be worked out anew."""

    def can_align(self, shape: Shape) -> bool:
        """Whether the node's topology manager would let the pod in."""
        topology = self.facts.topology
        if self.aligned_free is None:
            self.aligned_free = free_now(topology, {uid: pod.shape for uid, pod in self.pods.items()})
        return can_align(topology, self.aligned_free, shape)

    def changed(self) -> None:
        """A pod came or went, or the node said something new."""
        self.aligned_free = self.computing = None

    def compute(self) -> NodeCompute | None:
        """The node's claims; None where it says nothing of them that could be understood."""
        summary, machine = self.facts.topology.compute, self.facts.machine
        if self.computing is None and summary is not None and machine is not None:
            self.computing = compute_now(machine, summary, {uid: pod.shape for uid, pod in self.pods.items()})
        return self.computing

    def unforeseen(self) -> int:
        """Milli CPUs that claims will keep from everybody, and of which the node has not told."""
        summary = self.facts.topology.compute
        if summary is None or is_settled(summary, self.pods, self.claimants):
            return 0
        found = self.compute()
        return 1000 * found.unforeseen if found is not None else 0

    def keys_of(self, pod: PlacedPod) -> Iterator[ClassKey | PoolKey]:
        """The classes and pools that a pod holds here."""
        for key, _ in class_use(pod.shape, self.classes):
            yield key
        for pool, _ in pool_use(pod.shape, self.facts.topology, self.rules, pod.uid):
            yield pool

    def would_starve(self, shape: Shape, resource: str) -> bool:
        """Whether somebody needs at least one unit of the pool that a pod would carve up wholly."""
        rules = self.rules[resource]
        return any(shares(one, rules) for one in (shape, *(pod.shape for pod in self.pods.values())))

    def is_short_of_open(self, shape: Shape, resource: str, need: Need, left: int) -> bool:
        """Whether the NUMA nodes that a bound pod may use have too little; `left` is what nobody owns at all."""
        starves = self.would_starve(shape, resource)
        return is_short_of_open(shape, resource, self.facts.topology, need, left, starves)

    def waits_to_hear(self, resource: str) -> bool:
        """Whether a pod with units of its own is on its way here, so that where is not known yet."""
        owned = self.facts.topology.pools[resource].owned
        for uid, pod in self.pods.items():
            if uid not in owned and (found := pool_need(pod.shape, resource, self.rules[resource])) and found.units:
                return True
        return False


def class_use(shape: Shape, offered: Catalog) -> Iterator[tuple[ClassKey, int]]:
    """The class assignments a pod of this shape takes on a node with these classes."""
    for need in shape.class_needs:
        kind = offered.types.get(need.resource)
        if kind is None:
            continue
        if kind.level is Level.CONTAINER:
            for cls, count in need.container_classes.items():
                yield (Level.CONTAINER, need.resource, cls), count
        else:
            for cls in need.pod_classes:
                yield (Level.POD, need.resource, cls), 1
