"""The controllers of a stock cluster, on the loop that all controllers share: quotas counted, offers brought to Nodes.

Run by the replica that leads. Each looks at its own copies of the cluster and does what `classquota` and `offers` say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from kubeqos.client import ApiError, Change, Resource
from kubeqos.client.resources import NODES
from kubeqos.codec import JsonObject
from kubeqos.controllers.controller import Context, Controller, itself, split
from kubeqos.rules.qos.classobjects import ClassTotal, resource_status
from kubeqos.stock.admission import Classes, KnownClass
from kubeqos.stock.asking import asks
from kubeqos.stock.classquota import RESERVED_SECONDS
from kubeqos.stock.cluster import CLASSES, NODE_QOSES, PODS, QUOTAS, RESOURCES
from kubeqos.stock.control.offers import (
    class_object,
    label_changes,
    offer_of,
    status_changes,
    totals,
)
from kubeqos.stock.names import is_managed
from kubeqos.stock.quotakeeper import QuotaKeeper

AUDIT_SECONDS = 300.0
SETTLE_SECONDS = 1.0
"""How long what is noted of a new pod may wait for a write that takes it out: writes are in the way of each other."""


class NewPods(NamedTuple):
    """The key of a namespace whose new pods were seen; a bare name is that of one whose quotas are to be counted."""

    namespace: str


class ClassQuotas(Controller):
    """Keeps the class quotas of a namespace: counts them when its pods end or go and when a quota changes.

    A pod that comes is in the count already, by what was reserved for it; a quota hears that it need not note it.
    """

    name = "classquota"

    def __init__(self, context: Context, keeper: QuotaKeeper) -> None:
        self._keeper = keeper
        self._gone: defaultdict[str, set[str]] = defaultdict(set)
        super().__init__(context)

    def watch(self) -> None:
        self.quotas = self.follow(QUOTAS, self._quota_changed)
        self.follow(PODS, self._pod_changed)

    def _quota_changed(self, seen: Change) -> Iterable[Hashable]:
        quota = seen.object()
        counted = (quota.get("status") or {}).get("observedGeneration") == quota["metadata"].get("generation")
        return () if seen.new is None or (counted and seen.old is not None) else (split(seen.key)[0],)

    def _pod_changed(self, seen: Change) -> Iterable[Hashable]:
        pod, namespace = seen.object(), split(seen.key)[0]
        if not asks(pod):
            return ()
        if seen.new is None:
            self._gone[namespace].add(pod["metadata"]["uid"])
            return (namespace,)
        phase = (pod.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            before = ((seen.previous() or {}).get("status") or {}).get("phase")
            return (namespace,) if phase != before else ()
        if seen.old is None:
            self._keeper.saw(namespace, pod["metadata"]["uid"])
            self.queue.add_after(NewPods(namespace), SETTLE_SECONDS)
        return ()

    async def reconcile(self, key: str | NewPods) -> float | None:
        if isinstance(key, NewPods):
            return await self._keeper.confirm(key.namespace, SETTLE_SECONDS)
        quotas = list(self.quotas.in_namespace(key))
        gone = frozenset(self._gone.pop(key, ()))
        try:
            for quota in quotas:
                await self._keeper.count(key, quota["metadata"]["name"], gone)
        except Exception:
            self._gone[key] |= gone
            raise
        reserved = any((quota.get("status") or {}).get("reserved") for quota in quotas)
        return RESERVED_SECONDS if reserved else AUDIT_SECONDS if quotas else None


class NodeOffers(Controller):
    """Keeps the labels and extended resources of a Node what its NodeQOS says, whoever else writes the Node."""

    name = "nodeoffers"

    def watch(self) -> None:
        self.reports = self.follow(NODE_QOSES, itself)
        self.nodes = self.follow(NODES, itself)
        self.classes = self.follow(CLASSES, self._everywhere)

    def _everywhere(self, seen: Change) -> Iterable[str]:
        """What pods ask for by number changes what nodes that do not count must show."""
        before, now = (seen.previous() or {}).get("spec"), (seen.object().get("spec") if seen.new else None)
        return () if before == now else [node["metadata"]["name"] for node in self.nodes.all()]

    async def reconcile(self, key: str) -> float | None:
        node = self.nodes.get(key)
        if node is None:
            return None
        known = [KnownClass.of(raw) for raw in self.classes.all()]
        offer = offer_of(self.reports.get(key), {(one.resource, one.name) for one in known if one.counted})
        if labels := label_changes(node, offer):
            self._learn(await self.context.api.patch(NODES, key, {"metadata": {"labels": labels}}))
        if status := status_changes(node, offer):
            self._learn(await self.context.api.patch(NODES, key, {"status": status}, subresource="status"))
        return None

    def _learn(self, written: JsonObject) -> None:
        self.context.learn(NODES, written)


class ClassObjects(Controller):
    """Describes classes that nodes offer and nobody has described, and says of each where it is and how it is used."""

    name = "qosclass"
    workers = 1

    def __init__(self, context: Context, *, strict_names: bool = False) -> None:
        self._strict_names = strict_names
        super().__init__(context)

    def watch(self) -> None:
        self.reports = self.follow(NODE_QOSES, lambda _: ("all",))
        self.classes = self.follow(CLASSES, lambda _: ("all",))
        self.resources = self.follow(RESOURCES, lambda _: ("all",))

    async def reconcile(self, key: str) -> float | None:
        found = totals(self.reports.all())
        await self._describe(found)
        for raw in self.resources.all():
            await self._tell(RESOURCES, raw, resource_status(raw["spec"]["resource"], found))
        return None

    async def _describe(self, found: Mapping[tuple[str, str], ClassTotal]) -> None:
        described = {}
        classes = list(self.classes.all())
        for raw in classes:
            known = KnownClass.of(raw)
            described[known.resource, known.name] = raw
        names = Classes(classes, list(self.resources.all()), strict=self._strict_names)
        for (resource, name), total in found.items():
            if (resource, name) not in described and names.has_name(resource):
                made = await self._described(class_object(resource, name, total))
                described |= {(resource, name): made} if made is not None else {}
        for pair, raw in described.items():
            offered = found.get(pair)
            if offered is not None and is_managed(raw) and raw["spec"].get("counted", False) != offered.counted:
                raw = await self._patched(CLASSES, raw, {"spec": {"counted": offered.counted}})
            await self._tell(CLASSES, raw, offered.status() if offered is not None else {"nodes": 0, "used": 0})

    async def _tell(self, kind: Resource, raw: JsonObject, status: JsonObject) -> None:
        have = raw.get("status") or {}
        if have != status:
            gone = {name: None for name in have if name not in status}
            await self._patched(kind, raw, {"status": {**gone, **status}}, "status")

    async def _described(self, raw: JsonObject) -> JsonObject | None:
        """The new object; None where there is one of its name, which is another's or will be seen in a moment."""
        try:
            made = await self.context.api.create(CLASSES, raw)
        except ApiError as error:
            if error.already_exists:
                return None
            raise
        self.context.learn(CLASSES, made)
        return made

    async def _patched(self, kind: Resource, raw: JsonObject, patch: JsonObject, subresource: str = "") -> JsonObject:
        made = await self.context.api.patch(kind, raw["metadata"]["name"], patch, subresource=subresource)
        self.context.learn(kind, made)
        return made
