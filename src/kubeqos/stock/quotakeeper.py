"""Class quotas on the wire: reads, conditional writes and lists around what `classquota` decides.

Any number of these may work at once, in webhooks and in controllers: every write has a condition, so nobody needs to be
the leader. Within one process pods do not compete: what is asked of a quota while a write to it is under way comes
together with the next one (group commit), so that a crowd costs few writes, and replicas compete once for each. Who
follows pods tells of those that are stored; the notes of their reservations go with writes that are made anyway.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prometheus_client import Histogram

from kubeqos.client import Api, ApiError
from kubeqos.codec import decode_json
from kubeqos.controllers.controller import split
from kubeqos.errors import RemoteError
from kubeqos.stock.classquota import GivenBack, Reservation, Stored, Unknown, Wish, Write, recount, settle
from kubeqos.stock.cluster import PODS, QUOTAS, Cluster

Raw = dict[str, Any]
ATTEMPTS = 30
"""How often a count that somebody else was faster at is tried."""
PATIENCE_SECONDS = 10.0
"""How long pods wait for their turn among replicas: no API server waits longer for a webhook of ours."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Of seconds, where the question is whether an API server waits for ten milliseconds."""


def quota_writes() -> Histogram:
    """How long an API server takes for a quota's status, by what became of the write."""
    return Histogram(
        "kubeqos_class_quota_write_duration_seconds",
        "Time an API server takes to write the status of a class quota.",
        ["result"],
        registry=None,
        buckets=BUCKETS,
    )


class QuotaKeeper:
    """Charges pods to the class quotas of their namespaces, and counts what is stored."""

    def __init__(self, cluster: Cluster, now: Callable[[], float] = time.time, writes: Histogram | None = None) -> None:
        self._cluster = cluster
        self._api: Api = cluster.api
        self._now = now
        self._writes = writes or quota_writes()
        self._waiting: dict[str, list[tuple[Wish, asyncio.Future[str | None]]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._stored: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """By quota: uids of pods that were seen, and when, the oldest first, whose notes are not known to be gone."""

    async def charge(self, namespace: str, pod: Raw, *, dry_run: bool = False) -> str | None:
        """Reserve for a pod in every quota of its namespace; what the first that refuses says, or None.

        What was reserved before a refusal is given back. Of a dry run nothing is kept.
        """
        wish = Reservation.of(pod, dry_run=dry_run)
        charged: list[str] = []
        for key in self._cluster.quotas.keys_in(namespace):
            refused = await self._ask(key, wish)
            if refused is not None:
                for before in () if dry_run else charged:
                    await self._ask(before, GivenBack(wish.uid))
                return refused
            charged.append(key)
        return None

    def saw(self, namespace: str, uid: str) -> None:
        """A pod is stored. Writes from now on take out what is noted of it; `confirm` does it where there are none."""
        for key in self._cluster.quotas.keys_in(namespace):
            self._stored[key].setdefault(uid, time.monotonic())

    async def confirm(self, namespace: str, patience_seconds: float) -> float | None:
        """Take out what no other write has taken out for so long; seconds until there may be more of it.

        A quota that has nothing noted of a pod is counted: the pod may have come past the webhooks.
        """
        soonest: list[float] = []
        for key in [key for key in self._stored if split(key)[0] == namespace]:
            seen = self._stored.get(key)
            if seen is None:
                continue  # a write has taken them out meanwhile
            wait = next(iter(seen.values())) + patience_seconds - time.monotonic()
            if wait > 0:
                soonest.append(wait)
                continue
            del self._stored[key]
            try:
                told = await asyncio.gather(*(self._ask(key, Stored(uid)) for uid in seen))
                if any(told):
                    await self.count(*split(key))
            except Exception:
                self._stored[key] = seen | self._stored[key]
                raise
        return min(soonest, default=None)

    async def count(self, namespace: str, name: str, gone: Collection[str] = ()) -> None:
        """Bring one quota's status up to what is stored; `gone` are uids of pods that were seen to be deleted."""
        key = f"{namespace}/{name}"
        seen = list(self._stored.get(key, ()))
        for attempt in range(ATTEMPTS):
            quota = await self._read(key)
            if quota is None or await self._counted(quota, gone) is not None:
                self._forget(key, seen)  # listed, or gone
                return
            await _pause(attempt)
        raise RemoteError(f"the class quota {namespace}/{name} could not be counted: others write it all the time")

    async def _ask(self, key: str, wish: Wish) -> str | None:
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._waiting[key] = []
            worker = asyncio.create_task(self._serve(key))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        self._waiting[key].append((wish, answer))
        return await answer

    async def _serve(self, key: str) -> None:
        """Who comes while others are served is served next, together; until nobody is left."""
        while batch := self._waiting[key]:
            self._waiting[key] = []
            try:
                told = await self._commit(key, [wish for wish, _ in batch])
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), words in zip(batch, told, strict=True):
                    if not answer.done():  # its request may have ended meanwhile
                        answer.set_result(words)
        del self._waiting[key]

    async def _commit(self, key: str, wishes: Sequence[Wish]) -> Sequence[str | None]:
        """First with our own copy of the quota, which is mostly current; after a conflict with the stored one.

        A conflict means that another replica has got on, so there is an end to them. A refusal is told only by what is
        stored: our copy may not know yet of what was given back.
        """
        level = self._cluster.classes.container_level
        quota, current = self._cluster.quotas.get(key), False
        deadline = time.monotonic() + PATIENCE_SECONDS
        attempt = 0
        while quota is not None:
            settled = settle(quota, wishes, level, self._now(), self._stored.get(key, ()))
            if isinstance(settled, Unknown):
                written = await self._counted(quota)
            elif settled.status is not None:
                written = await self._write(quota, settled.status)
                if written is not None:
                    noted = quota["status"].get("reserved") or {}
                    self._forget(key, noted.keys() - settled.status["reserved"].keys())
                    return settled.answers
            elif current or not any(settled.answers):
                return settled.answers
            else:
                written = None
            if written is None:
                if time.monotonic() > deadline:
                    raise RemoteError(f"others write the class quota {key} all the time", remedy="try again")
                if attempt:
                    await _pause(attempt)
                attempt += 1
                written = await self._read(key)
            quota, current = written, True
        return [None] * len(wishes)  # the quota is gone, and with it what it had to say

    def _forget(self, key: str, uids: Iterable[str]) -> None:
        """Nothing is noted of these pods any more."""
        seen = self._stored.get(key, {})
        for uid in uids:
            seen.pop(uid, None)
        if not seen:
            self._stored.pop(key, None)

    async def _read(self, key: str) -> Raw | None:
        namespace, name = split(key)
        try:
            return await self._api.get(QUOTAS, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def _counted(self, quota: Raw, gone: Collection[str] = ()) -> Raw | None:
        """The quota with a current count, or None where somebody wrote it meanwhile. The list comes after the read."""
        listing = await self._api.list(PODS, quota["metadata"]["namespace"])
        answer = recount(quota, [decode_json(raw) for raw in listing.items], self._now(), gone)
        return await self._write(quota, answer.status) if isinstance(answer, Write) else quota

    async def _write(self, quota: Raw, status: Raw) -> Raw | None:
        started, result = time.perf_counter(), "failed"
        try:
            written = await self._api.update(QUOTAS, {**quota, "status": status}, subresource="status")
            result = "written"
        except ApiError as error:
            if error.conflict:
                result = "conflict"
                return None
            raise
        finally:
            self._writes.labels(result).observe(time.perf_counter() - started)
        self._cluster.quotas.learn(written)
        return written


async def _pause(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)))
