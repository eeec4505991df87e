"""Sockets that answer HTTP: opened first, so that a taken port is one clear error, then served until a block ends.

Used by the API server, the node agent and everything that shows its health and metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from kubeqos.errors import ConfigurationError

_TAKEN = "choose another port with --port; 0 takes one that is free"
_NOT_OURS = "choose another address with --host"


def listen(host: str, port: int, remedy: str = "") -> socket.socket:
    """An open socket, or what keeps it from opening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it; head and body of an answer must not wait for each other's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        remedy = remedy or (_TAKEN if error.errno in (errno.EADDRINUSE, errno.EACCES) else _NOT_OURS)
        raise ConfigurationError(f"cannot listen: {error.strerror}", where=f"{host}:{port}", remedy=remedy) from error
    listener.listen(1024)
    return listener


@contextlib.asynccontextmanager
async def answering(config: uvicorn.Config, listener: socket.socket) -> AsyncIterator[None]:
    """Serve on an open socket until the block ends."""
    server = _Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        started = asyncio.ensure_future(server.listening.wait())
        await asyncio.wait((started, task), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        yield
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: whoever runs it decides when it stops."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
