"""Giving containers with CPUs of their own other CPUs, while they run (KEP-3461, dynamic re-allocation). Pure.

Asked for by `kubeqos defrag --apply` through the CPU plugin's socket. What a role promises stays true: whoever is bound
to NUMA nodes stays on them, because its memory does; whoever has whole nodes or equal parts of several is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.qrm.plugins.cpu.state import ContainerCpus, CpuState
from kubeqos.topology.answers import Unsatisfiable, Violation


@dataclass(frozen=True, slots=True)
class Moved:
    """What an owner has, as the asker knows it, and what it is to have."""

    before: CpuSet
    after: CpuSet


def moved(state: CpuState, wanted: Mapping[str, Moved]) -> CpuState | Unsatisfiable:
    """All of these owners (pod uid/container) at once. Checked before anything moves."""
    entries = {"/".join(key): entry for key, entry in state.entries.items()}
    for name, move in wanted.items():
        wrong = _wrong(state, name, entries.get(name), move)
        if wrong:
            return Unsatisfiable((Violation("owners", wrong),))
    exclusive = {**state.pools.exclusive, **{name: move.after for name, move in wanted.items()}}
    pools = replace(state.pools, exclusive=exclusive)
    broken = pools.validate()
    return Unsatisfiable((Violation("owners", broken[0]),)) if broken else replace(state, pools=pools)


def _wrong(state: CpuState, name: str, entry: ContainerCpus | None, move: Moved) -> str:
    """Why this owner cannot have these CPUs; empty if it can, as far as others do not stand in its way."""
    held = state.pools.exclusive.get(name)
    if entry is None or held is None:
        return f"{name} has no CPUs of its own"
    if held != move.before:
        return f"{name} has {held} by now, not {move.before}"
    if len(held) != len(move.after):
        return f"{name} has {len(held)} CPUs, and {move.after} are {len(move.after)}"
    role = state.config.roles.get(entry.pod_role)
    if entry.alone or (role is not None and role.evenly):
        return f"{name} has whole NUMA nodes, or an equal part of each, and cannot have other CPUs"
    if entry.numa and not move.after <= state.machine.cpus_in(NumaSet.parse(entry.numa)):
        return f"{name} is bound to NUMA {entry.numa}, and {move.after} are not all there"
    if role is not None and role.full_cores and state.machine.whole_cores(move.after) != move.after:
        return f"{name} has whole cores, and {move.after} are not"
    return ""
