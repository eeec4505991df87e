"""CRI client: any container runtime behind a socket, as a `Runtime`.

Used by the node agent, the relay's tests and `kubeqos runtime ps|inspect|classes`. The connection heals by itself;
a call during an outage fails with UNAVAILABLE instead of waiting for its end.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in the stubs

from kubeqos.cri import relist
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relist import Seen
from kubeqos.cri.runtime import EVENTS_PATH, Method, Request, Response, Runtime
from kubeqos.errors import InputError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # the kubelet's limit
RELIST_SECONDS = 1.0
SILENCE_SECONDS = 60.0
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 5.0

_UNCONNECTED = re.compile(r"^failed to connect to all addresses.*error: ([^:;]+)$", re.DOTALL)
"""gRPC names every address twice before it says what is wrong with it."""
HOPELESS = frozenset({Code.INVALID_ARGUMENT, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED, Code.UNIMPLEMENTED})

OPTIONS = [
    # Without it the authority is the percent-encoded path of the socket, which other servers refuse.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", int(FIRST_RETRY_SECONDS * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(LAST_RETRY_SECONDS * 1000)),
]


def grpc_target(endpoint: str) -> str:
    """The address that gRPC dials for an endpoint as users write it: unix:///path, /path or host:port."""
    path = endpoint.removeprefix("unix://") if endpoint.startswith("unix://") else endpoint.removeprefix("unix:")
    if path.startswith("/"):
        return f"unix:{path}"
    if endpoint.startswith("unix:") or ":" not in endpoint:
        raise InputError(
            f"runtime endpoint {endpoint!r} is not an address",
            remedy="write the absolute path of a socket, such as unix:///run/containerd/containerd.sock",
        )
    return endpoint


class CriClient(Runtime):
    """A runtime behind a socket. Must be created inside a running event loop."""

    def __init__(
        self, endpoint: str, *, relist_seconds: float = RELIST_SECONDS, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self.endpoint = endpoint
        self._relist_seconds = relist_seconds
        self._silence_seconds = silence_seconds
        self._channel = grpc.aio.insecure_channel(grpc_target(endpoint), options=OPTIONS)
        self._stubs: dict[str, Any] = {}

    async def __aenter__(self) -> CriClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close(None)

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        deadline = method.deadline_seconds if timeout is None else timeout
        try:
            return cast(Response, await self._stub(method)(request, timeout=deadline))
        except grpc.aio.AioRpcError as error:
            raise self._failure(method.name, error) from error

    async def events(self, since: Seen | None = None) -> AsyncIterator[cri.ContainerEventResponse]:
        """What happens from now on, outages included: what a broken stream missed is found by comparison.

        Events found by comparison carry no statuses. A runtime without an event stream is compared every second; a
        stream that is silent for long is opened anew, because a runtime that hangs is silent, too.
        """
        seen = None if since is None else dict(since)
        streams = True
        pause = FIRST_RETRY_SECONDS
        while True:
            stream = self._open_events() if streams else None
            try:
                after = await self.look()
                for event in relist.passed(after if seen is None else seen, after, at_ns=time.time_ns()):
                    yield event
                seen = after
                pause = FIRST_RETRY_SECONDS
                if stream is not None:
                    async for event in self._read(stream):
                        if relist.note(seen, event):
                            yield event
            except CallError as error:
                if error.code is Code.UNIMPLEMENTED and error.method == "GetContainerEvents":
                    streams = False
                elif error.code in HOPELESS:
                    raise
            finally:
                if stream is not None:
                    stream.cancel()
            await asyncio.sleep(pause if streams else self._relist_seconds)
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    def _open_events(self) -> Any:
        open_stream = self._channel.unary_stream(
            EVENTS_PATH,
            request_serializer=cri.GetEventsRequest.SerializeToString,
            response_deserializer=cri.ContainerEventResponse.FromString,
        )
        return open_stream(cri.GetEventsRequest())

    async def _read(self, stream: Any) -> AsyncIterator[cri.ContainerEventResponse]:
        """The events of one stream, until it ends or has been silent for too long."""
        while True:
            try:
                async with asyncio.timeout(self._silence_seconds):
                    event = await stream.read()
            except TimeoutError:
                return
            except grpc.aio.AioRpcError as error:
                raise self._failure("GetContainerEvents", error) from error
            if event is EOF:
                return
            yield event

    def _stub(self, method: Method[Request, Response]) -> Any:
        stub = self._stubs.get(method.name)
        if stub is None:
            stub = self._stubs[method.name] = self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return stub

    def _failure(self, method: str, error: grpc.aio.AioRpcError) -> CallError:
        code = Code[error.code().name]
        details = error.details() or code.name
        unconnected = _UNCONNECTED.search(details)
        if unconnected is not None:
            details = f"cannot connect: {unconnected[1]}"
        return CallError(method, code, details, endpoint=self.endpoint)
