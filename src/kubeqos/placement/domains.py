"""Filters that look across nodes: pod topology spread, and affinity between pods.

A domain is the set of nodes with the same value of a label (hostname, zone, …). Counts come from the groups
of pods with equal labels, so a selector is evaluated once per group.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kubeqos.model.objects import PodAffinityTerm, TopologySpread
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.findings import COMPANY, Finding
from kubeqos.placement.indexes import Bools, Ints, Rows, Small
from kubeqos.placement.rows import EVERY_ROW
from kubeqos.placement.selectors import NamespaceLabels, affinity_predicate, labels_predicate, terms_any
from kubeqos.placement.shape import Shape


def spread_findings(cluster: Cluster, shape: Shape, rows: Rows) -> Iterator[Finding]:
    """Hard spread constraints: one more pod here may not lift the domain more than maxSkew above the emptiest."""
    for constraint in shape.spread:
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue
        domains = cluster.labels.column(constraint.topology_key)
        yield Finding(
            domains[rows] == 0, "node(s) didn't match pod topology spread constraints (missing required label)"
        )
        per_domain, eligible = spread_counts(cluster, shape, constraint)
        if not eligible.any():
            continue
        smallest = int(per_domain[eligible].min())
        if constraint.min_domains is not None and int(eligible.sum()) < constraint.min_domains:
            smallest = 0
        matches_itself = labels_predicate(constraint.label_selector)(shape.labels)
        skew = per_domain[domains[rows]] + int(matches_itself) - smallest
        refused = (domains[rows] != 0) & (skew > constraint.max_skew)
        yield Finding(
            refused, "node(s) didn't match pod topology spread constraints", resolvable=True, waits_for=COMPANY
        )


def spread_counts(cluster: Cluster, shape: Shape, constraint: TopologySpread) -> tuple[Ints, Bools]:
    """Matching pods per domain number, and which domains have an eligible node at all."""
    matches = labels_predicate(constraint.label_selector)
    pods = cluster.groups.counts(
        len(cluster.alive), lambda namespace, labels: namespace == shape.namespace and matches(labels)
    )
    domains = cluster.labels.column(constraint.topology_key)
    nodes = cluster.alive & (domains != 0) & selected_nodes(cluster, shape)
    size = len(cluster.labels.values(constraint.topology_key))
    per_domain = np.bincount(domains[nodes], weights=pods[nodes], minlength=size).astype(np.int64)
    eligible = np.bincount(domains[nodes], minlength=size) > 0
    return per_domain, eligible


def selected_nodes(cluster: Cluster, shape: Shape, rows: Rows = EVERY_ROW) -> Bools:
    """The nodes the pod's own selector and affinity leave, which alone count for spreading."""
    selected = np.ones(len(cluster.alive[rows]), dtype=np.bool_)
    for key, value in shape.node_selector.items():
        selected &= cluster.labels.equal(key, value, rows)
    if shape.required_terms is not None:
        selected &= terms_any(cluster, shape.required_terms, rows)
    return selected


def affinity_findings(cluster: Cluster, shape: Shape, rows: Rows, namespaces: NamespaceLabels) -> Iterator[Finding]:
    """Required affinity and anti-affinity, of this pod and of the pods already there."""
    if shape.affinity:
        yield Finding(
            ~_attracted(cluster, shape, rows, namespaces), "node(s) didn't match pod affinity rules", waits_for=COMPANY
        )
    for term in shape.anti_affinity:
        near = domain_counts(cluster, term, shape.namespace, namespaces)
        domains = cluster.labels.column(term.topology_key)[rows]
        refused = (domains != 0) & (near[domains] > 0)
        yield Finding(refused, "node(s) didn't match pod anti-affinity rules", resolvable=True, waits_for=COMPANY)
    for domains, repelled in repelling_domains(cluster, shape, namespaces):
        refused = (domains[rows] != 0) & repelled[domains[rows]]
        yield Finding(
            refused, "node(s) didn't satisfy existing pods anti-affinity rules", resolvable=True, waits_for=COMPANY
        )


def _attracted(cluster: Cluster, shape: Shape, rows: Rows, namespaces: NamespaceLabels) -> Bools:
    """Rows where every required affinity term has company; the first pod of a self-matching set may start one."""
    matched = np.ones(len(cluster.alive[rows]), dtype=np.bool_)
    alone = True
    for term in shape.affinity:
        near = domain_counts(cluster, term, shape.namespace, namespaces)
        domains = cluster.labels.column(term.topology_key)[rows]
        matched &= (domains != 0) & (near[domains] > 0)
        alone = alone and not near.any()
    if alone and all(
        affinity_predicate(term, shape.namespace, namespaces)(shape.namespace, shape.labels) for term in shape.affinity
    ):
        labelled = np.ones(len(matched), dtype=np.bool_)
        for term in shape.affinity:
            labelled &= cluster.labels.column(term.topology_key)[rows] != 0
        return labelled
    return matched


def domain_counts(cluster: Cluster, term: PodAffinityTerm, own_namespace: str, namespaces: NamespaceLabels) -> Ints:
    """Pods that a term speaks of, per domain number; number 0 (no such label) counts nothing."""
    pods = cluster.groups.counts(len(cluster.alive), affinity_predicate(term, own_namespace, namespaces))
    domains = cluster.labels.column(term.topology_key)
    size = len(cluster.labels.values(term.topology_key))
    counts = np.bincount(domains, weights=pods, minlength=size).astype(np.int64)
    counts[0] = 0
    return counts


def repelling_domains(cluster: Cluster, shape: Shape, namespaces: NamespaceLabels) -> Iterator[tuple[Small, Bools]]:
    """For every running kind of pod that repels this one: the domains by row, and which of them are closed."""
    for other, counts in cluster.groups.repelling.items():
        for term in other.anti_affinity:
            if not affinity_predicate(term, other.namespace, namespaces)(shape.namespace, shape.labels):
                continue
            domains = cluster.labels.column(term.topology_key)
            closed = np.zeros(len(cluster.labels.values(term.topology_key)), dtype=np.bool_)
            closed[domains[list(counts)]] = True
            closed[0] = False
            yield domains, closed


def is_repelled(cluster: Cluster, shape: Shape, namespaces: NamespaceLabels) -> bool:
    """Whether any running pod's anti-affinity speaks of this one."""
    return any(True for _ in repelling_domains(cluster, shape, namespaces))
