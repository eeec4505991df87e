"""A real API server on a real socket, in a thread of this process, and a small client that can send anything."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.codec import decode_json, encode_json
from kubeqos.gates import FeatureGates

ADMIN_TOKEN = "admin-token-of-the-tests"


class Answer:
    """A response, read to its end."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.code = response.status
        self.headers = response.headers
        self.raw = response.read()

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def body(self) -> Any:
        if (self.content_type or "").startswith("application/json") and self.raw:
            return decode_json(self.raw)
        return self.raw.decode()

    @property
    def warnings(self) -> list[str]:
        return list(self.headers.get_all("warning") or ())


class LiveServer:
    """The server and how to reach it."""

    def __init__(self, server: ApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.host, _, port = server.application.address.partition(":")
        self.port = int(port)
        self.kubeconfig = server.kubeconfig
        self._idle: list[http.client.HTTPSConnection] = []
        self.tls = ssl.create_default_context(cafile=str(server.pki.ca_file))

    def connect(self, timeout: float = 30) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=timeout)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request as the administrator; a dict or list is sent as JSON, a string or bytes as they are."""
        sent = {"Authorization": f"Bearer {ADMIN_TOKEN}", "User-Agent": "tests", **(headers or {})}
        if body is not None and not isinstance(body, str | bytes):
            body = encode_json(body)
        if isinstance(body, str):
            body = body.encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        for attempt in (1, 2):
            try:
                connection = self._idle.pop() if attempt == 1 else self.connect()
            except IndexError:  # asked for rather than looked up: tests call from several threads
                connection = self.connect()
            try:
                connection.request(method, path, body, sent)
                answer = Answer(connection.getresponse())
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                connection.close()  # an idle connection that the server closed meanwhile
                if attempt == 2:
                    raise
                continue
            self._idle.append(connection)
            return answer
        raise AssertionError("unreachable")

    def watched(self, path: str, last: Callable[[Any], bool]) -> list[Any]:
        """The events of a watch, up to the last one that is wanted; who waits for its end waits for a clock."""
        connection = self.connect()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "User-Agent": "tests"})
            response, events = connection.getresponse(), []
            while line := response.readline():
                events.append(decode_json(line))
                if last(events[-1]):
                    break
            return events
        finally:
            connection.close()

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)


@contextmanager
def live_server(data_dir: Path, gates: FeatureGates | None = None, **settings: Any) -> Iterator[LiveServer]:
    """Start a server in a thread; stop it when the block ends."""
    data_dir.mkdir(parents=True, exist_ok=True)
    tokens = data_dir / "tokens.csv"
    tokens.write_text(f'{ADMIN_TOKEN},admin,admin-uid,"system:masters"\n')
    tokens.chmod(0o600)
    wanted = Settings(data_dir, port=0, token_file=tokens, gates=gates or FeatureGates.default(), **settings)
    ready: list[LiveServer | BaseException] = []
    started, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with ApiServer.start(wanted) as server:
            ready.append(LiveServer(server, asyncio.get_running_loop()))
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            ready.append(error)
            started.set()
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait(60)
    live = ready[0]
    if not isinstance(live, LiveServer):
        raise live
    try:
        yield live
    finally:
        live.loop.call_soon_threadsafe(stop.set)
        thread.join(60)
