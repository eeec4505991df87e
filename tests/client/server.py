"""A tiny API server over real sockets: the real store behind the handful of requests that a client makes.

It knows no schema, no admission and no defaults; it answers with the codes and bodies of Kubernetes, and does on
command what real servers do on bad days: cut watches, answer 503, forget history.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from kubeqos.codec import decode_json, encode_json
from kubeqos.store import Compacted, Conflict, Delete, Put, Store, Watch

REASONS = {401: "Unauthorized", 404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}


def status(code: int, message: str, reason: str = "") -> tuple[int, Any]:
    reason = reason or REASONS.get(code, "InternalError")
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


class TinyServer:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = ""
        self.requests: list[str] = []
        self.troubles: list[tuple[int, dict[str, str]]] = []  # answers that come before any other
        self.watches: set[Watch] = set()
        self.refuse_watches = False
        self.page_limit = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        self.requests.append(f"{scope['method']} {scope['path']}")
        if self.troubles:
            code, headers = self.troubles.pop(0)
            await answer(send, *status(code, "trouble"), headers)
        elif "watch" in query:
            await self.watch(scope["path"], query, receive, send)
        else:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            await answer(send, *await self.handle(scope["method"], scope["path"], query, body, headers))

    async def handle(self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> Any:
        if method == "POST":
            return await self.write(f"{path}/{decode_json(body)['metadata']['name']}", decode_json(body), 0)
        current = self.store.get(path)
        if method == "GET" and current is None and path.endswith("s"):
            return self.list(path, query)
        if current is None:
            return status(404, f"{path} not found")
        if method == "GET":
            return 200, decode_json(current.value)
        if method == "DELETE":
            gone = decode_json(current.value)
            gone["metadata"]["resourceVersion"] = str(self.store.revision + 1)
            await self.store.commit([Delete(path, encode_json(gone))])
            return 200, gone
        sent = decode_json(body)
        if method == "PATCH":
            assert headers["content-type"] == "application/merge-patch+json"
            return await self.write(path, {**decode_json(current.value), **sent}, None)
        version = sent["metadata"].get("resourceVersion")
        return await self.write(path, sent, int(version) if version else None)

    def list(self, path: str, query: dict[str, str]) -> Any:
        start, _, revision = query.get("continue", "").partition("@")
        try:
            page = self.store.range(
                path + "/", after=start, limit=int(query.get("limit", 0)), revision=int(revision or 0)
            )
        except Compacted:
            return status(410, "The provided continue parameter is too old")
        more = f"{page.items[-1].key}@{page.revision}" if page.more else ""
        metadata = {"resourceVersion": str(page.revision), "continue": more}
        return 200, {"kind": "List", "metadata": metadata, "items": [decode_json(i.value) for i in page.items]}

    async def write(self, key: str, value: Any, expect: int | None) -> Any:
        def render(revision: int) -> bytes:
            metadata = {"uid": f"uid-{revision}", **value["metadata"], "resourceVersion": str(revision)}
            return encode_json({**value, "metadata": metadata})

        try:
            await self.store.commit([Put(key, render, expect)])
        except Conflict:
            return status(409, f"{key} conflict", "AlreadyExists" if expect == 0 else "Conflict")
        stored = self.store.get(key)
        assert stored is not None
        return (201 if expect == 0 else 200), decode_json(stored.value)

    async def watch(self, path: str, query: dict[str, str], receive: Any, send: Any) -> None:
        if int(query["resourceVersion"]) > self.store.revision:
            code, body = status(504, "Too large resource version", "Timeout")
            body["details"] = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 0}
            await answer(send, code, body)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            watch = self.store.watch(path + "/", int(query["resourceVersion"]))
            self.watches.add(watch)
            if self.refuse_watches:
                watch.close()
            async for events in watch:
                for event in events:
                    line = b'{"type":"%s","object":%s}\n' % (event.type.encode(), event.value)
                    half = len(line) // 2  # a line in two pieces
                    await send({"type": "http.response.body", "body": line[:half], "more_body": True})
                    await send({"type": "http.response.body", "body": line[half:], "more_body": True})
        except Compacted:
            line = encode_json({"type": "ERROR", "object": status(410, "too old resource version")[1]})
            await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def cut_watches(self) -> None:
        for watch in self.watches:
            watch.close()
        self.watches.clear()

    async def bookmark(self) -> None:
        """An event on an unrelated key moves the revision that a new list reports."""
        await self.store.commit([Put("/elsewhere", b"{}")])


async def answer(send: Any, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
    found = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": code, "headers": found})
    await send({"type": "http.response.body", "body": encode_json(body)})


@asynccontextmanager
async def tiny_server(directory: Path) -> AsyncIterator[TinyServer]:
    store = Store.open(directory / "state.db")
    server = TinyServer(store)
    # asyncio turns Nagle's algorithm off only for sockets that say they are TCP
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running = uvicorn.Server(uvicorn.Config(server, http="httptools", lifespan="off", log_config=None))  # type: ignore[arg-type]
        task = asyncio.create_task(running.serve([listener]))
        while not running.started:  # noqa: ASYNC110 - uvicorn offers no event
            await asyncio.sleep(0.005)
        try:
            yield server
        finally:
            await server.store.close()
            running.should_exit = True
            await task
