"""What QOSClass and QOSResource objects say of their use (KEP-3008, API objects for resources and classes): on how many
nodes a class is, how much of it there is, how much is taken.

Run by `kubeqos up`, whose nodes say in their own statuses what they offer; in a stock cluster `stock.control` does it.
It looks again a moment after a change: who starts a thousand pods is not followed pod by pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from kubeqos.client import Change, Resource
from kubeqos.client.resources import NODES, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, change
from kubeqos.controllers.controller import Controller
from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classobjects import (
    NOWHERE,
    QOS_CLASSES_PATH,
    QOS_RESOURCES_PATH,
    class_totals,
    resource_status,
)

QOS_CLASSES = Resource(*QOS_CLASSES_PATH, "QOSClass", namespaced=False)
QOS_RESOURCES = Resource(*QOS_RESOURCES_PATH, "QOSResource", namespaced=False)
SETTLE_SECONDS = 0.5


class ClassStatusController(Controller):
    """Keeps the statuses of all objects that describe classes; one key for all of them."""

    name = "classstatus"
    workers = 1

    def watch(self) -> None:
        self.nodes = self.follow(NODES, self._soon)
        self.pods = self.follow(PODS, self._soon)
        self.classes = self.follow(QOS_CLASSES, self._soon)
        self.resources = self.follow(QOS_RESOURCES, self._soon)

    def _soon(self, _seen: Change) -> Iterable[Hashable]:
        if len(self.classes) or len(self.resources):
            self.queue.add_after("all", SETTLE_SECONDS)
        return ()

    async def reconcile(self, key: Any) -> float | None:
        nodes = [NodeView.of(raw) for raw in self.nodes.all()]
        totals = class_totals(nodes, (PodView.of(raw) for raw in self.pods.all()))
        actions: list[Action] = []
        for raw in self.classes.all():
            spec = raw.get("spec") or {}
            total = totals.get((str(spec.get("resource")), str(spec.get("class"))), NOWHERE)
            actions += _status(QOS_CLASSES, raw, total.status())
        for raw in self.resources.all():
            own = str((raw.get("spec") or {}).get("resource"))
            actions += _status(QOS_RESOURCES, raw, resource_status(own, totals))
        await self.context.perform(actions)
        return None


def _status(resource: Resource, raw: JsonObject, wanted: JsonObject) -> list[Action]:
    have = raw.get("status") or {}
    if have == wanted:
        return []
    gone = dict.fromkeys(name for name in have if name not in wanted)
    return [change(resource, raw, {"status": {**gone, **wanted}}, "counted anew", subresource="status")]
