"""One of several replicas leads: whoever holds a Lease, as client-go's leader election does it.

Who leads renews the Lease; who does not watches whether it is renewed, by its own clock, so that clocks need not agree.
A leader that cannot renew in time stops its work before another may begin. Used by every part that runs in replicas.
The functions decide and are pure; `Leadership` reads and writes, on the condition that nobody else wrote meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import LEASES
from kubeqos.codec import JsonObject
from kubeqos.logs import logger
from kubeqos.model.timestamps import micro_timestamp

log = logger("kubeqos.leadership")


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a lease holds, how long a leader tries to renew it before it gives up, how often everybody tries."""

    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The last version of the Lease that differed from the one before, and when it was first seen, by our clock."""

    holder: str = ""
    renewed: str = ""
    at: float = 0.0


def observed(seen: Seen, lease: JsonObject, now: float) -> Seen:
    """What is known after another look."""
    spec = lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    return seen if (seen.holder, seen.renewed) == (holder, renewed) and seen.at else Seen(holder, renewed, now)


def is_free(seen: Seen, lease: JsonObject, identity: str, now: float) -> bool:
    """Whether we may write ourselves into it: it is ours, nobody's, or was not renewed while it would hold."""
    if seen.holder in ("", identity):
        return True
    return now - seen.at >= float((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def taken(lease: JsonObject, identity: str, terms: Terms, now: float) -> JsonObject:
    """The Lease with us as its holder, renewed now."""
    spec = lease.get("spec") or {}
    ours = spec.get("holderIdentity") == identity
    changed = {
        "holderIdentity": identity,
        "leaseDurationSeconds": max(1, round(terms.lease_seconds)),
        "acquireTime": spec.get("acquireTime") if ours else micro_timestamp(now),
        "renewTime": micro_timestamp(now),
        "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not ours),
    }
    return {**lease, "spec": {**spec, **changed}}


class Leadership:
    """One replica's part in the election over a Lease."""

    def __init__(self, api: Api, name: str, namespace: str, identity: str, terms: Terms | None = None) -> None:
        self._api = api
        self._name, self._namespace = name, namespace
        self._identity = identity
        self._terms = terms or Terms()
        self._seen = Seen()
        self.leads = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work whenever we lead, until cancelled or until it ends by itself; then let another lead at once."""
        while True:
            while not await self._try():  # noqa: ASYNC110 - the lease is another's, and time is what frees it
                await asyncio.sleep(self._terms.retry_seconds * random.uniform(1.0, 1.2))
            log.info("leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)
            self.leads = True
            try:
                if await self._lead(work):
                    return
            finally:
                self.leads = False
                await self._release()
            log.warning("no longer leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Work and renew; whether the work has ended, rather than the leadership."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                return True
            renewing.result()
            return False
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)

    async def _renew(self) -> None:
        """Ends when the lease could not be renewed in time, or is another's."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < self._terms.renew_seconds:
            await asyncio.sleep(self._terms.retry_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._terms.renew_seconds - (time.monotonic() - renewed)):
                    if await self._try():
                        renewed = time.monotonic()
                    elif self._seen.holder not in ("", self._identity):
                        return

    async def _try(self) -> bool:
        """Take or renew the lease; False where it is another's or the server does not take it."""
        try:
            lease = await self._read()
            if lease is None:
                await self._api.create(LEASES, taken(self._empty(), self._identity, self._terms, time.time()))
                return True
            self._seen = observed(self._seen, lease, time.monotonic())
            if not is_free(self._seen, lease, self._identity, time.monotonic()):
                return False
            await self._api.update(LEASES, taken(lease, self._identity, self._terms, time.time()))
        except ApiError as error:
            if not (error.conflict or error.already_exists):
                log.warning("the lease cannot be written", lease=f"{self._namespace}/{self._name}", error=error.what)
            return False
        except Unreachable as error:
            log.warning("the lease cannot be reached", error=error.what)
            return False
        return True

    async def _release(self) -> None:
        """Let another lead now rather than when the lease runs out; where that fails it runs out."""
        try:
            lease = await self._read()
            if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._api.update(LEASES, {**lease, "spec": {**spec, "renewTime": micro_timestamp(time.time())}})
        except (ApiError, Unreachable) as error:
            log.info("the lease was not given back; it runs out", error=error.what)

    async def _read(self) -> JsonObject | None:
        try:
            return await self._api.get(LEASES, self._name, self._namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _empty(self) -> JsonObject:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata}
