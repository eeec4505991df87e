"""NRI as the runtime that `node.updates` speaks to, and resources in the words of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kubeqos.cri.errors import Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import UPDATE_CONTAINER_RESOURCES
from kubeqos.nri.link import NriCallError
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.cores.pods import PodTable
from kubeqos.stock.cores.tableruntime import TableRuntime

UPDATE_SECONDS = 10.0
Update = Callable[[Sequence[nri.ContainerUpdate]], Awaitable[Sequence[nri.ContainerUpdate]]]


def nri_resources(wanted: cri.LinuxContainerResources) -> nri.LinuxResources:
    """Resources in CRI's words, in NRI's; what is not set stays as it is."""
    out = nri.LinuxResources(unified=wanted.unified)
    out.cpu.cpus, out.cpu.mems = wanted.cpuset_cpus, wanted.cpuset_mems
    for part, field, value in (
        (out.cpu, "shares", wanted.cpu_shares),
        (out.cpu, "quota", wanted.cpu_quota),
        (out.cpu, "period", wanted.cpu_period),
        (out.memory, "limit", wanted.memory_limit_in_bytes),
        (out.memory, "swap", wanted.memory_swap_limit_in_bytes),
    ):
        if value:
            getattr(part, field).value = value
    for page in wanted.hugepage_limits:
        out.hugepage_limits.add(page_size=page.page_size, limit=page.limit)
    return out


def cri_resources(told: nri.LinuxResources) -> cri.LinuxContainerResources:
    """What NRI says that a container has, in CRI's words, as far as managers give it."""
    return cri.LinuxContainerResources(
        cpuset_cpus=told.cpu.cpus,
        cpuset_mems=told.cpu.mems,
        cpu_shares=told.cpu.shares.value,
        cpu_quota=told.cpu.quota.value,
        cpu_period=told.cpu.period.value,
        memory_limit_in_bytes=told.memory.limit.value,
        memory_swap_limit_in_bytes=told.memory.swap.value,
        unified=told.unified,
        hugepage_limits=[cri.HugepageLimit(page_size=one.page_size, limit=one.limit) for one in told.hugepage_limits],
    )


class NriRuntime(TableRuntime):
    """One node's runtime, through its NRI plugin."""

    endpoint = "NRI"

    def __init__(self, table: PodTable, update: Update) -> None:
        """`update` changes running containers; it fails while the plugin is not registered."""
        super().__init__(table)
        self._change = update

    async def _update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        wanted = nri.ContainerUpdate(container_id=request.container_id)
        wanted.linux.resources.CopyFrom(nri_resources(request.linux))
        name = UPDATE_CONTAINER_RESOURCES.name
        try:
            async with asyncio.timeout(UPDATE_SECONDS):
                failed = await self._change([wanted])
        except (NriCallError, TimeoutError) as error:
            why = str(error) or f"no answer within {UPDATE_SECONDS:g} s"
            raise self._error(name, Code.UNAVAILABLE, why) from error
        if failed and self._is_live(request.container_id):
            raise self._error(name, Code.INTERNAL, f"the runtime did not change container {request.container_id[:13]}")
        return cri.UpdateContainerResourcesResponse()
