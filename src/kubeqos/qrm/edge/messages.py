"""One function for each message that plugins send: the value it carries, or why it is not believed. Pure.

A plugin is foreign code, and one bad value must harm nobody but its owner. Answers about a pod must be about the pod
that was asked about; fields that repeat the question may be left empty, as plugins of other makers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from kubeqos.model.machine import Machine
from kubeqos.qrm.answers import SLACK, Nonsense, in_unit, own_of
from kubeqos.qrm.asking import Question
from kubeqos.qrm.edge.capacity import Capacity, capacities, spread_wrongs
from kubeqos.qrm.edge.values import ITEMS, amount_wrong, check_allocation, hints_wrong, name_wrong, shown
from kubeqos.qrm.messages import Allocation, NumaHint, allocations_from_wire, hints_from_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.topology.alignment.hints import Hint

Hints = pb.ResourceHintsResponse | pb.PodResourceHintsResponse
Allocated = pb.ResourceAllocationResponse | pb.PodResourceAllocationResponse
REPEATED = ("pod_uid", "pod_namespace", "pod_name", "container_name")


def read_options(sent: pb.ResourcePluginOptions) -> pb.ResourcePluginOptions | Nonsense:
    """`GetResourcePluginOptions`, and the options of `Register`."""
    for what, texts in (("extra resources", sent.extra_resources), ("implicit roles", sent.implicit_roles)):
        if len(texts) > ITEMS:
            return Nonsense(f"it names {len(texts)} {what}, at most {ITEMS} are taken")
    for name in sent.extra_resources:
        if complaint := name_wrong(name):
            return Nonsense(f"extra resource {complaint}")
    for role in sent.implicit_roles:
        if not role or not role.isprintable() or len(role) > ITEMS:
            return Nonsense(f"implicit role {shown(role)} is not a role")
    return sent


def read_registration(sent: pb.RegisterRequest) -> str | None:
    """`Register`: why nobody who says this can be taken, or None."""
    if complaint := name_wrong(sent.resource_name):
        return complaint if sent.resource_name else "the plugin gave no resource name"
    if not sent.endpoint.isprintable() or "/" in sent.endpoint or sent.endpoint in ("", ".", ".."):
        return f"endpoint {shown(sent.endpoint)} must be the name of a socket"
    options = read_options(sent.options)
    return str(options) if isinstance(options, Nonsense) else None


def read_hints(
    asked: Any, question: Question, sent: Hints, machine: Machine | None
) -> tuple[Hint, ...] | Nonsense | None:
    """`GetTopologyHints` and `GetPodTopologyHints`: placements, or None for no preference."""
    if complaint := _about_another(asked, question, sent):
        return Nonsense(complaint)
    for entry in sent.resource_hints:
        hints = [NumaHint(tuple(hint.nodes), hint.preferred) for hint in entry.value.hints]
        for wrong in hints_wrong(hints, machine):
            return Nonsense(f"{shown(entry.key)}: {wrong}")
    return hints_from_wire(sent.resource_hints, question.resource, question.spelled)


def read_allocation(
    asked: Any, question: Question, sent: Allocated, kind: pb.ContainerType.ValueType, machine: Machine | None
) -> dict[str, Allocation] | Nonsense:
    """`Allocate` and `AllocateForPod`.

    A plugin may give nothing at all, and a sidecar less than it asks for, because it shares the main container's.
    """
    if complaint := _about_another(asked, question, sent):
        return Nonsense(complaint)
    given = allocations_from_wire(sent.allocation_result)
    return allocation_wrong(question, given, kind, machine) or given


def allocation_wrong(
    question: Question, given: Mapping[str, Allocation], kind: pb.ContainerType.ValueType, machine: Machine | None
) -> Nonsense | None:
    """What is wrong with what was given for one question."""
    for name, one in given.items():
        if wrong := check_allocation(name, one, machine):
            return wrong
    own = own_of(question, given)
    if own is None:
        others = ", ".join(sorted(given))
        return Nonsense(f"{question.resource} was asked for, and only {others} was given") if others else None
    wanted = 0.0 if kind == pb.INIT or question.implicit else in_unit(question)
    short = wanted > own.quantity + SLACK
    if short and ((own.scalar and kind == pb.MAIN) or _gives_nothing(own)):
        return Nonsense(f"{question.resource}: {wanted:g} requested, {own.quantity:g} allocated")
    return None


def _gives_nothing(one: Allocation) -> bool:
    return not (one.quantity or one.result or one.envs or one.annotations or one.mounts or one.devices)


def _about_another(asked: Any, question: Question, sent: Any) -> str:
    """Whether an answer is to another question than the one that was asked."""
    for name in REPEATED:
        said, meant = getattr(sent, name, ""), getattr(asked, name, "")
        if said and said != meant:
            return f"it answered about {name.replace('_', ' ')} {shown(said)}, not {shown(meant)}"
    if sent.resource_name and sent.resource_name not in (question.resource, question.spelled):
        return f"it answered about resource {shown(sent.resource_name)}, not {shown(question.resource)}"
    return ""


def read_report(sent: bytes) -> pb.GetResourcesAllocationResponse | Nonsense:
    """`GetResourcesAllocation`. What it says of each container is checked where that differs from the allocations."""
    try:
        return pb.GetResourcesAllocationResponse.FromString(sent)
    except DecodeError:
        return Nonsense("the report cannot be decoded")


def read_capacity(
    sent: pb.GetTopologyAwareAllocatableResourcesResponse, machine: Machine | None
) -> dict[str, Capacity] | Nonsense:
    """`GetTopologyAwareAllocatableResources`."""
    return capacities(sent.allocatable_resources, machine)


def read_container_resources(
    sent: pb.GetTopologyAwareResourcesResponse, pod_uid: str, container: str, machine: Machine | None
) -> Mapping[str, pb.TopologyAwareResource] | Nonsense:
    """`GetTopologyAwareResources`."""
    inner = sent.container_topology_aware_resources
    if sent.pod_uid not in ("", pod_uid) or inner.container_name not in ("", container):
        return Nonsense(f"it answered about container {shown(f'{sent.pod_uid}/{inner.container_name}')}")
    for name, one in inner.allocated_resources.items():
        wrong = [
            name_wrong(name),
            amount_wrong(one.aggregated_quantity),
            amount_wrong(one.original_aggregated_quantity),
            *spread_wrongs(one.topology_aware_quantity_list, machine),
            *spread_wrongs(one.original_topology_aware_quantity_list, machine),
        ]
        for complaint in filter(None, wrong):
            return Nonsense(f"{shown(name)}: {complaint}")
    return inner.allocated_resources
