"""One live API server for every conformance test that speaks HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.live import LiveServer, live_server


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("apiserver") / "data") as server:
        yield server
