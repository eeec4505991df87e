"""Runtimes for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.containerd import Containerd, missing, running_containerd


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    """A real containerd, shared by the tests of one session."""
    reason = missing()
    if reason:
        pytest.skip(f"real containerd: {reason}")
    with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-"))) as runtime:
        yield runtime
