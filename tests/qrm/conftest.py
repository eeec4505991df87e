"""A short folder for sockets; the real containerd of tests/cri."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.conftest import containerd as containerd
from tests.qrm.harness import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found
