"""What an agent's managers have given out, as the Pod Resources API asks for it (`podresources.Holdings`).

Exclusive CPUs and memory come from the books, whoever keeps them: the built-in managers, QRM's plugins, CCI's drivers;
what plugins count beyond that they are asked for. Made by `node.run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kubeqos.cci.manager import CciManager
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.node.agent import NodeAgent
from kubeqos.node.pod.record import ACTIVE, PodRecord, PodState
from kubeqos.node.server.podresources import (
    ContainerHolding,
    MemoryBlock,
    NodeHolding,
    allocatable_topology_aware,
    topology_aware,
)
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.qrm.allocations import is_memory
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.reports import allocatable_resources, container_resources


class GrantView:
    """The ledger of one agent."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent

    def active_pods(self) -> Iterable[AdmittedPod]:
        return [pod.admitted for pod in self.agent.core.pods.values() if _holds(pod)]

    async def of_container(self, pod_uid: str, container: str) -> ContainerHolding:
        resources = []
        for manager in self._plugins():
            merged = await container_resources(manager.endpoints, pod_uid, container)
            resources += [topology_aware(name, sent) for name, sent in sorted(merged.resources.items())]
        memory = [*self._own_memory(pod_uid, container), *self._plugin_memory(pod_uid, container)]
        return ContainerHolding(self._exclusive(pod_uid, container), memory, resources)

    def of_pod(self, pod_uid: str) -> ContainerHolding:
        """What plugins gave the pod as a whole; each of its containers uses it, so it is told once."""
        for manager in self._plugins():
            for holding in manager.allocations.of_pod(pod_uid):
                if holding.whole:
                    memory = [MemoryBlock(*one) for one in holding.memory(whole=True)]
                    return ContainerHolding(holding.owned(whole=True), memory)
        return ContainerHolding(NO_CPUS)

    async def of_node(self) -> NodeHolding:
        agent = self.agent
        memory = []
        if agent.memory is not None:
            for numa, amounts in agent.memory.allocatable().items():
                memory += [MemoryBlock(kind, size, NumaSet.of(numa)) for kind, size in sorted(amounts.items())]
        resources: list[pb.AllocatableTopologyAwareResource] = []
        for manager in self._plugins():
            merged = await allocatable_resources(manager.endpoints)
            resources += [allocatable_topology_aware(name, sent) for name, sent in sorted(merged.resources.items())]
        return NodeHolding(agent.settings.pod_cpus(agent.machine), [*memory, *_by_node(resources)], resources)

    def _plugins(self) -> list[QosResourceManager]:
        return [one for one in self.agent.managers if isinstance(one, QosResourceManager)]

    def _exclusive(self, pod_uid: str, container: str) -> CpuSet:
        found = NO_CPUS
        if self.agent.cpus is not None:
            found = self.agent.cpus.exclusive_of(pod_uid, container)
        for manager in self.agent.managers:
            if isinstance(manager, CciManager):
                entry = manager.store.entries.get((pod_uid, container))
                found |= entry.cpus & entry.whole if entry is not None else NO_CPUS
            elif isinstance(manager, QosResourceManager):
                holding = manager.allocations.get(pod_uid, container)
                found |= holding.owned() if holding is not None else NO_CPUS
        return found

    def _own_memory(self, pod_uid: str, container: str) -> Iterator[MemoryBlock]:
        memory = self.agent.memory
        if memory is not None and (numa := memory.numa_of(pod_uid, container)) is not None:
            yield from (MemoryBlock(kind, size, numa) for kind, size in memory.blocks(pod_uid, container).items())

    def _plugin_memory(self, pod_uid: str, container: str) -> Iterator[MemoryBlock]:
        for manager in self._plugins():
            holding = manager.allocations.get(pod_uid, container)
            if holding is not None:
                yield from (MemoryBlock(*one) for one in holding.memory())


def _by_node(resources: Sequence[pb.AllocatableTopologyAwareResource]) -> Iterator[MemoryBlock]:
    """Memory that a plugin hands out, in the words of the built-in manager."""
    for one in resources:
        if is_memory(one.resource_name):
            for part in one.topology_aware_allocatable_quantity_list:
                yield MemoryBlock(one.resource_name, int(part.resource_value), NumaSet.of(part.node))


def _holds(pod: PodRecord) -> bool:
    return pod.state in ACTIVE or pod.state is PodState.TERMINATING
