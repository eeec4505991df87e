"""What a node agent does beside its pods: housekeeping under pressure, the Pod Resources API, the HTTPS endpoint.

`AgentView` and `GrantView` show the agent as `housekeeping.Household` and `podresources.Holdings`; `serve_node`
runs all of it around an agent for the duration of a block. Called by `kubeqos node` and `kubeqos up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.cci.manager import CciManager
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.model.quantity import Quantity
from kubeqos.node.agent import NodeAgent
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import ACTIVE, PodRecord, PodState
from kubeqos.node.pressure.housekeeping import Housekeeper
from kubeqos.node.pressure.imagegc import ImageGc, ImageGcSettings
from kubeqos.node.pressure.thresholds import REASON, ActivePod, Conditions, EvictPod, Pressure, PressureSettings
from kubeqos.node.pressure.usage import HostMachine, MachineMeter, SimulatedMachine, UsageCollector
from kubeqos.node.runtime.criconfig import volume_paths
from kubeqos.node.server import podresources
from kubeqos.node.server.endpoint import NodeDoor
from kubeqos.node.server.podresources import (
    ContainerHolding,
    MemoryBlock,
    NodeHolding,
    PodResourcesServicer,
    allocatable_topology_aware,
    topology_aware,
)
from kubeqos.node.server.routes import serving
from kubeqos.plugins.managers import AdmittedPod, Refusal
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.reports import allocatable_resources, container_resources
from kubeqos.rules.eviction import HARD_DEFAULTS, thresholds

_NS = 1_000_000_000


def default_pressure() -> PressureSettings:
    """Kubernetes' thresholds."""
    return PressureSettings(thresholds(HARD_DEFAULTS))


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What runs around an agent. Without a socket there is no Pod Resources API."""

    pressure: PressureSettings = field(default_factory=default_pressure)
    housekeeping_seconds: float = 10.0
    pod_resources_socket: Path | None = None
    address: str = "127.0.0.1"
    port: int = 0
    client_authority: Path | None = None
    """Whose certificates the HTTPS endpoint accepts; without it there is none."""
    images: ImageGcSettings = field(default_factory=ImageGcSettings)


class AgentView:
    """An agent's pods and grants, as the services ask for them."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent

    # ---- Housekeeping

    def active_pods(self) -> Iterable[ActivePod]:
        for pod in self.agent.core.pods.values():
            if pod.state in ACTIVE or pod.state is PodState.TERMINATING:
                yield ActivePod(pod.view, pod.source == "file", ending=pod.ending is not None)

    def containers_in_use(self) -> set[str]:
        """The newest instance of every container, and the one before it, whose log `--previous` shows.

        Not of pods that have ended: their remains go when the disk is short, as in Kubernetes.
        """
        found = set()
        for pod in self.agent.core.pods.values():
            if pod.state is PodState.FINISHED:
                continue
            for container in pod.containers.values():
                found |= {one.id for one in container.instances[:2]}
        return found

    def images_in_use(self) -> set[str]:
        """Also of pods whose containers are only about to be made."""
        pods = [pod for pod in self.agent.core.pods.values() if pod.ending is None]
        return {one.view.image for pod in pods for one in pod.containers.values()}

    def evict(self, effect: EvictPod) -> None:
        grace, condition = effect.grace_seconds, dict(effect.condition)
        self.agent.feed(fx.Evict(effect.uid, REASON, effect.message, grace, condition, effect.annotations))

    async def show_conditions(self, conditions: Conditions) -> None:
        self.agent.pressure = dict(conditions)
        await self.agent.write_node()

    def record_node(self, reason: str, message: str) -> None:
        self.agent.record_node(reason, message)

    def volumes(self, uid: str) -> Mapping[str, Path]:
        """Folders that count as a pod's own disk use."""
        pod = self.agent.core.pods.get(uid)
        if pod is None:
            return {}
        own = {one["name"] for one in pod.view.spec.volumes if "emptyDir" in one}
        paths = volume_paths(pod.admitted, self.agent.context)
        return {name: path for name, path in paths.items() if name in own}


