"""Fit: which nodes can take a pod, and for the others every reason why not.

Filters stand in Kubernetes' order; a node is explained by the first filter that refuses it. Each filter yields
findings: a mask of refused rows, a text per row, and whether evicting other pods could help. Deciding only combines the
masks, so that an explanation can never differ from the decision. What pods can change is stated in `counted`, what the
node alone decides here, and what other nodes' pods decide in `domains`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kubeqos.model.annotations.computepolicies import ANY_DRIVER
from kubeqos.model.annotations.topologysummary import Down
from kubeqos.model.objects import Taint
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.counted import (
    COUNTED,
    class_checks,
    compute_checks,
    numa_checks,
    pool_checks,
    port_checks,
    resource_checks,
)
from kubeqos.placement.domains import affinity_findings, selected_nodes, spread_findings
from kubeqos.placement.findings import COMPANY, COMPUTE, DOWN, NUMA, VOLUMES, Check, Finding
from kubeqos.placement.indexes import Bools, Rows
from kubeqos.placement.published.pools import PoolKey
from kubeqos.placement.rows import EVERY_ROW, ManyRows
from kubeqos.placement.selectors import NamespaceLabels
from kubeqos.placement.shape import Shape
from kubeqos.placement.storage.filters import attach_checks, sharing_checks, volume_binding, volume_zone
from kubeqos.rules.qos.classes import ClassKey
from kubeqos.rules.taints import tolerates, untolerated

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ASKED_FOR_EXAMPLES = 64
NO_LABELS: NamespaceLabels = {}
"""Nothing is known of namespaces: terms that select them by label find none."""

Filter = Callable[[Cluster, Shape, Rows, NamespaceLabels], Iterator[Finding]]
"""The labels of namespaces are for affinity terms that select by them."""


def unschedulable(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    if not any(tolerates(one, _UNSCHEDULABLE) for one in shape.tolerations):
        yield Finding(cluster.unschedulable[rows], "node(s) were unschedulable")


def node_name(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    if shape.node_name:
        wanted = cluster.row_of.get(shape.node_name, -1)
        yield Finding(np.arange(len(cluster.alive))[rows] != wanted, "node(s) didn't match the requested node name")


def taints(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Untolerated NoSchedule and NoExecute taints, judged once per distinct set of taints."""
    judged = [untolerated(each, shape.tolerations) for each in cluster.taint_sets.values]
    if not any(judged):
        return
    refused = np.fromiter((taint is not None for taint in judged), dtype=np.bool_)
    sets = cluster.taint_set[rows]

    def describe(number: int) -> str:
        taint = judged[number]
        assert taint is not None
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"

    yield Finding(refused[sets], describe, sets.astype(np.int64))


