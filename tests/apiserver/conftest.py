"""A live API server per test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.live import LiveServer, live_server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server
