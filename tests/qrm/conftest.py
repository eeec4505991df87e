"""A short folder for sockets, and a manager that plugins of the test can register with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.qrm.harness import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found
