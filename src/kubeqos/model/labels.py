"""Label selector objects: does `{matchLabels, matchExpressions}` select a set of labels?

Selectors written as strings (`app=web,tier in (a, b)`) have their own parser; controllers, quotas and the scheduler
meet the object form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy every part of the selector. No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        expression_holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def expression_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement. `Gt` and `Lt` (node selectors) compare integers; what is not an integer never matches."""
    operator = expression.get("operator")
    values: Sequence[str] = expression.get("values") or ()
    value = labels.get(expression.get("key", ""))
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and len(values) == 1 and _compare(operator, value, values[0])
    return False


def _compare(operator: str, have: str, bound: str) -> bool:
    try:
        left, right = int(have), int(bound)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
