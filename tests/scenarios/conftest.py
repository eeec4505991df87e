"""A live server per test module, and the real kubectl."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.live import LiveServer, live_server
from tests.scenarios.kubectl import BINARY, Kubectl


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(live: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if BINARY is None:
        pytest.skip("there is no kubectl on this machine")
    return Kubectl(live, tmp_path_factory.mktemp("home"))
