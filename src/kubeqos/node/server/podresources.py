"""The Pod Resources API, v1: which exclusive CPUs, NUMA memory and plugin resources each pod here has been given.

Monitoring agents and topology exporters ask it on a unix socket, `kubeqos podresources` through the node's
endpoint. Kubernetes' messages with the topology-aware extension of QoS resource managers (fields 12 to 15). The agent
tells what is held through `Holdings`; answers are built by pure functions, the servicer only limits the rate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import Message

from kubeqos.model.annotations.podmarks import role_of, type_of
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins.managers import AdmittedPod, ContainerKind
from kubeqos.plugins.sockets import listening, services
from kubeqos.ratelimit import RateLimit

SERVICE = "v1.PodResourcesLister"
RATE_PER_SECOND, BURST = 100.0, 10
METHODS = (
    ("List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse),
    ("GetAllocatableResources", pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse),
    ("Get", pb.GetPodResourcesRequest, pb.GetPodResourcesResponse),
)
_QUANTITIES = "quantity_list"


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory of one kind on some NUMA nodes."""

    kind: str
    size_bytes: int
    numa: NumaSet


@dataclass(frozen=True, slots=True)
class ContainerHolding:
    """What one container has for itself, or a pod as a whole."""

    cpus: CpuSet
    memory: Sequence[MemoryBlock] = ()
    resources: Sequence[pb.TopologyAwareResource] = ()


@dataclass(frozen=True, slots=True)
class NodeHolding:
    """What the node could hand out if it were empty."""

    cpus: CpuSet
    memory: Sequence[MemoryBlock] = ()
    resources: Sequence[pb.AllocatableTopologyAwareResource] = ()


class Holdings(Protocol):
    """The ledger of grants, as this API asks it."""

    def active_pods(self) -> Iterable[AdmittedPod]:
        """Pods that are admitted here and not over."""

    async def of_container(self, pod_uid: str, container: str) -> ContainerHolding: ...

    def of_pod(self, pod_uid: str) -> ContainerHolding:
        """What the pod has as a whole, and none of its containers by itself."""

    async def of_node(self) -> NodeHolding: ...


# ---- Answers


def pod_resources(pod: AdmittedPod, holdings: dict[str, ContainerHolding], whole: ContainerHolding) -> pb.PodResources:
    """One pod. Sidecars are listed, init containers that end are not."""
    metadata = pod.view.metadata
    answer = pb.PodResources(
        name=metadata.name,
        namespace=metadata.namespace,
        pod_role=role_of(metadata),
        pod_type=type_of(metadata),
        labels=metadata.labels,
        annotations=metadata.annotations,
        cpu_ids=list(whole.cpus),
        memory=_memory(whole.memory),
    )
    for name in listed_containers(pod):
        held = holdings[name]
        answer.containers.append(
            pb.ContainerResources(
                name=name, cpu_ids=list(held.cpus), memory=_memory(held.memory), resources=held.resources
            )
        )
    return answer


def listed_containers(pod: AdmittedPod) -> list[str]:
    """App containers and sidecars."""
    return [ref.name for ref, _ in pod.containers() if ref.kind is not ContainerKind.INIT]


def allocatable(node: NodeHolding) -> pb.AllocatableResourcesResponse:
    return pb.AllocatableResourcesResponse(
        cpu_ids=list(node.cpus), memory=_memory(node.memory), resources=node.resources
    )


def _memory(blocks: Iterable[MemoryBlock]) -> list[pb.ContainerMemory]:
    return [
        pb.ContainerMemory(
            memory_type=block.kind,
            size=block.size_bytes,
            topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa) for numa in block.numa]),
        )
        for block in blocks
    ]


def topology_aware(name: str, sent: Any) -> pb.TopologyAwareResource:
    """A plugin's report of one resource in this API's words: the same fields, and its name beside them."""
    answer = pb.TopologyAwareResource(resource_name=name)
    _copy(sent, answer)
    return answer


def allocatable_topology_aware(name: str, sent: Any) -> pb.AllocatableTopologyAwareResource:
    answer = pb.AllocatableTopologyAwareResource(resource_name=name)
    _copy(sent, answer)
    return answer


def _copy(sent: Any, answer: Any) -> None:
    """The fields that both have: how a plugin divides a resource is for the scheduler, and not part of this API."""
    for one in sent.DESCRIPTOR.fields:
        if one.name not in answer.DESCRIPTOR.fields_by_name:
            continue
        value = getattr(sent, one.name)
        if one.name.endswith(_QUANTITIES):
            known = [pb.TopologyAwareQuantity.FromString(each.SerializeToString()) for each in value]
            getattr(answer, one.name).extend(known)
        else:
            setattr(answer, one.name, value)


def plain(answer: Message) -> dict[str, Any]:
    """An answer as JSON values, empty lists included."""
    found: dict[str, Any] = json_format.MessageToDict(answer, always_print_fields_with_no_presence=True)
    return found


# ---- The server


@dataclass(slots=True)
class Counts:
    """What metrics read: calls by method and by how they ended."""

    calls: dict[str, int] = field(default_factory=dict)
    refused: int = 0


class PodResourcesServicer:
    """Answers the three calls."""

    def __init__(self, holdings: Holdings, now: Callable[[], float], limit: RateLimit | None = None) -> None:
        self.counts = Counts()
        self._holdings = holdings
        self._now = now
        self._limit = limit or RateLimit(RATE_PER_SECOND, BURST)

    async def List(self, _request: pb.ListPodResourcesRequest, context: Any) -> pb.ListPodResourcesResponse:
        await self._enter("List", context)
        return await self.listed()

    async def listed(self) -> pb.ListPodResourcesResponse:
        """Every pod; for who asks the node by HTTPS, too."""
        found = await asyncio.gather(*map(self._of, self._holdings.active_pods()))  # a plugin that hangs costs once
        return pb.ListPodResourcesResponse(pod_resources=found)

    async def Get(self, request: pb.GetPodResourcesRequest, context: Any) -> pb.GetPodResourcesResponse:
        await self._enter("Get", context)
        for pod in self._holdings.active_pods():
            metadata = pod.view.metadata
            if (metadata.namespace, metadata.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=await self._of(pod))
        what = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        return await context.abort(grpc.StatusCode.UNKNOWN, what)  # type: ignore[no-any-return]

    async def GetAllocatableResources(
        self, _request: pb.AllocatableResourcesRequest, context: Any
    ) -> pb.AllocatableResourcesResponse:
        await self._enter("GetAllocatableResources", context)
        return await self.allocatable()

    async def allocatable(self) -> pb.AllocatableResourcesResponse:
        """What the node could hand out; for who asks it by HTTPS, too."""
        return allocatable(await self._holdings.of_node())

    async def _of(self, pod: AdmittedPod) -> pb.PodResources:
        names = listed_containers(pod)
        held = await asyncio.gather(*(self._holdings.of_container(pod.uid, name) for name in names))
        return pod_resources(pod, dict(zip(names, held, strict=True)), self._holdings.of_pod(pod.uid))

    async def _enter(self, method: str, context: Any) -> None:
        self.counts.calls[method] = self.counts.calls.get(method, 0) + 1
        if not self._limit.allows(self._now()):
            self.counts.refused += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


@contextlib.asynccontextmanager
async def serving(servicer: PodResourcesServicer, socket: Path) -> AsyncIterator[grpc.aio.Server]:
    """Serve on the socket for the duration of a block."""
    handler = services(SERVICE, servicer, METHODS)
    async with listening(socket, lambda server: server.add_generic_rpc_handlers((handler,))) as server:
        yield server
