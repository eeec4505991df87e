"""The CPU plugin's state as JSON, in the shape of the KEP's example 2: `machineState` by NUMA node and `pod_entries`.

Pools are derived again from the entries; what does not fit the machine or the configuration any more is left out and
named, and the containers concerned are asked for again by the manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.state import ContainerCpus, CpuState
from kubeqos.topology.answers import Unsatisfiable

RESULT = "allocation_result"


def to_json(state: CpuState) -> dict[str, Any]:
    pools = state.pools
    taken = NO_CPUS
    for cpus in pools.exclusive.values():
        taken |= cpus
    machine = {
        str(numa): {
            "reserved_cpuset": str(pools.reserved & inside),
            "allocated_cpuset": str(taken & inside),
            "default_cpuset": str(inside - pools.reserved - taken),
        }
        for numa, inside in state.machine.numa_cpus.items()
    }
    entries: dict[str, dict[str, Any]] = {}
    texts = {name: str(cpus) for name, cpus in pools.partition.items() if cpus}
    for (uid, container), entry in state.entries.items():
        told = texts.get(state.runs_in((uid, container)))
        entries.setdefault(uid, {})[container] = msgspec.to_builtins(entry) | ({RESULT: told} if told else {})
    return {
        "machineState": machine,
        "pools": {name: str(cpus) for name, cpus in pools.named.items()},
        "pod_entries": entries,
    }


def from_json(machine: Machine, config: CpuConfig, data: Mapping[str, Any]) -> tuple[CpuState, list[str]]:
    """The state that was saved, and what of it could not be kept."""
    state = CpuState.of(machine, config)
    repaired: list[str] = []
    state = _with_pools(state, data.get("pools") or {}, repaired)
    followers = []
    for uid, containers in (data.get("pod_entries") or {}).items():
        for container, raw in containers.items():
            try:
                entry = msgspec.convert(raw, ContainerCpus, strict=False)
                cpus = CpuSet.parse(raw.get(RESULT, ""))
            except (msgspec.ValidationError, InputError) as error:
                repaired.append(f"{uid}/{container}: {error}")
                continue
            if entry.follows:
                followers.append(((uid, container), entry))
            else:
                state = _placed(state, (uid, container), entry, cpus, repaired)
    for key, entry in followers:
        state = state.follow(key, entry)
    return state, repaired


def _with_pools(state: CpuState, saved: Mapping[str, str], repaired: list[str]) -> CpuState:
    """Pool sizes as they were, when the configuration still knows all of them."""
    if not saved or saved.keys() != state.pools.named.keys():
        return state
    try:
        resized = state.resize({name: CpuSet.parse(cpus) for name, cpus in saved.items()})
    except InputError as error:
        resized = state
        repaired.append(f"pools: {error.what}")
    if isinstance(resized, Unsatisfiable):
        repaired.append(f"pools are as configured again: {resized}")
        return state
    return resized


def _placed(state: CpuState, key: tuple[str, str], entry: ContainerCpus, cpus: CpuSet, repaired: list[str]) -> CpuState:
    name = "/".join(key)
    pool = entry.owner_pool_name
    pools = state.pools.join(name, pool) if pool else state.pools.carve(name, cpus)
    if isinstance(pools, Unsatisfiable):
        repaired.append(f"{name}: {pools}")
        return state
    return replace(state, pools=pools, entries={**state.entries, key: entry})
