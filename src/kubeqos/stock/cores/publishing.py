"""Keeps what schedulers know of a node's cores: its ResourceSlices, by a look whenever one of them changes.

A look reads the Node and the slices, and writes what `slices` says: nothing, as long as all is said. When a Node is
made anew its slices go with the old one, which is such a change. Run by `dra`.
"""

from __future__ import annotations

import asyncio

from kubeqos.client import Api, ApiError, Informer, PatchType, Unreachable
from kubeqos.client.resources import NODES
from kubeqos.codec import decode_json
from kubeqos.logs import logger
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.stock.cluster import DEVICE_SLICES
from kubeqos.stock.cores.devices import DRIVER
from kubeqos.stock.cores.slices import changes

MANAGER = "kubeqos-agent"
RETRY_SECONDS = 5.0
LOOK_SECONDS = 60.0
"""Also when nothing was heard of: a Node may have another uid before its old slices go."""
SETTLE_SECONDS = 0.2
"""How long changes are gathered: our own come one after the other."""
log = logger("kubeqos.agent")


class PublishedCores:
    """Those of one node."""

    def __init__(self, api: Api, node: str, machine: Machine, reserved: CpuSet) -> None:
        self._api, self._node, self._machine, self._reserved = api, node, machine, reserved
        self._fields = f"spec.driver={DRIVER},spec.nodeName={node}"
        self._changed = asyncio.Event()
        self._informer = Informer(api, DEVICE_SLICES, fields=self._fields)
        self._informer.on_change(lambda _: self._changed.set())

    async def run(self) -> None:
        """Keep them until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            while True:
                self._changed.clear()
                await self._wait(LOOK_SECONDS if await self._looked() else RETRY_SECONDS)
                await asyncio.sleep(SETTLE_SECONDS)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _looked(self) -> bool:
        try:
            await self.look()
        except (ApiError, Unreachable) as error:
            log.warning("cannot publish the node's cores; trying again", reason=error.what)
            return False
        return True

    async def look(self) -> None:
        """Once: read, and write what is not as it should be."""
        node = await self._api.get(NODES, self._node)
        stored = [decode_json(raw) for raw in (await self._api.list(DEVICE_SLICES, fields=self._fields)).items]
        wanted = changes(node, self._machine, self._reserved, stored)
        if wanted.because:
            log.info("publishing the node's cores", reason=wanted.because)
        for raw in wanted.written:
            await self._api.patch(
                DEVICE_SLICES, raw["metadata"]["name"], raw, type=PatchType.APPLY, manager=MANAGER, force=True
            )
        for one in wanted.stale:
            await self._delete(one["metadata"]["name"], one["metadata"]["uid"])

    async def _delete(self, name: str, uid: str) -> None:
        try:
            await self._api.delete(DEVICE_SLICES, name, uid=uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):  # it has gone, or another one has its name
                raise
