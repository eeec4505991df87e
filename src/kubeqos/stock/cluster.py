"""What the parts in a stock cluster follow of it: resources and classes, limits and quotas of classes, pods."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeqos.client import Api, Informer, Resource
from kubeqos.client.resources import resource_named
from kubeqos.codec import decode_json
from kubeqos.controllers.cache import Cache
from kubeqos.stock.admission import Classes
from kubeqos.stock.names import CLASS, GROUP, LIMITS, NODE, QUOTA, RESOURCE

Raw = dict[str, Any]
CLASSES = Resource(GROUP, "v1alpha1", "qosclasses", CLASS, namespaced=False)
QUOTAS = Resource(GROUP, "v1alpha1", "qosclassquotas", QUOTA)
LIMIT_RANGES = Resource(GROUP, "v1alpha1", "qosclasslimits", LIMITS)
RESOURCES = Resource(GROUP, "v1alpha1", "qosresources", RESOURCE, namespaced=False)
NODE_QOSES = Resource(GROUP, "v1alpha1", "nodeqoses", NODE, namespaced=False)
PODS = resource_named("Pod")
DEVICE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
DEVICE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
"""Of Dynamic Resource Allocation, as stock servers have them."""


class Cluster:
    """Copies of what the API server has, kept up to date while `run` runs."""

    def __init__(self, api: Api, *, strict_names: bool = False) -> None:
        self.api = api
        self._strict_names = strict_names
        self.ready = asyncio.Event()
        self.quotas = Cache(Informer(api, QUOTAS))
        self._limits = Cache(Informer(api, LIMIT_RANGES))
        self._classes = Informer(api, CLASSES)
        self._resources = Informer(api, RESOURCES)
        self._compiled: Classes | None = None
        for described in (self._classes, self._resources):
            described.on_change(lambda _: self._forget_classes())

    @property
    def classes(self) -> Classes:
        if self._compiled is None:
            classes, resources = ([decode_json(raw) for _, raw in of] for of in (self._classes, self._resources))
            self._compiled = Classes(classes, resources, strict=self._strict_names)
        return self._compiled

    def limits_in(self, namespace: str) -> list[Raw]:
        return list(self._limits.in_namespace(namespace))

    async def run(self) -> None:
        """Follow until cancelled; `ready` is set when everything is known."""
        async with asyncio.TaskGroup() as tasks:
            informers = self.quotas.informer, self._limits.informer, self._classes, self._resources
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            self.ready.set()

    def _forget_classes(self) -> None:
        self._compiled = None
