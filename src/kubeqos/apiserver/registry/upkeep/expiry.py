"""Pods that outlive their grace period stop being charged: a node that never confirms their end does not hold a quota.

Kubernetes' rule (kubernetes-control-plane §2.4): a pod that is being deleted counts until its deletion time plus its
grace period. Nothing is written to the pod when that moment passes, so somebody has to watch the clock: this task
follows terminating pods and tells the admission chain, which gives back what they used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.codec import JsonObject, decode_json
from kubeqos.logs import logger
from kubeqos.model.timestamps import seconds_of
from kubeqos.store import Store, StoreError

_PODS = kind_named("Pod")
RETRY_SECONDS = 5.0
_GOING = b'"deletionTimestamp":'
log = logger("kubeqos.apiserver")


def expires_at(pod: JsonObject) -> float | None:
    """When a pod that is being deleted is no longer charged; None when it is not being deleted."""
    metadata = pod["metadata"]
    ends = seconds_of(metadata.get("deletionTimestamp") or "")
    return None if ends is None else ends + (metadata.get("deletionGracePeriodSeconds") or 0)


class Expiry:
    """Follows the pods of one store."""

    def __init__(self, store: Store, chain: Chain, clock: Callable[[], float]) -> None:
        self._store = store
        self._chain = chain
        self._clock = clock
        self._due: dict[str, float] = {}  # key → when
        self._sooner = asyncio.Event()

    async def run(self) -> None:
        """Work as long as the server runs."""
        revision = self._store.revision
        for stored in self._store.range(_PODS.prefix).items:
            self._seen(stored.key, stored.value)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(revision))
            tasks.create_task(self._expire())

    async def _follow(self, revision: int) -> None:
        async for events in self._store.watch(_PODS.prefix, revision):
            for event in events:
                if event.type != "DELETED":
                    self._seen(event.key, event.value)
                elif self._due.pop(event.key, None) is not None or self._chain.ledger.expired:
                    self._chain.ledger.expired.discard(decode_json(event.value)["metadata"]["uid"])
            await asyncio.sleep(0)

    def _seen(self, key: str, value: bytes) -> None:
        if _GOING not in value:
            return
        pod = decode_json(value)
        when = expires_at(pod)
        if when is not None and pod["metadata"]["uid"] not in self._chain.ledger.expired:
            self._due[key] = when
            self._sooner.set()

    async def _expire(self) -> None:
        while True:
            self._sooner.clear()
            now = self._clock()
            for key in [key for key, when in self._due.items() if when < now]:
                del self._due[key]
                await self._end(key)
            left = min(self._due.values(), default=now + 3600) - self._clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(left, 0) + 0.01):
                    await self._sooner.wait()

    async def _end(self, key: str) -> None:
        stored = self._store.get(key, pending=True)
        if stored is None:
            return
        pod = decode_json(stored.value)
        when = expires_at(pod)
        if when is not None and when < self._clock():
            try:
                await self._chain.expire(pod)
            except StoreError as error:  # a full disk, for example: it will have room again
                log.error("quota of expired pod %s: %s; trying again in %g s", key, error, RETRY_SECONDS)
                self._due[key] = self._clock() + RETRY_SECONDS