class GrantView:
    """What an agent's managers have given out, as the Pod Resources API asks for it."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent

    def active_pods(self) -> Iterable[AdmittedPod]:
        return [pod.admitted for pod in self.agent.core.pods.values() if _holds(pod)]

    async def of_container(self, pod_uid: str, container: str) -> ContainerHolding:
        memory = self.agent.memory
        blocks: list[MemoryBlock] = []
        if memory is not None and (numa := memory.numa_of(pod_uid, container)) is not None:
            blocks = [MemoryBlock(kind, size, numa) for kind, size in memory.blocks(pod_uid, container).items()]
        resources = []
        for manager in self._plugins():
            merged = await container_resources(manager.endpoints, pod_uid, container)
            resources += [topology_aware(name, sent) for name, sent in sorted(merged.resources.items())]
        return ContainerHolding(self._exclusive(pod_uid, container), blocks, resources)

    async def of_node(self) -> NodeHolding:
        agent = self.agent
        reserved = agent.settings.reserved_cpus
        memory = []
        if agent.memory is not None:
            for numa, amounts in agent.memory.allocatable().items():
                memory += [MemoryBlock(kind, size, NumaSet.of(numa)) for kind, size in sorted(amounts.items())]
        resources = []
        for manager in self._plugins():
            merged = await allocatable_resources(manager.endpoints)
            resources += [allocatable_topology_aware(name, sent) for name, sent in sorted(merged.resources.items())]
        return NodeHolding(agent.machine.online - reserved, memory, resources)

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
        return found


def _holds(pod: PodRecord) -> bool:
    return pod.state in ACTIVE or pod.state is PodState.TERMINATING


def housekeeper(agent: NodeAgent, settings: ServiceSettings) -> Housekeeper:
    """The loop that keeps this agent's node from running out; from now on its admission asks it too."""
    view, pressure = AgentView(agent), Pressure(settings.pressure)
    simulated = isinstance(agent.runtime, SimulatedRuntime)
    collector = UsageCollector(
        agent.runtime,
        _meter(agent, simulated=simulated),
        agent.now,
        log_dir=None if simulated else agent.settings.log_dir,
        volumes=(lambda _uid: {}) if simulated else view.volumes,
    )

    def gate(pod: AdmittedPod, static: bool) -> Refusal | None:
        return pressure.admit(ActivePod(pod.view, static))

    agent.admission.gate = gate
    return Housekeeper(pressure, collector, agent.runtime, view, agent.now, ImageGc(settings.images))


def _meter(agent: NodeAgent, *, simulated: bool) -> MachineMeter:
    own = agent.settings
    reserved = sum(one.get("memory", Quantity.ZERO).value() for one in (own.kube_reserved, own.system_reserved))
    if simulated:
        return SimulatedMachine(agent.machine, reserved)
    pods = f"{own.cgroup_root.rstrip('/')}/{'kubepods.slice' if own.cgroup_driver == 'systemd' else 'kubepods'}"
    published = sum(node.memory_bytes for node in agent.machine.nodes)
    return HostMachine(own.state_dir, pods_cgroup=pods, reserved_bytes=reserved, memory_bytes=published)


@dataclass(slots=True)
class NodeServices:
    """What runs around one agent."""

    housekeeper: Housekeeper
    pod_resources: PodResourcesServicer
    door: NodeDoor


def settle_memory() -> None:
    """What was loaded at start stays: full collections need not walk it, and do not hold up an admission."""
    gc.collect()
    gc.freeze()


@contextlib.asynccontextmanager
async def serve_node(agent: NodeAgent, settings: ServiceSettings) -> AsyncIterator[NodeServices]:
    """Run an agent's services until the block ends. The agent itself is run by whoever made it."""
    keeper = housekeeper(agent, settings)
    servicer = PodResourcesServicer(GrantView(agent), time.monotonic)

    async def sleep(seconds: float) -> None:
        await agent.clock.sleep_until(agent.clock.now_ns() + round(seconds * _NS))

    # The nodes of a fleet start together; each looks at its own time, so that they do not all look at once.
    stagger = zlib.crc32(agent.settings.node_name.encode()) / 2**32

    async def keep() -> None:
        await agent.ready.wait()
        settle_memory()
        await sleep(stagger * settings.housekeeping_seconds)
        await keeper.run(sleep, settings.housekeeping_seconds)

    async with contextlib.AsyncExitStack() as stack:
        if settings.pod_resources_socket is not None:
            await stack.enter_async_context(podresources.serving(servicer, settings.pod_resources_socket))
        door = NodeDoor(agent, keeper, servicer)
        if settings.client_authority is not None:
            endpoint = serving(door, settings.address, settings.port, settings.client_authority)
            await stack.enter_async_context(endpoint)
        task = asyncio.create_task(keep(), name="housekeeping")
        try:
            yield NodeServices(keeper, servicer, door)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
