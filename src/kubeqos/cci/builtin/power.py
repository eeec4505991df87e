"""The power driver: packs claims densely, efficiency cores first, and parks what no claim uses.

"Nodes should be as densely packed as possible while respecting resource attributes" (KEP-3675, Power optimization).
Parking writes the kernel's energy preference of each CPU; the root of sysfs is a setting, and a machine without the
files is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeqos.cci.builtin.reference import Remembering
from kubeqos.cci.sdk import Ask, End, Held
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.claims.choosing import FRUGAL

PARKED, WORKING = "power", "balance_performance"


class Power(Remembering):
    """Chooses the fewest and most frugal cores."""

    way = FRUGAL

    def __init__(self, machine: Machine, name: str = "power.cci.kubeqos.io", sysfs: Path = Path("/sys")) -> None:
        super().__init__(machine, name)
        self._cpus = sysfs / "devices/system/cpu"

    def admit(self, ask: Ask) -> Sequence[CpuSet]:
        sets = super().admit(ask)
        self._park()
        return sets

    def remove(self, end: End) -> None:
        super().remove(end)
        self._park()

    def restore(self, held: Sequence[Held]) -> None:
        super().restore(held)
        self._park()

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
