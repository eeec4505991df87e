"""Machines as the recorded answers write them: a row per CPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeqos.model.machine import Cpu, Machine, NumaNode


def machine_of_rows(rows: Iterable[Sequence[int]], name: str = "") -> Machine:
    """A machine from rows (cpu, core, socket, numa, uncore), with NUMA nodes of which no memory is known."""
    cpus = tuple(Cpu(*row) for row in rows)
    return Machine(cpus, tuple(NumaNode(numa) for numa in sorted({cpu.numa for cpu in cpus})), name=name)
