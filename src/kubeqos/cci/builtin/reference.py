"""The reference driver: every attribute of KEP-3675, by the allocators of `topology`. Keeps no state of its own.

Drivers that look at what they gave when they choose or tune are `Remembering` ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.cci.builtin.keeping import Keeping
from kubeqos.cci.sdk import Ask, Driver, End, Held, Refuse, Start
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.asks import POLICIES
from kubeqos.topology.claims.choosing import Chosen, choose
from kubeqos.topology.claims.parameters import Parameters


class Reference(Driver):
    """Serves claims on one machine. Others derive from it and choose in another way."""

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

    def choose(self, available: CpuSet, parameters: Parameters) -> Chosen:
        """CPUs for each group of a claim."""
        return choose(self.way, self.machine, available, parameters, self.owned)

    @property
    def owned(self) -> CpuSet:
        """What containers own by this driver, as far as it has to know."""
        return NO_CPUS


class Remembering(Reference):
    """A driver whose choice depends on what its other claims have."""

    def __init__(self, machine: Machine, name: str) -> None:
        super().__init__(machine, name)
        self.keeping = Keeping()

    def admit(self, ask: Ask) -> Sequence[CpuSet]:
        self.keeping.asked(ask)
        sets = super().admit(ask)
        self.keeping.admitted(ask, sets)
        return sets

    def add(self, start: Start) -> None:
        self.keeping.started(start)

    def remove(self, end: End) -> None:
        self.keeping.ended(end)

    def restore(self, held: Sequence[Held]) -> None:
        self.keeping.restored(held)

    @property
    def owned(self) -> CpuSet:
        return self.keeping.owned
