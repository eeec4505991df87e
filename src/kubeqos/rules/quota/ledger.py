"""The quota ledger: one decision per write, exact in any order, nothing to retry.

`decide` compares a write with every quota of its namespace and returns either what each quota is to be charged, or
every reason against it; it changes nothing. The owner of the ledger (the API server's single writer, `kubeqos check`)
then applies the deltas in the transaction that stores the object. So a refused or failed create charges nothing, two
writes never race for the same remainder, and there is no conflict to retry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import WELL_KNOWN, ClassKey
from kubeqos.rules.quota.charge import Charge, charge_pod
from kubeqos.rules.quota.quota import Delta, Quota

Deltas = Mapping[str, Delta]
"""What a write changes, by the name of the quota."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one quota refuses, in Kubernetes' words and as numbers (requested, used, limited by name)."""

    quota: str
    message: str
    numbers: Mapping[str, tuple[Quantity, Quantity, Quantity]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WithinQuota:
    """Every matching quota agrees; these are the charges."""

    deltas: Deltas


@dataclass(frozen=True, slots=True)
class OverQuota:
    """At least one quota refuses. Kubernetes reports one reason, the first; all of them are here."""

    reasons: tuple[Reason, ...]

    @property
    def message(self) -> str:
        return self.reasons[0].message


@dataclass(frozen=True, slots=True)
class Drift:
    """Usage that an audit found different from the sum over the live objects. It should never exist."""

    quota: str
    resource: str
    recorded: Quantity
    actual: Quantity


def decide(
    quotas: Iterable[Quota],
    before: Charge | None,
    after: Charge | None,
    *,
    enforce: bool = True,
    container_level: Collection[str] = WELL_KNOWN,
) -> WithinQuota | OverQuota:
    """May an object go from `before` to `after` (None: it does not exist)?

    Without `enforce` the answer is always yes: deletions, status reports and metadata are followed, never refused.
    `container_level` names the QoS-class resources that the cluster's nodes offer to containers.
    """
    deltas: dict[str, Delta] = {}
    incomplete: list[Reason] = []
    exceeded: list[Reason] = []
    for quota in quotas:
        # Scopes may match on one side only: what leaves a scope gives back there all that it used.
        old = before if before is not None and quota.matches(before) else None
        new = after if after is not None and quota.matches(after) else None
        if old is None and new is None:
            continue
        if enforce and new is not None and quota.required:
            incomplete += _must_specify(quota, new)
        delta = quota.delta(old, new)
        if delta:
            deltas[quota.name] = delta
            if enforce:
                exceeded += _exceeded(quota, delta)
        if enforce and quota.governs:
            _judge_classes(quota, quota.asked_change(old, new, container_level), incomplete, exceeded)
    if incomplete or exceeded:
        return OverQuota((*incomplete, *exceeded))
    return WithinQuota(deltas)


def _must_specify(quota: Quota, charge: Charge) -> list[Reason]:
    missing = charge.unspecified
    wanted = [name for name in quota.required if name in missing] if missing else []
    if not wanted:
        return []
    said = "; ".join(f"{name} for: {','.join(missing[name])}" for name in wanted)
    return [Reason(quota.name, f"failed quota: {quota.name}: must specify {said}")]


def _exceeded(quota: Quota, delta: Delta) -> list[Reason]:
    """Only growth is judged: whoever shrinks may do so even where a quota was lowered below its usage."""
    hard, used = quota.hard_nanos, quota.used
    over = [
        name
        for name, amount in delta.amounts.items()
        if amount.nanos > 0 and used[name].nanos + amount.nanos > hard[name]
    ]
    if not over:
        return []
    numbers = {name: (delta.amounts[name], used[name].quantity(), quota.hard[name]) for name in sorted(over)}
    return [Reason(quota.name, f"exceeded quota: {quota.name}, {_compared(numbers)}", numbers)]


def _compared(numbers: Mapping[str, tuple[Quantity, Quantity, Quantity]]) -> str:
    requested, used, limited = (
        ",".join(f"{name}={amounts[side]}" for name, amounts in numbers.items()) for side in range(3)
    )
    return f"requested: {requested}, used: {used}, limited: {limited}"


def _judge_classes(
    quota: Quota, change: Mapping[ClassKey, int], incomplete: list[Reason], exceeded: list[Reason]
) -> None:
    """Class quota is an allow-list (DESIGN ruling 4)."""
    numbers = {}
    for key in sorted(change):
        count = change[key]
        if count <= 0:
            continue
        level, resource, cls = key
        if key not in quota.allowed:
            allowed = [name for (at, of, name) in quota.allowed if (at, of) == (level, resource)]
            said = f"allowed: {', '.join(allowed)}" if allowed else f"no class of {resource} is"
            what = f'class "{cls}" of {level}-level resource {resource} is not allowed ({said})'
            incomplete.append(Reason(quota.name, f"failed quota: {quota.name}: {what}"))
            continue
        capacity = quota.allowed[key]
        used = quota.classes_used[key]
        if capacity is not None and used + count > capacity:
            name = f"{level}.{resource}/{cls}"
            numbers[name] = (Quantity.from_int(count), Quantity.from_int(used), Quantity.from_int(capacity))
    if numbers:
        exceeded.append(Reason(quota.name, f"exceeded quota: {quota.name}, {_compared(numbers)}", numbers))


class QuotaLedger:
    """Every quota of every namespace with its usage."""

    __slots__ = ("_namespaces", "expired")

    def __init__(self, expired: set[str] | None = None) -> None:
        """`expired`: uids of pods that outlived their grace period; the owner drops a uid when the pod is gone."""
        self._namespaces: dict[str, dict[str, Quota]] = {}
        self.expired = set() if expired is None else expired

    def quotas(self, namespace: str) -> Sequence[Quota]:
        """The quotas of a namespace, by name."""
        return tuple(self._namespaces.get(namespace, {}).values())

    def all(self) -> Iterator[tuple[str, Quota]]:
        """Every quota with its namespace."""
        for namespace, quotas in self._namespaces.items():
            for quota in quotas.values():
                yield namespace, quota

    def quota(self, namespace: str, name: str) -> Quota | None:
        return self._namespaces.get(namespace, {}).get(name)

    def put(self, namespace: str, quota: Quota, charges: Iterable[Charge]) -> None:
        """Install a new quota or a new revision of one; `charges` are the live objects of the namespace."""
        for charge in charges:
            _add(quota, charge)
        quotas = {**self._namespaces.get(namespace, {}), quota.name: quota}
        self._namespaces[namespace] = dict(sorted(quotas.items()))

    def drop(self, namespace: str, name: str) -> None:
        quotas = self._namespaces.get(namespace, {})
        quotas.pop(name, None)
        if not quotas:
            self._namespaces.pop(namespace, None)

    def decide(
        self,
        namespace: str,
        before: Charge | None,
        after: Charge | None,
        *,
        enforce: bool = True,
        container_level: Collection[str] = WELL_KNOWN,
    ) -> WithinQuota | OverQuota:
        quotas = self._namespaces.get(namespace, {}).values()
        return decide(quotas, before, after, enforce=enforce, container_level=container_level)

    def apply(self, namespace: str, deltas: Deltas) -> None:
        """Charge what `decide` said, in the transaction that stores the object."""
        quotas = self._namespaces.get(namespace, {})
        for name, delta in deltas.items():
            if name in quotas:  # a quota deleted meanwhile has nothing to charge
                quotas[name].apply(delta)

    def expire(self, namespace: str, pod: PodView) -> Deltas:
        """A pod that was to be deleted has outlived its grace period: from now on only its record counts."""
        before = charge_pod(pod, expired=pod.metadata.uid in self.expired)
        self.expired.add(pod.metadata.uid)
        decision = self.decide(namespace, before, charge_pod(pod, expired=True), enforce=False)
        assert isinstance(decision, WithinQuota)
        self.apply(namespace, decision.deltas)
        return decision.deltas

    def validate(self) -> None:
        """The invariants that hold whatever happened; tests call it after every step."""
        for namespace, quotas in self._namespaces.items():
            for quota in quotas.values():
                where = f"{namespace}/{quota.name}"
                for name, tally in quota.used.items():
                    assert tally.nanos >= 0, f"{where}: less than nothing of {name} is used"
                    assert tally.nanos == sum(tally.parts.values()), f"{where}: the parts of {name} are not its sum"
                for key, count in quota.classes_used.items():
                    assert count >= 0, f"{where}: class {key} is used {count} times"


def _add(quota: Quota, charge: Charge) -> None:
    if quota.matches(charge):
        quota.apply(quota.delta(None, charge))
