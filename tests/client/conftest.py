"""A server and a client for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeqos.client import http
from kubeqos.client.http import HttpApi
from tests.client.server import TinyServer, tiny_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TinyServer]:
    async with tiny_server(tmp_path) as server:
        yield server


@pytest.fixture
async def api(server: TinyServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpApi]:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.001)
    api = HttpApi.to(server.url)
    yield api
    await api.close()
