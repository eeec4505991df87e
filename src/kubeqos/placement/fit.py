"""Fit: which nodes can take a pod, and for the others every reason why not.

Filters stand in Kubernetes' order; a node is explained by the first filter that refuses it. Each filter
yields findings: a mask of refused rows, a text per row, and whether evicting other pods could help. The fast
path only combines the masks, so that an explanation can never differ from the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kubeqos.model.objects import Taint, Toleration
from kubeqos.placement.cluster import LEVELS, Cluster
from kubeqos.placement.domains import affinity_findings, spread_findings
from kubeqos.placement.findings import COMPANY, NUMA, Finding
from kubeqos.placement.indexes import Bools, Rows
from kubeqos.placement.pools import WHOLE, Need, PoolKey, amount_of, pool_need
from kubeqos.placement.selectors import NamespaceLabels, terms_any
from kubeqos.placement.shape import ClassNeed, Shape
from kubeqos.rules.classes import ClassKey, Level

EVERY_ROW = slice(None)
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_NATIVE_ORDER = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What fit needs beside the nodes: the labels of namespaces, for affinity terms that select by them."""

    namespaces: NamespaceLabels = field(default_factory=dict)


NOTHING_AROUND = Surroundings()

Filter = Callable[[Cluster, Shape, Rows, Surroundings], Iterator[Finding]]


