"""What holds for every test: how Hypothesis searches, which programs are at hand, and what runs first.

The quick tier (`make test`) says the same every time: examples follow from the test alone. `make explore` loads the
profile that looks for new ones.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tools.kubectl import find_kubectl

from tests.shared.durations import Recorder, long_ones_first

# Each worker reads every file of tests, and what it reads stays to the end: nothing of it is worth looking for as
# garbage, neither while it grows nor each time that a server which starts has all of memory looked at.
gc.disable()

# A busy machine must not fail a property: no deadline, and no complaint that drawing examples takes long.
STEADY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("steady", STEADY, derandomize=True)
settings.register_profile("explore", STEADY, max_examples=1000, print_blob=True)
settings.load_profile("steady")

HERE = Path(__file__).parent
# The product looks for kubectl on PATH too, so PATH is the one place to say where it is.
KUBECTL = find_kubectl()
if KUBECTL is not None and shutil.which("kubectl") is None:
    os.environ["PATH"] = f"{Path(KUBECTL).parent}{os.pathsep}{os.environ['PATH']}"
# Workers side by side are told how wide the terminal is: nobody looks at what tests print, and tables are not broken.
os.environ.pop("COLUMNS", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="write how long each file of tests takes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers share the work of a fresh clone: each rewrites the assertions of its part of the files, and leaves them
    to the others as byte code. Each would do all of them else, before its first test.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in sorted(HERE.rglob("test_*.py"))[number::count]:
        name = ".".join(file.relative_to(HERE.parent).with_suffix("").parts)
        # One that cannot be imported is tried again when tests are collected, which says what is wrong.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = long_ones_first(items)
    if KUBECTL is None:
        absent = pytest.mark.skip(reason="kubectl is not on PATH; `make kubectl` builds it")
        for item in items:
            if item.get_closest_marker("kubectl"):
                item.add_marker(absent)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets: their paths have at most 107 bytes, and `tmp_path` is longer beside other workers."""
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        yield Path(name)
