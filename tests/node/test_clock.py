"""A node's clock is set back: what it does every period, and soon, it goes on doing."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kubeqos.clock import NS, WallClock
from kubeqos.node.agent import NodeAgent
from kubeqos.node.nodekeeper import NodeKeeper


class Wall:
    """The clock on the wall, which somebody sets back by an hour at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._behind_ns, real = 0, time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() - self._behind_ns)

    def set_back(self) -> None:
        self._behind_ns += 3600 * NS


async def test_managers_look_around_however_the_clock_is_set_while_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, looks = Wall(monkeypatch), asyncio.Queue[int]()

    class Manager:
        reconcile_seconds = 0.01

        async def reconcile(self) -> bool:
            wall.set_back()
            looks.put_nowait(1)
            return False

    agent: Any = SimpleNamespace(clock=WallClock())
    task = asyncio.create_task(NodeAgent._reconcile(agent, Manager()))
    async with asyncio.timeout(10):
        for _ in range(3):
            await looks.get()
    task.cancel()


async def test_what_is_to_be_written_soon_is_written_however_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, clock, written = Wall(monkeypatch), WallClock(), []

    async def write() -> None:
        written.append(clock.now_ns())

    keeper: Any = SimpleNamespace(_is_soon=False, _written_ns=0, _parts=SimpleNamespace(clock=clock), write=write)
    async with asyncio.timeout(10):
        await NodeKeeper.write_soon(keeper)
        wall.set_back()
        await NodeKeeper.write_soon(keeper)
    assert len(written) == 2
