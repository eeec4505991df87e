"""A runtime's end of NRI for tests: it listens, lets plugins register, and calls them as containerd does.

It is as strict as a peer in Go: a frame that begins a message and is longer than 4,096 bytes ends the connection.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from kubeqos.nri.events import METHODS, PLUGIN_SERVICE
from kubeqos.nri.framing import Frames, NriProtocolError
from kubeqos.nri.link import RUNTIME_END, Link, unimplemented
from kubeqos.nri.proto import nri_pb2 as nri

REPLIES: dict[str, type[Message]] = {
    **{name: method.response for name, method in METHODS.items()},
    "Configure": nri.ConfigureResponse,
    "Synchronize": nri.SynchronizeResponse,
    "StateChange": nri.Empty,
    "Shutdown": nri.Empty,
}


class StrictLink(Link):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen = Frames()

    def data_received(self, data: bytes) -> None:
        for _, payload in self._seen.feed(data):
            if len(payload) > 4096:
                raise NriProtocolError("cannot allocate memory")
        super().data_received(data)


class Runtime:
    """Plugins that registered, in order, and what they sent without being asked."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.links: list[Link] = []
        self.registered: asyncio.Queue[nri.RegisterPluginRequest] = asyncio.Queue()
        self.updates: list[nri.UpdateContainersRequest] = []
        self._server: asyncio.AbstractServer | None = None

    async def __aenter__(self) -> Runtime:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._accept, str(self.socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in self.links:
            link.close()
            await link.closed

    def _accept(self) -> Link:
        link = StrictLink(RUNTIME_END, self._answer)
        self.links.append(link)
        return link

    async def _answer(self, service: str, method: str, payload: bytes) -> Message:
        if method == "RegisterPlugin":
            self.registered.put_nowait(nri.RegisterPluginRequest.FromString(payload))
            return nri.Empty()
        if method == "UpdateContainers":
            self.updates.append(nri.UpdateContainersRequest.FromString(payload))
            return nri.UpdateContainersResponse()
        raise unimplemented(service, method)

    async def call(self, method: str, request: Message, timeout: float | None = 20.0) -> Any:
        """Call the plugin that registered last."""
        return await self.links[-1].call(PLUGIN_SERVICE, method, request, REPLIES[method], timeout)
