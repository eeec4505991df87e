"""The runtime that `node.updates` speaks to, beside a kubelet: updates of containers, and what is known of them.

Everything else that CRI can do is the kubelet's affair here, and is refused. How a container is updated is the shell's:
through NRI (`nriruntime`), or by the runtime's own call (`CriRuntime`, for the relay).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator

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
from kubeqos.stock.cores.pods import PodTable

STATES = {
    Stage.CREATED: cri.CONTAINER_CREATED,
    Stage.RUNNING: cri.CONTAINER_RUNNING,
    Stage.EXITED: cri.CONTAINER_EXITED,
}


class TableRuntime(Runtime):
    """One node's runtime, as far as the table of its pods knows it."""

    endpoint = "runtime"

    def __init__(self, table: PodTable) -> None:
        self._table = table

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

    @abstractmethod
    async def _update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        """Change a container."""

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


class CriRuntime(TableRuntime):
    """Updates go to the runtime itself; what its own status says of a container is not asked for."""

    def __init__(self, table: PodTable, runtime: Runtime) -> None:
        super().__init__(table)
        self._runtime = runtime
        self.endpoint = runtime.endpoint

    async def _update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        try:
            return await self._runtime.call(UPDATE_CONTAINER_RESOURCES, request)
        except CallError as error:
            if error.code is not Code.NOT_FOUND and self._is_live(request.container_id):
                raise
            return cri.UpdateContainerResourcesResponse()  # it has just ended
