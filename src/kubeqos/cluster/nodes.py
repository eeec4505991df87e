"""The nodes of a cluster on one machine: each is configured, built and run as any other node is.

What a profile means says `node.config.configuration`; `configuration` adds what is true of every node of `kubeqos up`.
Called by `cluster.embedded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kubeqos.client.api import Api
from kubeqos.cluster.clusterfile import NODE_GATES, GroupPlan, NodePlan
from kubeqos.cluster.pluginprocesses import plugin_processes
from kubeqos.cluster.programs import WAITED_FOR
from kubeqos.cluster.resctrl import FOLDER, NodeResctrl
from kubeqos.cri.client import CriClient
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.classes import ClassBook
from kubeqos.document import Doc
from kubeqos.errors import InputError
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api import nodestatus
from kubeqos.node.api.sources import NodePods
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.config.configuration import NodeConfiguration, configure
from kubeqos.node.config.configured import node_settings
from kubeqos.node.config.driver import detected
from kubeqos.node.config.plugins import LEGACY_FOLDER
from kubeqos.node.config.settings import SIMULATED_DISK_BYTES
from kubeqos.node.run import NodeServices, running_node
from kubeqos.placement.nodes import NodeFacts
from kubeqos.plugins import REGISTRY
from kubeqos.rules.qos.classes import catalog
from kubeqos.scheduler.reading.nodegroups import described

_UNIX = "unix://"
NO_GATES: Mapping[str, bool] = {}


def configuration(
    plan: NodePlan, state: Path, sockets: Path, gates: Mapping[str, bool] = NO_GATES
) -> NodeConfiguration:
    """The node as a `NodeConfiguration`: classes are on, hints used, and CPUs can be owned where some are reserved."""
    said: dict[str, Any] = {
        "nodeName": plan.name,
        "profile": plan.profile,
        "stateDir": str(state),
        "podLogsDir": str(state / "pods"),
        "nodeLabels": dict(plan.labels),
        "featureGates": {"QOSResources": True, "TranslateQoSPodMetadata": True}
        | {name: on for name, on in gates.items() if name in NODE_GATES},
        "pluginRegistrationDir": str(sockets / REGISTRY),
        "qosResourcePluginDir": str(sockets / LEGACY_FOLDER),
        "podResourcesSocket": str(sockets / "pod-resources.sock"),
    }
    if plan.taints:
        said["registerWithTaints"] = [dict(taint) for taint in plan.taints]
    if plan.reserved_cpus:
        said["reservedSystemCPUs"] = str(plan.reserved_cpus)
    if plan.profile == "default":
        said["topologyManagerPolicy"] = "best-effort"
        said["cpuManagerPolicy"] = "static" if plan.reserved_cpus else "none"
    if plan.profile == "qrm":
        # The CPU and memory plugins are ours to start, so pods wait for them rather than run unpinned.
        ours = [one.name for one in plan.beside if not one.command]
        said["qosResourcePlugins"] = [name for name in WAITED_FOR if name in ours]
    if plan.profile == "cci" and len(plan.beside) > 1:
        said["cciSeveralDrivers"] = True  # whoever starts several wants them to be used
    if plan.endpoint:
        said["containerRuntimeEndpoint"] = _UNIX + plan.endpoint.removeprefix(_UNIX)
    else:
        said["simulatedMachine"] = plan.machine.name
    told = Doc.of(said, f"node {plan.name}")
    if plan.settings is None:
        return configure(told, {}, has_file=False)
    return configure(plan.settings, {}, has_file=False, beneath=told)


def template(group: GroupPlan, gates: Mapping[str, bool] = NO_GATES) -> NodeFacts:
    """A node of a group as the scheduler would see it, before there is one. What plugins would add says the group."""
    plan = group.member(group.node.name)
    config = configuration(plan, Path(), Path(), gates)
    settings = node_settings(config, plan.machine, SIMULATED_DISK_BYTES, None)
    offered = catalog(nodestatus.advertised(ClassBook(plan.offers).info()))
    raw = {
        "metadata": {"name": plan.name, "labels": nodestatus.node_labels(settings)},
        "spec": {"taints": [dict(taint) for taint in plan.taints]},
        "status": {
            "allocatable": nodestatus.texts(nodestatus.allocatable(plan.machine, settings)),
            "qosResources": nodestatus.qos_resources(offered),
        },
    }
    try:
        return described(group.template, raw)
    except InputError as error:
        raise InputError(error.what, where=f"node group {plan.name}: template: {error.where}") from error


async def start_node(
    stack: AsyncExitStack,
    plan: NodePlan,
    gates: Mapping[str, bool],
    api: Api,
    pods: NodePods,
    state: Path,
    sockets: Path,
    *,
    folders: bool,
    authority: Path | None = None,
) -> tuple[NodeAgent, NodeServices]:
    """The agent of a node and what runs around it, with its plugins as processes.

    The API server of its own process asks it directly; where its settings name a port it answers there, too, to whom
    `authority` knows: for those who scrape metrics of nodes.
    `folders`: whether its containers write logs and have volumes; nobody looks into those of a thousand nodes.
    """
    for folder in (state, sockets) if folders or plan.beside else (state,):
        folder.mkdir(parents=True, exist_ok=True)
    runtime: Runtime
    if plan.endpoint:
        runtime = CriClient(plan.endpoint)
        stack.push_async_callback(runtime.close)
    else:
        simulated = runtime = SimulatedRuntime(plan.machine, plan.offers, name=plan.name, logs=folders)
        if folders and plan.rdt is not None:
            tree = NodeResctrl(state / FOLDER, plan.machine, plan.rdt, simulated)
            keeping = asyncio.create_task(tree.keep(), name=f"resctrl of {plan.name}")
            stack.callback(keeping.cancel)
    hosting = Hosting(api, pods, folders=folders or bool(plan.endpoint))
    config = await detected(configuration(plan, state, sockets, gates), runtime)
    listens = plan.settings is not None and "port" in plan.settings.items()
    parts = node_parts(config, runtime, plan.machine, hosting, client_authority=authority if listens else None)
    # Plugins outlive who watches for them: one that ends because everything does is no news.
    await stack.enter_async_context(plugin_processes(plan, state, sockets))
    return await stack.enter_async_context(running_node(parts))
