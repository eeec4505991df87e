"""A real API server with its dashboard, per test module, and a small browser without a screen."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kubeqos.codec import encode_json
from kubeqos.dashboard.home import mounted
from kubeqos.dashboard.server import Dashboard
from kubeqos.gates import FeatureGates
from kubeqos.web.identity import MASTERS, Identity
from tests.apiserver.live import Answer, LiveServer, live_server

ADMIN = Identity.authenticated("admin", [MASTERS])
API = "/dashboard/api/v1"


class Visitor:
    """Asks as a browser does: keeps the cookie, says where a request comes from."""

    def __init__(self, live: LiveServer, dashboard: Dashboard) -> None:
        self.live = live
        self.dashboard = dashboard
        self.cookie = ""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        if method == "POST":
            sent = {"Content-Type": "application/json", "Origin": self.dashboard.address, **sent}
        connection = self.live.connect()
        try:
            connection.request(method, path, None if body is None else encode_json(body), sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", f"{API}/{path}")
        assert answer.code == 200, answer.body
        return answer.body

    def log_in(self, identity: Identity = ADMIN) -> Visitor:
        code = self.dashboard.link(identity).rpartition("/")[2]
        answer = self.ask("POST", f"{API}/login", {"code": code})
        assert answer.code == 204, answer.raw
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def stream(self, view: str) -> http.client.HTTPResponse:
        """A response that never ends by itself; close it."""
        connection = self.live.connect()
        connection.request("GET", f"{API}/stream?view={view}", headers={"Cookie": self.cookie})
        return connection.getresponse()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "data", FeatureGates.parse("AllAlpha=true")) as server:
        yield server


@pytest.fixture(scope="module")
def dashboard(live: LiveServer) -> Iterator[Dashboard]:
    """Mounted on the server's own loop."""
    stack = AsyncExitStack()
    found: Dashboard = live.run(stack.enter_async_context(_mounted(live)))
    live.run(asyncio.wait_for(found.answers.feed.synced.wait(), 30))
    yield found
    live.run(stack.aclose())


def _mounted(live: LiveServer) -> Any:
    return mounted(live.server)


@pytest.fixture
def visitor(live: LiveServer, dashboard: Dashboard) -> Visitor:
    return Visitor(live, dashboard)
