"""How plugins reach the manager: found in a watched folder, or by calling `Register` on the manager's own socket.

Both routes end in `Endpoints.attach`. The second is the older one of device plugins: the plugin pushes, and names a
socket in the manager's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeqos.plugins.registration import Plugin, Watcher
from kubeqos.plugins.sockets import dial, listening, services
from kubeqos.qrm.edge.messages import read_registration
from kubeqos.qrm.edge.values import NAME_BYTES
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.messages import PLUGIN_TYPE, REGISTRATION_SERVICE
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.settings import Event
from kubeqos.supervision import Supervisor

LEGACY_SOCKET = "kubelet.sock"


class Complaints:
    """Events about plugins that are refused: once for each reason, however often they come."""

    def __init__(self, manager: QosResourceManager) -> None:
        self._manager = manager
        self._told: dict[Path, str] = {}

    def note(self, name: str, socket: Path, refusal: str | None) -> str | None:
        if refusal is None:
            self._told.pop(socket, None)
        elif self._told.get(socket) != refusal:
            self._told[socket] = refusal
            self._manager.emit(Event("ResourcePluginRefused", f"plugin {name} at {socket}: {refusal}"))
        return refusal


class ResourcePluginHandler:
    """Takes the plugins of type ResourcePlugin that a watcher finds."""

    def __init__(self, manager: QosResourceManager) -> None:
        self._manager = manager
        self._endpoints = manager.endpoints
        self._synchronise = manager.reconciler.synchronise
        self._complaints = Complaints(manager)

    def validate(self, plugin: Plugin) -> str | None:
        refusal = self._endpoints.why_not(plugin.name, plugin.versions)
        return refusal and self._complaints.note(plugin.name, plugin.socket, refusal)

    async def register(self, plugin: Plugin) -> str | None:
        refusal = await self._endpoints.attach(plugin.name, plugin.endpoint, self._synchronise)
        return self._complaints.note(plugin.name, plugin.socket, refusal)

    async def deregister(self, plugin: Plugin) -> None:
        await self._endpoints.detach(plugin.name, plugin.endpoint)

    async def retire(self, name: str) -> bool:
        return await self._manager.retire(name)


class LegacyRegistry:
    """Serves `Register`, and watches the connection of each plugin that came this way: nobody else does."""

    def __init__(self, manager: QosResourceManager, folder: Path, supervisor: Supervisor | None = None) -> None:
        self.folder = folder
        self._supervisor = supervisor or Supervisor()
        self._endpoints = manager.endpoints
        self._synchronise = manager.reconciler.synchronise
        self._guards: dict[str, asyncio.Task[None]] = {}
        self._complaints = Complaints(manager)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        refusal = read_registration(request) or self._endpoints.why_not(request.resource_name, (request.version,))
        if refusal is None:
            options = request.options if request.HasField("options") else None
            socket = self.folder / request.endpoint
            refusal = await self._endpoints.attach(request.resource_name, socket, self._synchronise, options)
        self._complaints.note(request.resource_name[:NAME_BYTES], self.folder / request.endpoint[:NAME_BYTES], refusal)
        if refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        self._watch(request.resource_name, self.folder / request.endpoint)
        return pb.Empty()

    def _watch(self, name: str, socket: Path) -> None:
        previous = self._guards.pop(name, None)
        if previous:
            previous.cancel()
        work = self._supervisor.keep(f"plugin {name}", partial(self._guard, name, socket))
        self._guards[name] = asyncio.create_task(work)

    async def _guard(self, name: str, socket: Path) -> None:
        """A plugin that dies calls `Register` again when it is back, so its end is all there is to notice."""
        channel = dial(socket)
        try:
            state = channel.get_state(try_to_connect=True)
            while state not in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
        finally:
            await channel.close(None)
        await self._endpoints.detach(name, socket)

    async def close(self) -> None:
        for guard in self._guards.values():
            guard.cancel()
        await asyncio.gather(*self._guards.values(), return_exceptions=True)


@contextlib.asynccontextmanager
async def serve_legacy(legacy: LegacyRegistry) -> AsyncIterator[None]:
    """Serve `Register` in the registry's folder for the duration of a block."""
    methods = (("Register", pb.RegisterRequest, pb.Empty),)

    def install(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((services(REGISTRATION_SERVICE, legacy, methods),))

    async with listening(legacy.folder / LEGACY_SOCKET, install):
        try:
            yield
        finally:
            await legacy.close()


@contextlib.asynccontextmanager
async def registering(
    manager: QosResourceManager, *, watched: Path, folder: Path | None = None, scan_seconds: float = 0.5
) -> AsyncIterator[Watcher]:
    """Let plugins register for the duration of a block, by both routes when `folder` is given."""
    watcher = Watcher([watched], {PLUGIN_TYPE: ResourcePluginHandler(manager)}, scan_seconds=scan_seconds)
    async with contextlib.AsyncExitStack() as stack:
        if folder is not None:
            await stack.enter_async_context(serve_legacy(LegacyRegistry(manager, folder)))
        watching = asyncio.create_task(watcher.run(), name="plugin watcher")
        try:
            yield watcher
        finally:
            watching.cancel()
            await asyncio.wait([watching])
