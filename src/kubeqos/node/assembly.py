"""Makes the parts of a node agent from its settings: managers, cgroups, and what CRI configurations depend on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.machine import Machine
from kubeqos.node import nodestatus
from kubeqos.node.cgroupfiles import CgroupFiles
from kubeqos.node.cgroupkeeper import CgroupKeeper
from kubeqos.node.core import Core
from kubeqos.node.criconfig import Context
from kubeqos.node.managers.cpu import CpuManager
from kubeqos.node.managers.memory import MemoryManager
from kubeqos.node.settings import STATIC, NodeSettings
from kubeqos.rules.cgroups import NodeMemory


def cgroup_keeper(
    settings: NodeSettings, machine: Machine, core: Core, context: Callable[[], Context]
) -> CgroupKeeper | None:
    """Who keeps the cgroups above containers; nobody where the hierarchy is not ours."""
    if settings.cgroup_fs is None:
        return None
    milli = nodestatus.allocatable(machine, settings)["cpu"].milli()
    spare = settings.eviction_hard_memory.value()
    return CgroupKeeper(CgroupFiles(settings.cgroup_fs), core, context, milli, spare)


def cpu_manager(settings: NodeSettings, machine: Machine) -> CpuManager | None:
    if settings.cpu_manager_policy != STATIC:
        return None
    strict = settings.strict_cpu_reservation
    return CpuManager(machine, settings.reserved_cpus, settings.cpu_options, strict_reservation=strict)


def memory_manager(settings: NodeSettings, machine: Machine) -> MemoryManager | None:
    return MemoryManager(machine, settings.reserved_memory) if settings.memory_manager_policy == STATIC else None


def context_of(settings: NodeSettings, runtime: Runtime, machine: Machine) -> Context:
    simulated = isinstance(runtime, SimulatedRuntime)
    unified = simulated or Path("/sys/fs/cgroup/cgroup.controllers").exists()
    total = nodestatus.capacity(machine, settings)["memory"].value()
    usable = nodestatus.allocatable(machine, settings)["memory"].value()
    return Context(
        log_dir=settings.log_dir,
        state_dir=settings.state_dir,
        memory=NodeMemory(max(1, total), usable),
        cgroups=settings.cgroups,
        cgroup_driver=settings.cgroup_driver,
        cgroup_root=settings.cgroup_root,
        cgroup_version=2 if unified else 1,
        host_ip=settings.addresses[0] if settings.addresses else "",
        node_name=settings.node_name,
    )
