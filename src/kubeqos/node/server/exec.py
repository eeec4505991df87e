"""`kubectl exec`, `attach` and `port-forward` on the node: a client's streams on one side, the runtime on the other.

A runtime with a streaming server (containerd) says where it opens the streams, and `web.channels` carries them there;
one without (the simulated) runs a command as a whole with ExecSync and its output is sent at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kubeqos.codec import JsonObject, encode_json
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.web.channels import (
    CLOSE,
    ERROR,
    STDERR,
    STDIN,
    STDOUT,
    UNREACHABLE,
    StreamOptions,
    bridge,
    failure_status,
    frame,
)
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.websockets import Socket

EXEC_SECONDS = 3600
SUCCESS = encode_json({"metadata": {}, "status": "Success"})


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


async def exec_url(runtime: Runtime, container_id: str, options: StreamOptions) -> str:
    """Where the runtime opens the streams of a command."""
    if not options.command:
        raise bad_request("you must specify at least one command for the container")
    request = cri.ExecRequest(
        container_id=container_id,
        cmd=options.command,
        tty=options.tty,
        stdin=options.stdin,
        stdout=options.stdout,
        stderr=options.stderr and not options.tty,
    )
    return await runtime.exec_url(request)


async def attach_url(runtime: Runtime, container_id: str, options: StreamOptions) -> str:
    """Where the runtime opens the streams of a container's own process."""
    request = cri.AttachRequest(
        container_id=container_id,
        tty=options.tty,
        stdin=options.stdin,
        stdout=options.stdout,
        stderr=options.stderr and not options.tty,
    )
    return await runtime.attach_url(request)


async def carry(runtime: Runtime, container_id: str, options: StreamOptions, url: str | None, socket: Socket) -> None:
    """Streams of a command or a container on the socket; a command as a whole where the runtime has no streams."""
    if url is None:
        await _run_whole(runtime, container_id, options, socket)
        return
    try:
        await bridge(url, options, socket)
    except UNREACHABLE as error:
        await socket.send(frame(ERROR, failure_status(f"the runtime's streaming server: {error}")))


def refusal(error: CallError) -> ApiError:
    """What a client is told when the runtime gives no address for its streams."""
    if error.code is Code.UNIMPLEMENTED:
        return ApiError(501, "NotImplemented", f"the runtime of this node has no streams: {error.details}", details={})
    return ApiError(500, "InternalError", error.details, details={})


async def _run_whole(runtime: Runtime, container_id: str, options: StreamOptions, socket: Socket) -> None:
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
