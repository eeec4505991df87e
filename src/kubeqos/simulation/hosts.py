"""The node's side of a simulation: exclusive CPUs of one machine, given as its CPU and topology managers would.

Only CPUs are aligned; memory is taken as the scheduler counts it. Used by `simulation.run`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.codec import encode_json
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.topologysummary import ByNuma, TopologySummary, encode_topology
from kubeqos.model.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.simulation.scenario import SimulatedNode
from kubeqos.topology.alignment.cpuhints import cpu_hints
from kubeqos.topology.alignment.hints import Offer, Policy, Scope
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.answers import Refused
from kubeqos.topology.cpus import allocate_cpus
from kubeqos.topology.fragmentation import fragmentation


class Host:
    """One machine with a static CPU manager."""

    def __init__(self, node: SimulatedNode, machine: Machine) -> None:
        self.node = node
        self.machine = machine
        self.free = machine.online - node.reserved
        self.held: dict[str, CpuSet] = {}
        self.scattered = 0.0

    def admit(self, uid: str, wanted: Sequence[int]) -> str | None:
        """Give a pod its exclusive CPUs, per container; or say why not, and give nothing."""
        free, taken = self.free, CpuSet()
        per_unit = [(sum(wanted), wanted)] if self.node.scope is Scope.POD else [(count, [count]) for count in wanted]
        for total, counts in per_unit:
            hints = Offer("cpumanager", "cpu", cpu_hints(self.machine, free, total))
            merged = merge([hints], self.machine.numa, self.node.policy)
            if not merged.admitted:
                return merged.because
            aligned = None if merged.hint.numa is None else self.machine.cpus_in(merged.hint.numa)
            for count in counts:
                answer = allocate_cpus(self.machine, free, count, aligned=aligned)
                if isinstance(answer, Refused):
                    return str(answer)
                free -= answer.cpus
                taken |= answer.cpus
        self.held[uid] = taken
        self._now_free(free)
        return None

    def release(self, uid: str) -> None:
        """The pod is gone."""
        self._now_free(self.free | self.held.pop(uid, CpuSet()))

    def _now_free(self, free: CpuSet) -> None:
        self.free = free
        self.scattered = fragmentation(self.machine, free).score

    @property
    def publishes(self) -> bool:
        """Whether the scheduler makes use of what this node says about its free CPUs."""
        return self.node.policy in (Policy.SINGLE_NUMA_NODE, Policy.RESTRICTED)

    def _by_node(self, cpus: CpuSet) -> ByNuma:
        return {node: len(inside & cpus) for node, inside in self.machine.numa_cpus.items()}

    def object(self) -> bytes:
        """The Node object with its free CPUs, as the node agent publishes it."""
        raw = self.node.raw
        said = TopologySummary(
            self.node.policy.value,
            self.node.scope.value,
            {"cpu": self._by_node(self.free)},
            {uid: {"cpu": self._by_node(cpus)} for uid, cpus in self.held.items()},
        )
        annotations = {**raw["metadata"]["annotations"], TOPOLOGY_ANNOTATION: encode_topology(said)}
        return encode_json({**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
