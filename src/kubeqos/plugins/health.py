"""gRPC's own health check (`grpc.health.v1`), as far as plugins and drivers need it: is this peer well?

Its two messages are one field each, so they are written here as bytes. The protocol has no place for words: a peer that
is not well says why in the metadata that follows its answer, under `kubeqos-health-bin`, as UTF-8. There, too, one that
is well may say more of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from kubeqos.plugins.sockets import MISSES, PluginCallError, asked, insist

PATH = "/grpc.health.v1.Health/Check"
WORDS_KEY = "kubeqos-health-bin"
MOST_BYTES = 1024
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse.status, the only field


def health_service(problem: Callable[[], object], more: Mapping[str, str] | None = None) -> Any:
    """Answers by what `problem` says: anything is not serving, nothing is serving. A text is passed on.

    `more` is what a peer says of itself while it is well.
    """
    self_told = tuple((more or {}).items())

    async def check(_request: bytes, context: Any) -> bytes:
        found = problem()
        if isinstance(found, str) and found:
            context.set_trailing_metadata(((WORDS_KEY, found.encode()[:MOST_BYTES]),))
        elif self_told and not found:
            context.set_trailing_metadata(self_told)
        return NOT_SERVING if found else SERVING

    service, _, method = PATH.removeprefix("/").partition("/")
    return grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(check)})


async def examine(
    channel: grpc.aio.Channel, seconds: float, hear: Callable[[Mapping[str, object]], None] | None = None
) -> str:
    """What is wrong with a peer, empty if nothing. One without the service is well when it answers at all.

    One that is late is asked again, each time for so many seconds, before that is what is wrong with it. `hear` is told
    what one that is well says of itself.
    """
    stub: Any = channel.unary_unary(PATH, request_serializer=None, response_deserializer=None)
    try:
        answer, call = await insist(lambda: asked(stub, PATH, b"", seconds=seconds))
    except PluginCallError as error:
        if error.code is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        return f"no answer in {seconds:g} s, {MISSES} times in a row" if error.late else error.said
    if answer == SERVING:
        if hear is not None:
            hear(dict(await call.trailing_metadata() or ()))
        return ""
    words = _words(await call.trailing_metadata())
    return f"it says: {words}" if words else "it says that it is not serving"


def _words(metadata: Any) -> str:
    """What a peer says about its own health: one line, and not without end."""
    for key, value in metadata or ():
        if key == WORDS_KEY and isinstance(value, bytes):
            text = value[:MOST_BYTES].decode(errors="replace")
            return " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return ""
