"""What travels between manager and plugin, as values: one allocation, one hint, and their wire form.

Shared by the manager and the SDK. In JSON (checkpoints, reports) an allocation has the names of the KEP's
ResourceAllocationInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kubeqos.model.annotations.topologysummary import ANY, Division, PoolRule, Rules
from kubeqos.model.cpuset import NumaSet
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.topology.alignment.hints import Hint

SERVICE = "resourceplugin.v1alpha1.ResourcePlugin"
REGISTRATION_SERVICE = "resourceplugin.v1alpha1.Registration"
VERSION = "v1alpha1"
PLUGIN_TYPE = "ResourcePlugin"
WHOLE_POD = ""
"""In a report, the name of the container under which a plugin tells what it gave to a pod as a whole: the protocol has
AllocateForPod, but no place for its result in GetResourcesAllocation."""

# Every call that a plugin serves: request, answer, and how many seconds the manager waits for it.
METHODS: Mapping[str, tuple[type[Any], type[Any], float]] = {
    "GetTopologyHints": (pb.ResourceRequest, pb.ResourceHintsResponse, 10),
    "GetPodTopologyHints": (pb.PodResourceRequest, pb.PodResourceHintsResponse, 10),
    "RemovePod": (pb.RemovePodRequest, pb.RemovePodResponse, 10),
    "GetResourcesAllocation": (pb.GetResourcesAllocationRequest, pb.GetResourcesAllocationResponse, 10),
    "GetTopologyAwareResources": (pb.GetTopologyAwareResourcesRequest, pb.GetTopologyAwareResourcesResponse, 10),
    "GetTopologyAwareAllocatableResources": (
        pb.GetTopologyAwareAllocatableResourcesRequest,
        pb.GetTopologyAwareAllocatableResourcesResponse,
        10,
    ),
    "GetResourcePluginOptions": (pb.Empty, pb.ResourcePluginOptions, 10),
    "Allocate": (pb.ResourceRequest, pb.ResourceAllocationResponse, 10),
    "AllocateForPod": (pb.PodResourceRequest, pb.PodResourceAllocationResponse, 10),
    "PreStartContainer": (pb.PreStartContainerRequest, pb.PreStartContainerResponse, 30),
    "GetAssociatedDeviceTopologyHints": (pb.AssociatedDeviceRequest, pb.AssociatedDeviceHintsResponse, 10),
    "UpdateAllocatableAssociatedDevices": (
        pb.UpdateAllocatableAssociatedDevicesRequest,
        pb.UpdateAllocatableAssociatedDevicesResponse,
        10,
    ),
    "AllocateAssociatedDevice": (pb.AssociatedDeviceRequest, pb.AssociatedDeviceAllocationResponse, 10),
}


class NumaHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One placement; no nodes means anywhere."""

    nodes: tuple[int, ...] = ()
    preferred: bool = False

    @classmethod
    def of(cls, hint: Hint) -> NumaHint:
        return cls(tuple(hint.numa or ()), hint.preferred)

    @property
    def value(self) -> Hint:
        return Hint(NumaSet.from_ids(self.nodes) if self.nodes else None, self.preferred)


class MountSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    container_path: str
    host_path: str
    read_only: bool = False


class DeviceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    container_path: str
    host_path: str
    permissions: str = "rw"


