"""Where a container's devices sit, for the device attributes of a claim.

"If a device is requested, the CPU cores shall be from the same NUMA zone" (KEP-3675). A container asks for devices as
extended resources whose last part is a device's name or kind (`example.com/eth1`, `example.com/gpu`), or a pod says by
annotation next to which devices it wants to be. Pure; asked by the CCI manager and by placement.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.model.annotations.wellknown import ALIGN_ANNOTATION
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView, PodView


@dataclass(frozen=True, slots=True)
class Devices:
    """What a container wants to be near to: devices that it asks for, and those that its pod names."""

    asked: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


NO_DEVICES = Devices()


def devices_of(pod: PodView, container: ContainerView) -> Devices:
    """The devices of one container."""
    limits = container.resources.limits.items()
    asked = (
        name
        for (_, slash, name), amount in ((key.partition("/"), one) for key, one in limits)
        if slash and not amount.is_zero
    )
    wishes = (pod.metadata.annotations or {}).get(ALIGN_ANNOTATION, "")
    return Devices(tuple(asked), tuple(filter(None, (part.strip() for part in wishes.split(",")))))


def locate(machine: Machine, devices: Devices) -> NumaSet | str:
    """The NUMA nodes of devices; empty when there are none. Text when one that a pod names cannot be found."""
    nodes = {node for name in devices.asked for node in _nodes_of(machine, name)}
    for name in devices.named:
        found = _nodes_of(machine, name)
        if not found:
            known = ", ".join(device.name for device in machine.devices if device.numa is not None) or "none"
            return f"this node has no device {name!r} with a known place (it has: {known})"
        nodes |= found
    return NumaSet.from_ids(nodes)


def _nodes_of(machine: Machine, name: str) -> set[int]:
    found = (device.numa for device in machine.devices if name in (device.name, device.kind))
    return {node for node in found if node is not None}
