"""The store: durable group commits per second at 64 writers, and the time to open 50,000 objects."""

from __future__ import annotations

import asyncio
import gc
import platform
import resource
import tempfile
import time
from pathlib import Path

import uvloop

from kubeqos.store import Put, Store

POD = b'{"kind":"Pod","metadata":{"name":"p"},"pad":"' + b"x" * 5300 + b'"}'
WRITERS = 64


async def write_rows(store: Store, rows: int) -> float:
    """Rows per second of `WRITERS` tasks that each wait for their own acknowledgement."""
    numbers = iter(range(rows))

    async def writer() -> None:
        for number in numbers:
            await store.commit([Put(f"/registry/core/pods/default/pod-{number:06}", POD + b"%d" % number, expect=0)])

    start = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return rows / (time.perf_counter() - start)


async def write_and_fill(path: Path, objects: int) -> float:
    store = Store.open(path)
    rate = await write_rows(store, objects)
    await store.close()
    return rate


async def open_and_list(path: Path) -> tuple[float, float, int]:
    gc.collect()
    start = time.perf_counter()
    store = Store.open(path)
    opened = time.perf_counter()
    count = len(store.range("/registry/core/pods/").items)
    listed = time.perf_counter()
    await store.close()
    return opened - start, listed - opened, count


def main(objects: int = 50_000) -> None:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        path = Path(directory) / "state.db"
        rate = uvloop.run(write_and_fill(path, objects))
        opening, listing, count = uvloop.run(open_and_list(path))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"store, {count:,} objects of {len(POD):,} bytes, {platform.machine()}, {platform.platform()}")
    print(f"  durable rows/s, {WRITERS} writers, synchronous=FULL   {rate:10,.0f}   target 20,000")
    print(f"  open                                            {opening:8.2f} s   target under 2 s")
    print(f"  range over all, newest                          {listing * 1000:7.1f} ms")
    print(f"  peak resident                                   {resident:7.0f} MB")


if __name__ == "__main__":
    main()
