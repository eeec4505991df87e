"""Which quotas count a pod, by which scope, what each is charged and what is left: for the pod's decision record. Pure.

Called by the API server after a pod was stored or refused, and by `kubeqos why --fix`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeqos.model.decisions import QuotaCharge
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import WELL_KNOWN, ClassKey
from kubeqos.rules.quota.charge import Charge
from kubeqos.rules.quota.ledger import OverQuota, decide
from kubeqos.rules.quota.quota import Delta, Quota


def charges(quotas: Iterable[Quota], charge: Charge) -> tuple[QuotaCharge, ...]:
    """For an object that has been charged: every quota that counts it."""
    found = []
    for quota in quotas:
        if quota.matches(charge):
            delta = quota.delta(None, charge)
            found.append(QuotaCharge(quota.name, quota.scope.texts, _charged(delta), _left(quota, delta)))
    return tuple(found)


def verdicts(
    quotas: Iterable[Quota], charge: Charge, container_level: Collection[str] = WELL_KNOWN
) -> tuple[QuotaCharge, ...]:
    """For an object that is asked for: every quota that would count it, and what those that refuse say."""
    found = []
    for quota in quotas:
        if not quota.matches(charge):
            continue
        decision = decide([quota], None, charge, container_level=container_level)
        refuses = "; ".join(one.message for one in decision.reasons) if isinstance(decision, OverQuota) else ""
        delta = quota.delta(None, charge)
        found.append(QuotaCharge(quota.name, quota.scope.texts, _charged(delta), _left(quota, delta), refuses))
    return tuple(found)


def class_name(key: ClassKey) -> str:
    """A class of a quota as messages name it."""
    level, resource, cls = key
    return f"{level}.{resource}/{cls}"


def _charged(delta: Delta) -> dict[str, str]:
    amounts = {name: str(amount) for name, amount in sorted(delta.amounts.items())}
    return amounts | {class_name(key): str(count) for key, count in sorted(delta.classes.items())}


def _left(quota: Quota, delta: Delta) -> dict[str, str]:
    """Of what the object uses; a class without capacity is unlimited and has no number."""
    amounts = {
        name: str(Quantity.from_nanos(quota.hard_nanos[name] - quota.used[name].nanos, quota.hard[name].format))
        for name in sorted(delta.amounts)
    }
    for key in sorted(delta.classes):
        capacity = quota.allowed.get(key)
        if capacity is not None:
            amounts[class_name(key)] = str(capacity - quota.classes_used[key])
    return amounts
