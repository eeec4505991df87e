"""Groups of nodes that are all alike, and pods as growth sees them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.shape import Shape
from kubeqos.placement.storage.filters import volume_plan

HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are there or could be added, all alike (KEP-3008, Cluster autoscaler)."""

    name: str
    template: NodeFacts
    """A node of the group with nothing on it: how an existing one looks, or how the first one would."""
    most: int
    """How many there may be."""
    least: int = 0
    cost: float = 1.0
    """Of one node, in whatever the owner pays."""
    members: tuple[str, ...] = ()
    """Nodes that are there."""

    @property
    def bill(self) -> float:
        """What the group costs now."""
        return self.cost * len(self.members)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without a node."""

    uid: str
    name: str
    shape: Shape
    waits: str = ""
    """What it waits for beside a node, in words: its claims are not there, or cannot be served anywhere."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on a node that might go."""

    uid: str
    name: str
    shape: Shape
    stays: str = ""
    """Why it cannot be moved elsewhere; empty when it can."""
    daemon: bool = False
    """It goes with its node: a DaemonSet has one on each."""


def settle(cluster: Cluster, pod: Waiting, node: str) -> None:
    """Put a pod on a node of a rehearsal, with the volumes that it gets there."""
    if pod.shape.volumes is not None and pod.shape.volumes.unbound:
        cluster.take_volumes(volume_plan(cluster, pod.shape.volumes.unbound, node), node)
    cluster.add_pod(node, PlacedPod(pod.uid, pod.name, pod.shape))


def named(template: NodeFacts, name: str) -> NodeFacts:
    """A new node of a template."""
    view = template.view
    labels = {**view.metadata.labels, HOSTNAME: name} if HOSTNAME in view.metadata.labels else view.metadata.labels
    metadata = msgspec.structs.replace(view.metadata, name=name, labels=labels)
    return NodeFacts(msgspec.structs.replace(view, metadata=metadata), template.drivers, template.topology)
