"""The quota audit: what the API server has recorded as used against the sum over the objects that exist.

The server charges a quota in the transaction that stores an object, so the two can never differ; whoever relies on
that wants to see it checked. A difference is a metric and an event, never silently corrected. Because lists of several
kinds are taken one after the other, a reading counts only if no quota moved while it was taken, and a difference only
if a second reading agrees.

A server that is not ours only adds to what is used, and waits for somebody to say what a new quota grants: there the
status of every quota is brought to what the objects use, as kube-controller-manager does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kubeqos.client import ApiError, Change, Resource
from kubeqos.client.resources import RESOURCE_QUOTAS, stored_resources
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.actions import Action, change
from kubeqos.controllers.controller import Controller, split
from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity
from kubeqos.model.timestamps import seconds_of
from kubeqos.rules.quota import Charge, Drift, Quota, QuotaLedger, charge_of, charge_pod

RECONCILE_SECONDS = 10.0
Reading = tuple[list[JsonObject], list[tuple[Resource, JsonObject]]]


def past_grace(pod: JsonObject, now: float) -> bool:
    """Whether a pod was to be gone by now: it is no longer charged (kubernetes-control-plane §2.4)."""
    metadata = pod["metadata"]
    ends = seconds_of(metadata.get("deletionTimestamp") or "")
    return ends is not None and now > ends + (metadata.get("deletionGracePeriodSeconds") or 0)


def charges(objects: Iterable[tuple[Resource, JsonObject]], now: float) -> Iterator[Charge]:
    """What every object costs."""
    for resource, obj in objects:
        if resource.kind == "Pod":
            yield charge_pod(PodView.of(obj), expired=past_grace(obj, now))
        elif (charge := charge_of(resource.plural, obj, group=resource.group)) is not None:
            yield charge


def audit(quotas: Iterable[JsonObject], objects: Iterable[tuple[Resource, JsonObject]], now: float) -> list[Drift]:
    """Every amount in a quota's status that is not the sum over the objects."""
    held = list(charges(objects, now))
    drifts: list[Drift] = []
    for raw in quotas:
        quota, ledger = Quota.of(raw), QuotaLedger()
        ledger.put(raw["metadata"]["namespace"], quota, held)
        actual, recorded = _usage(quota.status()), _usage(raw.get("status") or {})
        for name in sorted(actual.keys() | recorded.keys()):
            found, said = actual.get(name, Quantity.ZERO), recorded.get(name, Quantity.ZERO)
            if found != said:
                drifts.append(Drift(quota.name, name, said, found))
    return drifts


def status_updates(
    quotas: Iterable[JsonObject], objects: Iterable[tuple[Resource, JsonObject]], now: float
) -> list[Action]:
    """The statuses of quotas as they should be, where they are not."""
    held = list(charges(objects, now))
    found: list[Action] = []
    for raw in quotas:
        quota, ledger = Quota.of(raw), QuotaLedger()
        ledger.put(raw["metadata"]["namespace"], quota, held)
        wanted, before = quota.status(), raw.get("status") or {}
        parts = {key: _change(before.get(key) or {}, wanted.get(key) or {}) for key in ("hard", "used")}
        if any(parts.values()):
            found.append(change(RESOURCE_QUOTAS, raw, {"status": parts}, "what the objects use", subresource="status"))
    return found


def _change(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch from some amounts to others; amounts that are equal in another spelling stay."""
    gone: dict[str, str | None] = {name: None for name in before if name not in after}
    moved = {
        name: amount
        for name, amount in after.items()
        if name not in before or Quantity.parse(before[name]) != Quantity.parse(amount)
    }
    return {**gone, **moved}


def _usage(status: JsonObject) -> Mapping[str, Quantity]:
    used = {name: Quantity.parse(amount) for name, amount in (status.get("used") or {}).items()}
    for level, lists in (status.get("qosResourcesUsage") or {}).items():
        for one in lists or ():
            for cls in one.get("classes") or ():
                used[f"{level}.{one['name']}/{cls['name']}"] = Quantity.from_int(int(cls.get("capacity") or 0))
    return used


class QuotaAudit(Controller):
    """Audits every namespace that has quotas, again and again."""

    name = "resourcequota"
    workers = 1

    def watch(self) -> None:
        self.resources = [found for found in stored_resources(namespaced=True) if found.kind != "Event"]
        self.quotas = self.follow(RESOURCE_QUOTAS, self._quota_changed)
        self.drifts: dict[str, list[Drift]] = {}  # confirmed, by namespace
        self._suspected: dict[str, list[Drift]] = {}
        self._ours: bool | None = None

    def _quota_changed(self, seen: Change) -> Iterable[str]:
        """A new quota is looked at soon; that its usage moves, as it does with every pod, is no occasion."""
        if seen.old is None:
            self.queue.add_after(split(seen.key)[0], self.context.settings.quota_confirm_seconds)
        return ()

    async def reconcile(self, key: str) -> float | None:
        settings = self.context.settings
        reading = await self._read(key)
        if reading is None:
            return settings.quota_confirm_seconds
        quotas, objects = reading
        if not await self._is_ours():
            await self.context.perform(status_updates(quotas, objects, self.context.clock()))
            return min(settings.quota_audit_period_seconds, RECONCILE_SECONDS) if quotas else None
        found = audit(quotas, objects, self.context.clock())
        if found and found != self._suspected.get(key):
            self._suspected[key] = found
            return settings.quota_confirm_seconds
        self._suspected.pop(key, None)
        self._report(key, quotas, found)
        return settings.quota_audit_period_seconds if quotas else None

    async def _is_ours(self) -> bool:
        """Whether the server charges quotas in the transaction of the object; it says so in its version."""
        if self._ours is None:
            self._ours = "+kubeqos." in (await self.context.api.read("/version")).get("gitVersion", "")
        return self._ours

    def _report(self, namespace: str, quotas: list[JsonObject], found: list[Drift]) -> None:
        self.context.metrics.audits.inc()
        if found:
            self.drifts[namespace] = found
        else:
            self.drifts.pop(namespace, None)
        self.context.metrics.drift.set(sum(map(len, self.drifts.values())))
        by_name = {quota["metadata"]["name"]: quota for quota in quotas}
        for drift in found:
            message = f"{drift.resource}: {drift.recorded} is recorded as used, the objects use {drift.actual}"
            self.context.events.record(by_name[drift.quota], "QuotaDrift", message, "Warning")

    async def _read(self, namespace: str) -> Reading | None:
        """The quotas and everything they may count; None when usage moved while it was read."""
        before = await self._list(RESOURCE_QUOTAS, namespace)
        objects = [(each, obj) for each in self.resources for obj in await self._list(each, namespace)]
        return (before, objects) if before == await self._list(RESOURCE_QUOTAS, namespace) else None

    async def _list(self, resource: Resource, namespace: str) -> list[JsonObject]:
        try:
            listing = await self.context.api.list(resource, namespace)
        except ApiError as error:
            if error.not_served:
                return []  # there is nothing of a kind that the server does not know
            raise
        return [_named(decode_json(raw), resource) for raw in listing.items]


def _named(obj: JsonObject, resource: Resource) -> JsonObject:
    """Items of a list leave out what they are; events about them need it."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
