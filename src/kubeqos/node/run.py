"""Runs a node agent with everything around it: housekeeping under pressure, plugins, the Pod Resources API, HTTPS.

`AgentView` shows the agent to `pressure.housekeeping`; `running_node` makes an agent of its parts and runs the rest
around it until a block ends. Called by `kubeqos node` and `kubeqos up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.quantity import Quantity
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.cri.configs import volume_paths
from kubeqos.node.meeting import meeting_plugins
from kubeqos.node.parts import NodeParts
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import ACTIVE, PodState
from kubeqos.node.pressure.housekeeping import Housekeeper
from kubeqos.node.pressure.imagegc import ImageGc
from kubeqos.node.pressure.thresholds import REASON, ActivePod, Conditions, EvictPod
from kubeqos.node.pressure.usage import HostMachine, MachineMeter, SimulatedMachine, UsageCollector
from kubeqos.node.server import podresources
from kubeqos.node.server.endpoint import NodeServer
from kubeqos.node.server.holdings import GrantView
from kubeqos.node.server.podresources import PodResourcesServicer
from kubeqos.node.server.routes import serving_https
from kubeqos.web.garbage import freeze_loaded

_NS = 1_000_000_000


_PUBLISH_SECONDS = 0.2


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
        if (pod := self.agent.core.pods.get(effect.uid)) is not None:
            self.agent.decisions.eviction(pod, effect, REASON)
        self.agent.feed(fx.Evict(effect.uid, REASON, effect.message, grace, condition, effect.annotations))

    async def show_conditions(self, _conditions: Conditions) -> None:
        await self.agent.node.write()  # which asks the same `Pressure`

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


def housekeeper(agent: NodeAgent, settings: ServiceSettings) -> Housekeeper:
    """The loop that keeps this agent's node from running out."""
    view = AgentView(agent)
    simulated = isinstance(agent.runtime, SimulatedRuntime)
    collector = UsageCollector(
        agent.runtime,
        _meter(agent, simulated=simulated),
        agent.now,
        log_dir=None if simulated else agent.settings.log_dir,
        volumes=(lambda _uid: {}) if simulated else view.volumes,
    )

    return Housekeeper(agent.parts.pressure, collector, agent.runtime, view, agent.now, ImageGc(settings.images))


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
    server: NodeServer


@contextlib.asynccontextmanager
async def running_plugins(agent: NodeAgent) -> AsyncIterator[None]:
    """Let plugins and drivers register and re-allocate until the block ends."""
    plugins = agent.parts.plugins
    if not plugins.managers:
        yield
        return
    async with meeting_plugins(plugins, agent.supervisor):
        task = asyncio.create_task(agent.supervisor.keep("plugin publisher", partial(_publish_plugins, agent)))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _publish_plugins(agent: NodeAgent) -> None:
    """The scheduler looks for drivers and plugins' resources in the Node object, so it hears of them at once."""
    plugins = agent.parts.plugins
    told: tuple[list[str], object] = [], None
    while True:
        await asyncio.sleep(_PUBLISH_SECONDS)
        qrm = plugins.qrm
        shown = plugins.conditions(), (qrm.node_resources(), qrm.divisions()) if qrm is not None else None
        found = sorted(plugins.registered()), shown
        if found != told and agent.ready.is_set():
            await agent.node.write()
            told = found


@contextlib.asynccontextmanager
async def running_node(parts: NodeParts) -> AsyncIterator[tuple[NodeAgent, NodeServices]]:
    """An agent of these parts with everything around it; `NodeAgent.run` is for the caller, who waits for its end."""
    agent = NodeAgent(parts)
    async with running_plugins(agent), serve_node(agent) as services:
        yield agent, services


@contextlib.asynccontextmanager
async def serve_node(agent: NodeAgent, settings: ServiceSettings | None = None) -> AsyncIterator[NodeServices]:
    """Run an agent's services until the block ends, as its parts say. The agent itself is run by whoever made it."""
    settings = settings or agent.parts.services
    keeper = housekeeper(agent, settings)
    servicer = PodResourcesServicer(GrantView(agent), time.monotonic)

    async def sleep(seconds: float) -> None:
        await agent.clock.sleep(seconds)

    # The nodes of a fleet start together; each looks at its own time, so that they do not all look at once.
    stagger = zlib.crc32(agent.settings.node_name.encode()) / 2**32

    async def keep() -> None:
        await agent.ready.wait()
        freeze_loaded()
        await sleep(stagger * settings.housekeeping_seconds)
        await keeper.run(sleep, settings.housekeeping_seconds)

    async with contextlib.AsyncExitStack() as stack:
        if settings.pod_resources_socket is not None:
            await stack.enter_async_context(podresources.serving(servicer, settings.pod_resources_socket))
        server = NodeServer(agent, keeper, servicer)
        if settings.client_authority is not None:
            endpoint = serving_https(server, settings.address, settings.port, settings.client_authority)
            await stack.enter_async_context(endpoint)
        task = asyncio.create_task(agent.supervisor.keep("housekeeping", keep))
        try:
            yield NodeServices(keeper, servicer, server)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
