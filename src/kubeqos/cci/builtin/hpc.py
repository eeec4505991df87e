"""The HPC driver: exclusive cores on NUMA nodes that no other claim is on, close together, one thread per core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kubeqos.cci.builtin.keeping import Keeping
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.sdk import Ask, End, Held, Start
from kubeqos.model.cpuset import NO_CPUS, NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable, Violation
from kubeqos.topology.attributes import Siblings
from kubeqos.topology.claims.parameters import Group, Parameters
from kubeqos.topology.compute import allocate


class Hpc(Reference):
    """Gives a claim whole NUMA nodes: whoever is on a node is alone on it, as far as exclusive cores go."""

    def __init__(self, machine: Machine, name: str = "hpc.cci.kubeqos.io") -> None:
        super().__init__(machine, name)
        self.keeping = Keeping()

    def admit(self, ask: Ask) -> Sequence[CpuSet]:
        self.keeping.asked(ask)
        sets = super().admit(ask)
        exclusive = [cpus for cpus, group in zip(sets, ask.groups, strict=True) if group.exclusive]
        self.keeping.admitted(ask, exclusive)
        return sets

    def add(self, start: Start) -> None:
        self.keeping.started(start)

    def remove(self, end: End) -> None:
        self.keeping.ended(end)

    def restore(self, held: Sequence[Held]) -> None:
        only_exclusive = [
            replace(one, sets=tuple(cpus for cpus, own in zip(one.sets, one.exclusive, strict=True) if own))
            for one in held
        ]
        self.keeping.restored(only_exclusive)

    def choose(self, available: CpuSet, parameters: Parameters) -> tuple[Allocated, ...] | Unsatisfiable:
        answers: dict[int, Allocated] = {}
        taken, mine = NO_CPUS, NO_NUMA
        order = sorted(range(len(parameters.groups)), key=lambda index: not parameters.groups[index].exclusive)
        for index in order:
            group = parameters.groups[index]
            rest = available - taken
            if group.exclusive:
                answer = self._whole_nodes(rest, group, parameters.device_numa, mine)
            else:
                answer = allocate(
                    self.machine, rest & group.region(self.machine), group.request(parameters.device_numa)
                )
            if isinstance(answer, Unsatisfiable):
                return answer
            answers[index] = answer
            taken |= answer.cpus | answer.whole
            mine |= self.machine.numa_of(answer.whole)
        return tuple(answers[index] for index in range(len(parameters.groups)))

    def _whole_nodes(
        self, available: CpuSet, group: Group, device_numa: NumaSet, mine: NumaSet
    ) -> Allocated | Unsatisfiable:
        """The fewest nodes that serve the group, nearest together, with one thread of each core if it may be so."""
        alone = replace(group, siblings=Siblings.DENIED) if group.siblings is Siblings.ANY else group
        inside = available & group.region(self.machine)
        for attempt in dict.fromkeys((alone, group)):
            for nodes in self._neighbourhoods(available, mine):
                answer = allocate(self.machine, inside & self.machine.cpus_in(nodes), attempt.request(device_numa))
                if isinstance(answer, Allocated):
                    return answer
        free = self._free_nodes(available) | mine
        return Unsatisfiable(
            (Violation("whole NUMA nodes", f"nodes {free or 'none'} are free, {group.cores} cores wanted"),)
        )

    def _free_nodes(self, available: CpuSet) -> NumaSet:
        taken = self.machine.numa_of(self.keeping.cpus)
        return (self.machine.cpu_numa - taken) & self.machine.numa_of(available)

    def _neighbourhoods(self, available: CpuSet, mine: NumaSet) -> Iterator[NumaSet]:
        """Free nodes around each free node, small circles first; the claim's own nodes come before others."""
        free = self._free_nodes(available) | mine
        near = {start: sorted(free, key=lambda node: (self.machine.distance(start, node), node)) for start in free}
        for size in range(1, len(free) + 1):
            for start in sorted(free, key=lambda node: (node not in mine, node)):
                yield NumaSet.from_ids(near[start][:size])
