"""Plugins and drivers beside the nodes of a scenario: started as beside a node of `kubeqos up`, met by its managers.

They are programs of their own, with sockets and the time of this machine, while the scenario's clock stands still: each
decision is waited for. Used by `simulation.nodes` for nodes of the profiles `qrm` and `cci`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kubeqos.cci.manager import CciSettings
from kubeqos.cluster.clusterfile import NodePlan
from kubeqos.cluster.pluginprocesses import plugin_processes
from kubeqos.cluster.programs import WAITED_FOR
from kubeqos.errors import KubeqosError
from kubeqos.gates import CCI, QRM, FeatureGates
from kubeqos.model.machine import Machine
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config.plugins import LEGACY_FOLDER, PluginManagers, plugin_managers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.meeting import meeting_plugins
from kubeqos.plugins import REGISTRY
from kubeqos.plugins.managers import NodeResource
from kubeqos.qrm.settings import QrmSettings
from kubeqos.simulation.scenario import SimulatedNode
from kubeqos.supervision import Supervisor

READY_SECONDS = 180.0
PROFILE_GATES = {"qrm": {QRM: True}, "cci": {CCI: True}}


def settings_of(node: SimulatedNode, folder: Path) -> NodeSettings:
    """The node as its agent is configured."""
    return NodeSettings(
        node.name,
        folder,
        topology_policy=node.policy,
        topology_scope=node.scope,
        reserved_cpus=node.reserved,
        gates=FeatureGates.default().set(PROFILE_GATES.get(node.profile, {})),
        profile=node.profile,
    )


class Peers:
    """The plugins or drivers of one node, and the managers that ask them."""

    def __init__(self, node: SimulatedNode, machine: Machine, settings: NodeSettings) -> None:
        self._node, self._folder = node, settings.state_dir
        self._plan = NodePlan(node.name, machine, node.profile, reserved_cpus=node.reserved, programs=node.programs)
        ours = [one.name for one in self._plan.beside if not one.command]
        self.plugins: PluginManagers = plugin_managers(
            settings,
            machine,
            NodeEvents(None, node.name),
            folder=self._folder / REGISTRY,
            legacy_folder=self._folder / LEGACY_FOLDER,
            # What is asked of a plugin between two events it has told by the second: no answer is older than that.
            qrm=QrmSettings(expected=frozenset(name for name in WAITED_FOR if name in ours), capacity_seconds=0.0),
            cci=CciSettings(several_drivers=len(self._plan.beside) > 1),
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Run them until the stack is closed; when this returns, all have registered."""
        self._folder.mkdir(parents=True, exist_ok=True)
        await stack.enter_async_context(plugin_processes(self._plan, self._folder, self._folder))
        await stack.enter_async_context(meeting_plugins(self.plugins, Supervisor()))  # which ends first
        deadline = time.monotonic() + READY_SECONDS
        while len(self.plugins.registered()) < len(self._plan.beside):
            if time.monotonic() > deadline:
                names = ", ".join(one.label for one in self._plan.beside)
                raise KubeqosError(
                    f"not all of {names} came within {READY_SECONDS:g} s",
                    where=f"node {self._node.name}",
                    remedy="run the program by itself to see what it says",
                )
            await asyncio.sleep(0.05)

    async def reconcile(self) -> None:
        """Somebody came or went: take over what plugins adjust, as the node does every few seconds."""
        if self.plugins.qrm is not None:
            await self.plugins.qrm.reconcile()

    def resources(self) -> Sequence[NodeResource]:
        """What they add to the node."""
        return [one for manager in self.plugins.managers for one in manager.node_resources()]
