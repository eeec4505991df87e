"""A short folder for sockets; the real containerd of tests/cri; time for busy machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.qrm import endpoint, endpoints, patience, reconcile
from tests.cri.conftest import containerd as containerd
from tests.qrm.harness import short_folder


@pytest.fixture(autouse=True)
def unhurried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a healthy plugin may take seconds; only tests of plugins that hang tell the two apart."""
    if getattr(request.module, "PLUGINS_HANG", False):
        return
    for module, name in (
        (endpoint, "DOUBT_SECONDS"),
        (endpoint, "PROBE_SECONDS"),
        (endpoints, "RELEASE_SECONDS"),
        (patience, "WAIT_SECONDS"),
        (reconcile, "PATIENCE_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 60.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found
