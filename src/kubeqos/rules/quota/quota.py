"""One quota: its hard limits compiled once per revision, and what is used of them.

Usage is an exact integer per resource. Beside it the tally remembers which suffix family the live objects were written
in, so that status prints `1000Mi` or `1150m` as Kubernetes does, whoever came and went.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.objects import ClassQuota, ResourceList, ResourceQuotaView
from kubeqos.model.quantity import Format, Quantity
from kubeqos.rules.qos.classes import WELL_KNOWN, ClassKey, Level
from kubeqos.rules.quota.charge import COMPUTE, Charge, is_tracked
from kubeqos.rules.quota.scopes import Scope


class Tally:
    """An amount in use, by the suffix family it was written in."""

    __slots__ = ("nanos", "parts")

    def __init__(self) -> None:
        self.nanos = 0
        self.parts: dict[Format, int] = {}

    def add(self, amount: Quantity) -> None:
        nanos, family, parts = amount.nanos, amount.format, self.parts
        self.nanos += nanos
        part = parts[family] = parts.get(family, 0) + nanos
        if not self.nanos:
            parts.clear()
        elif not part:
            del parts[family]

    def quantity(self) -> Quantity:
        family = next((family for family, part in self.parts.items() if part > 0), Format.DECIMAL_SI)
        return Quantity.from_nanos(self.nanos, family)


@dataclass(frozen=True, slots=True)
class Delta:
    """What a write changes in one quota."""

    amounts: ResourceList
    classes: Mapping[ClassKey, int]

    def __bool__(self) -> bool:
        return bool(self.amounts or self.classes)

    def __neg__(self) -> Delta:
        return Delta({name: -amount for name, amount in self.amounts.items()}, {k: -n for k, n in self.classes.items()})


_NOTHING: Mapping[ClassKey, int] = {}


class Quota:
    """A quota with its usage. The ledger is the only one to change it."""

    __slots__ = (
        "_container_level", "_pod_level", "allowed", "classes_used", "governs", "hard", "hard_nanos", "name",
        "required", "scope", "used",
    )  # fmt: skip

    def __init__(self, view: ResourceQuotaView) -> None:
        self.name = view.metadata.name
        self.hard: ResourceList = {name: amount.round_up_milli() for name, amount in view.spec.hard.items()}
        self.hard_nanos = {name: amount.nanos for name, amount in self.hard.items()}
        self.scope = Scope.of(view.spec)
        self.required = tuple(sorted(name for name in COMPUTE if name in self.hard))
        self.used: dict[str, Tally] = {name: Tally() for name in sorted(self.hard) if is_tracked(name)}
        rules = view.spec.qos_resources
        listed = {Level.POD: rules.pod, Level.CONTAINER: rules.container} if rules else {}
        self.governs = {level: lists for level, lists in listed.items() if lists is not None}
        self._pod_level = {one.name for one in self.governs.get(Level.POD, ())}
        self._container_level = {one.name for one in self.governs.get(Level.CONTAINER, ())}
        self.allowed: dict[ClassKey, int | None] = dict(_allowed(self.governs))
        self.classes_used: dict[ClassKey, int] = dict.fromkeys(self.allowed, 0)

    @staticmethod
    def of(raw: dict[str, Any]) -> Quota:
        """Compile a stored ResourceQuota; usage starts at zero."""
        return Quota(ResourceQuotaView.of(raw))

    def matches(self, charge: Charge) -> bool:
        return self.scope.matches(charge.resource, charge.standing, charge.class_names)

    def delta(self, before: Charge | None, after: Charge | None) -> Delta:
        """The change of usage when an object that matched as `before` becomes one that matches as `after`."""
        used = self.used
        amounts = {} if after is None else {name: amount for name, amount in after.amounts.items() if name in used}
        if before is not None:
            for name, amount in before.amounts.items():
                if name in used:
                    amounts[name] = amounts[name] - amount if name in amounts else -amount
            amounts = {name: amount for name, amount in amounts.items() if amount}
        if not self.governs:
            return Delta(amounts, _NOTHING)
        change = self.class_change(before, after)
        return Delta(amounts, {key: count for key, count in change.items() if key in self.allowed})

    def asked_change(
        self, before: Charge | None, after: Charge | None, container_level: Collection[str] = WELL_KNOWN
    ) -> dict[ClassKey, int]:
        """That change, as far as the new spec asks for it: what a pod has by its status alone nobody can be refused."""
        change = self.class_change(before, after, container_level)
        if after is None or after.held is after.spec or not change:
            return change
        asked = after.asked(self._levels(container_level))
        return {key: count for key, count in change.items() if key in asked}

    def _levels(self, container_level: Collection[str]) -> set[str]:
        return ({*container_level} - self._pod_level) | self._container_level

    def class_change(
        self, before: Charge | None, after: Charge | None, container_level: Collection[str] = WELL_KNOWN
    ) -> dict[ClassKey, int]:
        """The change of class usage at the levels that this quota governs, classes that it does not list included.

        The level at which a quota lists a resource is the level of that resource, so that its usage follows from the
        objects and the quota alone; for resources that it does not list `container_level` says which those are.
        """
        levels = self._levels(container_level)
        change = dict(after.demand(levels)) if after is not None else {}
        if before is not None:
            for key, count in before.demand(levels).items():
                change[key] = change.get(key, 0) - count
        return {key: count for key, count in change.items() if count and key[0] in self.governs}

    def apply(self, delta: Delta) -> None:
        for name, amount in delta.amounts.items():
            self.used[name].add(amount)
        for key, count in delta.classes.items():
            self.classes_used[key] += count

    # -- reading -----------------------------------------------------------------------------------------------

    def used_amounts(self) -> ResourceList:
        return {name: tally.quantity() for name, tally in self.used.items()}

    def status(self) -> dict[str, Any]:
        """`status` of the ResourceQuota, in canonical text."""
        status: dict[str, Any] = {
            "hard": {name: str(self.hard[name]) for name in sorted(self.hard)},
            "used": {name: str(amount) for name, amount in self.used_amounts().items()},
        }
        status = {key: value for key, value in status.items() if value}
        if self.governs:
            status["qosResources"] = {
                level.value: [_class_list(one, {c.name: c.capacity for c in one.classes}) for one in lists]
                for level, lists in self.governs.items()
            }
            status["qosResourcesUsage"] = {
                level.value: [
                    _class_list(one, {c.name: self.classes_used[level, one.name, c.name] for c in one.classes})
                    for one in lists
                ]
                for level, lists in self.governs.items()
            }
        return status


def _class_list(one: ClassQuota, counts: Mapping[str, int | None]) -> dict[str, Any]:
    classes = [{"name": name} if count is None else {"name": name, "capacity": count} for name, count in counts.items()]
    return {"name": one.name, "classes": classes}


def _allowed(governs: Mapping[Level, list[ClassQuota]]) -> Iterator[tuple[ClassKey, int | None]]:
    for level, lists in governs.items():
        for one in lists:
            for cls in one.classes:
                yield (level, one.name, cls.name), cls.capacity  # ruling 3: absent is unlimited, 0 is none
