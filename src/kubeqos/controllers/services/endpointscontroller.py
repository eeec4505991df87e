"""The loop around `subsets`: the Endpoints of a service follow the pods that it selects, and go with it."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import ApiError, Change
from kubeqos.controllers.actions import Create, deletion, namespace_ends
from kubeqos.controllers.services.endpoints import TriggerTimes, selects
from kubeqos.controllers.services.selection import ServiceController
from kubeqos.controllers.services.subsets import ENDPOINTS, LEADER, desired, refused


class EndpointsController(ServiceController):
    name = "endpoint"

    def watch(self) -> None:
        super().watch()
        self._times = TriggerTimes()
        self.endpoints = self.follow(ENDPOINTS, _gone)

    async def run(self) -> None:
        """What a service left behind while nobody looked goes first; a lock of an elected leader never had one."""
        await self.services.informer.synced.wait()
        await self.endpoints.informer.synced.wait()
        for found in self.endpoints.all():
            metadata = found["metadata"]
            if LEADER not in (metadata.get("annotations") or {}):
                self.queue.add(f"{metadata['namespace']}/{metadata['name']}")
        await super().run()

    async def reconcile(self, key: str) -> float | None:
        service, existing = self.services.get(key), self.endpoints.get(key)
        if service is None:
            self._times.forget(key)
            if existing is not None:
                await self.context.do(deletion(ENDPOINTS, existing, "its service is gone"))
            return None
        if not selects(service):
            return None  # whoever made them keeps them
        pods = self._selected(service)
        for action in desired(service, pods, existing, self._times.of(key, service, pods)):
            try:
                await self.context.do(action)
            except ApiError as error:
                if isinstance(action, Create) and namespace_ends(error):
                    return None
                if not error.conflict:
                    await self.context.do(refused(key, action, existing, error.message))
                raise
        return None


def _gone(seen: Change) -> Iterable[str]:
    """Endpoints that somebody deletes are made again; what somebody writes into them stays until the next change."""
    return (seen.key,) if seen.new is None else ()
