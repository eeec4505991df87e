"""How much a plugin says there is, and whether a Node may be told that. Pure; called by `edge.messages`.

What is shown in Node status must be what the API server takes there, or one plugin would keep the whole status of its
node from being written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kubeqos.errors import InputError
from kubeqos.model.annotations.topologysummary import Division
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.answers import Nonsense
from kubeqos.qrm.edge.values import ITEMS, TEXT_BYTES, amount_wrong, name_wrong, numa_wrong, shown
from kubeqos.qrm.messages import division_from_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb

SLACK = 1e-6  # quantities travel as doubles
FRACTIONS = frozenset({"cpu"})
"""What is counted in thousandths; bytes, devices and all that vendors count come whole."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a resource the node has and may hand out; whether it belongs into Node status; how it is divided."""

    capacity: float
    allocatable: float
    shown: bool = True
    division: Division | None = None
    requested: Mapping[str, float] = field(default_factory=dict)


def capacity_wrong(name: str, sent: pb.AllocatableTopologyAwareResource, machine: Machine | None) -> str:
    """Why this cannot be what the node has of a resource; empty if it can."""
    if complaint := name_wrong(name):
        return complaint
    return next((f"{name}: {complaint}" for complaint in _wrongs(name, sent, machine)), "")


def capacity_of(sent: pb.AllocatableTopologyAwareResource) -> Capacity:
    """A capacity to three decimals, as it appears in Node status."""
    divided = division_from_wire(sent.division) if sent.HasField("division") else (None, {})
    return Capacity(
        round(sent.aggregated_capacity_quantity, 3),
        round(sent.aggregated_allocatable_quantity, 3),
        sent.is_node_resource and sent.is_scalar_resource,
        *divided,
    )


def _wrongs(name: str, sent: pb.AllocatableTopologyAwareResource, machine: Machine | None) -> Iterator[str]:
    in_status = sent.is_node_resource and sent.is_scalar_resource
    amounts = {
        "capacity": sent.aggregated_capacity_quantity,
        "allocatable quantity": sent.aggregated_allocatable_quantity,
    }
    for what, amount in amounts.items():
        if complaint := amount_wrong(amount):
            yield f"{what} {complaint}"
            return
        if in_status and name not in FRACTIONS and abs(amount - round(amount)) > SLACK:
            yield f"{what} {amount:g} is not a whole number"
    if amounts["allocatable quantity"] > amounts["capacity"] + SLACK:
        yield f"{amounts['allocatable quantity']:g} are allocatable of {amounts['capacity']:g}"
    yield from spread_wrongs(sent.topology_aware_capacity_quantity_list, machine)
    yield from spread_wrongs(sent.topology_aware_allocatable_quantity_list, machine)
    if sent.HasField("division"):
        yield from _division_wrongs(sent.division, machine)


def spread_wrongs(parts: Iterable[pb.TopologyAwareQuantity], machine: Machine | None) -> Iterator[str]:
    """What is wrong with amounts by NUMA node (or socket, which no machine numbers beyond them)."""
    for count, part in enumerate(parts):
        if count >= ITEMS * 64:
            yield f"it is spread over more than {ITEMS * 64} places"
            return
        if complaint := amount_wrong(part.resource_value):
            yield complaint
        if part.topology_level == pb.NUMA and (complaint := numa_wrong([part.node], machine)):
            yield complaint


def _division_wrongs(sent: pb.Division, machine: Machine | None) -> Iterator[str]:
    tables: Mapping[str, Mapping[str, float]] = {"pool": sent.pools, "requested": sent.requested, "owned": sent.owned}
    for what, table in tables.items():
        for key, amount in table.items():
            if complaint := amount_wrong(amount):
                yield f"division, {what} {shown(key)}: {complaint}"
    if complaint := amount_wrong(sent.whole):
        yield f"division, whole: {complaint}"
    for role, rule in sent.roles.items():
        if rule.multiple > ITEMS or rule.numa not in ("", "any", "bind", "exclusive"):
            yield f"division, role {shown(role)}: a rule of numa {shown(rule.numa)} and multiple {rule.multiple}"
    for role, free in sent.open.items():
        complaints = [numa_wrong(free.amounts, machine), *map(amount_wrong, free.amounts.values())]
        for complaint in filter(None, complaints):
            yield f"division, role {shown(role)}: {complaint}"
    if complaint := _free_wrong(sent.free, machine):
        yield f"division, free: {complaint}"
    if sent.ByteSize() > TEXT_BYTES * 4:
        yield f"a division of {sent.ByteSize()} bytes is more than a Node can be told"


def _free_wrong(text: str, machine: Machine | None) -> str:
    """Why these are no units of the machine; empty if they can be."""
    try:
        free = CpuSet.parse(text)
    except InputError as error:
        return error.what
    return f"the machine has no {free - machine.online}" if machine is not None and free - machine.online else ""


def capacities(
    sent: Mapping[str, pb.AllocatableTopologyAwareResource], machine: Machine | None
) -> dict[str, Capacity] | Nonsense:
    """All that a plugin has; one that is wrong makes all of them doubtful."""
    if len(sent) > ITEMS:
        return Nonsense(f"it names {len(sent)} resources, at most {ITEMS} are taken")
    found = {}
    for name, one in sent.items():
        complaint = capacity_wrong(name, one, machine)
        if complaint:
            return Nonsense(complaint)
        found[name] = capacity_of(one)
    return found
