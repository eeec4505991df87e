"""What the author of an NRI plugin uses: a class with a method for each event that matters, and `serve`.

    class Pinning(Plugin):
        async def create_container(self, request):
            return nri.CreateContainerResponse(adjust=…)

    await serve(Pinning("pinning", index="10"))

The runtime is asked for just the events that the class has methods for. A method raises a `KubeqosError` to refuse;
what it says reaches the pod's events. `serve` registers again whenever the runtime comes back.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from kubeqos.errors import ConfigurationError
from kubeqos.logs import logger
from kubeqos.nri.events import BY_EVENT, METHODS, NRI_VERSION, PLUGIN_SERVICE, RUNTIME_SERVICE, event_mask
from kubeqos.nri.link import PLUGIN_END, Link, NriCallError, unimplemented
from kubeqos.nri.proto import nri_pb2 as nri

SOCKET = Path("/var/run/nri/nri.sock")
REGISTRATION_SECONDS = 5.0
FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0
_INDEX = re.compile(r"[0-9][0-9]")
_NAME = re.compile(r"[a-zA-Z0-9_.+-]+")
log = logger("kubeqos.nri")


class Plugin:
    """A plugin without an opinion. Subclasses add methods named as in `events.METHODS`: a request in, an answer out."""

    def __init__(self, name: str, index: str) -> None:
        if not _INDEX.fullmatch(index):
            raise ConfigurationError(f"{index!r} is not the index of an NRI plugin", remedy="two digits, such as 10")
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not the name of an NRI plugin", remedy="letters, digits and _ . + -")
        self.name, self.index = name, index
        self.link: Link | None = None
        self.synchronized = asyncio.Event()
        self._parts = nri.SynchronizeRequest()

    @property
    def handlers(self) -> set[str]:
        return {method.handler for method in METHODS.values() if hasattr(self, method.handler)}

    async def configure(self, request: nri.ConfigureRequest) -> None:
        """The runtime has said who it is and what is configured for this plugin."""

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> Sequence[nri.ContainerUpdate]:
        """All that runs already, after each (re)connection: what of it is to be changed."""
        return ()

    async def update(self, updates: Sequence[nri.ContainerUpdate]) -> Sequence[nri.ContainerUpdate]:
        """Change running containers without being asked; answers those that the runtime could not change."""
        if self.link is None:
            raise NriCallError("not connected to the runtime")
        request = nri.UpdateContainersRequest(update=updates)
        reply = await self.link.call(RUNTIME_SERVICE, "UpdateContainers", request, nri.UpdateContainersResponse)
        return reply.failed

    async def answer(self, service: str, name: str, payload: bytes) -> Message:
        """One call of the runtime."""
        if service != PLUGIN_SERVICE:
            raise unimplemented(service, name)
        if name in METHODS:
            method = METHODS[name]
            return await self._handle(method.handler, method.request.FromString(payload), method.response)
        if name == "Configure":
            configuration = nri.ConfigureRequest.FromString(payload)
            await self.configure(configuration)
            return nri.ConfigureResponse(events=event_mask(self.handlers, configuration.NRI_version))
        if name == "Synchronize":
            return await self._synchronize(nri.SynchronizeRequest.FromString(payload))
        if name == "StateChange":
            return await self._state_change(nri.StateChangeEvent.FromString(payload))
        if name == "Shutdown":
            return nri.Empty()
        raise unimplemented(service, name)

    async def _handle(self, handler: str, request: Message, response: type[Message]) -> Message:
        method: Any = getattr(self, handler, None)
        answer = None if method is None else await method(request)
        return response() if answer is None else answer

    async def _synchronize(self, part: nri.SynchronizeRequest) -> nri.SynchronizeResponse:
        # What exists may come in parts; nothing is said before the last one has been seen.
        self._parts.MergeFrom(part)
        if part.more:
            return nri.SynchronizeResponse(more=True)
        whole, self._parts = self._parts, nri.SynchronizeRequest()
        updates = await self.synchronize(whole.pods, whole.containers)
        self.synchronized.set()
        return nri.SynchronizeResponse(update=updates)

    async def _state_change(self, change: nri.StateChangeEvent) -> nri.Empty:
        """The old form of an event that changes nothing: the same handler sees it as the message of its own method."""
        method = BY_EVENT.get(change.event)
        if method is not None:
            request = method.request()
            for part in ("pod", "container"):
                if change.HasField(part) and part in method.request.DESCRIPTOR.fields_by_name:
                    getattr(request, part).CopyFrom(getattr(change, part))
            await self._handle(method.handler, request, method.response)
        return nri.Empty()


async def connect(plugin: Plugin, socket: Path = SOCKET) -> Link:
    """Connect and register; the runtime then configures and synchronises the plugin by itself."""
    loop = asyncio.get_running_loop()
    make = lambda: Link(PLUGIN_END, plugin.answer)  # noqa: E731 - the factory that asyncio asks for
    inherited = os.environ.get("NRI_PLUGIN_SOCKET")
    if inherited is not None:
        # A plugin that the runtime started by itself was given the connection as an open file.
        import socket as sockets

        _, link = await loop.create_unix_connection(make, sock=sockets.socket(fileno=int(inherited)))
    else:
        _, link = await loop.create_unix_connection(make, str(socket))
    request = nri.RegisterPluginRequest(plugin_name=plugin.name, plugin_idx=plugin.index, NRI_version=NRI_VERSION)
    plugin.synchronized.clear()
    plugin.link = link
    try:
        await link.call(RUNTIME_SERVICE, "RegisterPlugin", request, nri.Empty, REGISTRATION_SECONDS)
    except NriCallError:
        link.close()
        raise
    return link


async def serve(plugin: Plugin, socket: Path = SOCKET) -> None:
    """Be a plugin until cancelled: whenever the runtime is away, come back with growing, uneven pauses."""
    delay = FIRST_DELAY
    while True:
        try:
            link = await connect(plugin, socket)
        except (OSError, NriCallError) as error:
            log.warning(
                "cannot register at the runtime", socket=str(socket), error=str(error), again_in=round(delay, 1)
            )
        else:
            delay = FIRST_DELAY
            log.info("registered at the runtime", socket=str(socket), plugin=f"{plugin.index}-{plugin.name}")
            try:
                await asyncio.shield(link.closed)
            finally:
                plugin.link = None
                link.close()
            log.warning("the runtime has ended the connection", socket=str(socket))
        await asyncio.sleep(delay * (0.5 + random.random()))
        delay = min(delay * 2, LONGEST_DELAY)
