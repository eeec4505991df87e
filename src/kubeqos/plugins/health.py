"""gRPC's own health check (`grpc.health.v1`), as far as plugins and drivers need it: is this peer well?

Its two messages are one field each, so they are written here as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

PATH = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse.status, the only field


def health_service(problem: Callable[[], object]) -> Any:
    """Answers by what `problem` says: anything is not serving, nothing is serving."""

    async def check(_request: bytes, _context: Any) -> bytes:
        return NOT_SERVING if problem() else SERVING

    service, _, method = PATH.removeprefix("/").partition("/")
    return grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(check)})


async def examine(channel: grpc.aio.Channel, seconds: float) -> str:
    """What is wrong with a peer, empty if nothing. One without the service is well when it answers at all."""
    stub: Any = channel.unary_unary(PATH, request_serializer=None, response_deserializer=None)
    try:
        answer = await stub(b"", timeout=seconds)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer in {seconds:g} s"
        return f"{error.details()} ({error.code().name})"
    except grpc.aio.UsageError as error:  # our own end was closed meanwhile
        return str(error)
    return "" if answer == SERVING else "it says that it is not serving"
