"""The admission webhooks of a stock cluster at 500 requests a second with 20 class quotas: how long a server waits.

Run with `python -m bench.webhook`. The controller is a process of its own, on our API server and, where `make stock`
has built it, on a real kube-apiserver with etcd. Requests come at fixed times over kept connections, as an API server
sends them: each pod is asked about twice. Every second pod asks for a class, which is a conditional write to the quota
of its namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import stock
from bench.apiserver import Server, cpu_seconds, free_ports, server
from bench.machine import describe
from kubeqos.codec import encode_json

RATE = 500
QUOTAS = 20
CONNECTIONS = 16
READY_SECONDS = 60.0
TARGET = "target: 99 of 100 in 10 ms or less"


def pod(number: int) -> dict[str, Any]:
    """Every second one asks for a class, in each of the namespaces in turn."""
    namespace = f"bench-{number // 2 % QUOTAS}"
    metadata: dict[str, Any] = {"name": f"p{number}", "namespace": namespace, "uid": str(uuid.uuid4())}
    if asks(number):
        metadata["annotations"] = {"qos.kubeqos.io/container.main": "rdt=gold"}
    spec = {"containers": [{"name": "main", "image": "registry.example/web:1", "resources": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def asks(number: int) -> bool:
    return number % 2 == 1


def install(live: Server) -> None:
    """Our kinds and accounts; nobody runs what is deployed with them."""
    program = [sys.executable, "-m", "kubeqos.cli.main"]
    environment = {**os.environ, "KUBECONFIG": str(live.directory / "data/kubeconfig")}
    subprocess.run([*program, "install", "--image", "x"], env=environment, check=True, stdout=subprocess.DEVNULL)


def prepare(live: Server) -> None:
    """Our kinds, a class, and a quota in each of as many namespaces."""
    install(live)
    ours = "/apis/kubeqos.io/v1alpha1"
    bodies: list[tuple[str, dict[str, Any]]] = []
    spec = {"resource": "rdt", "class": "gold", "level": "container"}
    bodies.append((f"{ours}/qosclasses", {"kind": "QOSClass", "metadata": {"name": "rdt.gold"}, "spec": spec}))
    classes = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 100_000}]}]}
    for number in range(QUOTAS):
        name = f"bench-{number}"
        bodies.append(("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        quota = {"kind": "QOSClassQuota", "metadata": {"name": "q"}, "spec": {"qosResources": classes}}
        bodies.append((f"{ours}/namespaces/{name}/qosclassquotas", quota))
    for path, body in bodies:
        body.setdefault("apiVersion", "kubeqos.io/v1alpha1")
        deadline = time.monotonic() + READY_SECONDS
        while (answer := live.call("POST", path, body))[0] not in (201, 409):
            if time.monotonic() > deadline:
                sys.exit(f"{path} was refused: {answer}")
            time.sleep(0.2)  # kinds are served a moment after they were defined


@contextlib.contextmanager
def controller(live: Server) -> Iterator[tuple[int, Path]]:
    """The port of a controller's webhooks, once they answer, and what the kernel says of its process."""
    [port] = free_ports(1)
    words = [sys.executable, "-m", "kubeqos.cli.main", "controller", "--port", "0"]
    words += ["--kubeconfig", str(live.directory / "data/kubeconfig"), "--webhook-bind-address", "127.0.0.1"]
    words += ["--webhook-port", str(port), "--webhook-url", f"https://127.0.0.1:{port}"]
    with stock.part(words, live.directory / "controller.log") as process:
        asyncio.run(_until_ready(port, live.directory / "controller.log"))
        yield port, Path(f"/proc/{process.pid}/stat")


async def _until_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asking = await Asking.open(port)
            answer = await asking.ask("/validate", review("/validate", pod(1)))
            if b'"allowed":true' in answer:
                return
        await asyncio.sleep(0.3)
    sys.exit(f"the webhooks did not answer:\n{log.read_text()[-2000:]}")


def review(path: str, raw: dict[str, Any]) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "namespace": raw["metadata"]["namespace"], "object": raw}
    body = encode_json({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Asking:
    """One kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Asking:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # who answers is not the question here
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    async def ask(self, path: str, request: bytes) -> bytes:
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(size)


async def load(port: int, seconds: int) -> dict[str, list[float]]:
    """Milliseconds of every request, by kind."""
    free: asyncio.Queue[Asking] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await Asking.open(port))
    took: dict[str, list[float]] = {}
    refused: list[bytes] = []

    async def one(path: str, raw: dict[str, Any], kind: str) -> None:
        request, began = review(path, raw), time.perf_counter()
        asking = await free.get()
        answer = await asking.ask(path, request)
        took.setdefault(kind, []).append((time.perf_counter() - began) * 1000)
        free.put_nowait(asking)
        if b'"allowed":true' not in answer:
            refused.append(answer)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count():
            due = began + number / RATE
            if due > began + seconds:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            path, which = ("/mutate", "/validate")[number % 2], number // 2
            kind = "no class asked for" if not asks(which) else "completed" if path == "/mutate" else "counted"
            tasks.create_task(one(path, pod(which), kind))
    if refused:
        sys.exit(f"{len(refused)} requests were refused, the first one by {refused[0].decode()}")
    return took


def report(where: str, took: dict[str, list[float]], seconds: int) -> None:
    took = {"all": [one for each in took.values() for one in each], **dict(sorted(took.items()))}
    busy = os.getloadavg()[0]
    print(f"{where}: {len(took['all']) / seconds:.0f} requests/s, {QUOTAS} quotas, load {busy:.1f}; {TARGET}")
    for kind, values in took.items():
        values.sort()
        middle, most = values[len(values) // 2], values[len(values) * 99 // 100]
        print(f"  {kind:20} {len(values):6}   half in {middle:6.2f} ms   99 of 100 in {most:6.2f} ms")


def calm(live: Server) -> None:
    """Wait until a server that has just learned kinds has done with them: it works on, for seconds."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        before = live.cpu_seconds()
        time.sleep(2.0)
        if live.cpu_seconds() - before < 0.2:
            return


def measure(live: Server, where: str, seconds: int) -> None:
    prepare(live)
    with controller(live) as (port, process):
        calm(live)
        asyncio.run(load(port, 2))
        before = cpu_seconds(process), live.cpu_seconds()
        took = asyncio.run(load(port, seconds))
        after = cpu_seconds(process), live.cpu_seconds()
        report(where, took, seconds)
    requests = sum(map(len, took.values()))
    own, server = ((now - then) * 1000 / requests for then, now in zip(before, after, strict=True))
    print(f"  processor time of a request: {own:.2f} ms of the controller, {server:.2f} ms of the API server")


def main() -> None:
    seconds = int(os.environ.get("BENCH_SECONDS", "10"))
    with server() as live:
        measure(live, "on our API server", seconds)
    if (found := stock.programs(None)) is not None:
        with stock.kube_apiserver(found) as real:
            measure(real, "on kube-apiserver and etcd", seconds)


if __name__ == "__main__":
    print(describe())
    main()
