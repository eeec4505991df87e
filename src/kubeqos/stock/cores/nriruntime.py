"""NRI as the runtime that `node.updates` speaks to: updates of containers, and what is known of them.

Everything else that CRI can do is the kubelet's affair here, and is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relist import Seen
from kubeqos.cri.runtime import (
    CONTAINER_STATUS,
    LIST_CONTAINERS,
    UPDATE_CONTAINER_RESOURCES,
    Method,
    Request,
    Response,
    Runtime,
)
from kubeqos.node.cri.observer import POD_UID_LABEL
from kubeqos.node.pod.observed import Stage
from kubeqos.nri.link import NriCallError
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.cores.pods import PodTable

UPDATE_SECONDS = 10.0
STATES = {
    Stage.CREATED: cri.CONTAINER_CREATED,
    Stage.RUNNING: cri.CONTAINER_RUNNING,
    Stage.EXITED: cri.CONTAINER_EXITED,
}
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


class NriRuntime(Runtime):
    """One node's runtime, through its NRI plugin."""

    endpoint = "NRI"

    def __init__(self, table: PodTable, update: Update) -> None:
        """`update` changes running containers; it fails while the plugin is not registered."""
        self._table = table
        self._change = update

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        answer: object
        if isinstance(request, cri.UpdateContainerResourcesRequest) and method.name == UPDATE_CONTAINER_RESOURCES.name:
            answer = await self._update(request)
        elif isinstance(request, cri.ContainerStatusRequest) and method.name == CONTAINER_STATUS.name:
            answer = self._status(request.container_id)
        elif method.name == LIST_CONTAINERS.name:
            answer = self._list()
        else:
            raise self._error(method.name, Code.UNIMPLEMENTED, "beside a kubelet only the kubelet does that")
        assert isinstance(answer, method.response)
        return answer

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

    def _is_live(self, id: str) -> bool:
        return any(one.live for pod in self._table.pods.values() for key, one in pod.containers.items() if key == id)

    def _status(self, id: str) -> cri.ContainerStatusResponse:
        for pod in self._table.pods.values():
            if id in pod.containers:
                # What it has, the kernel says better than a runtime that may have lost an update.
                found = cri.ContainerStatusResponse()
                found.status.id, found.status.state = id, STATES[pod.containers[id].stage]
                return found
        raise self._error(CONTAINER_STATUS.name, Code.NOT_FOUND, f"no container {id[:13]}")

    def _list(self) -> cri.ListContainersResponse:
        found = cri.ListContainersResponse()
        for uid, pod in self._table.pods.items():
            for one in pod.containers.values():
                row = found.containers.add(id=one.id, state=STATES[one.stage], labels={POD_UID_LABEL: uid})
                row.metadata.name = one.name
        return found

    def _error(self, method: str, code: Code, why: str) -> CallError:
        return CallError(method, code, why, endpoint=self.endpoint)

    def events(self, since: Seen | None = None) -> AsyncIterator[cri.ContainerEventResponse]:
        raise self._error("GetContainerEvents", Code.UNIMPLEMENTED, "the runtime tells its plugins by itself")

    async def close(self) -> None:
        """Nothing is held here."""
