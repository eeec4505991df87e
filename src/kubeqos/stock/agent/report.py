"""What a node tells the cluster: its NodeQOS object, written when something of it changes, and events about pods.

`status_of` is pure. The object belongs to the Node, so that it goes with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.client import Api, ApiError, EventRecorder, Unreachable
from kubeqos.client.resources import NODES
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import ClassHolders
from kubeqos.cri.providers.protocol import Subject
from kubeqos.logs import logger
from kubeqos.model.annotations.published import Kept
from kubeqos.model.timestamps import timestamp
from kubeqos.node.api.nodestatus import map_annotations, node_annotations
from kubeqos.plugins.managers import PlacesOnCpus
from kubeqos.stock.agent.evictions import Evictions
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.cores.devices import free_cores
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.names import API_VERSION, NODE

Raw = dict[str, Any]
COMPONENT = "kubeqos-agent"
SETTLE_SECONDS = 0.5
"""How long changes are gathered before they are told: a pod makes several."""
RETRY_SECONDS = 2.0
log = logger("kubeqos.agent")


@dataclass(frozen=True, slots=True)
class CoresTold:
    """What a NodeQOS says of cores."""

    free: str
    free_cores: Sequence[Raw]
    pools: Mapping[str, str]
    topology: Raw
    plugins: Sequence[Raw]
    conditions: Mapping[str, tuple[str, str, str]]


def cores_told(keeper: CoreKeeper) -> CoresTold:
    """The node's machine, who runs where on it, and how its plugins and drivers are."""
    parts, plugins = keeper.parts, keeper.parts.plugins
    texts = node_annotations(parts.settings, parts.managers, plugins.drivers())
    texts |= map_annotations(parts.machine, parts.managers, keeper.shown(), Kept(), keeper.shared.grant)
    endpoints = plugins.qrm.endpoints if plugins.qrm is not None else ()
    rows = [_health(endpoint.name, "ResourcePlugin", endpoint.trouble) for endpoint in endpoints]
    rows += [_health(name, "ComputeDriver", trouble) for name, trouble in plugins.driver_health().items()]
    pools = {
        name: str(cpus)
        for one in parts.managers
        if isinstance(one, PlacesOnCpus)
        for name, cpus in one.cpu_pools().items()
    }
    free = parts.machine.online - parts.settings.reserved_cpus - keeper.shared.owned()
    conditions = {**plugins.conditions(), **keeper.books.conditions()}
    return CoresTold(str(free), free_cores(parts.machine, free), pools, dict(texts), rows, conditions)


def _health(name: str, kind: str, trouble: str | None) -> Raw:
    row: Raw = {"name": name, "kind": kind, "healthy": not trouble}
    return {**row, "message": trouble} if trouble else row


def status_of(
    catalog: Catalog,
    holders: ClassHolders,
    before: Raw | None,
    now: float,
    cores: CoresTold | None = None,
    conditions: Mapping[str, tuple[str, str, str]] | None = None,
) -> Raw:
    """The status of a NodeQOS; `before` is the one that is stored, `conditions` what else is said of the node."""
    classes = []
    for name, offer in sorted(catalog.offers.items()):
        for each in offer.current():
            told: Raw = {"resource": name, "class": each.name, "level": offer.level.value, "mutable": offer.mutable}
            told["used"] = holders.used(name, each.name)
            classes.append({**told, "capacity": each.capacity} if each.capacity else told)
    plugins = [
        {"name": name, "kind": "ClassProvider", "healthy": False, "message": reason}
        for name, reason in sorted(catalog.absent.items())
    ]
    wrong = [f"{name}: {reason}" for name, reason in (*catalog.unreachable.items(), *sorted(catalog.absent.items()))]
    said = {"Healthy": ("False", "ProviderAway", "; ".join(wrong)) if wrong else ("True", "Answering", "")}
    said |= conditions or {}
    status: Raw = {"classCount": len(classes), "classes": classes, "plugins": plugins}
    if cores is not None:
        said |= cores.conditions
        status |= {"plugins": [*plugins, *cores.plugins], "freeCPUs": cores.free}
        status["freeCores"] = list(cores.free_cores)
        status |= {"pools": dict(cores.pools), "topology": cores.topology}
    known = {one["type"]: one for one in (before or {}).get("conditions") or ()}
    return {**status, "conditions": [_condition(name, *one, known.get(name, {}), now) for name, one in said.items()]}


def _condition(name: str, status: str, reason: str, message: str, known: Raw, now: float) -> Raw:
    same = known.get("status") == status and known.get("lastTransitionTime")
    since = known["lastTransitionTime"] if same else timestamp(now)
    return {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def patch_between(before: Raw, now: Raw) -> Raw:
    """The merge patch that leads from one status to the other: what is not there any more is null."""
    patch: Raw = {name: None for name in before if name not in now}
    for name, value in now.items():
        had = before.get(name)
        if isinstance(value, dict) and isinstance(had, dict):
            if inner := patch_between(had, value):
                patch[name] = inner
        elif had != value:
            patch[name] = value
    return patch


class Reporter:
    """Keeps the node's NodeQOS, and says of pods what became of them."""

    def __init__(self, api: Api, node: str, status: Callable[[Raw | None, float], Raw]) -> None:
        self._api = api
        self._node = node
        self._status = status
        self._wake = asyncio.Event()
        self.events = EventRecorder(api, COMPONENT)
        self.published = asyncio.Event()
        self.evictions = Evictions(api, self.events)

    def changed(self) -> None:
        """Something is to be told."""
        self._wake.set()

    def broken(self, subject: Subject, reason: str) -> None:
        """A running pod does not have what it asked for: it is evicted, so that it starts anew where it can have it."""
        log.error("a pod runs without its class", subject=subject.describe(), reason=reason)
        self.evictions.ask(subject, reason)

    async def run(self) -> None:
        """Tell until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.events.run())
            tasks.create_task(self.evictions.run())
            tasks.create_task(self._tell())

    async def _tell(self) -> None:
        while True:
            try:
                await self._publish()
                self.published.set()
            except (ApiError, Unreachable) as error:
                log.warning("the cluster cannot be told; trying again", error=error.what)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._wake.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._wake.clear()

    async def _publish(self) -> None:
        try:
            stored = await self._api.get(NODE_QOSES, self._node)
        except ApiError as error:
            if not error.not_found or error.not_served:
                raise
            stored = await self._api.create(NODE_QOSES, await self._object())
        before = stored.get("status") or {}
        if patch := patch_between(before, self._status(before, time.time())):
            await self._api.patch(NODE_QOSES, self._node, {"status": patch}, subresource="status")

    async def _object(self) -> Raw:
        node = await self._api.get(NODES, self._node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}
        metadata = {"name": self._node, "ownerReferences": [owner]}
        return {"apiVersion": API_VERSION, "kind": NODE, "metadata": metadata, "spec": {}}
