"""How a deployment gets from one template to the next: numbers of replicas for its ReplicaSets. Pure.

The arithmetic is Kubernetes': surge rounds up, unavailability down; old replicas that are not available go first; a
deployment that is scaled in the middle of a rollout shares the difference in proportion. `deployments` makes actions
and a status of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubeqos.codec import JsonObject
from kubeqos.controllers.workloads.replicas import wanted

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
Scales = Mapping[str, int]
"""Replicas to set, by the name of the ReplicaSet."""


def name_of(obj: JsonObject) -> str:
    return str(obj["metadata"]["name"])


def available(replica_set: JsonObject) -> int:
    """Replicas that serve; those that are already told to go, as a status behind its spec may count, do not."""
    return min(wanted(replica_set), int((replica_set.get("status") or {}).get("availableReplicas") or 0))


def age(replica_set: JsonObject) -> tuple[str, str]:
    """Orders ReplicaSets, the oldest first."""
    return str(replica_set["metadata"].get("creationTimestamp") or ""), name_of(replica_set)


def annotation(obj: JsonObject, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of the total, rounded as told."""
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return -(-share // 100) if up else share // 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a deployment allows while it rolls."""

    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def of(cls, deployment: JsonObject) -> Bounds:
        replicas = wanted(deployment)
        strategy = deployment["spec"].get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return cls(replicas, 0, 0)
        rolling = strategy.get("rollingUpdate") or {}
        surge = scaled(rolling.get("maxSurge", "25%"), replicas, up=True)
        unavailable = scaled(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        if not surge and not unavailable:
            unavailable = 1  # rounding must not make a rollout impossible
        return cls(replicas, surge, min(unavailable, replicas))

    @property
    def maximum(self) -> int:
        """The most pods there may be; nothing surges where nothing is wanted."""
        return self.replicas + self.surge if self.replicas else 0

    @property
    def minimum_available(self) -> int:
        return self.replicas - self.unavailable


def present(replica_set: JsonObject) -> int:
    """Pods that a ReplicaSet wants, or still has while it is being scaled down.

    Kubernetes counts only what is wanted, and so has more pods than the surge allows for a moment.
    """
    return max(wanted(replica_set), int((replica_set.get("status") or {}).get("replicas") or 0))


def grown(deployment: JsonObject, new: JsonObject | None, olds: Iterable[JsonObject]) -> int:
    """How many replicas the new ReplicaSet may have now."""
    bounds, current = Bounds.of(deployment), wanted(new) if new else 0
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return bounds.replicas
    room = bounds.maximum - sum(map(present, olds)) - (present(new) if new else 0)
    return current if room <= 0 else current + min(room, bounds.replicas - current)


def roll(deployment: JsonObject, new: JsonObject, olds: list[JsonObject]) -> Scales:
    """The next step of a rollout: grow the new one if there is room, else shrink the old ones.

    A deployment that recreates comes here when nothing old is left.
    """
    bounds, current = Bounds.of(deployment), wanted(new)
    if current > bounds.replicas:
        return {name_of(new): bounds.replicas}
    size = grown(deployment, new, olds)
    if size != current:
        return {name_of(new): size}
    return _shrink(bounds, new, sorted(olds, key=age))


def _shrink(bounds: Bounds, new: JsonObject, olds: list[JsonObject]) -> Scales:
    total = wanted(new) + sum(map(wanted, olds))
    spare = total - bounds.minimum_available - (wanted(new) - available(new))
    if spare <= 0:
        return {}
    sizes = {name_of(old): wanted(old) for old in olds}
    for old in olds:  # replicas that serve nobody cost nothing
        gone = min(spare, max(0, wanted(old) - available(old)))
        sizes[name_of(old)] -= gone
        spare -= gone
    serving = available(new) + sum(map(available, olds)) - bounds.minimum_available
    for old in olds:
        gone = max(0, min(serving, sizes[name_of(old)]))
        sizes[name_of(old)] -= gone
        serving -= gone
    return {name_of(old): sizes[name_of(old)] for old in olds if sizes[name_of(old)] != wanted(old)}


def recreate(deployment: JsonObject, olds: list[JsonObject]) -> Scales:
    """Everything old goes before anything new comes."""
    return {name_of(old): 0 for old in olds if wanted(old)}


def share(deployment: JsonObject, new: JsonObject | None, olds: list[JsonObject]) -> Scales:
    """A deployment whose number of replicas changed: by how much each ReplicaSet follows."""
    bounds = Bounds.of(deployment)
    active = [each for each in ([new] if new else []) + olds if wanted(each)]
    if len(active) <= 1:
        only = active[0] if active else new or max(olds, key=age, default=None)
        return {name_of(only): bounds.replicas} if only is not None and wanted(only) != bounds.replicas else {}
    if new is not None and _saturated(deployment, new):
        return {name_of(old): 0 for old in olds if wanted(old)}
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return {}
    return _proportions(bounds, active)


def _saturated(deployment: JsonObject, new: JsonObject) -> bool:
    replicas = wanted(deployment)
    return wanted(new) == replicas == available(new) and annotation(new, DESIRED) == str(replicas)


def _proportions(bounds: Bounds, active: list[JsonObject]) -> Scales:
    """Larger ones take more; among equals the newer grow first and the older shrink first."""
    to_add = bounds.maximum - sum(map(wanted, active))
    order = sorted(active, key=age, reverse=to_add > 0)
    order.sort(key=wanted, reverse=True)
    sizes, added = {name_of(each): wanted(each) for each in order}, 0
    for each in order:
        step = _proportion(bounds, each, to_add, added) if to_add else 0
        sizes[name_of(each)] += step
        added += step
    if to_add != added and order:  # what rounding left over
        sizes[name_of(order[0])] = max(0, sizes[name_of(order[0])] + to_add - added)
    return {name_of(each): sizes[name_of(each)] for each in order if sizes[name_of(each)] != wanted(each)}


def _proportion(bounds: Bounds, each: JsonObject, to_add: int, added: int) -> int:
    size = wanted(each)
    if bounds.replicas == 0:
        return -size
    text = annotation(each, MAXIMUM)
    before = int(text) if text.isdigit() and int(text) else bounds.replicas
    fraction = _nearest(size * bounds.maximum, before) - size
    left = to_add - added
    return min(fraction, left) if to_add > 0 else max(fraction, left)


def _nearest(amount: int, by: int) -> int:
    return (2 * amount + by) // (2 * by)
