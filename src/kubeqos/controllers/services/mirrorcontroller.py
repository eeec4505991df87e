"""The loop around `mirroring`: slices follow the Endpoints that somebody wrote for a service without a selector."""

from __future__ import annotations

from kubeqos.client import ApiError
from kubeqos.client.resources import SERVICES
from kubeqos.controllers.actions import namespace_ends
from kubeqos.controllers.controller import Controller, itself
from kubeqos.controllers.services.kept import KeptSlices
from kubeqos.controllers.services.mirroring import OURS, desired, is_open
from kubeqos.controllers.services.subsets import ENDPOINTS


class EndpointSliceMirroringController(Controller):
    name = "endpointslicemirroring"

    def watch(self) -> None:
        self.services = self.follow(SERVICES, itself)
        self.endpoints = self.follow(ENDPOINTS, itself)
        self.slices = KeptSlices(self, OURS)

    async def reconcile(self, key: str) -> float | None:
        service = self.services.get(key)
        # Most services select their pods: their Endpoints, which may be large, are not even read.
        endpoints = self.endpoints.get(key) if is_open(service) else None
        try:
            await self.context.perform(desired(service, endpoints, self.slices.of(key, endpoints)))
        except ApiError as error:
            if not namespace_ends(error):
                raise
        return None
