"""`matchLabelKeys` and `mismatchLabelKeys`: selectors that take a value from the pod's own labels.

A pod that says "spread me among the pods of my own revision" names the label, not its value. When the pod is created
the value is written into the selector, so that the scheduler and everybody who reads the pod need not know these keys.
Called by admission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Raw = dict[str, Any]


def merge_label_keys(spec: Raw, labels: Raw) -> None:
    """Write the pod's own values into its selectors, in place."""
    for term in _terms(spec):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in term.get(field) or ()
            if key in labels
        ]
        if added:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def _terms(spec: Raw) -> Iterator[Raw]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind) or {}
        yield from found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in found.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}
    yield from spec.get("topologySpreadConstraints") or ()


def named_otherwise(keys: Sequence[str], selector: Mapping[str, Any]) -> set[str]:
    """Which of the keys a selector names itself, beside the one value per key that was written into it."""
    named, written = set(selector.get("matchLabels") or ()), set[str]()
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), expression.get("values") or ()
        if expression.get("operator") == "In" and len(values) == 1 and key not in written:
            written.add(key)
        else:
            named.add(key)
    return named & set(keys)
