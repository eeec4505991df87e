"""A machine's containment tables as plain int masks: what allocators walk thousands of times per second.

Derived once per `Machine` (see `Machine.layout`) and read by `topology`; nothing else should need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeqos.model.machine import Cpu, Machine

Masks = Mapping[int, int]  # unit id → CPUs as a bitmask
Inside = Mapping[int, Sequence[int]]  # unit id → ids of the smaller units in it, ascending


@dataclass(frozen=True, slots=True)
class Layout:
    """Masks of every unit, which units contain which, and nominal sizes.

    Nominal sizes are averages rounded down, as Kubernetes counts them: on an irregular machine a unit may
    differ.
    """

    sockets: Masks
    numas: Masks
    uncores: Masks
    cores: Masks
    sockets_in_numa: Inside
    numas_in_socket: Inside
    cores_in_socket: Inside
    cores_in_numa: Inside
    uncores_in_numa: Inside
    cores_in_uncore: Inside
    socket_size: int
    uncore_size: int
    core_size: int
    numa_first: bool  # NUMA nodes are the larger unit: there are no more of them than sockets

    @classmethod
    def of(cls, machine: Machine) -> Layout:
        """Derive the tables."""

        def inside(outer: Callable[[Cpu], int], inner: Callable[[Cpu], int]) -> dict[int, tuple[int, ...]]:
            found: dict[int, set[int]] = {}
            for cpu in machine.cpus:
                found.setdefault(outer(cpu), set()).add(inner(cpu))
            return {key: tuple(sorted(found[key])) for key in sorted(found)}

        total = len(machine.cpus)
        sockets, uncores, cores = (
            {key: cpus.mask for key, cpus in units.items()}
            for units in (machine.sockets, machine.uncores, machine.cores)
        )
        numas = {k: v.mask for k, v in machine.numa_cpus.items() if v}  # a node may have memory and no CPUs
        return cls(
            sockets=sockets,
            numas=numas,
            uncores=uncores,
            cores=cores,
            sockets_in_numa=inside(lambda c: c.numa, lambda c: c.socket),
            numas_in_socket=inside(lambda c: c.socket, lambda c: c.numa),
            cores_in_socket=inside(lambda c: c.socket, lambda c: c.core),
            cores_in_numa=inside(lambda c: c.numa, lambda c: c.core),
            uncores_in_numa=inside(lambda c: c.numa, lambda c: c.uncore),
            cores_in_uncore=inside(lambda c: c.uncore, lambda c: c.core),
            socket_size=total // max(1, len(sockets)),
            uncore_size=total // max(1, len(uncores)),
            core_size=machine.threads_per_core,
            numa_first=len(sockets) >= len(numas),
        )
