"""Keeps the Node object true: what the machine has, what its runtime and its managers say, that the node lives.

Made by the agent, which tells it what the runtime answered and that pods have come or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.clock import NS
from kubeqos.logs import logger
from kubeqos.model.annotations.published import Kept
from kubeqos.model.annotations.wellknown import SERVING_CERTIFICATE_ANNOTATION
from kubeqos.node.admission.fit import NodeFit
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api import nodestatus
from kubeqos.node.api.registration import Registration
from kubeqos.node.cgroups.keeper import CgroupKeeper
from kubeqos.node.parts import NodeParts
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.updates.books import Books
from kubeqos.plugins.managers import NodeResource

log = logger(__name__)
SOON_SECONDS = 1.0


class NodeKeeper:
    """One Node object, and what it is written from."""

    def __init__(
        self,
        parts: NodeParts,
        pods: Mapping[str, PodRecord],
        admission: Admission,
        books: Books,
        cgroups: CgroupKeeper | None,
    ) -> None:
        self._parts, self._settings, self._pods = parts, parts.settings, pods
        self._admission, self._books, self._cgroups = admission, books, cgroups
        self.labels = nodestatus.node_labels(parts.settings)
        self.runtime = nodestatus.RuntimeFacts(problem="the container runtime was not asked yet")
        self.registration: Registration | None = None
        if parts.api and parts.settings.register:
            taints = [dict(taint) for taint in parts.settings.taints]
            name, seconds = parts.settings.node_name, parts.settings.lease_seconds
            self.registration = Registration(parts.api, name, parts.clock, lease_seconds=seconds, taints=taints)
        self._writing = asyncio.Lock()
        self._is_soon, self._written_ns = False, 0
        self._known_fit: tuple[tuple[Any, ...], NodeFit] | None = None
        self._known_amounts: tuple[list[NodeResource], nodestatus.Amounts] | None = None

    async def write_soon(self) -> None:
        """Pods have come or gone: one is shown at once, many that come together are shown together."""
        if self._is_soon:
            return
        self._is_soon, clock = True, self._parts.clock
        await clock.sleep(max(0.0, SOON_SECONDS - (clock.steady_ns() - self._written_ns) / NS))
        self._is_soon = False
        self._written_ns = clock.steady_ns()
        await self.write()

    @property
    def is_ready(self) -> bool:
        """Whether the API was last told so, and took it."""
        node = self.registration.node if self.registration is not None else None
        conditions = ((node or {}).get("status") or {}).get("conditions") or ()
        return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)

    async def write(self) -> None:
        """Bring the Node object and the lease up to date."""
        if self.registration is None:
            return
        parts, settings = self._parts, self._settings
        try:
            pods = [pod.admitted for pod in self._pods.values()]
            found = nodestatus.node_annotations(settings, parts.managers, parts.plugins.drivers())
            kept = self._cgroups.kept if self._cgroups is not None else Kept()
            found |= nodestatus.map_annotations(parts.machine, parts.managers, pods, kept, self._admission.grant)
            if parts.serving.ca_pem:
                found[SERVING_CERTIFICATE_ANNOTATION] = parts.serving.ca_pem
            async with self._writing:
                await self.registration.keep(self.labels, found, self._status)
        except (ApiError, Unreachable) as error:
            log.warning("cannot write node %s: %s", settings.node_name, error)

    def _status(self, known: list[Any], now: str) -> dict[str, Any]:
        parts, settings = self._parts, self._settings
        extra, told = self._resources(), {**parts.conditions(), **self._books.conditions()}
        addresses = [{"type": "InternalIP", "address": ip} for ip in settings.addresses]
        amounts = self._amounts(extra)
        status: dict[str, Any] = {
            "capacity": nodestatus.texts(amounts.capacity),
            "allocatable": nodestatus.texts(amounts.allocatable),
            "conditions": nodestatus.conditions(self.runtime, told, known, now),
            "addresses": [*addresses, {"type": "Hostname", "address": settings.node_name}],
            "nodeInfo": nodestatus.node_info(self.runtime),
        }
        if parts.serving.port:
            status |= nodestatus.serving(parts.serving.port)
        if parts.classes is not None and (offered := nodestatus.qos_resources(parts.classes.catalog)):
            status["qosResources"] = offered
        return status

    def _amounts(self, extra: list[NodeResource]) -> nodestatus.Amounts:
        """What the node has. Every status and admission asks, and it changes only with what plugins say."""
        if self._known_amounts is None or self._known_amounts[0] != extra:
            self._known_amounts = extra, nodestatus.amounts(self._parts.machine, self._settings, extra)
        return self._known_amounts[1]

    def _resources(self) -> list[NodeResource]:
        return [one for manager in self._admission.managers for one in manager.node_resources()]

    def fit(self) -> NodeFit:
        """What admission may count on. Every admission asks, and the answer changes a few times in a node's life."""
        node = (self.registration.node if self.registration is not None else None) or {}
        labels = {**((node.get("metadata") or {}).get("labels") or {}), **self.labels}
        taints = (node.get("spec") or {}).get("taints") or ()
        asked = labels, taints, self._resources()
        if self._known_fit is None or self._known_fit[0] != asked:
            amounts = self._amounts(asked[2])
            self._known_fit = asked, NodeFit.of(self._settings.node_name, labels, amounts.fit(), taints)
        return self._known_fit[1]
