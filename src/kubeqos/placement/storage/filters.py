"""The filters that volumes add: kube-scheduler's VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kubeqos.model.objects import LabelSelectorView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.expressions import value_predicate
from kubeqos.placement.findings import VOLUMES, Check, Finding, always
from kubeqos.placement.indexes import Bools, Rows
from kubeqos.placement.selectors import NamespaceLabels, terms_any
from kubeqos.placement.shape import Shape
from kubeqos.placement.storage.needs import FreeVolume, Topology, UnboundClaim, VolumePlan

ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels that speak of zones, and by which name they are known today."""


def sharing_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """Claims that one pod at a time may use: nowhere while another pod, wherever it is, uses one."""
    once = shape.volumes.once if shape.volumes is not None else ()
    if not once:
        return

    def in_use(_: int) -> bool:
        return any(cluster.claim_users.get(key) for key in once)

    why = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    text = f"node(s) unavailable due to {why}"
    yield Check(lambda at: at.ask(at.read(cluster.alive), in_use), text, resolvable=always, waits_for=VOLUMES)


def attach_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """As many volumes as a node's CSI drivers say that they can attach."""
    attached = shape.volumes.attached if shape.volumes is not None else ()
    for driver in sorted({driver for _, driver in attached}):
        mine = {key for key, used in attached if used == driver}
        yield _limit_check(cluster, driver, mine)


def _limit_check(cluster: Cluster, driver: str, mine: set[str]) -> Check:
    limits = cluster.attach_limits

    def too_many(row: int) -> bool:
        there = {
            key
            for pod in cluster.rows[row].pods.values()
            for key in pod.shape.volume_claims
            if cluster.claim_drivers.get(key) == driver
        }
        return not mine <= there and len(mine | there) > limits[row][driver]

    return Check(
        lambda at: at.ask(at.among([row for row, each in limits.items() if driver in each]), too_many),
        "node(s) exceed max volume count",
        resolvable=always,
        waits_for=VOLUMES,
        comes_by_itself=True,
    )


