"""From a `NodeConfiguration` and a machine to what the parts of an agent are told. Pure.

Called by `kubeqos node`. What only the machine can answer is decided here: which CPUs are reserved when the settings
only say how many, and how many bytes a percentage is.
"""

from __future__ import annotations

from pathlib import Path

from kubeqos.cci.manager import Settings as CciSettings
from kubeqos.client.api import Api
from kubeqos.errors import ConfigurationError
from kubeqos.gates import MEMORY_QOS
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.quantity import Format, Quantity
from kubeqos.node.config import NodeConfiguration
from kubeqos.node.configchecks import refuse_machine
from kubeqos.node.extensions import Extensions, extensions
from kubeqos.node.pressure import PressureSettings
from kubeqos.node.services import ServiceSettings
from kubeqos.node.settings import NodeSettings
from kubeqos.qrm.settings import Settings as QrmSettings
from kubeqos.rules.cgroups import CgroupSettings, MemoryPolicy
from kubeqos.topology.cpus import take_cpus

_MICROSECONDS = 1_000_000
CGROUP_MOUNT = Path("/sys/fs/cgroup")


def node_settings(config: NodeConfiguration, machine: Machine) -> NodeSettings:
    """The agent's own settings. Raises ConfigurationError for what this machine cannot follow."""
    refuse_machine(config, machine)
    memory_policy = config.memory_policy if config.gates.enabled(MEMORY_QOS) else MemoryPolicy.OFF
    return NodeSettings(
        node_name=config.node_name,
        state_dir=config.state_dir,
        log_dir=config.pod_logs_dir,
        max_pods=config.max_pods,
        system_reserved=config.system_reserved,
        kube_reserved=config.kube_reserved,
        eviction_hard_memory=_hard_memory(config, machine),
        cgroups=CgroupSettings(
            memory_policy,
            config.throttling_factor,
            config.cpu_cfs_quota,
            round(config.cpu_cfs_quota_period * _MICROSECONDS),
        ),
        cgroup_driver=config.cgroup_driver,
        cgroup_root=config.cgroup_root,
        cgroup_fs=CGROUP_MOUNT if config.runtime_endpoint and config.cgroups_per_qos else None,
        cpu_manager_policy=config.cpu_manager_policy,
        cpu_options=config.cpu_options.allocation,
        strict_cpu_reservation=config.cpu_options.strict_reservation,
        reserved_cpus=reserved_cpus(config, machine),
        memory_manager_policy=config.memory_manager_policy.lower(),
        reserved_memory={
            numa: {name: amount.value() for name, amount in limits.items()}
            for numa, limits in config.reserved_memory.items()
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


def service_settings(config: NodeConfiguration, client_authority: Path | None) -> ServiceSettings:
    """What runs around the agent."""
    return ServiceSettings(
        PressureSettings(
            config.thresholds(), config.eviction_transition, config.eviction_max_pod_grace, config.eviction_ranking
        ),
        config.housekeeping_interval,
        config.pod_resources_socket,
        config.address,
        config.port,
        client_authority,
    )


def node_extensions(config: NodeConfiguration, settings: NodeSettings, machine: Machine, api: Api | None) -> Extensions:
    """QRM and CCI as the settings want them."""
    cci = CciSettings(
        standard_minimum=config.cci_standard_minimum,
        best_effort_without_driver=config.cci_fallback,
        driver_wait_seconds=config.cci_driver_wait,
    )
    qrm = QrmSettings(names=config.qrm_names, reconcile_seconds=config.qrm_reconcile_period)
    made = extensions(settings, machine, api, qrm=qrm, cci=cci)
    made.folder = config.plugin_registration_dir
    made.reconcile_seconds = config.qrm_reconcile_period
    if made.qrm is not None:
        made.legacy_folder = config.qrm_plugin_dir
    return made


def reserved_cpus(config: NodeConfiguration, machine: Machine) -> CpuSet:
    """The named CPUs, or under the static policy as many as the reservations round up to, taken by topology."""
    if config.reserved_cpus or config.cpu_manager_policy != "static":
        return config.reserved_cpus
    amounts = (one.get("cpu", Quantity.ZERO) for one in (config.kube_reserved, config.system_reserved))
    count = -(-sum(amount.milli() for amount in amounts) // 1000)
    found = take_cpus(machine, machine.online, count, config.cpu_options.allocation)
    if found is None:
        raise ConfigurationError(
            f"node configuration: {count} CPUs are reserved, but this machine has {len(machine.online)}",
            where=config.places.get("systemReserved") or config.places.get("kubeReserved"),
            remedy="reserve fewer CPUs",
        )
    return found


def _hard_memory(config: NodeConfiguration, machine: Machine) -> Quantity:
    capacity = sum(node.memory_bytes for node in machine.nodes)
    for one in config.thresholds():
        if one.is_hard and one.signal == "memory.available":
            return one.minimum.quantity or Quantity.from_int(one.minimum.of(capacity), Format.BINARY_SI)
    return Quantity.ZERO
