"""What one expression of a selector says about a label's value, and what a pod's selectors say about one node.

Apart from `selectors`, which work on columns: node agents and controllers judge single nodes, and do without numpy's
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kubeqos.model.objects import LabelExpression, NodeSelectorTerm, PodSpec


def value_predicate(expression: LabelExpression) -> Callable[[str | None], bool]:
    """What an expression says about a label's value; None stands for "no such label"."""
    values = frozenset(expression.values)
    match expression.operator:
        case "In":
            return lambda value: value is not None and value in values
        case "NotIn":
            return lambda value: value is None or value not in values
        case "Exists":
            return lambda value: value is not None
        case "DoesNotExist":
            return lambda value: value is None
        case "Gt" | "Lt" if len(expression.values) == 1:
            return _comparison(expression.operator, expression.values[0])
        case _:
            return lambda value: False


def _comparison(operator: str, bound: str) -> Callable[[str | None], bool]:
    limit = _integer(bound)

    def accepts(value: str | None) -> bool:
        number = None if value is None else _integer(value)
        if limit is None or number is None:
            return False
        return number > limit if operator == "Gt" else number < limit

    return accepts


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def selects(spec: PodSpec, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a pod's node selector and required node affinity allow this node."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return matches_any(affinity.required.node_selector_terms, node, labels)


def matches_any(terms: Iterable[NodeSelectorTerm], node: str, labels: Mapping[str, str]) -> bool:
    """Whether one of a node selector's terms allows this node."""
    return any(_matches(term, node, labels) for term in terms)


def _matches(term: NodeSelectorTerm, node: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(value_predicate(one)(labels.get(one.key)) for one in term.match_expressions) and all(
        value_predicate(one)(node if one.key == "metadata.name" else None) for one in term.match_fields
    )
