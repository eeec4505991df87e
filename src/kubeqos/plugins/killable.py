"""A plugin or driver that a conformance kit starts itself, kills as a power cut would, and starts again.

Used by `qrm.kit.conformance` and `cci.kit.conformance`, when they are told the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from kubeqos.errors import InputError
from kubeqos.plugins.sockets import answers

START_SECONDS = 60.0


class Killable:
    """A program that listens on a socket."""

    def __init__(self, words: Sequence[str], socket: Path) -> None:
        self._words, self._socket = tuple(words), socket
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; when this returns, it listens."""
        where = " ".join(self._words)
        try:
            self._process = await asyncio.create_subprocess_exec(*self._words, stdin=DEVNULL, stdout=DEVNULL)
        except OSError as error:
            raise InputError(f"cannot be started: {error.strerror}", where=where) from error
        deadline = time.monotonic() + START_SECONDS
        while not answers(self._socket):
            if self._process.returncode is not None:
                raise InputError(f"ended with code {self._process.returncode} before it listened", where=where)
            if time.monotonic() > deadline:
                told = f"does not listen on {self._socket} after {START_SECONDS:g} s"
                raise InputError(told, where=where, remedy="name the socket that the command listens on")
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """End it without a word to it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def restart(self) -> None:
        await self.kill()
        await self.start()


@contextlib.asynccontextmanager
async def killable(words: Sequence[str], socket: Path) -> AsyncIterator[Killable | None]:
    """The program of a command for the duration of a block; None without words: somebody else runs it."""
    if not words:
        yield None
        return
    program = Killable(words, socket)
    try:
        await program.start()
        yield program
    finally:
        await program.kill()