def volume_binding(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Bound volumes that a node can reach; for the others volumes that are free there, or that can be made."""
    need = shape.volumes
    if need is None:
        return
    reached = np.ones(len(cluster.alive[rows]), dtype=np.bool_)
    for terms in need.affinities:
        reached &= terms_any(cluster, terms, rows)
    yield _refusing(~reached, "node(s) didn't match PersistentVolume's node affinity")
    if need.unbound:
        found, has_room = _Matching(cluster, rows).all(need.unbound)
        yield _refusing(~found, "node(s) didn't find available persistent volumes to bind")
        yield _refusing(found & ~has_room, "node(s) did not have enough free storage")


def volume_zone(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Volumes of a zone are for nodes of that zone; nodes that know of no zones take any."""
    need = shape.volumes
    if need is None or not need.zones:
        return
    zoned = np.zeros(len(cluster.alive[rows]), dtype=np.bool_)
    for label in ZONES:
        zoned |= cluster.labels.matching(label, lambda value: value is not None, rows)
    refused = np.zeros(len(zoned), dtype=np.bool_)
    for label, values in need.zones:
        has = cluster.labels.matching(label, lambda value: value is not None, rows)
        mine = cluster.labels.matching(label, lambda value, values=values: value in values, rows)  # type: ignore[misc]
        today = cluster.labels.matching(ZONES[label], lambda value, values=values: value in values, rows)  # type: ignore[misc]
        refused |= ~np.where(has, mine, today)
    yield _refusing(zoned & refused, "node(s) had no available volume zone")


def _refusing(refused: Bools, text: str) -> Finding:
    return Finding(refused, text, waits_for=VOLUMES, comes_by_itself=True)


class _Matching:
    """Claims and free volumes put together, on all rows at once: each claim takes the smallest that is left there."""

    def __init__(self, cluster: Cluster, rows: Rows) -> None:
        self._cluster = cluster
        self._rows = rows
        self._reach: dict[str, Bools] = {}
        self._taken: dict[str, Bools] = {}
        self._some: Bools = np.ones(len(cluster.alive[rows]), dtype=np.bool_)

    def all(self, claims: Sequence[UnboundClaim]) -> tuple[Bools, Bools]:
        """Where every claim gets a volume or can have one made, and where there is room for those."""
        found, has_room = self._some.copy(), self._some.copy()
        for claim in claims:
            found &= self._selected(claim)
            unmatched = self._unmatched(claim)
            found &= ~unmatched | self._can_be_made(claim)
            if claim.capacities is not None:
                has_room &= ~unmatched | self._any(claim.capacities)
        return found, has_room

    def _unmatched(self, claim: UnboundClaim) -> Bools:
        """Where no volume is left for it."""
        still_open = self._some.copy()
        for volume in self.left_for(claim):
            taken = self._taken.setdefault(volume.name, ~self._some)
            gets = still_open & self.reachable(volume) & ~taken
            self._taken[volume.name] = taken | gets
            still_open &= ~gets
        return still_open

    def left_for(self, claim: UnboundClaim) -> Sequence[FreeVolume]:
        """Volumes that nobody has taken before, or the one that was taken for this very claim."""
        if self._made_at(claim):
            return ()
        taken = self._cluster.volumes_taken
        if not taken:
            return claim.volumes
        own = [one for one in claim.volumes if taken.get(one.name) == claim.key]
        return own or [one for one in claim.volumes if one.name not in taken]

    def _made_at(self, claim: UnboundClaim) -> str:
        """The node for which its volume is being made, or would be."""
        return claim.selected or self._cluster.volumes_made.get(claim.key, "")

    def _selected(self, claim: UnboundClaim) -> Bools:
        node = self._made_at(claim)
        if not node:
            return self._some
        row = self._cluster.row_of.get(node, -1)
        found: Bools = np.arange(len(self._cluster.alive))[self._rows] == row
        return found

    def reachable(self, volume: FreeVolume) -> Bools:
        """Where it can be reached from."""
        found = self._reach.get(volume.name)
        if found is None:
            found = self._some if volume.terms is None else terms_any(self._cluster, volume.terms, self._rows)
            self._reach[volume.name] = found
        return found

    def _can_be_made(self, claim: UnboundClaim) -> Bools:
        if not claim.provisioner:
            return ~self._some
        if not claim.topologies:
            return self._some
        allowed = ~self._some
        for topology in claim.topologies:
            allowed |= self._all_of(topology)
        return allowed

    def _all_of(self, topology: Topology) -> Bools:
        found, labels = self._some.copy(), self._cluster.labels
        for label, values in topology:
            found &= labels.matching(label, lambda value, values=values: value in values, self._rows)  # type: ignore[misc]
        return found

    def _any(self, selectors: Sequence[LabelSelectorView]) -> Bools:
        found, labels = ~self._some, self._cluster.labels
        for selector in selectors:
            accepted = self._some.copy()
            for label, value in selector.match_labels.items():
                accepted &= labels.equal(label, value, self._rows)
            for expression in selector.match_expressions:
                accepted &= labels.matching(expression.key, value_predicate(expression), self._rows)
            found |= accepted
        return found


def volume_plan(cluster: Cluster, claims: Sequence[UnboundClaim], node: str) -> VolumePlan:
    """Which volumes claims get on a node that fits, and which have to be made for it."""
    matching = _Matching(cluster, np.array([cluster.row_of[node]]))
    bindings: list[tuple[str, str]] = []
    provisions: list[str] = []
    for claim in claims:
        taken = {volume for _, volume in bindings}
        left = (one for one in matching.left_for(claim) if one.name not in taken)
        volume = next((one for one in left if matching.reachable(one)[0]), None)
        if volume is None:
            provisions.append(claim.key)
        else:
            bindings.append((claim.key, volume.name))
    return VolumePlan(tuple(bindings), tuple(provisions))
