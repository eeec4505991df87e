"""Values that travel and are kept: wire forms, quantities under any name, the ledger as JSON, the order of changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import decode_json, encode_json
from kubeqos.model.cpuset import NumaSet
from kubeqos.node.cri.configs import linux_resources
from kubeqos.node.cri.context import Context
from kubeqos.plugins.managers import ContainerKind, ContainerRef, Grant
from kubeqos.qrm.allocations import Allocations
from kubeqos.qrm.answers import grant_of
from kubeqos.qrm.asking import Placement
from kubeqos.qrm.messages import (
    Allocation,
    DeviceSpec,
    MountSpec,
    NumaHint,
    allocation_from_wire,
    allocation_to_wire,
    hints_from_wire,
    hints_to_wire,
)
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk.values import quantity_of
from kubeqos.rules.qos.cgroups import NodeMemory
from kubeqos.topology.alignment.hints import Hint
from tests.node.cgroups.test_cgroups import admitted
from tests.node.pods import container, pod

texts = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
hints = st.builds(NumaHint, st.lists(st.integers(0, 7), unique=True, max_size=3).map(tuple), st.booleans())
allocations = st.builds(
    Allocation,
    property=st.sampled_from(["", "CpusetCpus", "CpuShares"]),
    result=st.text(max_size=200),
    quantity=st.one_of(st.sampled_from([1.0, 0.5, 1.5, 4 * 2.0**30, 237182648320.0]), st.floats(0, 1e15)),
    scalar=st.booleans(),
    node=st.booleans(),
    exclusive=st.booleans(),
    envs=texts,
    annotations=texts,
    hints=st.lists(hints, max_size=2).map(tuple),
    assignments=st.dictionaries(st.integers(0, 63), st.integers(0, 2**60), max_size=3),
    mounts=st.lists(st.builds(MountSpec, st.text(), st.text(), st.booleans()), max_size=2).map(tuple),
    devices=st.lists(st.builds(DeviceSpec, st.text(), st.text(), st.text()), max_size=2).map(tuple),
)


@settings(max_examples=80, deadline=None)
@given(allocations)
def test_an_allocation_survives_the_wire(one: Allocation) -> None:
    sent = allocation_to_wire(one).SerializeToString()
    assert allocation_from_wire(pb.ResourceAllocationInfo.FromString(sent)) == one


@settings(max_examples=80, deadline=None)
@given(allocations)
def test_t22_the_checkpoint_keeps_every_value(one: Allocation) -> None:
    ledger = Allocations()
    ref = ContainerRef("uid", "main", ContainerKind.APP, 0)
    placement = Placement(Hint(NumaSet.of(1), True), {"NIC": Hint(NumaSet.of(0, 1), False)})
    holding = ledger.open(ref, placement)
    holding.whole = frozenset({"cpu"})
    ledger.put(holding, "cpu", {"cpu": one})
    again = Allocations()
    assert again.load(decode_json(encode_json(ledger.entries()))) == []
    found = again.get("uid", "main")
    assert found == holding


def test_t22_the_values_that_broke_others_checkpoints() -> None:
    """Doubles whose bytes are no UTF-8, and messages longer than 127 bytes."""
    ledger = Allocations()
    amounts = [1.0, 0.5, 1.5, float(4 << 30), 237182648320.0]
    for number, amount in enumerate(amounts):
        ref = ContainerRef(f"uid-{number}", "main", ContainerKind.APP, 0)
        given = Allocation(quantity=amount, envs={"LONG": "x" * 200})
        ledger.put(ledger.open(ref, Placement()), "cpu", {"cpu": given})
    again = Allocations()
    assert again.load(decode_json(encode_json(ledger.entries()))) == []
    assert [one.resources["cpu"].quantity for one in again] == amounts
    assert again.entries() == ledger.entries()


def test_t24_an_older_file_loads_and_fields_of_a_newer_one_are_kept() -> None:
    old = {"kind": "app", "index": 0, "hint": {}, "resources": {"cpu": {}}, "plugins": {"cpu": "cpu"}}
    new = {**old, "from_the_future": {"a": [1]}}
    ledger = Allocations()
    assert ledger.load({"uid": {"old": old, "new": new}}) == []
    saved = ledger.entries()["uid"]
    assert saved == {"old": old, "new": new}


@pytest.mark.parametrize("offered", [None, (), (Hint(NumaSet.of(0), True), Hint(None, False))])
def test_t01_our_encoder_keeps_nil_and_empty_apart(offered: tuple[Hint, ...] | None) -> None:
    sent = pb.ResourceHintsResponse(resource_hints=hints_to_wire({"cpu": offered})).SerializeToString()
    read = pb.ResourceHintsResponse.FromString(sent)
    assert hints_from_wire(read.resource_hints, "cpu") == offered
    assert hints_from_wire(read.resource_hints, "other") is None
    assert hints_from_wire(read.resource_hints, "other", "cpu") == offered


MILLI = "resource.katalyst.kubewharf.io/reclaimed_millicpu"


@pytest.mark.parametrize(
    ("requests", "marks"),
    [
        ({"cpu": 2.0}, {}),
        ({MILLI: 2000.0}, {}),
        ({MILLI: 2000.0}, {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}),
        ({"cpu": 2000.0}, {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}),
    ],
)
def test_t02_t03_two_cores_under_any_name(requests: dict[str, float], marks: dict[str, str]) -> None:
    assert quantity_of("cpu", requests, marks) == 2.0


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_container_whose_cpus_are_its_own_is_not_throttled(exclusive: bool) -> None:
    """docs/qrm.md: dedicated containers have no quota, which would only take from them what is theirs."""
    given = Allocation(property="CpusetCpus", result="4-7", exclusive=exclusive)
    grant = grant_of({"cpu": given})
    assert isinstance(grant, Grant) and grant.unthrottled is exclusive
    limits = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    admitted_pod = admitted(pod("web", container(resources=limits)))
    context = Context(Path("/logs"), Path("/state"), NodeMemory(1 << 30, 1 << 30))
    made = linux_resources(admitted_pod, admitted_pod.view.spec.containers[0], grant, context)
    assert made.cpu_quota == (-1 if exclusive else 400_000)
