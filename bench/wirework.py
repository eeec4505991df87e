"""The client's side of `bench.wire`, run as processes of their own so that their CPU is theirs alone.

Each prints what it found as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.pods import one_template
from bench.scheduler import node
from kubeqos.client.api import Api, PatchType
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS


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
    await api.create(NODES, raw)
    await api.patch(NODES, name, {"spec": {"taints": None}})  # new nodes are not ready until somebody says they are
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastHeartbeatTime": None}
    status["conditions"] = [ready]
    await api.patch(NODES, name, {"status": status}, type=PatchType.STRATEGIC, subresource="status")


WORK: dict[str, Callable[..., Any]] = {"requests": requests, "nodes": nodes}

if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(WORK[sys.argv[1]](*sys.argv[2:]))), flush=True)
