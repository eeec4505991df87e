"""Pods for `bench.webhook`, who asks about them at fixed times, and who listens between API server and webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from bench.apiserver import TOKEN
from kubeqos.codec import decode_json, encode_json

QUOTAS = 20
CONNECTIONS = 16  # to begin with
KEY = "qos.kubeqos.io/container.main"
Took = dict[str, list[float]]
"""Milliseconds of every request, by kind."""


def pod(number: int) -> dict[str, Any]:
    """Every second one asks for a class, in each of the namespaces in turn."""
    metadata: dict[str, Any] = {"name": f"p{number}", "namespace": namespace(number), "uid": str(uuid.uuid4())}
    if asks(number):
        metadata["annotations"] = {KEY: "rdt=gold"}
    spec = {"containers": [{"name": "main", "image": "registry.example/web:1", "resources": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def namespace(number: int) -> str:
    return f"bench-{number // 2 % QUOTAS}"


def asks(number: int) -> bool:
    return number % 2 == 1


def kind_of(path: str, asking: bool) -> str:
    return "no class asked for" if not asking else "completed" if path == "/mutate" else "counted"


def post(path: str, body: bytes, *more: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def review(path: str, raw: dict[str, Any]) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "namespace": raw["metadata"]["namespace"], "object": raw}
    return post(path, encode_json({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of what comes next; of a long answer, a Go server does not say how long it is."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, said, length = head.lower().partition(b"\r\ncontent-length:")
    if said:
        return head, await reader.readexactly(int(length.partition(b"\r\n")[0]))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return head, body


class Asking:
    """One kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Asking:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # who answers is not the question here
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        self._writer.write(request)
        return await message(self._reader)

    def close(self) -> None:
        self._writer.close()


class Connections:
    """Those to one port. Who finds none idle opens another one, as Go's clients do.

    (client-go sets no `MaxConnsPerHost`.) With a fixed number of them those who wait for no quota would wait behind
    those who do.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Asking] = []

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        asking = self._free.pop() if self._free else await Asking.open(self._port)
        answer = await asking.ask(request)
        self._free.append(asking)
        return answer

    async def warm(self) -> None:
        self._free += [await Asking.open(self._port) for _ in range(CONNECTIONS)]

    def close(self) -> None:
        for asking in self._free:
            asking.close()


async def at_times(rate: float, seconds: float, one: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Start so many a second, at fixed times, however long those before take."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count():
            due = began + number / rate
            if due > began + seconds:
                return
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(number))


async def asked(port: int, rate: float, seconds: float) -> Took:
    """Ask the webhooks about each pod twice, as an API server does that stores none of them."""
    connections = Connections(port)
    await connections.warm()
    took: Took = {}

    async def one(number: int) -> None:
        path, which = ("/mutate", "/validate")[number % 2], number // 2
        request, began = review(path, pod(which)), time.perf_counter()
        _, answer = await connections.ask(request)
        took.setdefault(kind_of(path, asks(which)), []).append((time.perf_counter() - began) * 1000)
        if b'"allowed":true' not in answer:
            sys.exit(f"refused: {answer.decode()}")

    await at_times(rate, seconds, one)
    connections.close()
    return took


async def created(port: int, rate: float, seconds: float, first: int) -> Took:
    """Create pods at an API server, which asks the webhooks twice about each; milliseconds of the whole."""
    connections = Connections(port)
    await connections.warm()
    took: Took = {}

    async def one(number: int) -> None:
        raw = pod(first + number)
        del raw["metadata"]["uid"]
        path = f"/api/v1/namespaces/{raw['metadata']['namespace']}/pods"
        request, began = post(path, encode_json(raw), f"Authorization: Bearer {TOKEN}"), time.perf_counter()
        head, answer = await connections.ask(request)
        kind = "created, with a class" if asks(first + number) else "created, without"
        took.setdefault(kind, []).append((time.perf_counter() - began) * 1000)
        if not head.startswith(b"HTTP/1.1 201"):
            sys.exit(f"not created: {decode_json(answer)}")

    await at_times(rate, seconds, one)
    connections.close()
    return took


@contextlib.asynccontextmanager
async def between(own: int, port: int, tls: ssl.SSLContext) -> AsyncIterator[Took]:
    """Listen to what an API server asks of the webhooks behind a port: how long each question took, seen from here."""
    connections = Connections(port)
    await connections.warm()
    took: Took = {}
    served: list[tuple[asyncio.Task[None] | None, asyncio.StreamWriter]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append((asyncio.current_task(), writer))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # one of both has closed it
            while True:
                head, body = await message(reader)
                began = time.perf_counter()
                answer = await connections.ask(head + body)
                spent = (time.perf_counter() - began) * 1000
                writer.write(b"".join(answer))
                path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
                took.setdefault(kind_of(path, KEY.encode() in body), []).append(spent)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", own, ssl=tls):
        yield took
        for _, writer in served:
            writer.transport.abort()
        await asyncio.gather(*(task for task, _ in served if task is not None))
    connections.close()
