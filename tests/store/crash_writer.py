"""The victim of the crash loop: writers that acknowledge on a pipe until they are killed.

Every transaction writes a pair of keys and charges a counter that is coalesced per batch, as pods charge a quota.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from kubeqos.store import Delete, Put, Retention, Store

WRITERS = 8


def run(path: Path, start: int, acknowledge: Connection) -> None:
    asyncio.run(write(path, start, acknowledge))


async def write(path: Path, start: int, acknowledge: Connection) -> None:
    store = Store.open(path, retention=Retention(seconds=3600, revisions=50))
    used = len(store.range("/left/").items)

    def usage(revision: int) -> bytes:
        return b"%d" % used

    if store.get("/usage") is None:
        await store.commit([Put("/usage", b"0", expect=0)])
    numbers = iter(range(start, start + 1_000_000))

    async def writer() -> None:
        nonlocal used
        for number in numbers:
            value = b"%d" % number * 50
            used += 1
            pair = [Put(f"/left/{number}", value, expect=0), Put(f"/right/{number}", value, expect=0)]
            revision = await store.commit(pair, {"/usage": usage})
            acknowledge.send_bytes(b"put %d %d" % (number, revision))
            if number % 3 == 0:
                used -= 1
                pair = [Delete(f"/left/{number}"), Delete(f"/right/{number}")]
                revision = await store.commit(pair, {"/usage": usage})
                acknowledge.send_bytes(b"delete %d %d" % (number, revision))

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
