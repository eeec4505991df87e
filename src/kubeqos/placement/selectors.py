"""Selectors over node labels (by column) and over pod labels (by value)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kubeqos.model.objects import LabelSelectorView, NodeSelectorTerm, PodAffinityTerm
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.expressions import value_predicate
from kubeqos.placement.indexes import Bools, Rows


def term_matches(cluster: Cluster, term: NodeSelectorTerm, rows: Rows) -> Bools:
    """The rows a node selector term accepts; an empty term accepts none."""
    matched = np.ones(len(cluster.alive[rows]), dtype=np.bool_)
    if not term.match_expressions and not term.match_fields:
        return ~matched
    for expression in term.match_expressions:
        matched &= cluster.labels.matching(expression.key, value_predicate(expression), rows)
    for expression in term.match_fields:
        # The only field is metadata.name, which the hostname column cannot stand in for when a label overrides it.
        accepts = value_predicate(expression)
        numbers = np.arange(len(cluster.alive))[rows]
        named = (accepts(cluster.node_name(row)) if row in cluster.rows else False for row in numbers.tolist())
        matched &= np.fromiter(named, dtype=np.bool_, count=len(numbers))
    return matched


def labels_predicate(selector: LabelSelectorView | None) -> Callable[[Mapping[str, str]], bool]:
    """What a label selector says about a pod's labels; no selector matches nothing, an empty one everything."""
    if selector is None:
        return lambda labels: False
    wanted = selector.match_labels.items()
    expressions = [(one.key, value_predicate(one)) for one in selector.match_expressions]

    def accepts(labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in wanted) and all(
            says(labels.get(key)) for key, says in expressions
        )

    return accepts


NamespaceLabels = Mapping[str, Mapping[str, str]]


def affinity_predicate(
    term: PodAffinityTerm, own_namespace: str, namespaces: NamespaceLabels
) -> Callable[[str, Mapping[str, str]], bool]:
    """Which pods (namespace, labels) an affinity term of a pod in `own_namespace` speaks of."""
    matches = labels_predicate(term.label_selector)
    listed = frozenset(term.namespaces)
    if term.namespace_selector is None:
        spoken_of = listed or frozenset([own_namespace])
        return lambda namespace, labels: namespace in spoken_of and matches(labels)
    selects = labels_predicate(term.namespace_selector)
    everywhere = not term.namespace_selector.match_labels and not term.namespace_selector.match_expressions
    return lambda namespace, labels: (
        (namespace in listed or everywhere or selects(namespaces.get(namespace, {}))) and matches(labels)
    )


def terms_any(cluster: Cluster, terms: Sequence[NodeSelectorTerm], rows: Rows) -> Bools:
    """The rows that at least one term accepts."""
    matched = np.zeros(len(cluster.alive[rows]), dtype=np.bool_)
    for term in terms:
        matched |= term_matches(cluster, term, rows)
    return matched
