"""The loop around `slices`: slices follow the pods that a service selects."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import ENDPOINT_SLICES, NODES
from kubeqos.codec import JsonObject
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import split
from kubeqos.controllers.services.endpoints import TriggerTimes, missed_nodes, selects
from kubeqos.controllers.services.selection import ServiceController
from kubeqos.controllers.services.slices import MANAGED_BY, OURS, SERVICE_NAME, desired

_ZONE = "topology.kubernetes.io/zone"


class EndpointSliceController(ServiceController):
    name = "endpointslice"

    def watch(self) -> None:
        super().watch()
        self._zones: dict[str, str] = {}  # of every node
        self._missed: dict[str, set[str]] = {}  # node that is not there → services with pods on it
        self._by_label: dict[str, set[str]] = {}  # service → slices that say they are kept for it
        self._times = TriggerTimes()
        self.slices = self.follow(ENDPOINT_SLICES, self._slice_changed)
        self.follow(NODES, self._node_changed)

    def _slice_changed(self, seen: Change) -> Iterable[str]:
        """The services that a slice is kept for, as it was and as it is."""
        before, after = (_kept_for(seen.key, raw) for raw in (seen.old, seen.new))
        if before:
            here = self._by_label.get(before, set())
            here.discard(seen.key)
            if not here:
                self._by_label.pop(before, None)
        if after:
            self._by_label.setdefault(after, set()).add(seen.key)
        return {one for one in (before, after) if one}

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
        await self.context.perform(desired(service, pods, self._slices(key, service), self._zones, trigger))
        return None

    def _slices(self, key: str, service: JsonObject) -> list[JsonObject]:
        """Those that it owns, with what we have just written, and those that only say that they are its own."""
        owned = self.slices.owned_by(service["metadata"]["uid"])
        known = {one["metadata"]["name"] for one in owned}
        others = (self.slices.get(one) for one in sorted(self._by_label.get(key, ())) if split(one)[1] not in known)
        return owned + [one for one in others if one is not None]


def _kept_for(key: str, raw: bytes | None) -> str:
    labels = (meta_of(raw).labels or {}) if raw is not None else {}
    name = labels.get(SERVICE_NAME, "")
    return f"{split(key)[0]}/{name}" if name and labels.get(MANAGED_BY) == OURS else ""
