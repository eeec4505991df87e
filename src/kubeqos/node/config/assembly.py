"""Makes the parts of a node agent: its settings from a configuration, its managers, its cgroups, what CRI is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import MEMORY_QOS
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.model.machine import Machine
from kubeqos.model.quantity import Quantity
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.managers.memory import MemoryManager
from kubeqos.node.api import nodestatus
from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.cgroups.keeper import CgroupKeeper
from kubeqos.node.config.configuration import NodeConfiguration
from kubeqos.node.config.settings import SIMULATED_DISK_BYTES, STATIC, NodeSettings
from kubeqos.node.pod.machine import Core
from kubeqos.node.pressure import hostfiles
from kubeqos.node.runtime.criconfig import Context
from kubeqos.rules.cgroups import CgroupSettings, MemoryPolicy, NodeMemory
from kubeqos.topology.cpus import take_cpus


def settings_of(config: NodeConfiguration, machine: Machine, *, cgroup_fs: Path | None = None) -> NodeSettings:
    """What the agent needs of a node's configuration. Without a list, reserved CPUs are taken by topology."""
    reserved = config.reserved_cpus
    static = config.cpu_manager_policy == STATIC
    if static and not reserved:
        kept = [one.get("cpu", Quantity.ZERO) for one in (config.kube_reserved, config.system_reserved)]
        reserved = take_cpus(machine, machine.online, (kept[0] + kept[1]).value()) or NO_CPUS
    hard = config.eviction_hard
    disk = disk_bytes(config.state_dir) if config.runtime_endpoint else SIMULATED_DISK_BYTES
    memory = sum(node.memory_bytes for node in machine.nodes)
    return NodeSettings(
        node_name=config.node_name,
        state_dir=config.state_dir,
        log_dir=config.pod_logs_dir,
        max_pods=config.max_pods,
        system_reserved=config.system_reserved,
        kube_reserved=config.kube_reserved,
        disk_bytes=disk,
        eviction_hard_memory=_threshold(hard.get("memory.available", ""), memory),
        eviction_hard_disk=_threshold(hard.get("nodefs.available", ""), disk),
        cgroups=CgroupSettings(
            config.memory_policy if config.gates.enabled(MEMORY_QOS) else MemoryPolicy.OFF,
            config.throttling_factor,
            config.cpu_cfs_quota,
            round(config.cpu_cfs_quota_period * 1_000_000),
        ),
        cgroup_driver=config.cgroup_driver,
        cgroup_root=config.cgroup_root,
        cgroup_fs=cgroup_fs,
        cpu_manager_policy=config.cpu_manager_policy,
        cpu_options=config.cpu_options.allocation,
        strict_cpu_reservation=config.cpu_options.strict_reservation,
        reserved_cpus=reserved,
        memory_manager_policy=config.memory_manager_policy.lower(),
        reserved_memory={
            numa: {name: amount.value() for name, amount in kept.items()}
            for numa, kept in config.reserved_memory.items()
        },
        topology_policy=config.topology_policy,
        topology_scope=config.topology_scope,
        prefer_closest_numa=config.topology_options.prefer_closest_numa,
        gates=config.gates,
        profile=config.profile,
        labels=config.node_labels,
        taints=config.taints,
        addresses=config.node_ips,
        static_pod_dir=config.static_pod_path,
        qos_class_eviction=config.qos_class_eviction,
        register=config.register_node,
        lease_seconds=config.lease_seconds,
        status_seconds=config.node_status_period,
    )


def disk_bytes(state_dir: Path) -> int:
    """Size of the file system that a node's state, logs and volumes are on."""
    there = next(folder for folder in (state_dir, *state_dir.absolute().parents) if folder.exists())
    found = hostfiles.filesystem(there)
    return found[0].capacity if found is not None else SIMULATED_DISK_BYTES


def _threshold(text: str, capacity: int) -> Quantity:
    """A threshold in bytes; a percentage is one of what there is."""
    if text.endswith("%"):
        return Quantity.from_int(int(capacity * float(text[:-1]) / 100))
    return Quantity.parse(text) if text else Quantity.ZERO


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