def node_affinity(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    if not shape.node_selector and shape.required_terms is None:
        return
    yield Finding(~selected_nodes(cluster, shape, rows), "node(s) didn't match Pod's node affinity/selector")


def claims(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Claims (KEP-3675) need a node that runs the driver of the claim's class."""
    for driver in shape.claim_drivers:
        named = f"compute driver {driver}" if driver != ANY_DRIVER else "one compute driver"
        yield Finding(~cluster.driver_column(driver)[rows], f"node(s) don't run {named}")


def peers_down(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Nodes whose resource plugin or compute driver is down, if the pod would have to wait for it there."""
    waiting: dict[str, list[int]] = {}
    for row in cluster.ailing:
        for down in cluster.rows[row].facts.topology.down:
            if _waits_for(shape, down):
                waiting.setdefault(str(down), []).append(row)
    for text, ailing in sorted(waiting.items()):
        refused = ManyRows(cluster, rows).among(ailing)
        yield Finding(refused, f"node(s) whose {text}", waits_for=DOWN, comes_by_itself=True)


def _waits_for(shape: Shape, down: Down) -> bool:
    if down.driver:
        return down.name in shape.claim_drivers or ANY_DRIVER in shape.claim_drivers
    if shape.left_alone:
        return False
    return down.everybody or shape.marks.role in down.roles or any(shape.requests.get(one) for one in down.resources)


def refusals(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    """Nodes that refused a pod that asks for the same, a short while ago."""
    refusing = cluster.kept_off.get(shape.asks)
    if not refusing:
        return
    numbers = np.arange(len(cluster.alive))[rows]
    for reason in sorted(set(refusing.values())):
        refused = np.isin(numbers, [row for row, why in refusing.items() if why == reason])
        text = f"node(s) refused equal pods lately ({reason})"
        yield Finding(refused, text, waits_for=("refused", shape.asks), comes_by_itself=True)


def spread(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
    if shape.spread:
        yield from spread_findings(cluster, shape, rows)


def pod_affinity(cluster: Cluster, shape: Shape, rows: Rows, namespaces: NamespaceLabels) -> Iterator[Finding]:
    yield from affinity_findings(cluster, shape, rows, namespaces)


def _counted(checks: Callable[[Cluster, Shape], Iterator[Check]]) -> Filter:
    """A filter of `counted`, put to many rows at once."""

    def found(cluster: Cluster, shape: Shape, rows: Rows, _: NamespaceLabels) -> Iterator[Finding]:
        at = ManyRows(cluster, rows)
        return (check.finding(at) for check in checks(cluster, shape))

    return found


FILTERS: Mapping[str, Filter] = {
    "NodeUnschedulable": unschedulable,
    "NodeName": node_name,
    "TaintToleration": taints,
    "NodeAffinity": node_affinity,
    "NodePorts": _counted(port_checks),
    "NodeResourcesFit": _counted(resource_checks),
    "QOSResources": _counted(class_checks),
    "ComputeClaims": claims,
    "PeersDown": peers_down,
    "ResourcePools": _counted(pool_checks),
    "NUMATopology": _counted(numa_checks),
    "ComputeFit": _counted(compute_checks),
    "NodeRefusals": refusals,
    "VolumeRestrictions": _counted(sharing_checks),
    "NodeVolumeLimits": _counted(attach_checks),
    "VolumeBinding": volume_binding,
    "VolumeZone": volume_zone,
    "PodTopologySpread": spread,
    "InterPodAffinity": pod_affinity,
}


_BY_PODS = (*COUNTED, "PodTopologySpread", "InterPodAffinity")
STANDING: Mapping[str, Filter] = {name: check for name, check in FILTERS.items() if name not in _BY_PODS}
"""The filters that look at the node alone: pods come and go without changing what these say."""


def feasible(
    cluster: Cluster,
    shape: Shape,
    rows: Rows = EVERY_ROW,
    namespaces: NamespaceLabels = NO_LABELS,
    filters: Mapping[str, Filter] = FILTERS,
) -> Bools:
    """The rows that can take the pod."""
    refused = ~cluster.alive[rows]
    for check in filters.values():
        for finding in check(cluster, shape, rows, namespaces):
            refused |= finding.refused
    return ~refused


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """Why one node does not take the pod, by the first filter that said so."""

    filter: str
    reasons: tuple[str, ...]
    resolvable: bool


class Explanation:
    """Why no node takes a pod: the findings of every filter, read by node or counted over all."""

    def __init__(
        self,
        cluster: Cluster,
        shape: Shape,
        namespaces: NamespaceLabels = NO_LABELS,
        filters: Mapping[str, Filter] = FILTERS,
    ) -> None:
        self._cluster = cluster
        self._judged: list[tuple[str, Bools, list[Finding]]] = []
        still_open = cluster.alive.copy()
        self.nodes = int(still_open.sum())
        self.resolvable: Bools = np.zeros(len(still_open), dtype=np.bool_)
        """The rows where evicting pods could help."""
        for name, check in filters.items():
            findings = list(check(cluster, shape, EVERY_ROW, namespaces))
            if not findings:
                continue
            refused = np.zeros(len(still_open), dtype=np.bool_)
            hopeless = np.zeros(len(still_open), dtype=np.bool_)
            for finding in findings:
                refused |= finding.refused
                hopeless |= finding.refused & ~finding.resolvable()
            refused &= still_open
            if refused.any():
                self._judged.append((name, refused, findings))
                self.resolvable |= refused & ~hopeless
                still_open &= ~refused
        self.fits: Bools = still_open

    def counts(self) -> dict[str, int]:
        """How many nodes give each reason."""
        totals: dict[str, int] = {}
        for _, refused, findings in self._judged:
            for finding in findings:
                for text, count in finding.counted(refused):
                    totals[text] = totals.get(text, 0) + count
        return totals

    def examples(self, most: int) -> dict[str, tuple[str, ...]]:
        """Some of the nodes that give each reason: of many only the first are asked."""
        found: dict[str, list[str]] = {}
        for _, refused, findings in self._judged:
            for row in np.flatnonzero(refused)[:_ASKED_FOR_EXAMPLES].tolist():
                for finding in findings:
                    if finding.refused[row] and len(names := found.setdefault(finding.describe(row), [])) < most:
                        names.append(self._cluster.node_name(row))
        return {reason: tuple(names) for reason, names in found.items()}

    def by_node(self) -> dict[str, NodeReasons]:
        """Every refusing node with its reasons."""
        refusals: dict[str, NodeReasons] = {}
        for name, refused, findings in self._judged:
            for row in np.flatnonzero(refused).tolist():
                reasons = tuple(finding.describe(row) for finding in findings if finding.refused[row])
                refusals[self._cluster.node_name(row)] = NodeReasons(name, reasons, bool(self.resolvable[row]))
        return refusals

    @cached_property
    def waits_for(self) -> frozenset[Hashable]:
        """What would have to be freed somewhere for the pod to have another chance."""
        return frozenset(
            finding.waits_for
            for _, refused, findings in self._judged
            for finding in findings
            if finding.waits_for is not None and self._could_change(finding, refused)
        )

    def _could_change(self, finding: Finding, refused: Bools) -> bool:
        rows = finding.refused & refused
        # What does not only come from pods that go may come anywhere; everything else, where it could be freed.
        return bool((rows if finding.comes_by_itself else rows & self.resolvable).any())

    @cached_property
    def message(self) -> str:
        """The reasons counted, as Kubernetes prints them."""
        return counted_message(self.counts(), self.nodes)


def counted_message(counts: Mapping[str, int], nodes: int) -> str:
    """`0/5 nodes are available: 2 Insufficient cpu, 3 …`, sorted as text."""
    if not nodes:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{nodes} nodes are available: {listed}."


def nowhere(cluster: Cluster, why: str) -> str:
    """What a pod is told that fits nowhere whatever its nodes are, for a reason of its own, as Kubernetes prints it."""
    nodes = int(cluster.alive.sum())
    return f"0/{nodes} nodes are available: {why}." if nodes else counted_message({}, nodes)


def freed_by(shape: Shape, keys: Iterable[ClassKey | PoolKey] = ()) -> set[Hashable]:
    """What other pods could be waiting for once a pod of this shape is gone; `keys` are its classes and pools."""
    freed: set[Hashable] = {name for name, amount in shape.requests.items() if amount}
    if shape.aligned:
        freed.add(NUMA)
    if shape.compute is not None:
        freed.add(COMPUTE)
    freed.update(("pods", COMPANY), keys)
    if shape.host_ports:
        freed.add("ports")
    if shape.volume_claims:
        freed.add(VOLUMES)
    return freed
