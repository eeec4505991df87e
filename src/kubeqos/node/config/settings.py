"""How a node agent and what runs around it are to run: values only, made from a `NodeConfiguration` by `configured`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.errors import ConfigurationError
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ResourceList
from kubeqos.model.quantity import Quantity
from kubeqos.node.config.contradictions import ManagerChoices, contradictions
from kubeqos.rules.qos.cgroups import CgroupSettings
from kubeqos.topology.alignment.hints import Policy, Scope
from kubeqos.topology.cpus import CpuOptions

SIMULATED_DISK_BYTES = 100 << 30
HARD_EVICTION_MEMORY, HARD_EVICTION_DISK = Quantity.parse("100Mi"), Quantity.parse("10Gi")
STATIC, NONE = "static", "none"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of one node agent, under Kubernetes' names where Kubernetes has them."""

    node_name: str
    state_dir: Path
    log_dir: Path = Path("/var/log/pods")
    max_pods: int = 110
    system_reserved: ResourceList = field(default_factory=dict)
    kube_reserved: ResourceList = field(default_factory=dict)
    disk_bytes: int = SIMULATED_DISK_BYTES
    """Size of the file system of pods."""
    eviction_hard_memory: Quantity = HARD_EVICTION_MEMORY
    eviction_hard_disk: Quantity = HARD_EVICTION_DISK
    cgroups: CgroupSettings = field(default_factory=CgroupSettings)
    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = ""
    """Put before every pod's cgroup; Kubernetes' --cgroup-root."""
    cgroup_fs: Path | None = None
    """Where the cgroup hierarchy is mounted; None leaves the cgroups of pods and QoS tiers to the runtime."""
    cpu_partitions: bool = True
    single_process_oom_kill: bool = False
    cpu_manager_policy: str = NONE
    cpu_options: CpuOptions = field(default_factory=CpuOptions)
    strict_cpu_reservation: bool = False
    reserved_cpus: CpuSet = NO_CPUS
    memory_manager_policy: str = NONE
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    topology_policy: Policy = Policy.NONE
    topology_scope: Scope = Scope.CONTAINER
    prefer_closest_numa: bool = False
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    profile: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    addresses: tuple[str, ...] = ("127.0.0.1",)
    static_pod_dir: Path | None = None
    qos_class_eviction: bool = False
    register: bool = True
    lease_seconds: int = 40
    status_seconds: float = 10.0
    relist_seconds: float = 10.0
    journal_steps: int = 64
    """Of how many steps of each pod the agent can give an account that replays; 0 for none."""

    def pod_cpus(self, machine: Machine) -> CpuSet:
        """CPUs that pods can own. The CPU manager hands out these, and `allocatable_cpu` counts them."""
        return machine.online - self.reserved_cpus

    def allocatable_cpu(self, machine: Machine) -> Quantity:
        """How much CPU pods get together: never more whole CPUs than `pod_cpus` has.

        Amounts (500m) round up to whole reserved CPUs, and what is left over of those is for pods that share.
        """
        amounts = [one.get("cpu", Quantity.ZERO) for one in (self.system_reserved, self.kube_reserved)]
        kept = amounts[0] + amounts[1]
        if kept.is_zero:
            return Quantity.from_int(len(self.pod_cpus(machine)))
        left = Quantity.from_int(len(machine.online)) - kept
        return left if left > Quantity.ZERO else Quantity.ZERO

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        chosen = ManagerChoices(
            self.gates,
            self.topology_policy,
            self.cpu_manager_policy,
            self.memory_manager_policy,
            self.cpu_options,
            reserves_cpus=bool(self.reserved_cpus),
        )
        for found in contradictions(chosen):
            raise ConfigurationError(f"node configuration: {found.what}", remedy=found.remedy)
