"""The power driver: packs claims densely, efficiency cores first, and parks what no claim uses.

"Nodes should be as densely packed as possible while respecting resource attributes" (KEP-3675, Power optimization).
Parking writes the kernel's energy preference of each CPU; the root of sysfs is a setting, and a machine without the
files is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kubeqos.cci.builtin.keeping import Keeping
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.sdk import Ask, End, Held, Start
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable
from kubeqos.topology.claims.parameters import Parameters

PARKED, WORKING = "power", "balance_performance"


class Power(Reference):
    """Chooses the fewest and most frugal cores."""

    def __init__(self, machine: Machine, name: str = "power.cci.kubeqos.io", sysfs: Path = Path("/sys")) -> None:
        super().__init__(machine, name)
        self.keeping = Keeping()
        self._cpus = sysfs / "devices/system/cpu"

    def admit(self, ask: Ask) -> Sequence[CpuSet]:
        self.keeping.asked(ask)
        sets = super().admit(ask)
        self.keeping.admitted(ask, sets)
        self._park()
        return sets

    def add(self, start: Start) -> None:
        self.keeping.started(start)

    def remove(self, end: End) -> None:
        self.keeping.ended(end)
        self._park()

    def restore(self, held: Sequence[Held]) -> None:
        self.keeping.restored(held)
        self._park()

    def choose(self, available: CpuSet, parameters: Parameters) -> tuple[Allocated, ...] | Unsatisfiable:
        """The first of ever less frugal attempts that succeeds; the last one is the plain claim."""
        answer: tuple[Allocated, ...] | Unsatisfiable = Unsatisfiable(())
        for attempt in self._frugal(parameters):
            for region in (self._in_use(available), available):
                answer = super().choose(region, attempt)
                if not isinstance(answer, Unsatisfiable):
                    return answer
        return answer

    def _frugal(self, parameters: Parameters) -> Iterator[Parameters]:
        """The claim with efficiency cores for all groups that do not say, then for fewer and fewer of them."""
        open_groups = [index for index, group in enumerate(parameters.groups) if group.kind is None]
        for number in range(len(open_groups) if self.machine.efficiency else 0, -1, -1):
            groups = tuple(
                replace(group, kind=CoreKind.EFFICIENCY) if index in open_groups[:number] else group
                for index, group in enumerate(parameters.groups)
            )
            yield replace(parameters, groups=groups)

    def _in_use(self, available: CpuSet) -> CpuSet:
        """What is available on NUMA nodes that claims keep awake already."""
        awake = self.machine.numa_of(self.keeping.cpus)
        return available & self.machine.cpus_in(awake or NumaSet())

    @property
    def parked(self) -> CpuSet:
        """CPUs of cores that no claim uses."""
        return self.machine.online - self.machine.touched_cores(self.keeping.cpus)

    def _park(self) -> None:
        parked = self.parked
        for cpu in self.machine.online:
            preference = self._cpus / f"cpu{cpu}/cpufreq/energy_performance_preference"
            if preference.exists():
                preference.write_text(PARKED if cpu in parked else WORKING)
