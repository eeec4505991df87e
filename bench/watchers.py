"""A thousand watchers and five hundred creates a second: does everybody see everything, and what does it cost?

Run with `python -m bench.watchers`. Server, watchers and creates each have a process; with 1,000 watchers, the server
and the watchers each have most of one of two cores to do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

import uvloop

from bench.apiserver import PODS, TOKEN, Server, server
from bench.machine import describe
from bench.pods import one_template
from bench.watchclient import Watchers
from kubeqos.codec import JsonObject, encode_json

WATCHERS = 1000
RATE = 500
SECONDS = 10
HEAD = "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"
POST = HEAD[:-2].replace("GET", "POST") + "Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
MOST_OF_A_CORE = 0.85


def config_map(name: str, _number: int) -> JsonObject:
    return {"metadata": {"name": name}}


WATCHED: Mapping[str, Callable[[str, int], JsonObject]] = {
    "/api/v1/namespaces/bench/configmaps": config_map,
    PODS: one_template,
}
"""Small objects, which show what a delivery costs; pods, where bytes through TLS and the loopback do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the watchers have to tell at the end."""

    names: list[str]
    complete: int
    last: float
    cpu_seconds: float
    reads: int
    received: int
    event_bytes: int
    cipher: str


def context(live: Server) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(live.directory / "data/pki/ca.crt"))
    found.check_hostname = False
    return found


def watch(live: Server, collection: str, version: str, expected: int, pipe: Connection) -> None:
    """The process of the watchers: opens all, says so, reads."""
    path = f"{collection}?watch=true&resourceVersion={version}&timeoutSeconds=300"
    watchers = Watchers(live.port, context(live), HEAD.format(path=path, token=TOKEN).encode(), expected)
    watchers.open(WATCHERS)
    pipe.send("open")
    cpu = time.process_time()
    watchers.read()
    spent, size = time.process_time() - cpu, len(watchers.stream.content)
    complete = sum(watcher.position == size for watcher in watchers.all)
    last = max(watcher.last for watcher in watchers.all)
    pipe.send(
        Seen(
            watchers.stream.names(),
            complete,
            last,
            spent,
            watchers.reads,
            watchers.received,
            size // expected,
            watchers.cipher,
        )
    )


async def create(live: Server, collection: str, count: int) -> tuple[float, float]:
    """Creates at a steady rate over 16 connections; when that began, and how long it took."""
    tls, numbers = context(live), iter(range(count))
    bodies = [encode_json(WATCHED[collection](f"w{number}", number)) for number in range(count)]
    connections = [await asyncio.open_connection("127.0.0.1", live.port, ssl=tls) for _ in range(16)]
    started = time.perf_counter()

    async def worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, started + number / RATE - time.perf_counter()))
            body = bodies[number]
            writer.write(POST.format(path=collection, token=TOKEN, size=len(body)).encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in answer.partition(b"\r\n")[0], answer
            size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)

    await asyncio.gather(*(worker(*connection) for connection in connections))
    return started, time.perf_counter() - started


def measure(live: Server, collection: str) -> None:
    count = RATE * SECONDS
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    version = live.call("GET", collection)[1].partition(b'"resourceVersion":"')[2].partition(b'"')[0].decode()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=watch, args=(live, collection, version, count, theirs), daemon=True
    )
    process.start()
    assert ours.recv() == "open"
    cpu, creating = live.cpu_seconds(), time.process_time()
    started, took = uvloop.run(create(live, collection, count))
    creating = time.process_time() - creating
    assert ours.poll(60), "some watcher has not seen every event"
    seen: Seen = ours.recv()
    report(seen, count, took, live.cpu_seconds() - cpu, creating, seen.last - started)
    print(f"resident with {WATCHERS} watchers {live.resident_mb():.0f} MB")


def report(seen: Seen, count: int, took: float, server_cpu: float, creating: float, until_last: float) -> None:
    assert sorted(seen.names) == sorted(f"w{number}" for number in range(count))
    millions = count * WATCHERS / 1e6
    print(f"{seen.cipher}, {seen.event_bytes} bytes per event, {seen.received / seen.reads / 1024:.0f} kB per read")
    print(
        f"{seen.complete}/{WATCHERS} watchers saw all {count}, byte for byte; the last {until_last - took:.2f} s after"
    )
    print(f"achieved {count / took:.0f} creates/s   target {RATE}/s")
    for who, seconds in (("server", server_cpu), ("watchers", seen.cpu_seconds)):
        share = seconds / until_last
        print(
            f"CPU of {who:<8} {seconds:5.2f} s = {seconds / millions:.2f} s per million deliveries, "
            f"{share:.2f} of a core   target ≤ {MOST_OF_A_CORE}"
        )
    print(f"CPU of creates  {creating:5.2f} s = {creating / until_last:.2f} of a core")


def main() -> None:
    for collection in WATCHED:
        print(f"{WATCHERS} watchers of {collection.rpartition('/')[2]}")
        with server() as live:
            measure(live, collection)


if __name__ == "__main__":
    print(describe())
    main()
