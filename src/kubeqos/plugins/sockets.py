"""Unix sockets between a node and its plugins: how both ends dial, listen, wait, and limit what they accept.

Used by the registration protocol, by QRM, by CCI, by class providers and by their SDKs. A server appears under its
final name only when it already listens, so that a watcher never meets a socket that refuses it.

On a machine without CPU to spare an answer may come late although nobody hangs. So a deadline counts only time in which
this process itself ran (`Deadline`), and a peer is called silent after several questions in a row (`insist`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from kubeqos.errors import ConfigurationError, RemoteError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A longer answer is refused while it arrives, so a plugin gone wild cannot fill the node's memory."""
MAX_PATH_BYTES = 107  # sun_path of Linux, less its final zero
SOCKET_MODE = 0o660
MISSES = 3
"""So many questions in a row without an answer make a peer silent, as in Kubernetes' probes (failureThreshold)."""
SLICES = 10
"""A deadline is counted in so many slices; of one in which this process was late, no more than its length counts."""
BACKSTOP = 10
"""The peer is told a deadline so much longer: ours counts, and a call that we give up is cancelled."""
T = TypeVar("T")
NEVER_MS = 2**31 - 1

LIMITS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
DIAL_OPTIONS: list[tuple[str, Any]] = [
    *LIMITS,
    # Without it the authority is the percent-encoded path of the socket, which other servers refuse.
    ("grpc.default_authority", "localhost"),
    # Each connection is its own witness of the peer's health, and an idle one must go on watching.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.client_idle_timeout_ms", NEVER_MS),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
]


def answers(path: Path) -> bool:
    """Whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def dial(path: Path) -> grpc.aio.Channel:
    """A channel to a socket; nothing is sent yet."""
    return grpc.aio.insecure_channel(f"unix:{path}", options=DIAL_OPTIONS)


async def call(channel: grpc.aio.Channel, path: str, request: Any, answer: type[Any], *, seconds: float) -> Any:
    """One unary call with a deadline; every failure is a `PluginCallError` with the peer's own words."""
    return await ask(method(channel, path, type(request), answer), path, request, seconds=seconds)


def method(channel: grpc.aio.Channel, path: str, asked: type[Any], answer: type[Any]) -> Any:
    """A method of the peer, for `ask`; made once by whoever calls it often."""
    return channel.unary_unary(
        path, request_serializer=asked.SerializeToString, response_deserializer=answer.FromString
    )


class Deadline:
    """Cancels a call after some seconds in which this process itself ran.

    gRPC's own deadline passes while our event loop is held up or our process waits for a CPU, and the answer that lies
    in the socket by then is thrown away. Of each slice only its length counts here, and between two of them the loop
    has looked at the socket.
    """

    def __init__(self, call: Any, seconds: float) -> None:
        self.passed = False
        self._call, self._slice, self._left = call, seconds / SLICES, SLICES
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._slice, self._tick)

    def _tick(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._timer = self._loop.call_later(self._slice, self._tick)
        else:
            self.passed = True
            self._call.cancel()

    def end(self) -> None:
        self._timer.cancel()


async def ask(stub: Any, path: str, request: Any, *, seconds: float) -> Any:
    """Call a method that `method` made."""
    return (await asked(stub, path, request, seconds=seconds))[0]


async def asked(stub: Any, path: str, request: Any, *, seconds: float) -> tuple[Any, Any]:
    """The answer, and the call that brought it, for those who want to know what else came with it."""
    deadline: Deadline | None = None
    try:
        sent = stub(request, timeout=seconds * BACKSTOP)
        deadline = Deadline(sent, seconds)
        return await sent, sent
    except grpc.aio.AioRpcError as error:
        raise PluginCallError(path, error.code(), error.details() or "", seconds) from error
    except grpc.aio.UsageError as error:  # our own end was closed before
        raise PluginCallError(path, grpc.StatusCode.UNAVAILABLE, str(error), seconds) from error
    except asyncio.CancelledError as error:
        if deadline is not None and deadline.passed:
            raise PluginCallError(path, grpc.StatusCode.DEADLINE_EXCEEDED, "", seconds) from error
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Our own end was closed meanwhile, by whoever saw first that the peer is gone. grpc says it in the words that
        # end a task; but nobody asked this one to end, and what it does for a pod must go on.
        raise PluginCallError(path, grpc.StatusCode.UNAVAILABLE, "the connection was closed", seconds) from error
    finally:
        if deadline is not None:
            deadline.end()


async def insist(question: Callable[[], Awaitable[T]]) -> T:
    """Put a question up to three times: one late answer is no silence. Any other failure is one at once."""
    for _ in range(MISSES - 1):
        try:
            return await question()
        except PluginCallError as error:
            if not error.late:
                raise
    return await question()


class PluginCallError(RemoteError):
    """A plugin refused, failed or did not answer in time."""

    def __init__(self, path: str, code: grpc.StatusCode, details: str, seconds: float) -> None:
        method = path.rpartition("/")[2]
        said = f"no answer in {seconds:g} s" if code is grpc.StatusCode.DEADLINE_EXCEEDED else details
        self.said = f"{said} ({code.name})"
        super().__init__(f"{method}: {self.said}")
        self.code = code
        self.details = said

    @property
    def late(self) -> bool:
        """Whether there was no answer in time, which says nothing yet about whether one comes."""
        return self.code is grpc.StatusCode.DEADLINE_EXCEEDED

    @property
    def unreachable(self) -> bool:
        """Whether the peer is away or hangs, so that a later call may succeed."""
        return self.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@contextlib.asynccontextmanager
async def listening(path: Path, install: Callable[[grpc.aio.Server], None]) -> AsyncIterator[grpc.aio.Server]:
    """Serve on a socket for the duration of a block; `install` adds the services."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")  # watchers ignore names that start with a dot
    _check_path(hidden)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden.unlink(missing_ok=True)
    server = grpc.aio.server(options=[*LIMITS, ("grpc.so_reuseport", 0)])
    install(server)
    try:
        server.add_insecure_port(f"unix:{hidden}")
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {path}", remedy="choose a folder that you may write to") from error
    await server.start()
    hidden.chmod(SOCKET_MODE)
    identity = stamp(hidden)
    os.rename(hidden, path)
    try:
        yield server
    finally:
        seen = stamp(path)
        if seen is not None and identity is not None and seen[:2] == identity[:2]:
            path.unlink(missing_ok=True)
        await server.stop(grace=None)


Stamp = tuple[int, int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Which file this is, and in which state: changed, or another one under the same name, it has another stamp."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def services(name: str, servicer: object, methods: Sequence[tuple[str, type[Any], type[Any]]]) -> Any:
    """A service made from the methods (name, request, answer) of an object."""
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, method),
            request_deserializer=asked.FromString,
            response_serializer=answer.SerializeToString,
        )
        for method, asked, answer in methods
    }
    return grpc.method_handlers_generic_handler(name, handlers)


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigurationError(
            f"the path of the socket is longer than {MAX_PATH_BYTES} bytes",
            where=str(path),
            remedy="use a shorter folder",
        )
