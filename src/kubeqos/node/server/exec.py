"""`kubectl exec` on the node: Kubernetes' channel protocol on one side, the runtime on the other.

Each message begins with the number of its stream. v5 adds a message that closes a stream, so that a command can see the
end of its input. A runtime with a streaming server (containerd) is spoken to over SPDY (`node.server.spdy`); one
without (the simulated) runs the command as a whole with ExecSync and its output is sent at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kubeqos.codec import JsonObject, encode_json
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import RemoteError
from kubeqos.node.server.spdy import Streams, streams
from kubeqos.web.messages import Query
from kubeqos.web.websockets import Socket

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
EXEC_SECONDS = 3600
NAMES = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}
NUMBERS = {name: number for number, name in NAMES.items()}
SUCCESS = encode_json({"metadata": {}, "status": "Success"})


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """PodExecOptions."""

    command: tuple[str, ...]
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False

    @classmethod
    def of(cls, query: Query) -> ExecOptions:
        def on(name: str) -> bool:
            return query.get(name, ["false"])[0].lower() in ("true", "1")

        return cls(tuple(query.get("command", ())), on("stdin"), on("stdout"), on("stderr"), on("tty"))


@runtime_checkable
class TakesInput(Protocol):
    """A runtime without streams that can still give a command something to read (the simulated one)."""

    async def exec_with_input(
        self, container_id: str, command: Sequence[str], stdin: bytes, *, timeout_seconds: float
    ) -> cri.ExecSyncResponse: ...


def exit_status(code: int) -> bytes:
    """What the error stream says about how a command ended."""
    if code == 0:
        return SUCCESS
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status: JsonObject = {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }
    return encode_json(status)


def failure_status(message: str) -> bytes:
    return encode_json(
        {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    )


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream]) + data


async def execute(runtime: Runtime, container_id: str, options: ExecOptions, socket: Socket) -> None:
    """Run a command in a container with its streams on the socket."""
    if not options.command:
        await socket.send(frame(ERROR, failure_status("you must specify at least one command for the container")))
        return
    request = cri.ExecRequest(
        container_id=container_id,
        cmd=options.command,
        tty=options.tty,
        stdin=options.stdin,
        stdout=options.stdout,
        stderr=options.stderr and not options.tty,
    )
    try:
        url = await runtime.exec_url(request)
    except CallError as error:
        if error.code is not Code.UNIMPLEMENTED:
            await socket.send(frame(ERROR, failure_status(error.details)))
            return
        await _run_whole(runtime, container_id, options, socket)
        return
    await _stream(url, options, socket)


async def _run_whole(runtime: Runtime, container_id: str, options: ExecOptions, socket: Socket) -> None:
    try:
        if options.stdin and isinstance(runtime, TakesInput):
            stdin = await _whole_input(socket)
            answer = await runtime.exec_with_input(container_id, options.command, stdin, timeout_seconds=EXEC_SECONDS)
        else:
            answer = await runtime.exec_sync(container_id, options.command, timeout_seconds=EXEC_SECONDS)
    except CallError as error:
        await socket.send(frame(ERROR, failure_status(error.details)))
        return
    for stream, data in ((STDOUT, answer.stdout), (STDERR, answer.stderr)):
        if data:
            await socket.send(frame(stream, data))
    await socket.send(frame(ERROR, exit_status(answer.exit_code)))


async def _whole_input(socket: Socket) -> bytes:
    """What the client sends until it closes its input, or goes."""
    found = bytearray()
    while (data := await socket.receive()) is not None and data[:1] != bytes([CLOSE]):
        if data[:1] == bytes([STDIN]):
            found += data[1:]
    return bytes(found)


async def _stream(url: str, options: ExecOptions, socket: Socket) -> None:
    """Carry messages between a client and the runtime's streaming server."""
    try:
        async with streams(url, _wanted(options)) as runtime:
            inward = asyncio.ensure_future(_inward(socket, runtime))
            outward = asyncio.ensure_future(_outward(runtime, socket))
            try:
                await asyncio.wait((inward, outward), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (inward, outward):
                    task.cancel()
                await asyncio.gather(inward, outward, return_exceptions=True)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, RemoteError) as error:
        await socket.send(frame(ERROR, failure_status(f"the runtime's streaming server: {error}")))


def _wanted(options: ExecOptions) -> list[str]:
    """The streams that the runtime waits for."""
    asked = {
        ERROR: True,
        STDIN: options.stdin,
        STDOUT: options.stdout,
        STDERR: options.stderr and not options.tty,
        RESIZE: options.tty,
    }
    return [NAMES[number] for number, is_asked in asked.items() if is_asked]


async def _inward(socket: Socket, runtime: Streams) -> None:
    """Client to runtime, until the client has gone."""
    while (data := await socket.receive()) is not None:
        if data[:1] == bytes([CLOSE]):
            await runtime.close(NAMES.get(data[1], "") if len(data) > 1 else "")
        elif data:
            await runtime.send(NAMES.get(data[0], ""), data[1:])


async def _outward(runtime: Streams, socket: Socket) -> None:
    async for name, data in runtime.received():
        await socket.send(frame(NUMBERS[name], data))
