"""Class quotas on the wire: reads, conditional writes and lists around what `classquota` decides.

Any number of these may work at once, in webhooks and in controllers: every write has a condition, so nobody needs to be
the leader.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection
from typing import Any

from kubeqos.client import Api, ApiError
from kubeqos.codec import decode_json
from kubeqos.errors import RemoteError
from kubeqos.stock.classquota import NotCounted, QuotaExceeded, Unknown, Write, recount, release, reserve
from kubeqos.stock.cluster import PODS, QUOTAS, Cluster

Raw = dict[str, Any]
ATTEMPTS = 30
"""How often a write that somebody else was faster at is tried: more than there are webhooks and creators at once."""
_LONGEST_PAUSE = 0.05


class QuotaKeeper:
    """Charges pods to the class quotas of their namespaces, and counts what is stored."""

    def __init__(self, cluster: Cluster, now: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._api: Api = cluster.api
        self._now = now

    async def charge(self, namespace: str, pod: Raw, *, dry_run: bool = False) -> str | None:
        """Reserve for a pod in every quota of its namespace; what the first that refuses says, or None.

        What was reserved before a refusal is given back. Of a dry run nothing is kept.
        """
        level = self._cluster.classes.container_level
        charged: list[str] = []
        for quota in self._cluster.quotas_in(namespace):
            refused = await self._charge_one(quota, pod, level, dry_run)
            if refused is not None:
                for name in charged:
                    await self._give_back(namespace, name, pod["metadata"].get("uid", ""))
                return refused
            charged.append(quota["metadata"]["name"])
        return None

    async def count(self, namespace: str, name: str, gone: Collection[str] = ()) -> None:
        """Bring one quota's status up to what is stored; `gone` are uids of pods that were seen to be deleted."""
        for _ in range(ATTEMPTS):
            try:
                quota = await self._api.get(QUOTAS, name, namespace)
            except ApiError as error:
                if error.not_found:
                    return
                raise
            if await self._counted(quota, gone) is not None:
                return
            await _pause()
        raise RemoteError(f"the class quota {namespace}/{name} could not be counted: others write it all the time")

    async def _charge_one(self, quota: Raw, pod: Raw, level: Collection[str], dry_run: bool) -> str | None:
        """First with our own copy of the quota, which is mostly current; after a conflict with the stored one."""
        metadata = quota["metadata"]
        for _ in range(ATTEMPTS):
            answer = reserve(quota, pod, level, self._now())
            if isinstance(answer, QuotaExceeded | NotCounted):
                return answer.message if isinstance(answer, QuotaExceeded) else None
            if isinstance(answer, Unknown):
                written = await self._counted(quota)
            elif dry_run:
                return None
            else:
                written = await self._write(quota, answer)
                if written is not None:
                    return None
            if written is None:
                await _pause()
                try:
                    written = await self._api.get(QUOTAS, metadata["name"], metadata["namespace"])
                except ApiError as error:
                    if error.not_found:
                        return None  # the quota is gone, and with it what it had to say
                    raise
            quota = written
        return f"class quota {metadata['name']}: too many pods are created at once, try again"

    async def _counted(self, quota: Raw, gone: Collection[str] = ()) -> Raw | None:
        """The quota with a current count, or None where somebody wrote it meanwhile. The list comes after the read."""
        listing = await self._api.list(PODS, quota["metadata"]["namespace"])
        answer = recount(quota, [decode_json(raw) for raw in listing.items], self._now(), gone)
        return await self._write(quota, answer) if isinstance(answer, Write) else quota

    async def _give_back(self, namespace: str, name: str, uid: str) -> None:
        for _ in range(ATTEMPTS):
            quota = await self._api.get(QUOTAS, name, namespace)
            answer = release(quota, uid)
            if not isinstance(answer, Write) or await self._write(quota, answer) is not None:
                return
            await _pause()
        # It is given back by the next count after its time, as if the pod had been refused by somebody else.

    async def _write(self, quota: Raw, answer: Write) -> Raw | None:
        try:
            return await self._api.update(QUOTAS, {**quota, "status": answer.status}, subresource="status")
        except ApiError as error:
            if error.conflict:
                return None
            raise


async def _pause() -> None:
    await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
