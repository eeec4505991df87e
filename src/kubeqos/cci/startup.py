"""What a machine must have left for the CCI manager; the managers that must be off: `node.config.contradictions`."""

from __future__ import annotations

from kubeqos.errors import ConfigurationError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine


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
            where="reservedSystemCPUs and cciStandardMinimumCPUs",
            remedy="reserve fewer CPUs or lower the minimum",
        )
