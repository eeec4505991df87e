"""Where a container's devices sit, for the device attributes of a claim.

"If a device is requested, the CPU cores shall be from the same NUMA zone" (KEP-3675). A container asks for devices as
extended resources. A node agent with a device manager passes its own locator; this one reads the machine: the last
part of the resource's name is a device's name (`example.com/eth1`) or kind (`example.com/gpu`).
"""

from __future__ import annotations

from collections.abc import Callable

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView
from kubeqos.plugins.managers import AdmittedPod

DeviceLocator = Callable[[Machine, AdmittedPod, ContainerView], NumaSet]


def locate_by_name(machine: Machine, pod: AdmittedPod, container: ContainerView) -> NumaSet:
    """NUMA nodes of the devices that the container asks for; empty when it asks for none, or nobody knows where."""
    nodes = set()
    for resource, amount in container.resources.limits.items():
        _, slash, name = resource.partition("/")
        if slash and not amount.is_zero:
            nodes |= {device.numa for device in machine.devices if name in (device.name, device.kind)}
    return NumaSet.from_ids(node for node in nodes if node is not None)
