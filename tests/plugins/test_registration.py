"""Plugins come, are refused, die, come back and hang; the watcher keeps its picture right."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from kubeqos import supervision
from kubeqos.plugins import registration
from kubeqos.plugins.registration import Health, Introduction, Plugin, Watcher, serve_registration

CPU = Introduction("ResourcePlugin", "cpu", ("v1alpha1",))


class Book:
    """A handler that writes down what happens."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.refuse: str | None = None

    def validate(self, plugin: Plugin) -> str | None:
        return None if "v1alpha1" in plugin.versions else f"versions {list(plugin.versions)} are not supported"

    async def register(self, plugin: Plugin) -> str | None:
        if self.refuse is None:
            self.said.append(f"+{plugin.name}")
        return self.refuse

    async def deregister(self, plugin: Plugin) -> None:
        self.said.append(f"-{plugin.name}")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        yield Path(name)


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
async def watcher(folder: Path, book: Book) -> AsyncIterator[Watcher]:
    watcher = Watcher([folder], {"ResourcePlugin": book}, scan_seconds=0.02)
    task = asyncio.create_task(watcher.run())
    yield watcher
    task.cancel()
    await asyncio.wait([task])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes make it true
            await asyncio.sleep(0.01)


def only(watcher: Watcher) -> Health:
    [health] = watcher.health()
    return health


async def test_a_plugin_is_found_told_and_forgotten(watcher: Watcher, folder: Path, book: Book) -> None:
    told: list[tuple[bool, str]] = []
    path = folder / "deep" / "cpu.sock"
    async with serve_registration(path, CPU, on_status=lambda ok, error: told.append((ok, error))):
        await until(lambda: told)
        assert told == [(True, "")]
        assert only(watcher).plugin == Plugin("ResourcePlugin", "cpu", path, ("v1alpha1",), path)
    await until(lambda: book.said == ["+cpu", "-cpu"] and watcher.health() == [])


@pytest.mark.parametrize(
    ("introduction", "error"),
    [
        (Introduction("DevicePlugin", "gpu", ("v1",)), "no handler registered for plugin type: DevicePlugin"),
        (Introduction("ResourcePlugin", "cpu", ("v9",)), "versions ['v9'] are not supported"),
    ],
)
async def test_a_plugin_learns_why_it_is_refused(
    watcher: Watcher, folder: Path, introduction: Introduction, error: str
) -> None:
    told: list[tuple[bool, str]] = []
    async with serve_registration(folder / "p.sock", introduction, on_status=lambda *status: told.append(status)):
        await until(lambda: told)
        assert told[0][0] is False
        assert error in told[0][1]


async def test_who_looks_after_a_plugin_and_dies_is_replaced(
    folder: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each plugin that is there, and of nobody else: told, counted, and the plugin is registered again."""
    monkeypatch.setattr(supervision, "FIRST_PAUSE_SECONDS", 0.01)
    events: list[str] = []
    supervisor = supervision.Supervisor(emit=lambda _reason, message: events.append(message))
    watcher = Watcher([folder], {"ResourcePlugin": book}, scan_seconds=0.02, supervisor=supervisor)
    task = asyncio.create_task(watcher.run())
    async with serve_registration(folder / "cpu.sock", CPU):
        await until(lambda: book.said == ["+cpu"])
        supervisor.tasks["plugin cpu.sock"].cancel()
        await until(lambda: book.said == ["+cpu", "-cpu", "+cpu"])
        assert supervisor.restarts == {"plugin cpu.sock": 1}
        assert events == ["plugin cpu.sock failed and starts again in 0.01 s: it was ended"]
    await until(lambda: watcher.health() == [])
    assert supervisor.tasks == {}, "a plugin that has gone is looked after by nobody"
    task.cancel()
    await asyncio.wait([task])


async def test_a_refusal_is_tried_again(
    watcher: Watcher, folder: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_SECONDS", 0.02)
    book.refuse = "not yet"
    async with serve_registration(folder / "cpu.sock", CPU):
        await until(lambda: watcher.health() and "not yet" in only(watcher).message)
        book.refuse = None
        await until(lambda: book.said == ["+cpu"])


async def test_a_socket_made_anew_is_registered_anew(watcher: Watcher, folder: Path, book: Book) -> None:
    for _ in range(2):
        async with serve_registration(folder / "cpu.sock", CPU):
            await until(lambda: book.said and book.said[-1] == "+cpu" and only(watcher).registered)
        await until(lambda: book.said[-1] == "-cpu")
    assert book.said == ["+cpu", "-cpu"] * 2


async def test_files_and_hidden_sockets_are_left_alone(watcher: Watcher, folder: Path) -> None:
    (folder / "note.txt").write_text("not a socket")
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(folder / ".hidden.sock"))
        await watcher.scan()
    assert watcher.health() == []


async def test_a_stale_socket_is_named_and_hurts_nobody(watcher: Watcher, folder: Path, book: Book) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "dead.sock"))
    async with serve_registration(folder / "cpu.sock", CPU):
        await until(lambda: book.said == ["+cpu"])
        await until(lambda: "nobody listens" in watcher.health()[1].message)


SILENT = """
import asyncio, sys
from pathlib import Path
from kubeqos.plugins.registration import Introduction, serve_registration
async def main():
    async with serve_registration(Path(sys.argv[1]), Introduction("ResourcePlugin", "cpu", ("v1alpha1",))):
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@contextlib.contextmanager
def process(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", SILENT, str(path)], env={**os.environ})
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def test_a_killed_plugin_is_noticed_though_its_socket_stays(watcher: Watcher, folder: Path, book: Book) -> None:
    path = folder / "cpu.sock"
    with process(path) as plugin:
        await until(lambda: book.said == ["+cpu"])
        plugin.kill()
        await until(lambda: book.said == ["+cpu", "-cpu"])
        assert path.exists()
        await until(lambda: "nobody listens" in only(watcher).message)


async def test_a_hung_plugin_is_marked(
    watcher: Watcher, folder: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(registration, "INFO_SECONDS", 0.2)
    with process(folder / "cpu.sock") as plugin:
        await until(lambda: watcher.health() and only(watcher).registered)
        plugin.send_signal(signal.SIGSTOP)
        await until(lambda: not only(watcher).answering)
        plugin.send_signal(signal.SIGCONT)
        await until(lambda: only(watcher).answering)
        assert book.said == ["+cpu"]