class Allocation(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    rename={
        "property": "oci_property_name",
        "node": "is_node_resource",
        "scalar": "is_scalar_resource",
        "quantity": "allocated_quantity",
        "result": "allocation_result",
        "hints": "resource_hints",
        "assignments": "topology_assignments",
    },
):
    """What a plugin gives one container of one resource.

    `property` names the field of CRI's LinuxContainerResources that `result` is the value of, spelled as in Go
    (`CpusetCpus`). `node` and `scalar` together make the resource appear in Node status. `exclusive` is ours: the
    CPUs belong to this pod alone.
    """

    property: str = ""
    result: str = ""
    quantity: float = 0.0
    scalar: bool = False
    node: bool = False
    exclusive: bool = False
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    hints: tuple[NumaHint, ...] = ()
    assignments: dict[int, int] = {}
    mounts: tuple[MountSpec, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()


def hint_to_wire(hint: Hint) -> pb.TopologyHint:
    return pb.TopologyHint(nodes=list(hint.numa or ()), preferred=hint.preferred)


def hint_from_wire(sent: pb.TopologyHint) -> Hint:
    return NumaHint(tuple(sent.nodes), sent.preferred).value


def hints_to_wire(hints: Mapping[str, Sequence[Hint] | None]) -> list[pb.ResourceHintsEntry]:
    """Hints by resource. None, "no preference", is an entry without value; an empty list is one with an empty value."""
    return [
        pb.ResourceHintsEntry(
            key=resource,
            value=None if offered is None else pb.ListOfTopologyHints(hints=[hint_to_wire(h) for h in offered]),
        )
        for resource, offered in hints.items()
    ]


def hints_from_wire(entries: Iterable[pb.ResourceHintsEntry], *names: str) -> tuple[Hint, ...] | None:
    """The hints under the first of these names that is there; None is "no preference"."""
    found = {entry.key: entry for entry in entries}
    for name in names:
        if name in found:
            entry = found[name]
            return tuple(map(hint_from_wire, entry.value.hints)) if entry.HasField("value") else None
    return None


def allocation_to_wire(given: Allocation) -> pb.ResourceAllocationInfo:
    return pb.ResourceAllocationInfo(
        oci_property_name=given.property,
        is_node_resource=given.node,
        is_scalar_resource=given.scalar,
        allocated_quantity=given.quantity,
        allocation_result=given.result,
        envs=given.envs,
        annotations=given.annotations,
        resource_hints=pb.ListOfTopologyHints(
            hints=[pb.TopologyHint(nodes=hint.nodes, preferred=hint.preferred) for hint in given.hints]
        )
        if given.hints
        else None,
        topology_assignments=given.assignments,
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in given.mounts
        ],
        devices=[
            pb.DeviceSpec(container_path=d.container_path, host_path=d.host_path, permissions=d.permissions)
            for d in given.devices
        ],
        exclusive=given.exclusive,
    )


def allocation_from_wire(sent: pb.ResourceAllocationInfo) -> Allocation:
    return Allocation(
        property=sent.oci_property_name,
        result=sent.allocation_result,
        quantity=sent.allocated_quantity,
        scalar=sent.is_scalar_resource,
        node=sent.is_node_resource,
        exclusive=sent.exclusive,
        envs=dict(sent.envs),
        annotations=dict(sent.annotations),
        hints=tuple(NumaHint(tuple(hint.nodes), hint.preferred) for hint in sent.resource_hints.hints),
        assignments=dict(sent.topology_assignments),
        mounts=tuple(MountSpec(m.container_path, m.host_path, m.read_only) for m in sent.mounts),
        devices=tuple(DeviceSpec(d.container_path, d.host_path, d.permissions) for d in sent.devices),
    )


def allocations_from_wire(sent: pb.ResourceAllocation) -> dict[str, Allocation]:
    return {name: allocation_from_wire(info) for name, info in sent.resource_allocation.items()}


def allocations_to_wire(given: Mapping[str, Allocation]) -> pb.ResourceAllocation:
    return pb.ResourceAllocation(resource_allocation={name: allocation_to_wire(one) for name, one in given.items()})


def division_to_wire(division: Division, requested: Mapping[str, float]) -> pb.Division:
    rules = {
        role: pb.RoleRule(pool=rule.pool, whole=rule.whole, numa=rule.numa, multiple=rule.multiple)
        for role, rule in division.rules.roles.items()
    }
    return pb.Division(
        default_pool=division.rules.default,
        roles=rules,
        one_pool=division.rules.one_pool,
        pools=division.pools,
        requested=requested,
        whole=division.whole,
        carved=division.carved,
        owned=division.owned,
        open={role: pb.NumaAmounts(amounts=free) for role, free in division.open.items()},
        free=division.free,
    )


def _by_numa(sent: pb.NumaAmounts) -> dict[int, int]:
    return {node: int(amount) for node, amount in sorted(sent.amounts.items())}


def division_from_wire(sent: pb.Division) -> tuple[Division, dict[str, float]]:
    """A division, and what is requested of its pools."""
    roles = {
        role: PoolRule(rule.pool, rule.whole, ANY if rule.numa in ("", ANY) else rule.numa, max(1, rule.multiple))
        for role, rule in sorted(sent.roles.items())
    }
    division = Division(
        rules=Rules(sent.default_pool, roles, sent.one_pool),
        pools=dict(sorted(sent.pools.items())),
        whole=sent.whole,
        carved=sent.carved,
        owned=dict(sorted(sent.owned.items())),
        open={role: _by_numa(free) for role, free in sorted(sent.open.items())},
        free=sent.free,
    )
    return division, dict(sorted(sent.requested.items()))
