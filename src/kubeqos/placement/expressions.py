"""What one expression of a selector says about a label's value.

Apart from `selectors`, which work on columns: node agents judge single values, and do without numpy's memory.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeqos.model.objects import LabelExpression


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
