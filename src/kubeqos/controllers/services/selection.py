"""What slices and Endpoints are kept by: services, and the pods that they select."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import PODS, SERVICES
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself, split


class ServiceController(Controller):
    """Looks at a service when it or a pod that it selects changes."""

    def watch(self) -> None:
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}  # namespace → service → selector
        self.services = self.follow(SERVICES, self._service_changed)
        self.pods = self.follow(PODS, self._pod_changed)

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

    def _selected(self, service: JsonObject) -> list[JsonObject]:
        selector = service["spec"]["selector"].items()
        here = self.pods.in_namespace(service["metadata"]["namespace"])
        return [pod for pod in here if selector <= (pod["metadata"].get("labels") or {}).items()]
