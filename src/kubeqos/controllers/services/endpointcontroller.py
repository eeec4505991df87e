"""The loop around `endpoints`: slices follow the pods that a service selects."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.services.endpoints import desired, leads_to

_ZONE = "topology.kubernetes.io/zone"


class EndpointSliceController(Controller):
    name = "endpointslice"

    def watch(self) -> None:
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}  # namespace → service → selector
        self._zones: dict[str, str] = {}
        self.services = self.follow(SERVICES, self._service_changed)
        self.pods = self.follow(PODS, self._pod_changed)
        self.slices = self.follow(ENDPOINT_SLICES, self._slice_changed)
        self.follow(NODES, self._node_changed)

    def _service_changed(self, seen: Change) -> Iterable[str]:
        namespace, name = split(seen.key)
        here = self._selectors.setdefault(namespace, {})
        selector = ((decode_json(seen.new).get("spec") or {}).get("selector") or {}) if seen.new is not None else {}
        if selector:
            here[name] = selector
        else:
            here.pop(name, None)
        return itself(seen)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        """Services that select the pod, as it was or as it is."""
        namespace = split(seen.key)[0]
        here = self._selectors.get(namespace)
        if not here:
            return
        for raw in (seen.old, seen.new):
            labels = (meta_of(raw).labels or {}).items() if raw is not None else ()
            for name, selector in here.items():
                if labels and selector.items() <= labels:
                    yield f"{namespace}/{name}"

    def _slice_changed(self, seen: Change) -> Iterable[str]:
        raw = seen.new if seen.new is not None else seen.old
        if raw is not None:
            name = leads_to(decode_json(raw))
            if name:
                yield f"{split(seen.key)[0]}/{name}"

    def _node_changed(self, seen: Change) -> Iterable[str]:
        zone = (meta_of(seen.new).labels or {}).get(_ZONE, "") if seen.new is not None else ""
        if zone:
            self._zones[seen.key] = zone
        else:
            self._zones.pop(seen.key, None)
        return ()

    async def reconcile(self, key: str) -> float | None:
        service = self.services.get(key)
        if service is None:
            return None  # its slices go with it: it owns them
        slices = self.slices.owned_by(service["metadata"]["uid"])
        await self.context.perform(desired(service, self._selected(service), slices, self._zones))
        return None

    def _selected(self, service: JsonObject) -> list[JsonObject]:
        selector = ((service.get("spec") or {}).get("selector") or {}).items()
        if not selector:
            return []
        here = self.pods.in_namespace(service["metadata"]["namespace"])
        return [pod for pod in here if selector <= (pod["metadata"].get("labels") or {}).items()]
