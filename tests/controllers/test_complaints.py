"""A controller that cannot read says so once a minute, for as long as it is so: in a log that is read, not flooded.

Time jumps to the next timer here, so that minutes of retries pass at once and the real interval is what is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import pytest

from kubeqos.client import Answer, Call, TransportApi
from kubeqos.codec import encode_json
from kubeqos.controllers.manager import ControllerManager

MINUTES = 5


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop that does not wait for its timers: its clock goes on to the next one instead."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        look = selector.select

        def select(timeout: float | None = None) -> Any:
            self._ahead += timeout or 0.0
            return look(0)

        selector.select = select

    def time(self) -> float:
        return super().time() + self._ahead


class Server:
    """One that lets nobody read `refused`, and is empty."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked = 0

    async def send(self, call: Call) -> Answer:
        plural = call.path.rpartition("/")[2]
        if plural in self.refused:
            self.asked += 1
            return Answer(403, encode_json({"kind": "Status", "reason": "Forbidden", "message": f"not {plural}"}))
        return Answer(200, encode_json({"kind": "List", "items": [], "metadata": {"resourceVersion": "1"}}))

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(3600)
        for nothing in ():
            yield nothing

    async def close(self) -> None:
        """There is nothing to close."""


class Told(logging.Handler):
    """What was complained of, and when by the clock of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if "a controller cannot work" in text:
            self.lines.append((self._loop.time(), text))


def test_one_line_a_minute_for_each_controller_that_cannot_read_and_none_once_it_can() -> None:
    server = Server("persistentvolumeclaims", "poddisruptionbudgets")
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        minutes, afterwards = runner.run(story(server))
    assert server.asked > 2 * MINUTES, "it tries again more often than it says so"
    whose = {text.split(" waits for ")[0].rpartition("'")[2] for _, text in minutes}
    assert {"pvcprotection", "disruption", "statefulset"} <= whose and "replicaset" not in whose
    for name in whose:
        said = [at for at, text in minutes if f"'{name} waits for " in text]
        assert len(said) == MINUTES
        assert [after - before for before, after in pairwise(said)] == pytest.approx([60.0] * (MINUTES - 1), abs=1)
    assert [text for _, text in minutes if "disruption waits for poddisruptionbudgets: not pod" in text]
    assert afterwards == []


async def story(server: Server) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
    """What is said while some kinds cannot be read, and after all of them could be."""
    told, log = Told(asyncio.get_running_loop()), logging.getLogger("kubeqos.controllers")
    log.addHandler(told)
    manager = ControllerManager(TransportApi(server))
    running = asyncio.ensure_future(manager.run())
    try:
        await asyncio.sleep(MINUTES * 60 + 30)
        minutes, server.refused = told.lines[:], ()
        await asyncio.wait_for(manager.ready.wait(), 600)
        told.lines.clear()
        await asyncio.sleep(MINUTES * 60)
    finally:
        log.removeHandler(told)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return minutes, told.lines
