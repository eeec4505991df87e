"""From a `NodeConfiguration` to the settings of each part: the agent, pressure, services, QRM, CCI.

Called by `node.config.assembly`, which builds the parts.
"""

from __future__ import annotations

from pathlib import Path

from kubeqos.cci.drivers import Deadlines
from kubeqos.cci.manager import CciSettings
from kubeqos.gates import MEMORY_QOS
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ResourceList
from kubeqos.model.quantity import Quantity
from kubeqos.node.config.configuration import NodeConfiguration
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import SIMULATED_DISK_BYTES, STATIC, NodeSettings
from kubeqos.node.pressure.imagegc import ImageGcSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.qrm.settings import QrmSettings
from kubeqos.rules.qos.cgroups import CgroupSettings, MemoryPolicy
from kubeqos.topology.cpus import take_cpus


def node_settings(
    config: NodeConfiguration, machine: Machine, disk_bytes: int = SIMULATED_DISK_BYTES, cgroup_fs: Path | None = None
) -> NodeSettings:
    """What the agent needs."""
    system, kube, reserved = _reserved(config, machine)
    hard = config.eviction_hard
    memory = sum(node.memory_bytes for node in machine.nodes)
    return NodeSettings(
        node_name=config.node_name,
        state_dir=config.state_dir,
        log_dir=config.pod_logs_dir,
        max_pods=config.max_pods,
        system_reserved=system,
        kube_reserved=kube,
        disk_bytes=disk_bytes,
        eviction_hard_memory=_threshold(hard.get("memory.available", ""), memory),
        eviction_hard_disk=_threshold(hard.get("nodefs.available", ""), disk_bytes),
        cgroups=CgroupSettings(
            # Without the gate no protection is written; the policy None writes zeros, which take back another's.
            config.memory_policy if config.gates.enabled(MEMORY_QOS) else MemoryPolicy.OFF,
            config.throttling_factor,
            config.cpu_cfs_quota,
            round(config.cpu_cfs_quota_period * 1_000_000),
        ),
        cgroup_driver=config.cgroup_driver,
        cgroup_root=config.cgroup_root,
        cgroup_fs=cgroup_fs,
        cpu_partitions=config.cpu_partitions,
        single_process_oom_kill=config.single_process_oom_kill,
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


def _reserved(config: NodeConfiguration, machine: Machine) -> tuple[ResourceList, ResourceList, CpuSet]:
    """What is kept for the system and for Kubernetes, and which CPUs that are.

    A list of CPUs overrides amounts of CPU, as the kubelet's --reserved-cpus does. Amounts alone do not say which CPUs;
    the static policy needs to know, and takes them by topology.
    """
    both = (config.system_reserved, config.kube_reserved)
    if config.reserved_cpus:
        system, kube = ({name: amount for name, amount in one.items() if name != "cpu"} for one in both)
        return system, kube, config.reserved_cpus
    kept = [one.get("cpu", Quantity.ZERO) for one in both]
    taken = NO_CPUS
    if config.cpu_manager_policy == STATIC:
        taken = take_cpus(machine, machine.online, (kept[0] + kept[1]).value()) or NO_CPUS
    return *both, taken


def _threshold(text: str, capacity: int) -> Quantity:
    """A threshold in bytes; a percentage is one of what there is."""
    if text.endswith("%"):
        return Quantity.from_int(int(capacity * float(text[:-1]) / 100))
    return Quantity.parse(text) if text else Quantity.ZERO


def pressure_settings(config: NodeConfiguration) -> PressureSettings:
    """When the node defends itself, and how."""
    return PressureSettings(
        config.thresholds(), config.eviction_transition, config.eviction_max_pod_grace, config.eviction_ranking
    )


def service_settings(config: NodeConfiguration, client_authority: Path | None) -> ServiceSettings:
    """What runs around the agent."""
    return ServiceSettings(
        config.housekeeping_interval,
        config.pod_resources_socket,
        config.address,
        # Simulated nodes come in numbers: unless told otherwise, each takes a free port.
        0 if config.simulated_machine and "port" not in config.given_at else config.port,
        client_authority,
        ImageGcSettings(config.image_gc_high, config.image_gc_low, config.image_minimum_age, config.image_maximum_age),
    )


def qrm_settings(config: NodeConfiguration) -> QrmSettings:
    return QrmSettings(
        names=config.qrm_names,
        expected=frozenset(config.qrm_expected),
        reconcile_seconds=config.qrm_reconcile_period,
    )


def cci_settings(config: NodeConfiguration) -> CciSettings:
    return CciSettings(
        standard_minimum=config.cci_standard_minimum,
        best_effort_without_driver=config.cci_fallback,
        driver_wait_seconds=config.cci_driver_wait,
        several_drivers=config.cci_several_drivers,
        thread_granularity=config.cci_thread_granularity,
        deadlines=Deadlines(call=config.cci_call_timeout),
    )
