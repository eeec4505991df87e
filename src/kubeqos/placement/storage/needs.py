"""What a pod's volume claims need of a node: values. Pure; made by `scheduler.reading.storage`, read by `filters`."""

from __future__ import annotations

import msgspec

from kubeqos.model.objects import LabelSelectorView, NodeSelectorTerm

Terms = tuple[NodeSelectorTerm, ...]
Topology = tuple[tuple[str, tuple[str, ...]], ...]
"""Label keys with the values that are allowed, all of which a node must have."""


class FreeVolume(msgspec.Struct, frozen=True, eq=False):
    """A volume that is there and that a claim could have."""

    name: str
    terms: Terms | None = None
    """Its node affinity; None: reachable from everywhere."""


class UnboundClaim(msgspec.Struct, frozen=True, eq=False):
    """A claim that waits for its first consumer, this pod."""

    key: str
    volumes: tuple[FreeVolume, ...] = ()
    """The smallest first."""
    provisioner: str = ""
    """Who makes a volume for it; empty where nobody does."""
    topologies: tuple[Topology, ...] = ()
    """Where its class allows volumes to be made; none: everywhere."""
    capacities: tuple[LabelSelectorView, ...] | None = None
    """Nodes where its driver says that there is room for it; None where it does not say."""
    selected: str = ""
    """The node for which its volume is being made."""


class VolumeNeed(msgspec.Struct, frozen=True, eq=False):
    """What a pod's claims need. One object for equal needs: shapes are kept by it."""

    affinities: tuple[Terms, ...] = ()
    """Of each volume that is bound to a claim and can be reached from some nodes only."""
    zones: Topology = ()
    """Zone and region labels of bound volumes."""
    unbound: tuple[UnboundClaim, ...] = ()
    """The smallest first: it takes the smallest volume."""
    once: tuple[str, ...] = ()
    """Claims that one pod at a time may use (ReadWriteOncePod)."""
    attached: tuple[tuple[str, str], ...] = ()
    """Claims with the CSI driver that attaches their volumes."""


class VolumePlan(msgspec.Struct, frozen=True):
    """What has to be asked for before a pod can be bound to a node: claims with their volumes, and those to be made."""

    bindings: tuple[tuple[str, str], ...] = ()
    provisions: tuple[str, ...] = ()
