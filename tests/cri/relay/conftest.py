"""Fixtures: a real containerd, and relays as processes in front of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.conftest import containerd
from tests.cri.relay.processes import RelayProcess

__all__ = ["containerd"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="kq-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_relay(containerd) -> Iterator[RelayProcess]:
    """A relay for the tests of one module that neither kill nor reconfigure it."""
    with tempfile.TemporaryDirectory(prefix="kq-") as path:
        process = RelayProcess(Path(path), containerd.socket)
        process.start()
        try:
            yield process
        finally:
            process.stop()


@pytest.fixture
def relay(containerd, folder: Path) -> Iterator[RelayProcess]:
    """A relay of the test's own, with the classes of `processes.CLASSES`."""
    process = RelayProcess(folder, containerd.socket)
    process.start()
    try:
        yield process
    finally:
        process.stop()
