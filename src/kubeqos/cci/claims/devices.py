"""Who tells the manager where a container's devices sit: a node agent with a device manager has its own locator."""

from __future__ import annotations

from collections.abc import Callable

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.topology.claims.devices import devices_of, locate

DeviceLocator = Callable[[Machine, AdmittedPod, ContainerView], NumaSet | str]


def locate_by_name(machine: Machine, pod: AdmittedPod, container: ContainerView) -> NumaSet | str:
    """NUMA nodes of the devices that a container wants, by their names."""
    return locate(machine, devices_of(pod.view, container))
