"""A whole cluster in one process: API server, controllers, scheduler and nodes, started in order, stopped in reverse.

Components speak to the server in-process, as themselves. Resource plugins and compute drivers are processes of their
own, as they would be on a real node (`cluster.nodes`). Called by `kubeqos up` and tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.cci.claims.admission import check_claims
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import NODES as NODE_OBJECTS
from kubeqos.client.resources import PODS, Resource, resource_of
from kubeqos.client.shared import SharedInformers
from kubeqos.cluster.autoscaler import Autoscaler
from kubeqos.cluster.clusterfile import SERVER_GATES, ClusterPlan, NodePlan
from kubeqos.cluster.instance import SOCKETS_PREFIX, sockets_of
from kubeqos.cluster.nodes import configuration, start_node, template
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.classstatus import ClassStatusController
from kubeqos.controllers.controller import Context, Controller
from kubeqos.controllers.manager import CONTROLLERS, ControllerManager
from kubeqos.cri.simulated.views import RUNTIME_NAME
from kubeqos.errors import InputError, KubeqosError
from kubeqos.gates import QOS_RESOURCES
from kubeqos.logs import logger
from kubeqos.manifests import Manifest, read
from kubeqos.model.annotations.wellknown import NODE_GROUP_LABEL
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import SharedPods
from kubeqos.placement.nodes import NodeFacts
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.reading.nodegroups import lacks
from kubeqos.scheduler.service import SchedulerService
from kubeqos.web.identity import Identity

_READY_SECONDS = 180.0
_FLEET = 50
"""Above this many nodes containers write no logs and have no folders, and no node has sockets of its own."""
_PLUGIN_SECONDS = 20.0
_LOOK_SECONDS = 5.0
"""Nodes that come and go: who waits for the end of any component looks again which there are."""
NODES = "nodes"
log = logger("kubeqos.up")

Progress = Callable[[str], None]


@dataclass(slots=True)
class Embedded:
    """A running cluster."""

    server: ApiServer
    scheduler: SchedulerService
    sockets: Path
    informers: SharedInformers
    """What scheduler, controllers, nodes and dashboard follow, each kind once."""
    pods: SharedPods
    agents: dict[str, NodeAgent] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _stacks: dict[str, AsyncExitStack] = field(default_factory=dict)
    """What runs around each node, and ends with it."""

    def failed(self) -> str | None:
        """Which component ended by itself, and why; None while all of them run."""
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled():
                error = task.exception()
                return f"{name} stopped: {error or 'without a reason'}"
        return None

    async def wait(self) -> None:
        """Return only when a component ends, which none should."""
        while not self.failed():
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED, timeout=_LOOK_SECONDS)
        raise KubeqosError(self.failed() or "a component stopped")


@asynccontextmanager
async def running(
    plan: ClusterPlan,
    data_dir: Path,
    port: int,
    progress: Progress = lambda _: None,
    definitions: tuple[JsonObject, ...] = (),
) -> AsyncIterator[Embedded]:
    """Start everything, in the order in which it depends on each other; stop it in reverse."""
    async with AsyncExitStack() as stack:
        gates = SERVER_GATES.set(plan.gates)
        settings = Settings(data_dir, port=port, gates=gates, checks=(check_claims,), definitions=definitions)
        server = await stack.enter_async_context(ApiServer.start(settings))
        progress(f"API server on https://{server.application.address}")
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=SOCKETS_PREFIX)))
        informers = SharedInformers(server.local())
        core = Scheduler(plan.profiles, classes=gates.enabled(QOS_RESOURCES))
        scheduler = SchedulerService(server.local(), core, informers=informers)
        cluster = Embedded(server, scheduler, sockets, informers, SharedPods(informers.of(PODS)))
        try:
            await _forget(cluster, plan, data_dir / NODES)
            _start(cluster, "informers", informers.run())
            _start(cluster, "scheduler", cluster.scheduler.run())
            await _ready(cluster, "scheduler", cluster.scheduler.ready)
            progress("scheduler")
            controllers = _controllers(cluster, plan, data_dir / NODES, described=bool(definitions))
            _start(cluster, "controllers", controllers.run())
            # Nodes start while the controllers still read the cluster: neither waits for the other to be ready.
            for node in plan.nodes:
                await _start_node(cluster, node, plan.gates, data_dir / NODES, folders=len(plan.nodes) <= _FLEET)
            await _ready(cluster, "controllers", controllers.ready)
            progress("controllers")
            for name, agent in cluster.agents.items():
                await _ready(cluster, f"node {name}", agent.ready)
            await _registered(cluster)
            progress(f"{len(cluster.agents)} nodes: {_listed(plan)}")
            await _plugins(cluster, plan, progress)
            for path in plan.manifests:
                await _preload(cluster, path)
                progress(f"applied {path}")
            yield cluster
        finally:
            await _stop(cluster)


def _controllers(cluster: Embedded, plan: ClusterPlan, states: Path, *, described: bool) -> ControllerManager:
    """All controllers, and those that only a cluster on one machine has."""
    own: list[Callable[[Context], Controller]] = []
    if described:  # nobody follows kinds that are not there
        own.append(ClassStatusController)
    if plan.groups:
        folders = len(plan.nodes) + sum(group.most for group in plan.groups) <= _FLEET
        templates = {group.node.name: template(group, plan.gates) for group in plan.groups}

        async def start(node: NodePlan) -> JsonObject:
            await _start_node(cluster, node, plan.gates, states, folders=folders)
            await _ready(cluster, f"node {node.name}", cluster.agents[node.name].ready)
            return await _scheduled_to(cluster, node.name, templates[node.labels[NODE_GROUP_LABEL]])

        async def stop(name: str) -> None:
            await _stop_node(cluster, name, states)

        own.append(lambda context: Autoscaler(context, plan.groups, templates, start, stop))
    return ControllerManager(cluster.server.local(), controllers=(*CONTROLLERS, *own), informers=cluster.informers)


async def _forget(cluster: Embedded, plan: ClusterPlan, states: Path) -> None:
    """Remove the simulated nodes of an earlier start that this one does not have; nothing runs them any more."""
    api, wanted = cluster.server.local(), {node.name for node in plan.nodes}
    for listed in (await api.list(NODE_OBJECTS)).items:
        raw = decode_json(listed)
        name = raw["metadata"]["name"]
        runtime = (raw.get("status") or {}).get("nodeInfo", {}).get("containerRuntimeVersion", "")
        if name not in wanted and runtime.startswith(f"{RUNTIME_NAME}://") and (states / name).exists():
            await api.delete(NODE_OBJECTS, name)
            shutil.rmtree(states / name)


def check_plan(plan: ClusterPlan) -> None:
    """Find out what is wrong with a plan before anything is made for it: settings that contradict each other, files."""
    for node in (*plan.nodes, *(group.node for group in plan.groups)):
        configuration(node, Path(), Path(), plan.gates)
    for group in plan.groups:
        template(group, plan.gates)
    for path in plan.manifests:
        for manifest in read([str(path)]):
            _resource_of(manifest, path)


def _resource_of(manifest: Manifest, path: Path) -> Resource:
    version = str(manifest.raw.get("apiVersion", ""))
    resource = resource_of(version, manifest.kind)
    if resource is None:
        raise InputError(f'no matches for kind "{manifest.kind}" in version "{version}"', where=str(path))
    return resource


async def _preload(cluster: Embedded, path: Path) -> None:
    """Create what a file holds; what is there already stays as it is."""
    for manifest in read([str(path)]):
        raw, resource = manifest.raw, _resource_of(manifest, path)
        namespace = (raw.get("metadata") or {}).get("namespace") or "default"
        try:
            await cluster.server.local().create(resource, raw, namespace if resource.namespaced else "")
        except ApiError as error:
            if not error.already_exists:
                raise KubeqosError(error.message, where=f"{path}: {manifest.kind} {manifest.name!r}") from error


async def _registered(cluster: Embedded) -> None:
    """Wait until every node has said what it has: who is told that the cluster is ready may look for its nodes."""
    api, deadline = cluster.server.local(), time.monotonic() + _READY_SECONDS
    for name in cluster.agents:
        while True:
            with contextlib.suppress(ApiError):  # not there yet
                if ((await api.get(NODE_OBJECTS, name)).get("status") or {}).get("conditions"):
                    break
            if time.monotonic() > deadline:
                raise KubeqosError(f"node {name} did not register within {_READY_SECONDS:.0f} s")
            await asyncio.sleep(0.05)


async def _plugins(cluster: Embedded, plan: ClusterPlan, progress: Progress) -> None:
    """Wait until the plugins of every node are registered; a cluster runs without them, so not for ever."""
    wanted = sum(len(node.beside) for node in plan.nodes)
    if not wanted:
        return
    deadline = time.monotonic() + _PLUGIN_SECONDS
    while time.monotonic() < deadline:
        registered = [name for agent in cluster.agents.values() for name in agent.parts.plugins.registered()]
        if len(registered) >= wanted:
            progress(f"plugins and drivers: {', '.join(registered)}")
            return
        await asyncio.sleep(0.05)
    progress(f"going on without {wanted - len(registered)} of {wanted} plugins; see the logs below {NODES}/")


def _listed(plan: ClusterPlan) -> str:
    if len(plan.nodes) > 8:
        return f"{plan.nodes[0].name} … {plan.nodes[-1].name}"
    return ", ".join(f"{node.name} ({len(node.machine.online)} CPUs, {node.profile})" for node in plan.nodes)


def _start(cluster: Embedded, name: str, work: object) -> None:
    cluster._tasks[name] = asyncio.create_task(work, name=name)  # type: ignore[arg-type]


async def _ready(cluster: Embedded, name: str, event: asyncio.Event) -> None:
    """Wait for a component, but not for one that has ended."""
    task = cluster._tasks[name]
    waiting = asyncio.create_task(event.wait())
    done, _ = await asyncio.wait({task, waiting}, timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task in done:
        task.result()
    if not event.is_set():
        raise KubeqosError(f"{name} did not become ready within {_READY_SECONDS:.0f} s")


async def _start_node(
    cluster: Embedded, plan: NodePlan, gates: Mapping[str, bool], states: Path, *, folders: bool
) -> None:
    """A node as itself: what its agent may not write over a socket it may not write here either."""
    stack = cluster._stacks[plan.name] = AsyncExitStack()
    api = cluster.server.local(Identity.authenticated(f"system:node:{plan.name}", ["system:nodes"]))
    sockets = sockets_of(plan.name, cluster.sockets)
    agent, services = await start_node(
        *(stack, plan, gates, api, cluster.pods.of(plan.name), states / plan.name, sockets),
        folders=folders,
        authority=states.parent / "pki" / "ca.crt",
    )
    cluster.agents[plan.name] = agent
    cluster.server.nodes.local[plan.name] = services.server
    _start(cluster, f"node {plan.name}", agent.run())


async def _scheduled_to(cluster: Embedded, name: str, promised: NodeFacts) -> JsonObject:
    """Wait until a new node may be given pods, and has what its group promised: until then who waits for it would ask
    for another one. What never comes is not waited for: the group is then known by what its nodes have."""
    api = cluster.server.local()
    late = time.monotonic() + _PLUGIN_SECONDS
    async with asyncio.timeout(_READY_SECONDS + _PLUGIN_SECONDS):
        while True:
            with contextlib.suppress(ApiError):  # not there yet
                raw = await api.get(NODE_OBJECTS, name)
                ready = [one for one in (raw.get("status") or {}).get("conditions") or () if one["type"] == "Ready"]
                if ready and ready[0]["status"] == "True" and not _is_held_back(raw):
                    missing = lacks(raw, promised)
                    if not missing:
                        return raw
                    if time.monotonic() > late:
                        log.warning("a new node lacks what its group promises", node=name, missing=", ".join(missing))
                        return raw
            await asyncio.sleep(0.05)


def _is_held_back(raw: JsonObject) -> bool:
    taints = (raw.get("spec") or {}).get("taints") or ()
    return any(str(one.get("key", "")).startswith("node.kubernetes.io/") for one in taints)


async def _stop_node(cluster: Embedded, name: str, states: Path) -> None:
    """A node goes for good: its agent, what runs around it, its object and its files."""
    task = cluster._tasks.pop(f"node {name}")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await cluster._stacks.pop(name).aclose()
    del cluster.agents[name], cluster.server.nodes.local[name]
    await cluster.server.local().delete(NODE_OBJECTS, name)
    shutil.rmtree(states / name, ignore_errors=True)


async def _stop(cluster: Embedded) -> None:
    """Nodes and controllers together, before their plugins and the server that they speak to."""
    for task in cluster._tasks.values():
        task.cancel()
    await asyncio.gather(*cluster._tasks.values(), return_exceptions=True)
    for stack in reversed(cluster._stacks.values()):
        await stack.aclose()
