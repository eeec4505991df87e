"""The reference driver: every attribute of KEP-3675, by the allocators of `topology`. Keeps no state of its own."""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.cci.sdk import Ask, Driver, Refuse
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable
from kubeqos.topology.claims.asks import POLICIES
from kubeqos.topology.claims.parameters import Parameters
from kubeqos.topology.compute import allocate_claim


class Reference(Driver):
    """Serves claims on one machine. Others derive from it and choose differently."""

    def __init__(self, machine: Machine, name: str = "reference.cci.kubeqos.io") -> None:
        self.machine = machine
        self.name = name

    def admit(self, ask: Ask) -> Sequence[CpuSet]:
        if ask.policy:
            known = ", ".join(policy for policy in POLICIES)
            raise Refuse(f"policy {ask.policy!r} is unknown to driver {self.name} (known: {known})")
        answer = self.choose(CpuSet.from_ids(ask.available), ask.parameters)
        if isinstance(answer, Unsatisfiable):
            raise Refuse(str(answer))
        return [each.cpus for each in answer]

    def choose(self, available: CpuSet, parameters: Parameters) -> tuple[Allocated, ...] | Unsatisfiable:
        """CPUs for each group of a claim."""
        regions = [group.region(self.machine) for group in parameters.groups]
        return allocate_claim(self.machine, available, parameters.requests(), regions)
