"""What the scheduler follows: informers whose changes it hands to the core, in an order in which they make sense.

Nodes and pods it must read. Everything else is for some pods only: where the server does not serve a kind, or a role
does not let us read it, the others are placed all the same, and what is lost by it is said once and in `/readyz`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_CLASSES,
    SERVICES,
    STORING,
    Resource,
    known_resources,
    resource_of,
)
from kubeqos.client.shared import SharedInformers
from kubeqos.codec import decode_json
from kubeqos.logs import logger
from kubeqos.model.kinds import APPS, CORE, RESOURCE
from kubeqos.model.objects import LabelSelectorView, convert
from kubeqos.placement.preempt import DisruptionBudget
from kubeqos.scheduler.core import Scheduler

REPLICATED = known_resources(("ReplicationController", CORE), ("ReplicaSet", APPS), ("StatefulSet", APPS))
"""Whose pods are spread by default."""
CLAIMING = (RESOURCE_CLASSES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, CONFIG_MAPS)
"""What says which cores a pod wants (KEP-3675); ConfigMaps are looked at where there can be claims."""
DEVICES = tuple(
    found
    for kind in (RESOURCE_CLAIMS.kind, RESOURCE_CLAIM_TEMPLATES.kind)
    if (found := resource_of(f"{RESOURCE}/v1", kind)) is not None
)
"""Claims of devices, which kube-scheduler allocates."""
_OPTIONAL = {
    NAMESPACES: "affinity to pods of namespaces with certain labels finds none",
    SERVICES: "pods of Services are not spread by default",
    **dict.fromkeys(REPLICATED, "pods of such controllers are not spread by default"),
    **dict.fromkeys(CLAIMING, "pods with claims of cores wait"),
    **dict.fromkeys(DEVICES, "pods with claims of devices are not told apart from those whose claim is missing"),
    **dict.fromkeys(STORING[:2], "pods that mount PersistentVolumeClaims wait"),
    **dict.fromkeys(STORING[2:3], "pods whose PersistentVolumeClaims are not bound wait"),
    **dict.fromkeys(STORING[3:], "what CSI drivers can attach or hold is not looked at"),
    POD_DISRUPTION_BUDGETS: "preemption does not spare pods that have a budget",
}
"""What is lost where they cannot be read."""
_OPTIONAL_SECONDS = 10.0

log = logger("kubeqos.scheduler")


Heard = Callable[[bytes | None, str, float], None]
"""Told that an object of this name is so, or gone, and when."""


@dataclass(frozen=True, slots=True)
class Home:
    """What there is for a scheduler beside nodes and pods: that of an API server of ours, unless said otherwise."""

    claiming: tuple[Resource, ...] = CLAIMING
    keeps_decisions: bool = True
    reports: Mapping[Resource, Heard] = field(default_factory=dict)
    """Objects in which nodes tell of themselves, with who is to hear of their changes."""


class Feed:
    """Feeds one core; `changed` is called when there may be something to decide."""

    def __init__(
        self,
        informers: SharedInformers,
        core: Scheduler,
        changed: Callable[[], None],
        clock: Callable[[], float],
        home: Home,
    ) -> None:
        self._informers = informers
        self._home = home
        self._core = core
        self._wake = changed
        self._clock = clock
        self._budgets: dict[str, DisruptionBudget] = {}
        self._followed: dict[Resource, Informer] = {}

    async def start(self) -> None:
        """Return when the core knows the cluster. Pods come last, so that their nodes and claims are known by then."""
        handlers: dict[Resource, Callable[[Change], None]] = {
            NODES: self._node,
            **{resource: partial(self._reported, heard) for resource, heard in self._home.reports.items()},
            NAMESPACES: self._namespace,
            SERVICES: self._selecting_service,
            **{resource: partial(self._replicated, resource.kind) for resource in REPLICATED},
            **{resource: partial(self._claiming, resource.kind) for resource in self._home.claiming},
            **{resource: partial(self._device, resource.kind) for resource in DEVICES},
            **{resource: partial(self._storing, resource.kind) for resource in STORING},
            POD_DISRUPTION_BUDGETS: self._budget,
            PODS: self._pod,
        }
        for resource, handler in handlers.items():
            if not self._core.claims.served and resource in (CONFIG_MAPS, *DEVICES):
                continue  # where no claim of cores can be, nobody reads their parameters, and all others are of devices
            informer = self._followed[resource] = self._informers.of(resource)
            informer.on_change(handler)
            if resource in _OPTIONAL:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_OPTIONAL_SECONDS):
                        await informer.settled.wait()
            else:
                await self._required(informer)
            if not informer.served:  # a stock API server has no claims of KEP-3675: nothing can ask for them then
                log.info("not served here", resource=resource.plural)
                self._core.claims.served &= resource != RESOURCE_CLAIMS
            elif not informer.synced.is_set():
                log.warning(
                    "cannot be read", resource=resource.plural, so=_OPTIONAL[resource], because=informer.problem
                )

    async def _required(self, informer: Informer) -> None:
        await informer.settled.wait()
        if not informer.synced.is_set():
            log.error("cannot work without", resource=informer.resource.plural, because=informer.problem)
            await informer.synced.wait()

    def unread_storage(self) -> dict[str, str]:
        """Of kinds of storage that cannot be read at present: why."""
        unread = {resource.kind: "not asked for yet" for resource in STORING if resource not in self._followed}
        for resource in STORING:
            informer = self._followed.get(resource)
            if informer is not None and (informer.forbidden or not informer.synced.is_set()):
                unread[resource.kind] = informer.problem or "not listed yet"
        return unread

    def lagging(self) -> list[str]:
        """What it waits for before it can place anything."""
        missing = [one for one in self._followed.values() if one.resource not in _OPTIONAL and not one.synced.is_set()]
        return [f"{one.resource.plural}: {one.problem or 'not listed yet'}" for one in missing]

    def unreadable(self) -> Iterator[str]:
        """What it does without, why, and what is lost by that."""
        for resource, informer in self._followed.items():
            if resource in _OPTIONAL and (informer.forbidden or not informer.synced.is_set()):
                yield f"{resource.plural}: {_OPTIONAL[resource]}: {informer.problem or 'not listed yet'}"

    # -- what informers see ------------------------------------------------------------------------------------------

    def _pod(self, change: Change) -> None:
        uid = "" if change.new is not None else _uid(change)
        self._core.pod_changed(change.new, uid, self._clock())
        self._wake()

    def _node(self, change: Change) -> None:
        self._core.node_changed(change.new, change.key, self._clock())
        self._wake()

    def _reported(self, heard: Heard, change: Change) -> None:
        heard(change.new, change.key, self._clock())
        self._wake()

    def _namespace(self, change: Change) -> None:
        labels = change.object().get("metadata", {}).get("labels") or {}
        self._core.namespace_changed(change.key, labels if change.new is not None else None)

    def _selecting_service(self, change: Change) -> None:
        selector = (change.object().get("spec") or {}).get("selector") if change.new is not None else None
        self._core.spreading.service(change.key, selector)

    def _replicated(self, kind: str, change: Change) -> None:
        selector = (change.object().get("spec") or {}).get("selector") if change.new is not None else None
        if selector is not None and kind == "ReplicationController":  # plain labels, of before there were expressions
            selector = {"matchLabels": selector}
        view = convert(selector, LabelSelectorView) if selector is not None else None
        self._core.spreading.controller(kind, change.key, view)

    def _claiming(self, kind: str, change: Change) -> None:
        if self._core.claims.seen(kind, change.key, change.object() if change.new is not None else None):
            self._core.claims_changed(self._clock())
            self._wake()

    def _device(self, kind: str, change: Change) -> None:
        self._core.claims.of_devices(kind, change.key, there=change.new is not None)
        self._core.claims_changed(self._clock())
        self._wake()

    def _storing(self, kind: str, change: Change) -> None:
        self._core.storage_changed(kind, change.key, change.new, self._clock())
        self._wake()

    def _budget(self, change: Change) -> None:
        if change.new is None:
            self._budgets.pop(change.key, None)
        else:
            raw = change.object()
            selector = (raw.get("spec") or {}).get("selector")
            allowed = int((raw.get("status") or {}).get("disruptionsAllowed") or 0)
            view = convert(selector, LabelSelectorView) if selector is not None else None
            self._budgets[change.key] = DisruptionBudget(change.key.partition("/")[0], view, allowed)
        self._core.budgets_changed(list(self._budgets.values()))


def _uid(change: Change) -> str:
    raw: Any = decode_json(change.old or b"{}")
    return str(raw.get("metadata", {}).get("uid", ""))
