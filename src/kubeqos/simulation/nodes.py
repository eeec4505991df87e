"""The node's side of a simulation: the node agent's own admission over its own managers, on simulated machines.

Fit, QoS classes, exclusive CPUs and the topology policy are decided by `node.admission` as an agent has it do, and are
published as an agent publishes them. The rest of an agent (sandboxes, containers, probes) is left out: a scenario says
itself how long pods run, and a whole agent (`cluster.fleet`) costs about 4 ms of CPU more per pod, too much for
5,000 nodes (docs/howto/simulate.md). Used by `simulation.run`, inside an event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from kubeqos.codec import encode_json
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeView
from kubeqos.node.admission.fit import NodeFit
from kubeqos.node.admission.ledger import LocalLedger
from kubeqos.node.admission.managers.classes import ClassManager
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api.nodestatus import node_annotations
from kubeqos.plugins.managers import AdmittedPod, Refusal, ResourceManager
from kubeqos.rules.qos.classes import catalog
from kubeqos.simulation.peers import Peers, settings_of
from kubeqos.simulation.scenario import SimulatedNode
from kubeqos.topology.alignment.hints import Policy, TopologySettings
from kubeqos.topology.fragmentation import fragmentation

ATTEMPTS, RETRY_SECONDS = 5, 0.2


class NodeAdmission:
    """What the agent of one simulated node decides about pods that the scheduler has sent."""

    def __init__(self, node: SimulatedNode, machine: Machine, folder: Path = Path()) -> None:
        """`folder` is where a node with plugins or drivers keeps its files; the path of a socket is short."""
        self.node = node
        self.scattered = 0.0
        """How far the CPUs that can still be owned lie apart."""
        self.news = False
        """Whether its free CPUs have changed since `object`, and the scheduler makes use of them."""
        self._machine = machine
        self._settings = settings_of(node, folder)
        view = NodeView.of(node.raw)
        self._cpus = CpuManager(machine, node.reserved) if node.static_cpus else None
        self._peers = Peers(node, machine, self._settings) if node.programs else None
        managers: list[ResourceManager] = [ClassManager(catalog(view.status.qos_resources))]
        managers += [self._cpus] if self._cpus is not None else []
        managers += self._peers.plugins.managers if self._peers is not None else ()
        self._free = machine.online - node.reserved
        self._alone = _fit(view)
        topology = TopologySettings(node.policy, node.scope)
        self._admission = Admission(machine, managers, LocalLedger(), self._fit, topology)

    async def start(self, stack: AsyncExitStack) -> None:
        """Let its plugins and drivers come, if it has any."""
        if self._peers is not None:
            await self._peers.start(stack)

    async def admit(self, pod: AdmittedPod) -> Refusal | None:
        """Reserve everything that a pod needs; or say why not, and reserve nothing."""
        refusal = await self._admission.admit(pod)
        for _ in range(ATTEMPTS if self._peers is not None else 0):
            if refusal is None or not refusal.retry:
                break
            await asyncio.sleep(RETRY_SECONDS)  # of this machine: a plugin is busy
            refusal = await self._admission.admit(pod)
        self._admission.aligned.pop(pod.uid, None)  # nobody keeps records here
        await self._changed()
        return refusal

    async def release(self, uid: str) -> None:
        """The pod is gone."""
        await self._admission.release(uid)
        await self._changed()

    async def _changed(self) -> None:
        if self._peers is not None:
            await self._peers.reconcile()
            self.news = True
        self._measure()

    def _fit(self) -> NodeFit:
        """What admission may count on, with what plugins and drivers say."""
        if self._peers is None:
            return self._alone
        told = {
            one.name: round(one.allocatable * (1000 if one.name == "cpu" else 1)) for one in self._peers.resources()
        }
        return replace(self._alone, allocatable={**self._alone.allocatable, **told})

    def _measure(self) -> None:
        free = self._cpus.free if self._cpus is not None else self._free
        if free == self._free:
            return
        self._free = free
        self.scattered = fragmentation(self._machine, free).score
        self.news = self.node.policy in (Policy.SINGLE_NUMA_NODE, Policy.RESTRICTED)

    def validate(self) -> list[str]:
        """Broken invariants of the ledger and the managers."""
        return self._admission.validate()

    def object(self) -> bytes:
        """The Node object with its free CPUs, as the node agent publishes it."""
        raw, self.news = self.node.raw, False
        drivers = self._peers.plugins.drivers() if self._peers is not None else ()
        published = node_annotations(self._settings, self._admission.managers, drivers)
        made = {**raw, "metadata": {**raw["metadata"], "annotations": {**raw["metadata"]["annotations"], **published}}}
        if self._peers is not None:
            told = {one.name: f"{one.allocatable:g}" for one in self._peers.resources()}
            made["status"] = {**raw["status"], "allocatable": {**raw["status"]["allocatable"], **told}}
        return encode_json(made)


def _fit(view: NodeView) -> NodeFit:
    """What the scenario says of the node, as admission reads it."""
    amounts = {
        name: amount.milli() if name == "cpu" else amount.value() for name, amount in view.status.allocatable.items()
    }
    return NodeFit(view.metadata.name, view.metadata.labels, amounts, tuple(view.spec.taints))
