"""The store: durable group commits per second at 64 writers, time to open 50,000 objects, cost of 1,000 watchers."""

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


async def fan_out(path: Path, watchers: int, events: int, per_second: int) -> float:
    """Processor seconds per delivery while writes arrive at a steady rate."""
    store = Store.open(path)
    delivered = 0

    async def follow() -> None:
        nonlocal delivered
        async for batch in store.watch("/registry/core/pods/", store.revision):
            delivered += len(batch)

    followers = [asyncio.create_task(follow()) for _ in range(watchers)]
    await asyncio.sleep(0)
    cpu, start = time.process_time(), time.perf_counter()
    writes = []
    for number in range(events):
        writes.append(asyncio.ensure_future(store.commit([Put(f"/registry/core/pods/new/{number}", POD)])))
        await asyncio.sleep(max(0.0, start + number / per_second - time.perf_counter()))
    await asyncio.gather(*writes)
    while delivered < watchers * events:  # noqa: ASYNC110 - counts what a thousand tasks add up
        await asyncio.sleep(0.01)
    spent = time.process_time() - cpu
    await store.close()
    await asyncio.gather(*followers)
    return spent / delivered


def main(objects: int = 50_000) -> None:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        path = Path(directory) / "state.db"
        rate = uvloop.run(write_and_fill(path, objects))
        opening, listing, count = uvloop.run(open_and_list(path))
        delivery = uvloop.run(fan_out(path, watchers=1000, events=1000, per_second=500))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"store, {count:,} objects of {len(POD):,} bytes, {platform.machine()}, {platform.platform()}")
    print(f"  durable rows/s, {WRITERS} writers, synchronous=FULL   {rate:10,.0f}   target 20,000")
    print(f"  open                                            {opening:8.2f} s   target under 2 s")
    print(f"  range over all, newest                          {listing * 1000:7.1f} ms")
    print(f"  delivery to one of 1,000 watchers, 500 events/s {delivery * 1e6:7.2f} µs of CPU")
    print(f"  peak resident                                   {resident:7.0f} MB")


if __name__ == "__main__":
    main()
