"""Events are news, not records: they leave the store an hour after they were last seen, as they do in Kubernetes.

All objects are in memory here, so that there is a bound as well: of a flood only the newest are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.codec import JsonObject, decode_json
from kubeqos.model.timestamps import seconds_of
from kubeqos.store import Delete, Store, Stored, StoreError

EVENT_SECONDS = 3600.0
SWEEP_SECONDS = 60.0
MOST_EVENTS = 20_000
_TOGETHER = 500


def last_seen(event: JsonObject) -> float | None:
    """When an event was last reported; its creation when it does not say."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    stamp = next((time for time in times if time), event["metadata"].get("creationTimestamp"))
    created = seconds_of(event["metadata"].get("creationTimestamp") or "")
    seen = seconds_of(stamp) if stamp else None
    # A report may carry any time at all; an event that was just written stays for its hour all the same.
    return max(filter(None, (seen, created)), default=None)


def expired(items: list[Stored], now: float, most: int = MOST_EVENTS) -> Iterator[Stored]:
    """What was reported too long ago, and what was written before the newest `most`."""
    newest = sorted(items, key=lambda stored: stored.revision, reverse=True)
    yield from newest[most:]
    for stored in newest[:most]:
        seen = last_seen(decode_json(stored.value))
        if seen is not None and now - seen > EVENT_SECONDS:
            yield stored


async def expire_events(store: Store, clock: Callable[[], float]) -> None:
    """Sweep for as long as the server runs."""
    prefix = kind_named("Event").prefix
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await sweep(store, prefix, clock())


async def sweep(store: Store, prefix: str, now: float) -> int:
    """Delete what is too old; an event that is reported again meanwhile stays."""
    old = list(expired(store.range(prefix).items, now))
    gone = 0
    for start in range(0, len(old), _TOGETHER):
        current = [s for s in old[start : start + _TOGETHER] if _unchanged(store, s)]
        if current:
            try:
                await store.commit([Delete(s.key, expect=s.revision) for s in current])
            except StoreError:
                return gone  # read-only: there will be no more events either
            gone += len(current)
    return gone


def _unchanged(store: Store, stored: Stored) -> bool:
    found = store.get(stored.key, pending=True)
    return found is not None and found.revision == stored.revision
