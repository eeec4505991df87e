"""What a node must look like for the CCI manager to run on it (KEP-3675, Operational Requirements for Alpha)."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI as GATE
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of a node that CCI cares about, with the kubelet's names and values."""

    cpu_manager_policy: str = "none"
    memory_manager_policy: str = "None"
    topology_manager_policy: str = "none"


_RULES = (
    ("cpu_manager_policy", "cpuManagerPolicy", "none"),
    ("memory_manager_policy", "memoryManagerPolicy", "None"),
    ("topology_manager_policy", "topologyManagerPolicy", "none"),
)


def conflicts(settings: NodeSettings) -> list[ConfigurationError]:
    """Every setting that keeps the manager from starting, each with the change that would help."""
    found = []
    for attribute, name, wanted in _RULES:
        value = getattr(settings, attribute)
        if value.lower() != wanted.lower():
            found.append(
                ConfigurationError(
                    f"node configuration: {GATE} is on, but {name} is {value!r}",
                    where=f"{name}: {value}",
                    remedy=f"set {name} to {wanted}, or turn the feature gate {GATE} off",
                )
            )
    return found


def check_startup(settings: NodeSettings) -> None:
    """Refuse to start against the rules of KEP-3675."""
    for error in conflicts(settings):
        raise error


def check_reserved(machine: Machine, reserved: CpuSet, standard_minimum: int) -> None:
    """Refuse settings that leave standard pods, and so the cluster's own, without CPUs."""
    left = machine.online - reserved
    if reserved - machine.online:
        raise ConfigurationError(
            f"reserved CPUs {reserved - machine.online} do not exist",
            where="reservedSystemCPUs",
            remedy=f"choose from {machine.online}",
        )
    if len(left) < max(1, standard_minimum):
        raise ConfigurationError(
            f"{len(left)} CPUs are left for pods, but {max(1, standard_minimum)} must stay for pods without claims",
            where="reservedSystemCPUs and cci.standardMinimumCPUs",
            remedy="reserve fewer CPUs or lower the minimum",
        )
