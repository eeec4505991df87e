"""Runtimes for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.containerd import Containerd, missing, running_containerd


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    """A real containerd of this folder's own."""
    reason = missing()
    if reason:
        pytest.skip(f"real containerd: {reason}")
    with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-"))) as runtime:
        yield runtime
