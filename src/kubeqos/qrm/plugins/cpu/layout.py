"""Which CPUs a pool of a given size gets: pure.

Pools lie side by side in the order in which they are named, an equal part of each NUMA node, whole cores first. So a
pool that grows takes from its neighbour's edge, and most containers keep most of their CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Shortage, Unsatisfiable
from kubeqos.topology.cpus import take_cpus


def lay_out(machine: Machine, free: CpuSet, sizes: Mapping[str, int]) -> dict[str, CpuSet] | Unsatisfiable:
    """CPUs for each pool out of `free`; what is left over belongs to nobody."""
    wanted = sum(sizes.values())
    if wanted > len(free):
        return Unsatisfiable((Shortage("cpus", wanted, len(free), "for the pools"),))
    placed: dict[str, CpuSet] = {}
    for name, size in sizes.items():
        cpus = NO_CPUS
        for numa, share in _shares(machine, free, size).items():
            cpus |= take_cpus(machine, free & machine.numa_cpus[numa], share) or NO_CPUS
        placed[name] = cpus
        free -= cpus
    return placed


def _shares(machine: Machine, free: CpuSet, size: int) -> dict[int, int]:
    """How many CPUs of each NUMA node, in proportion to what is free there, in whole cores where that adds up."""
    room = {numa: len(cpus & free) for numa, cpus in machine.numa_cpus.items() if cpus & free}
    total = sum(room.values())
    unit = machine.threads_per_core if size % machine.threads_per_core == 0 else 1
    shares = {numa: size * have // total // unit * unit for numa, have in room.items()}
    left = size - sum(shares.values())
    by_need = sorted(room, key=lambda numa: (shares[numa] - size * room[numa] / total, numa))
    while left:
        for numa in by_need:
            more = min(unit, left, room[numa] - shares[numa])
            shares[numa] += more
            left -= more
    return shares
