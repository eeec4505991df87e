"""Where a container's devices sit, for the device attributes of a claim.

"If a device is requested, the CPU cores shall be from the same NUMA zone" (KEP-3675). A container asks for devices as
extended resources whose last part is a device's name or kind (`example.com/eth1`, `example.com/gpu`), or a pod says by
annotation next to which devices it wants to be. A node agent with a device manager passes a locator of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeqos.model.annotations.wellknown import ALIGN_ANNOTATION
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView
from kubeqos.plugins.managers import AdmittedPod

DeviceLocator = Callable[[Machine, AdmittedPod, ContainerView], NumaSet | str]


def locate_by_name(machine: Machine, pod: AdmittedPod, container: ContainerView) -> NumaSet | str:
    """NUMA nodes of the devices that a container wants; empty when it wants none. Text when one cannot be found."""
    nodes = set()
    for resource, amount in container.resources.limits.items():
        _, slash, name = resource.partition("/")
        if slash and not amount.is_zero:
            nodes |= _nodes_of(machine, name)
    wishes = (pod.view.metadata.annotations or {}).get(ALIGN_ANNOTATION, "")
    for name in filter(None, (part.strip() for part in wishes.split(","))):
        found = _nodes_of(machine, name)
        if not found:
            known = ", ".join(device.name for device in machine.devices if device.numa is not None) or "none"
            return f"this node has no device {name!r} with a known place (it has: {known})"
        nodes |= found
    return NumaSet.from_ids(nodes)


def _nodes_of(machine: Machine, name: str) -> set[int]:
    found = (device.numa for device in machine.devices if name in (device.name, device.kind))
    return {node for node in found if node is not None}
