"""Objects that a role names one by one (`resourceNames`): nobody may list them, so they are read by their names.

For `kubeqos dashboard` beside a cluster, whose user may have no more than that. An informer follows them as it follows
any collection; what it takes for a list is one GET for each name, every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from kubeqos.client import Api, ApiError
from kubeqos.client.api import Listing, WatchEvent
from kubeqos.client.resources import Resource
from kubeqos.codec import JsonObject, encode_json
from kubeqos.dashboard.sight import named

LOOK_SECONDS = 2.0
MOST_NAMES = 100


class ByName:
    """As much of an API as an informer asks."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(self, path: str) -> JsonObject:
        return await self._api.read(path)

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", page: int = 0
    ) -> Listing:
        """What the identity's roles name now, as far as it is there. No revision: it cannot be watched from any."""
        rules = await named(self._api, namespace)
        names = sorted({key.rpartition("/")[2] for kind, key in rules if kind == resource.plural})
        found = [await self._one(resource, name, namespace) for name in names[:MOST_NAMES]]
        return Listing([raw for raw in found if raw is not None], "")

    async def _one(self, resource: Resource, name: str, namespace: str) -> bytes | None:
        try:
            return encode_json(await self._api.get(resource, name, namespace))
        except ApiError as error:
            if error.status in (403, 404):
                return None  # it is gone, or the right to see it
            raise

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Nothing until it is time to look again."""
        await asyncio.sleep(LOOK_SECONDS)
        for event in list[WatchEvent]():
            yield event
