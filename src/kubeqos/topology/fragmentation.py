"""How scattered the free CPUs of a machine are: the largest aligned blocks that are still free.

Called by `kubeqos simulate`, which says how a policy leaves the nodes behind, and by `topology.defragment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The largest number of free CPUs that lie together in one unit of each kind."""

    free: int
    in_whole_cores: int
    largest_uncore: int
    largest_numa: int
    largest_socket: int
    score: float  # 0: as compact as this many free CPUs can be; towards 1: scattered

    def __str__(self) -> str:
        return (
            f"{self.free} free, {self.in_whole_cores} in whole cores; "
            f"largest block {self.largest_uncore} in one cache, {self.largest_numa} in one NUMA node, "
            f"{self.largest_socket} in one socket; fragmentation {self.score:.2f}"
        )


def fragmentation(machine: Machine, free: CpuSet) -> Fragmentation:
    """Measure; the score compares the largest block in one NUMA node with the best that was possible."""

    def largest(units: Mapping[int, CpuSet]) -> int:
        return max((len(cpus & free) for cpus in units.values()), default=0)

    together = largest(machine.numa_cpus)
    possible = min(len(free), max(map(len, machine.numa_cpus.values()), default=0))
    return Fragmentation(
        free=len(free),
        in_whole_cores=len(machine.whole_cores(free)),
        largest_uncore=largest(machine.uncores),
        largest_numa=together,
        largest_socket=largest(machine.sockets),
        score=1 - together / possible if possible else 0.0,
    )
