"""A thousand watchers and five hundred creates a second: does everybody see everything, and what does it cost?

Run with `python -m bench.watchers`. Watchers are plain TLS connections in this process; the server has one of its own.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping

import uvloop

from bench.apiserver import PODS, TOKEN, Server, server
from bench.machine import describe
from bench.pods import one_template
from kubeqos.codec import JsonObject, encode_json

WATCHERS = 1000
RATE = 500
SECONDS = 6
HEAD = "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"


POST = HEAD[:-2].replace("GET", "POST") + "Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"


def config_map(name: str, _number: int) -> JsonObject:
    return {"metadata": {"name": name}}


WATCHED: Mapping[str, Callable[[str, int], JsonObject]] = {
    "/api/v1/namespaces/bench/configmaps": config_map,
    PODS: one_template,
}
"""Small objects, which show what the server can do; pods, where TLS on both sides of the loopback takes half of it."""


class Watcher(asyncio.Protocol):
    """Counts events on one connection: each is a line, in an answer whose only other lines are those of its chunks."""

    def __init__(self, expected: int, request: bytes) -> None:
        self.expected = expected
        self.request = request
        self.seen = 0
        self.last = 0.0
        self.open, self.done = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.open.is_set():  # the head comes by itself, before any event
            assert data.startswith(b"HTTP/1.1 200 "), data
            self.open.set()
            return
        self.seen += data.count(b"\n") - data.count(b"\r")
        self.last = time.perf_counter()
        if self.seen >= self.expected:
            self.done.set()


async def watch(live: Server, context: ssl.SSLContext, collection: str, version: str, expected: int) -> list[Watcher]:
    """Open all watches."""
    path = f"{collection}?watch=true&resourceVersion={version}&timeoutSeconds=120"
    request = HEAD.format(path=path, token=TOKEN).encode()
    loop, opening = asyncio.get_running_loop(), asyncio.Semaphore(50)

    async def connect() -> Watcher:
        async with opening:
            _, watcher = await loop.create_connection(
                lambda: Watcher(expected, request), "127.0.0.1", live.port, ssl=context
            )
            await watcher.open.wait()
            return watcher

    return await asyncio.gather(*(connect() for _ in range(WATCHERS)))


async def create(live: Server, context: ssl.SSLContext, collection: str, count: int) -> None:
    """Creates at a steady rate over 16 connections."""
    started = time.perf_counter()
    numbers = iter(range(count))

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port, ssl=context)
        for number in numbers:
            await asyncio.sleep(max(0.0, started + number / RATE - time.perf_counter()))
            body = encode_json(WATCHED[collection](f"w{number}", number))
            writer.write(POST.format(path=collection, token=TOKEN, size=len(body)).encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in answer.partition(b"\r\n")[0], answer
            size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)

    await asyncio.gather(*(worker() for _ in range(16)))


async def measure(live: Server, collection: str) -> None:
    context = ssl.create_default_context(cafile=str(live.directory / "data/pki/ca.crt"))
    context.check_hostname = False
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    version = str(live.call("GET", collection)[1].partition(b'"resourceVersion":"')[2].partition(b'"')[0].decode())
    watchers = await watch(live, context, collection, version, RATE * SECONDS)
    count, cpu, ours, started = RATE * SECONDS, live.cpu_seconds(), time.process_time(), time.perf_counter()
    await create(live, context, collection, count)
    took = time.perf_counter() - started
    await asyncio.wait_for(asyncio.gather(*(watcher.done.wait() for watcher in watchers)), 60)
    lag = max(w.last for w in watchers) - started - took
    complete = sum(w.seen == count for w in watchers)
    print(f"{count} creates in {took:.1f} s, {complete}/{WATCHERS} watchers saw every one, the last {lag:.2f} s after")
    server, client = live.cpu_seconds() - cpu, time.process_time() - ours
    print(f"CPU for {sum(w.seen for w in watchers)} deliveries: server {server:.1f} s, watchers {client:.1f} s")
    print(f"achieved {count / took:.0f} creates/s   target {RATE}/s (a core has {took:.1f} s in this time)")


def main() -> None:
    for collection in WATCHED:
        print(f"{WATCHERS} watchers of {collection.rpartition('/')[2]}")
        with server() as live:
            uvloop.run(measure(live, collection))


if __name__ == "__main__":
    print(describe())
    main()
