"""The loop around `slices`: slices follow the pods that a service selects."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import NODES
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.services.endpoints import TriggerTimes, missed_nodes, selects
from kubeqos.controllers.services.kept import KeptSlices
from kubeqos.controllers.services.selection import ServiceController
from kubeqos.controllers.services.slices import OURS, desired

_ZONE = "topology.kubernetes.io/zone"


class EndpointSliceController(ServiceController):
    name = "endpointslice"

    def watch(self) -> None:
        super().watch()
        self._zones: dict[str, str] = {}  # of every node
        self._missed: dict[str, set[str]] = {}  # node that is not there → services with pods on it
        self._times = TriggerTimes()
        self.slices = KeptSlices(self, OURS)
        self.follow(NODES, self._node_changed)

    def _node_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is None:
            self._zones.pop(seen.key, None)
            return ()
        self._zones[seen.key] = (meta_of(seen.new).labels or {}).get(_ZONE, "")
        return self._missed.pop(seen.key, ())

    async def reconcile(self, key: str) -> float | None:
        service = self.services.get(key)
        if service is None:
            self._times.forget(key)
            return None  # its slices go with it: it owns them
        if not selects(service):
            return None
        pods = self._selected(service)
        trigger = self._times.of(key, service, pods)
        for node in missed_nodes(service, pods, self._zones):
            self._missed.setdefault(node, set()).add(key)
        await self.context.perform(desired(service, pods, self.slices.of(key, service), self._zones, trigger))
        return None