def unschedulable(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    if not any(tolerates(one, _UNSCHEDULABLE) for one in shape.tolerations):
        yield Finding(cluster.unschedulable[rows], "node(s) were unschedulable")


def node_name(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    if shape.node_name:
        wanted = cluster.row_of.get(shape.node_name, -1)
        yield Finding(np.arange(len(cluster.alive))[rows] != wanted, "node(s) didn't match the requested node name")


def taints(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
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


def node_affinity(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    if not shape.node_selector and shape.required_terms is None:
        return
    matched = np.ones(len(cluster.alive[rows]), dtype=np.bool_)
    for key, value in shape.node_selector.items():
        matched &= cluster.labels.equal(key, value, rows)
    if shape.required_terms is not None:
        matched &= terms_any(cluster, shape.required_terms, rows)
    yield Finding(~matched, "node(s) didn't match Pod's node affinity/selector")


def host_ports(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    if not shape.host_ports:
        return
    numbers = np.arange(len(cluster.alive))[rows]
    taken = np.zeros(len(numbers), dtype=np.bool_)
    for index, row in enumerate(numbers.tolist()):
        held = cluster.rows.get(row)
        if held is not None and held.ports:
            taken[index] = any(mine.clashes(theirs) for mine in shape.host_ports for theirs in held.ports)
    yield Finding(
        taken, "node(s) didn't have free ports for the requested pod ports", resolvable=True, waits_for="ports"
    )


def resources(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """Everything that is counted: the number of pods, then every request that is not zero."""
    pods = cluster.column("pods")
    yield Finding(pods.used[rows] + 1 > pods.capacity[rows], "Too many pods", resolvable=True, waits_for="pods")
    for name in sorted(shape.requests, key=lambda each: (_NATIVE_ORDER.get(each, 3), each)):
        amount = shape.requests[name]
        if amount == 0 or name in shape.ignored:
            continue
        column = cluster.column(name)
        capacity = column.capacity[rows]
        # What does not fit into the empty node is not helped by evicting others.
        yield Finding(
            amount > capacity - column.used[rows], f"Insufficient {name}", resolvable=amount <= capacity, waits_for=name
        )


def classes(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """QoS classes (KEP-3008): the resource at the right level, the class, and room in it."""
    for need in shape.class_needs:
        level = cluster.level_column(need.resource)[rows]
        yield Finding(level == 0, f"QoS resource {need.resource} not available")
        if need.asked_by_containers:
            text = f"QoS resource {need.resource} is pod-level, requested at container level"
            yield Finding(level == LEVELS[Level.POD], text)
        for key, count in class_counts(need):
            yield from _class_findings(cluster, key, count, level == LEVELS[key[0]], rows)


def class_counts(need: ClassNeed) -> Iterator[tuple[ClassKey, int]]:
    """The classes a pod takes where its need is met at their level, and how often."""
    if need.pod_class is not None and not need.asked_by_containers:
        yield (Level.POD, need.resource, need.pod_class), 1
    for cls, count in need.container_classes.items():
        yield (Level.CONTAINER, need.resource, cls), count


def _class_findings(cluster: Cluster, key: ClassKey, count: int, concerned: Bools, rows: Rows) -> Iterator[Finding]:
    _, resource, cls = key
    column = cluster.class_column(key)
    capacity, used = column.capacity[rows], column.used[rows]
    yield Finding(concerned & (capacity < 0), f"QoS class {resource}={cls} not available")
    yield Finding(
        concerned & (capacity > 0) & (count > capacity),
        lambda size: f"QoS class {resource}={cls} too small (capacity {size}, needs {count})",
        capacity,
    )
    yield Finding(
        concerned & (capacity >= count) & (capacity > 0) & (used + count > capacity),
        lambda taken, size: f"QoS class {resource}={cls} exhausted ({taken}/{size} used)",
        used,
        capacity,
        resolvable=True,
        waits_for=key,
    )


def claims(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """Claims (KEP-3675) need a node that runs the driver of the claim's class."""
    for driver in shape.claim_drivers:
        yield Finding(~cluster.driver_column(driver)[rows], f"node(s) don't run compute driver {driver}")


def refusals(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """Nodes that refused a pod that asks for the same, a short while ago."""
    refusing = cluster.kept_off.get(shape.asks)
    if not refusing:
        return
    numbers = np.arange(len(cluster.alive))[rows]
    for reason in sorted(set(refusing.values())):
        refused = np.isin(numbers, [row for row, why in refusing.items() if why == reason])
        text = f"node(s) refused equal pods lately ({reason})"
        yield Finding(refused, text, waits_for=("refused", shape.asks), comes_by_itself=True)


def pools(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """Pools into which plugins divide a node (KEP-3461): room in the one that the pod's role draws on."""
    if not cluster.divided or shape.left_alone:
        return
    for resource, numbers in cluster.rule_set.items():
        here = numbers[rows]
        for number, rules in enumerate(cluster.rule_sets.values):
            need = pool_need(shape, resource, rules) if number else None
            if need is not None:
                yield from _pool_findings(cluster, resource, need, here == number, rows)
                if need.units:
                    yield from _whole_findings(cluster, shape, resource, need, here == number, rows)


def _pool_findings(cluster: Cluster, resource: str, need: Need, concerned: Bools, rows: Rows) -> Iterator[Finding]:
    for pool, amount in need.wanted:
        column = cluster.pool_column((resource, pool))
        capacity = column.capacity[rows]
        if pool != WHOLE:
            yield Finding(concerned & (capacity < 0), f'no pool "{pool}" for {resource}')
        short = concerned & (capacity >= 0) & (amount > capacity - column.used[rows])
        text = f'Insufficient {resource} in pool "{pool}"' if pool else f"Insufficient exclusive {resource}"
        yield Finding(short, text, resolvable=amount <= capacity, waits_for=(resource, pool), comes_by_itself=True)
    if is_odd(resource, need):
        yield Finding(concerned, f"exclusive {resource} not a multiple of {need.rule.multiple}")


def _whole_findings(
    cluster: Cluster, shape: Shape, resource: str, need: Need, concerned: Bools, rows: Rows
) -> Iterator[Finding]:
    """Units of its own: never the last of a pool that others run in; on NUMA nodes that the role may be bound to.

    One bound pod at a time: where it went, the node has to say.
    """
    column = cluster.pool_column((resource, WHOLE))
    last = concerned & (need.units == column.capacity[rows] - column.used[rows])
    numbers = np.arange(len(cluster.alive))[rows]
    for index in np.flatnonzero(last).tolist():
        last[index] = cluster.rows[int(numbers[index])].would_starve(shape, resource)
    text = f"the last exclusive {resource} has to be shared"
    yield Finding(last, text, resolvable=True, waits_for=(resource, WHOLE), comes_by_itself=True)
    if need.is_bound:
        yield from _bound_findings(cluster, shape, resource, need, concerned, rows)


def _bound_findings(
    cluster: Cluster, shape: Shape, resource: str, need: Need, concerned: Bools, rows: Rows
) -> Iterator[Finding]:
    numbers = np.arange(len(cluster.alive))[rows]
    waits, short = np.zeros(len(numbers), dtype=np.bool_), np.zeros(len(numbers), dtype=np.bool_)
    column = cluster.pool_column((resource, WHOLE))
    left = column.capacity[rows] - column.used[rows]
    for index in np.flatnonzero(concerned).tolist():
        held = cluster.rows[int(numbers[index])]
        waits[index] = held.waits_to_hear(resource)
        short[index] = held.is_short_of_open(shape, resource, need, int(left[index]))
    key = (resource, WHOLE)
    yield Finding(waits, "node(s) have yet to tell where bound pods went", waits_for=key, comes_by_itself=True)
    text = f"Insufficient exclusive {resource} on NUMA nodes open to the pod's role"
    yield Finding(short & ~waits, text, resolvable=True, waits_for=key, comes_by_itself=True)


def is_odd(resource: str, need: Need) -> bool:
    """Whether whole units do not come in the multiples that the role needs."""
    return need.rule.multiple > 1 and need.units % amount_of(resource, need.rule.multiple) != 0


def numa(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    """Pods that the node's topology manager would refuse, by what the node publishes of its NUMA nodes."""
    if not shape.aligned or not cluster.aligning:
        return
    numbers = np.arange(len(cluster.alive))[rows]
    refused = np.isin(numbers, list(cluster.aligning))
    for index in np.flatnonzero(refused).tolist():
        refused[index] = not cluster.rows[int(numbers[index])].can_align(shape)
    text = "node(s) cannot align the pod's resources on one NUMA node"
    yield Finding(refused, text, resolvable=True, waits_for=NUMA, comes_by_itself=True)


def spread(cluster: Cluster, shape: Shape, rows: Rows, _: Surroundings) -> Iterator[Finding]:
    if shape.spread:
        yield from spread_findings(cluster, shape, rows)


def pod_affinity(cluster: Cluster, shape: Shape, rows: Rows, around: Surroundings) -> Iterator[Finding]:
    yield from affinity_findings(cluster, shape, rows, around.namespaces)


FILTERS: Mapping[str, Filter] = {
    "NodeUnschedulable": unschedulable,
    "NodeName": node_name,
    "TaintToleration": taints,
    "NodeAffinity": node_affinity,
    "NodePorts": host_ports,
    "NodeResourcesFit": resources,
    "QOSResources": classes,
    "ComputeClaims": claims,
    "ResourcePools": pools,
    "NUMATopology": numa,
    "NodeRefusals": refusals,
    "PodTopologySpread": spread,
    "InterPodAffinity": pod_affinity,
}


_BY_PODS = (
    *("NodePorts", "NodeResourcesFit", "QOSResources", "ResourcePools", "NUMATopology"),
    *("PodTopologySpread", "InterPodAffinity"),
)
STANDING: Mapping[str, Filter] = {name: check for name, check in FILTERS.items() if name not in _BY_PODS}
"""The filters that look at the node alone: pods come and go without changing what these say."""


def feasible(
    cluster: Cluster,
    shape: Shape,
    rows: Rows = EVERY_ROW,
    around: Surroundings = NOTHING_AROUND,
    filters: Mapping[str, Filter] = FILTERS,
) -> Bools:
    """The rows that can take the pod."""
    refused = ~cluster.alive[rows]
    for check in filters.values():
        for finding in check(cluster, shape, rows, around):
            refused |= finding.refused
    return ~refused


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one node refused the pod, by the first filter that did."""

    filter: str
    reasons: tuple[str, ...]
    resolvable: bool


class Explanation:
    """Why no node takes a pod: the findings of every filter, read by node or counted over all."""

    def __init__(self, cluster: Cluster, shape: Shape, around: Surroundings = NOTHING_AROUND) -> None:
        self._cluster = cluster
        self._judged: list[tuple[str, Bools, list[Finding]]] = []
        still_open = cluster.alive.copy()
        self.nodes = int(still_open.sum())
        self.resolvable: Bools = np.zeros(len(still_open), dtype=np.bool_)
        """The rows where evicting pods could help."""
        for name, check in FILTERS.items():
            findings = list(check(cluster, shape, EVERY_ROW, around))
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

    def by_node(self) -> dict[str, Refusal]:
        """Every refusing node with its reasons."""
        refusals: dict[str, Refusal] = {}
        for name, refused, findings in self._judged:
            for row in np.flatnonzero(refused).tolist():
                reasons = tuple(finding.describe(row) for finding in findings if finding.refused[row])
                refusals[self._cluster.node_name(row)] = Refusal(name, reasons, bool(self.resolvable[row]))
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


def freed_by(shape: Shape, keys: Iterable[ClassKey | PoolKey] = ()) -> set[Hashable]:
    """What other pods could be waiting for once a pod of this shape is gone; `keys` are its classes and pools."""
    freed: set[Hashable] = {name for name, amount in shape.requests.items() if amount}
    if shape.aligned:
        freed.add(NUMA)
    freed.update(("pods", COMPANY), keys)
    if shape.host_ports:
        freed.add("ports")
    return freed


# -- taints --------------------------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; no key with Exists covers all, no effect covers all effects."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(taint_set: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first taint that keeps a pod with these tolerations off, if any."""
    for taint in taint_set:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
