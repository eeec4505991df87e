"""From create to bound: pods through the durable API server and the scheduler, watched by a client, on 5,000 nodes.

API server and scheduler share a process, as in `kubeqos up`; pods are created by wrk over TLS, and a third process
watches them being bound. Nothing runs the pods. And the shortest way of a pod that waits: a class slot is freed, and it
is bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.apiserver import PODS, TOKEN, Server, creates
from bench.machine import describe
from bench.scheduler import node, pod

NODES, SECONDS = 5000, 5
SLOTS, ROUNDS = 3, 20  # of the class on each node; freed one after the other


async def serve(directory: Path) -> None:
    """The server process: the API, the scheduler, and so many nodes."""
    from kubeqos.apiserver.server import ApiServer, Settings
    from kubeqos.client.resources import NAMESPACES
    from kubeqos.client.resources import NODES as NODE_RESOURCE
    from kubeqos.gates import FeatureGates
    from kubeqos.scheduler.core import Scheduler
    from kubeqos.scheduler.service import SchedulerService

    gates = FeatureGates.parse("QOSResources=true")
    settings = Settings(directory / "data", port=0, token_file=directory / "tokens.csv", audit=False, gates=gates)
    async with ApiServer.start(settings) as server:
        api = server.local()
        await api.create(NAMESPACES, {"metadata": {"name": "bench"}})
        for start in range(0, NODES, 500):
            await asyncio.gather(*(_make(api, NODE_RESOURCE, number) for number in range(start, start + 500)))
        service = SchedulerService(server.local(), Scheduler())
        running = asyncio.create_task(service.run())
        await service.ready.wait()
        print(server.application.address, flush=True)
        await running


async def _make(api: object, resource: object, number: int) -> None:
    raw = {**node(number), "spec": {}}
    status = raw.pop("status")
    made = await api.create(resource, raw)  # type: ignore[attr-defined]
    made["spec"] = {}
    made = await api.update(resource, made)  # type: ignore[attr-defined]
    made["status"] = status
    await api.update(resource, made, subresource="status")  # type: ignore[attr-defined]


WATCHER = """
import json, socket, ssl, sys, time
port, token, ca, since = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
context = ssl.create_default_context(cafile=ca)
raw = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
path = "/api/v1/namespaces/bench/pods?watch=true&resourceVersion=" + since
raw.sendall(f"GET {path} HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n".encode())
raw.settimeout(3)
bound, first, last, tail = 0, 0.0, 0.0, b""
print("watching", flush=True)
try:
    while chunk := raw.recv(1 << 18):
        # A binding is the only change that these pods see.
        found = (tail + chunk).count(b'{"type":"MODIFIED"')
        tail = chunk[-17:]
        if found:
            last = time.time()
            first = first or last
            bound += found
except TimeoutError:
    pass
print(json.dumps({"bound": bound, "first": first, "last": last}), flush=True)
"""


@contextlib.contextmanager
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as name:
        directory = Path(name)
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        tokens.chmod(0o600)
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.endtoend", "serve", str(directory)], stdout=subprocess.PIPE, env=os.environ
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().decode().rpartition(":")[2])
            yield Server(process, port, directory)
        finally:
            process.terminate()
            process.wait(10)


def measure(live: Server, *, share: float) -> tuple[int, float, float]:
    """Pods bound, pods bound per second, and pods created per second; this share of them asks for a class."""
    since = json.loads(live.call("GET", f"{PODS}?limit=1")[1])["metadata"]["resourceVersion"]
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(live.port), TOKEN, str(live.directory / "data/pki/ca.crt"), since],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    watcher.stdout.readline()

    def make(name: str, number: int) -> dict[str, object]:
        metadata = {"name": name, "labels": {"app": "bench"}}
        gold = int((number + 1) * share) > int(number * share)
        return {"apiVersion": "v1", "kind": "Pod", **pod(name, "10m", gold=gold), "metadata": metadata}

    created = creates(live, SECONDS, make)
    found = json.loads(watcher.communicate(timeout=120)[0].strip().splitlines()[-1])
    return found["bound"], found["bound"] / max(found["last"] - found["first"], 0.001), created


def freed(live: Server) -> list[float]:
    """Milliseconds from asking to delete a pod that holds a node's last slot of a class to its successor's node."""
    waits = {"kubernetes.io/hostname": "node-0"}
    names = [f"slot-{number}" for number in range(SLOTS + ROUNDS)]

    def create(name: str) -> None:
        raw: dict[str, Any] = {**pod(name, "10m", gold=True), "metadata": {"name": name}}
        raw["spec"]["nodeSelector"] = waits
        code, answer = live.call("POST", PODS, raw)
        assert code == 201, answer

    for name in names[:SLOTS]:
        create(name)
        bound_within(live, name, 10)
    spent = []
    for name, holder in zip(names[SLOTS:], names, strict=False):
        create(name)
        while b"Unschedulable" not in live.call("GET", f"{PODS}/{name}")[1]:
            time.sleep(0.01)
        started = time.perf_counter()
        live.call("DELETE", f"{PODS}/{holder}", {"gracePeriodSeconds": 0})
        bound_within(live, name, 10)
        spent.append(1000 * (time.perf_counter() - started))
    return sorted(spent)


def bound_within(live: Server, name: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while b'"nodeName":"node-0"' not in live.call("GET", f"{PODS}/{name}")[1]:
        assert time.monotonic() < deadline, f"{name} was not bound"


def report(live: Server, label: str, share: float) -> None:
    busy = live.loop_seconds()
    bound, rate, created = measure(live, share=share)
    each = 1e6 * (live.loop_seconds() - busy) / max(bound, 1)
    print(
        f"{label:34} {rate:7.0f}/s  target ≥ 2000  ({bound} pods, created at {created:.0f}/s,"
        f" {each:.0f} µs of the event loop each)"
    )


def main() -> None:
    print(describe())
    with server() as live:
        report(live, "created → bound, half with a class", 0.5)
    with server() as live:  # all that ask for a class find one
        spent = freed(live)
        label = "class slot freed → pod bound"
        print(f"{label:34} {spent[len(spent) // 2]:7.1f} ms, at most {spent[-1]:.1f} ms  target ≤ 100")
        report(live, "created → bound, no class", 0.0)
        report(live, "created → bound, all with a class", 1.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        import uvloop

        uvloop.run(serve(Path(sys.argv[2])))
    else:
        main()
