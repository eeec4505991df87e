"""The client's side of `bench.wire`, run as processes of their own so that their CPU is theirs alone.

Each prints what it found as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.apiserver import resident_mb
from bench.pods import one_template
from bench.scheduler import node
from kubeqos.client.api import Api, PatchType
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import NODES, PODS
from kubeqos.cluster.fleet import Fleet, NodeShape
from kubeqos.model.hardware.loading import load_machine
from kubeqos.web.garbage import freeze_loaded

BOUND = b'"nodeName":"'
SILENCE_SECONDS = 60.0
PATIENCE = 60


class Handshakes:
    """Counts TLS connections that this process opens, whoever opens them."""

    def __init__(self) -> None:
        self.made: list[ssl.SSLObject] = []
        wrap = ssl.SSLContext.wrap_bio

        def counted(context: ssl.SSLContext, *words: Any, **more: Any) -> ssl.SSLObject:
            found = wrap(context, *words, **more)
            self.made.append(found)
            return found

        ssl.SSLContext.wrap_bio = counted  # type: ignore[method-assign,assignment]

    @property
    def resumed(self) -> int:
        return sum(1 for one in self.made if one.session_reused)


async def all_of(count: int, at_once: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Do numbered work, so much at once; requests per second."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return count / (time.perf_counter() - started)


async def requests(kubeconfig: str, verb: str, count: str, at_once: str) -> dict[str, float]:
    """Requests through the client, and what they cost this process."""
    counted = Handshakes()
    api = HttpApi.from_kubeconfig(Path(kubeconfig))

    async def get(_number: int) -> None:
        await api.get(PODS, "one", "bench")

    async def post(number: int) -> None:
        await api.create(PODS, one_template(f"made-{number}", number), "bench")

    work = get if verb == "GET" else post
    busy = time.process_time()
    rate = await all_of(int(count), int(at_once), work)
    busy = time.process_time() - busy
    await api.close()
    return {
        "rate": rate,
        "cpu_ms": 1e3 * busy / int(count),
        "handshakes": len(counted.made),
        "connections": len({id(one) for one in counted.made}),
        "resumed": counted.resumed,
    }


async def nodes(kubeconfig: str, count: str, kind: str) -> dict[str, float]:
    """Nodes as an agent would make them, with classes or with an extended resource in their place."""
    api = HttpApi.from_kubeconfig(Path(kubeconfig))

    async def make(number: int) -> None:
        await make_node(api, number, classes=kind == "classes")

    rate = await all_of(int(count), 32, make)
    await api.close()
    return {"rate": 3 * rate}


async def make_node(api: Api, number: int, *, classes: bool) -> None:
    raw: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", **node(number), "spec": {}}
    status = raw.pop("status")
    if not classes:
        status = {"allocatable": {**status["allocatable"], "example.com/gold": "3"}}
        status["capacity"] = status["allocatable"]
    name = raw["metadata"]["name"]
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastHeartbeatTime": None}
    said = {"status": {**status, "conditions": [ready]}}
    await patiently(lambda: api.create(NODES, raw))
    # New nodes are not ready until somebody says they are.
    await patiently(lambda: api.patch(NODES, name, {"spec": {"taints": None}}))
    await patiently(lambda: api.patch(NODES, name, said, type=PatchType.STRATEGIC, subresource="status"))


async def patiently(work: Callable[[], Awaitable[object]]) -> None:
    """Again when the server has no time: a store on a busy disk lets requests time out, which is not measured."""
    for _ in range(PATIENCE):
        try:
            await work()
        except Unreachable:
            await asyncio.sleep(1)
        except ApiError as error:
            if error.already_exists:  # it was carried out, though nobody said so
                return
            if not error.is_passing:
                raise
            await asyncio.sleep(1)
        else:
            return
    raise SystemExit("the server has no time for the nodes")


async def watch(kubeconfig: str, expected: str) -> dict[str, float]:
    """See pods being bound: how many, and when the last one was. Says when it has begun."""
    api = HttpApi.from_kubeconfig(Path(kubeconfig))
    informer, seen = Informer(api, PODS, namespace="bench"), {"bound": 0.0, "last": time.time()}

    def changed(change: Change) -> None:
        if change.new and BOUND in change.new and not (change.old and BOUND in change.old):
            seen["bound"] += 1
            seen["last"] = time.time()

    following = asyncio.create_task(informer.run())
    await informer.synced.wait()
    informer.on_change(changed)
    known, seen["bound"] = seen["bound"], 0.0
    print(f"watching; {known:.0f} are bound already", flush=True)
    while seen["bound"] < int(expected) and time.time() - seen["last"] < SILENCE_SECONDS:  # noqa: ASYNC110 - or silence
        await asyncio.sleep(0.05)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await api.close()
    return seen


async def fleet(kubeconfig: str, count: str, pods_each: str, seconds: str) -> dict[str, float]:
    """Agents in one process over one client; what they take when all pods run and nothing happens but heartbeats."""
    api = HttpApi.from_kubeconfig(Path(kubeconfig))
    names = [f"node-{number}" for number in range(int(count))]
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as folder:
        async with Fleet(Path(folder), virtual=False, api=api) as many:
            await many.add(names, NodeShape(load_machine("laptop8"), settings={"nodeStatusUpdateFrequency": "10s"}))

            async def start(number: int) -> None:
                raw = one_template(f"p{number}", number)
                raw["spec"]["nodeName"] = names[number % len(names)]
                await api.create(PODS, raw, "bench")

            wanted = len(names) * int(pods_each)
            await all_of(wanted, 32, start)
            started, running = time.perf_counter(), 0
            while running < wanted and time.perf_counter() - started < 300:
                await asyncio.sleep(1)
                phases = [phase for node in many.nodes.values() for phase in node.phases().values()]
                running = sum(phase == "Running" for phase in phases)
            freeze_loaded()
            sent, busy, began = _sent(api), time.process_time(), time.perf_counter()
            await asyncio.sleep(float(seconds))
            took = time.perf_counter() - began
            found = {
                "running": running,
                "core": (time.process_time() - busy) / took,
                "requests": (_sent(api) - sent) / took,
                "connections": len(api.transport.pool) + 1,  # and the watch
                "resident_mb": resident_mb(os.getpid()),
            }
    await api.close()
    return found


def _sent(api: HttpApi) -> int:
    return api.transport.pool.requests


WORK: dict[str, Callable[..., Any]] = {"requests": requests, "nodes": nodes, "fleet": fleet, "watch": watch}

if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(WORK[sys.argv[1]](*sys.argv[2:]))), flush=True)
