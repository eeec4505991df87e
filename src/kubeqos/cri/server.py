"""Publishes any `Runtime` as a CRI v1 endpoint, so that kubelets, crictl and our own client can talk to it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeqos.cri.client import MAX_MESSAGE_BYTES, grpc_target
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import IMAGE_SERVICE, METHODS, RUNTIME_SERVICE, Method, Runtime
from kubeqos.errors import ConfigurationError

OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
SOCKET_MODE = 0o660


@contextlib.asynccontextmanager
async def serving(runtime: Runtime, endpoint: str) -> AsyncIterator[str]:
    """Serve for the duration of a block; yields the endpoint."""
    target = grpc_target(endpoint)
    path = Path(target.removeprefix("unix:")) if target.startswith("unix:") else None
    if path is not None:
        _make_room(path)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(_handlers(runtime))
    try:
        _bind(server, target, endpoint)
        await server.start()
        if path is not None:
            path.chmod(SOCKET_MODE)
        yield endpoint
    finally:
        await server.stop(grace=None)
        if path is not None:
            path.unlink(missing_ok=True)


def _bind(server: grpc.aio.Server, target: str, endpoint: str) -> None:
    try:
        server.add_insecure_port(target)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {endpoint}", remedy="choose another address") from error


def _make_room(path: Path) -> None:
    """Remove a socket that a dead server left; never take one that answers."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"cannot make the folder of {path}: {error.strerror}", remedy="choose a folder that you may write to"
        ) from error
    if not path.is_socket():
        if path.exists():
            raise ConfigurationError(f"{path} exists and is not a socket", remedy="choose another path, or remove it")
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise ConfigurationError(f"another server is listening on {path}", remedy="stop it, or choose another path")


def _handlers(runtime: Runtime) -> tuple[Any, ...]:
    by_service: dict[str, dict[str, Any]] = {RUNTIME_SERVICE: {}, IMAGE_SERVICE: {}}
    for method in METHODS:
        by_service[method.service][method.name] = _unary(runtime, method)
    by_service[RUNTIME_SERVICE]["GetContainerEvents"] = _events(runtime)
    return tuple(grpc.method_handlers_generic_handler(name, handlers) for name, handlers in by_service.items())


def _unary(runtime: Runtime, method: Method[Any, Any]) -> Any:
    async def handle(request: Any, context: Any) -> Any:
        try:
            return await runtime.call(method, request, timeout=context.time_remaining())
        except CallError as error:
            await context.abort(grpc.StatusCode[error.code.name], error.details)

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=method.request.FromString, response_serializer=method.response.SerializeToString
    )


def _events(runtime: Runtime) -> Any:
    async def handle(_request: Any, context: Any) -> AsyncIterator[cri.ContainerEventResponse]:
        await context.send_initial_metadata(())
        async for event in runtime.events():
            yield event

    return grpc.unary_stream_rpc_method_handler(
        handle,
        request_deserializer=cri.GetEventsRequest.FromString,
        response_serializer=cri.ContainerEventResponse.SerializeToString,
    )
