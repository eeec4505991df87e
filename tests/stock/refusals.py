"""Objects of our kinds that make no sense, and the words with which API servers refuse them: a real one, and ours."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
GOLD = {"resource": "rdt", "class": "gold", "level": "container"}
TURBO = {"resource": "turbo", "level": "container"}
NEGATIVE = {"name": "a", "classes": [{"name": "b", "capacity": -1}]}


def own(kind: str, spec: Raw) -> Raw:
    """An object of a kind of ours."""
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


REFUSALS: list[tuple[Raw, str]] = [
    (own("QOSClass", {**GOLD, "level": "node"}), "Unsupported value"),
    (own("QOSClass", {"resource": "rdt", "class": "gold"}), "level"),
    (own("QOSClass", {**GOLD, "class": "go ld"}), "should match"),
    (own("QOSClassQuota", {}), "qosResources"),
    (own("QOSClassQuota", {"qosResources": {"pod": [NEGATIVE]}}), "should be greater"),
    (own("QOSClassQuota", {"qosResources": {}, "scopes": ["Sometimes"]}), "Unsupported value"),
    (own("QOSClassLimits", {"limits": [{"type": "Node", "qosResources": []}]}), "Unsupported value"),
    (own("QOSClassLimits", {"limits": [{"type": "Pod", "qosResources": []}] * 2}), "Duplicate value"),
]
BY_RULE: list[tuple[Raw, Raw, str]] = [
    (own("QOSClass", GOLD), own("QOSClass", {**GOLD, "class": "silver"}), "make another object for another class"),
    (own("QOSResource", TURBO), own("QOSResource", {**TURBO, "resource": "rdt"}), "make another object for another"),
]
"""Changes that only a rule in CEL (`x-kubernetes-validations`) refuses, which our API server does not read: it warns of
that when the definition comes, and takes them."""
