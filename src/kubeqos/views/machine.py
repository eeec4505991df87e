"""A node's machine and who owns which of its CPUs, as the node publishes it. For `kubeqos map` and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.published import Assignments, decode_assignments, decode_machine
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine


def published(raw: Mapping[str, Any]) -> tuple[Machine, Assignments]:
    """What the node's agent says about its machine."""
    annotations = raw["metadata"].get("annotations") or {}
    if MACHINE_ANNOTATION not in annotations:
        raise KubeqosError(
            f"node {raw['metadata']['name']!r} does not publish its machine",
            remedy="only nodes with a kubeqos node agent have a map",
        )
    placed = annotations.get(ASSIGNMENTS_ANNOTATION)
    return decode_machine(annotations[MACHINE_ANNOTATION]), decode_assignments(placed) if placed else Assignments()


def owners(machine: Machine, assignments: Assignments) -> dict[str, CpuSet]:
    """Who has which CPUs; containers that share a part of the machine among themselves own it together."""
    found = assignments.owners()
    taken = machine.offline
    for cpus in found.values():
        taken |= cpus
    together: dict[CpuSet, list[str]] = {}
    for name, held in sorted(assignments.sharing().items()):
        together.setdefault(held.cpus, []).append(name)
    for cpus, sharers in together.items():
        apart = all(cpus.isdisjoint(other) for other in together if other != cpus)
        if apart and cpus.isdisjoint(taken) and cpus < machine.online:
            found[sharers[0] + (f" and {len(sharers) - 1} more" if len(sharers) > 1 else "")] = cpus
    return found
