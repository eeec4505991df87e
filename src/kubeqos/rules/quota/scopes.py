"""Quota scopes: which objects a quota measures.

An object's standing towards every scope is one bit mask, made once per object; a quota's scopes are a mask too, so that
most quotas match with one `&`. Only selectors that name classes (`PriorityClass In (…)`) look further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubeqos.model.objects import Affinity, PodView, ResourceQuotaSpec, ScopeExpression
from kubeqos.rules.qos.podqos import QosClass, effective_class

TERMINATING = 1
NOT_TERMINATING = 2
BEST_EFFORT = 4
NOT_BEST_EFFORT = 8
PRIORITY_CLASS = 16
CROSS_NAMESPACE = 32
VOLUME_ATTRIBUTES_CLASS = 64

_BITS = {
    "Terminating": TERMINATING,
    "NotTerminating": NOT_TERMINATING,
    "BestEffort": BEST_EFFORT,
    "NotBestEffort": NOT_BEST_EFFORT,
    "PriorityClass": PRIORITY_CLASS,
    "CrossNamespacePodAffinity": CROSS_NAMESPACE,
    "VolumeAttributesClass": VOLUME_ATTRIBUTES_CLASS,
}

ClassTest = Callable[[Sequence[str]], bool]
"""Judges the names of the priority class (none or one) or of the volume attributes classes of an object."""


@dataclass(frozen=True, slots=True)
class Scope:
    """All scopes of one quota. `kind` is the only resource that can match, "" when every resource can."""

    mask: int = 0
    tests: tuple[ClassTest, ...] = ()
    kind: str | None = ""
    texts: tuple[str, ...] = ()
    """The scopes as people write them."""

    @staticmethod
    def of(spec: ResourceQuotaSpec) -> Scope:
        """Compile `scopes` (each meaning Exists) and `scopeSelector`; an object must match all of them."""
        mask = 0
        tests: list[ClassTest] = []
        kinds = set()
        expressions = list(spec.scope_selector.match_expressions) if spec.scope_selector else []
        expressions += [ScopeExpression(scope_name=name, operator="Exists") for name in spec.scopes]
        for expression in expressions:
            name = expression.scope_name
            kinds.add("persistentvolumeclaims" if name == "VolumeAttributesClass" else "pods")
            if expression.operator == "Exists":
                mask |= _BITS[name]
            else:
                tests.append(_class_test(expression))
        kind = "" if not kinds else kinds.pop() if len(kinds) == 1 else None
        return Scope(mask, tuple(tests), kind, tuple(map(_text, expressions)))

    def matches(self, resource: str, standing: int, class_names: Sequence[str]) -> bool:
        if self.kind == "":
            return True
        if self.kind != resource or standing & self.mask != self.mask:
            return False
        return all(test(class_names) for test in self.tests)


def _text(expression: ScopeExpression) -> str:
    if expression.operator == "Exists":
        return expression.scope_name
    values = f" ({', '.join(expression.values)})" if expression.values else ""
    return f"{expression.scope_name} {expression.operator}{values}"


def _class_test(expression: ScopeExpression) -> ClassTest:
    """Kubernetes matches each name as a one-label set; an object without a name as the empty set."""
    values = frozenset(expression.values)
    if expression.operator == "In":
        return lambda names: any(name in values for name in names)
    if expression.operator == "NotIn":
        return lambda names: not names or any(name not in values for name in names)
    return lambda names: not names


def pod_standing(pod: PodView) -> int:
    """How a pod stands towards every scope."""
    spec = pod.spec
    standing = TERMINATING if is_terminating(spec.active_deadline_seconds) else NOT_TERMINATING
    standing |= BEST_EFFORT if effective_class(pod) is QosClass.BEST_EFFORT else NOT_BEST_EFFORT
    if spec.priority_class_name:
        standing |= PRIORITY_CLASS
    if spec.affinity is not None and crosses_namespaces(spec.affinity):
        standing |= CROSS_NAMESPACE
    return standing


def is_terminating(active_deadline_seconds: int | None) -> bool:
    return active_deadline_seconds is not None and active_deadline_seconds >= 0


def crosses_namespaces(affinity: Affinity) -> bool:
    """Whether any pod (anti-)affinity term, required or preferred, looks into other namespaces."""
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if rules is not None:
            terms = [*rules.required, *(weighted.pod_affinity_term for weighted in rules.preferred)]
            if any(term.namespaces or term.namespace_selector is not None for term in terms):
                return True
    return False
