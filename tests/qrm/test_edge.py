"""What plugins send is checked at the edge: one bad value harms its owner only, is told, counted and shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.quantity import Quantity
from kubeqos.plugins.managers import Refusal
from kubeqos.plugins.proto import pluginregistration_pb2 as registration_pb
from kubeqos.plugins.registration import Introduction, info_wrong, serve_registration
from kubeqos.qrm.allocations import Allocations, _granted
from kubeqos.qrm.answers import Nonsense
from kubeqos.qrm.asking import Placement, Question, request_for
from kubeqos.qrm.edge import messages as edge
from kubeqos.qrm.edge.values import RANGES
from kubeqos.qrm.messages import PLUGIN_TYPE, VERSION, Allocation, DeviceSpec, MountSpec, allocations_from_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk import Capacity, Options, Refuse, running
from kubeqos.topology.alignment.hints import Hint
from tests.qrm.harness import admitted, pod, refs, until
from tests.qrm.live import Bench, Scripted, bench, cpus, raw_plugin
from tests.shared.messages import filled

MACHINE = kep80()


def condition(node: Bench) -> tuple[str, str, str]:
    return node.manager.conditions()["ResourcePluginsReady"]


def counted(node: Bench, plugin: str, method: str) -> float:
    labels = {"plugin": plugin, "method": method}
    return node.manager.metrics.registry.get_sample_value("kubeqos_qrm_refused_answers_total", labels) or 0.0


# ---- Capacity

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("name", "total", "complaint"),
    [
        (GPU, 2.5, "capacity 2.5 is not a whole number"),
        (GPU, -3.0, "capacity -3.0 is not a quantity"),
        (GPU, math.inf, "capacity inf is not a quantity"),
        (GPU, math.nan, "capacity nan is not a quantity"),
        (GPU, 1e300, "is not a quantity"),
        ("not a name", 4.0, "'not a name' is not the name of a resource"),
        ("x" * 5000, 4.0, "is too long for the name of a resource"),
    ],
)
async def test_a_capacity_that_cannot_be_leaves_the_last_good_one(
    folder: Path, name: str, total: float, complaint: str
) -> None:
    said = {"now": {GPU: Capacity(8, node=True)}}
    plugin = Scripted(GPU, Allocation(quantity=1, scalar=True), capacity=lambda: said["now"])
    async with bench(folder) as node, node.plugin(plugin):
        await node.manager.reconcile()
        [shown] = node.manager.node_resources()
        assert (shown.name, shown.capacity) == (GPU, 8)
        said["now"] = {name: Capacity(total, node=True)}
        for _ in range(3):
            await node.manager.reconcile()
        assert list(node.manager.node_resources()) == [shown], "the last good value stays"
        [event] = node.events
        assert event.reason == "ResourcePluginAnswer" and event.message.startswith(f"plugin {GPU} is in the wrong: ")
        assert complaint in event.message and len(event.message) < 1000
        status, reason, message = condition(node)
        assert (status, reason) == ("False", "ResourcePluginAnswerRefused") and complaint in message
        assert counted(node, GPU, "GetTopologyAwareAllocatableResources") == 3
        said["now"] = {GPU: Capacity(6, node=True)}
        await node.manager.reconcile()
        assert [one.capacity for one in node.manager.node_resources()] == [6]
        assert condition(node)[0] == "True"


async def test_fractions_of_a_cpu_are_a_capacity(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0"), capacity=lambda: Capacity(2.5, node=True))
    async with bench(folder) as node, node.plugin(plugin):
        assert [one.capacity for one in node.manager.node_resources()] == [2.5]


# ---- Allocations


def knob(name: str, value: object) -> Allocation:
    return Allocation(property=name, result=str(value), quantity=2)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (Allocation(quantity=2, envs={"BIG": "x" * (5 << 20)}), "variable 'BIG' has 5242885 bytes"),
        (Allocation(quantity=2, envs={"": "x"}), "'' is not the name of a variable"),
        (Allocation(quantity=2, envs={"A=B": "x"}), "'A=B' is not the name of a variable"),
        (Allocation(quantity=2, envs={"A": "x\0y"}), "holds a zero byte"),
        (Allocation(quantity=2, mounts=(MountSpec("data", "/data"),)), "mount path 'data' must be absolute"),
        (Allocation(quantity=2, mounts=(MountSpec("/data", "data"),)), "mount path 'data' must be absolute"),
        (Allocation(quantity=2, mounts=(MountSpec("/data", "/a/../etc"),)), "without '..'"),
        (Allocation(quantity=2, devices=(DeviceSpec("gpu0", "/dev/gpu0"),)), "device path 'gpu0' must be absolute"),
        (Allocation(quantity=2, devices=(DeviceSpec("/dev/a", "/dev/a", "all"),)), "permissions 'all'"),
        (Allocation(quantity=2, annotations={"cci.kubeqos.io/holdings": "{}"}), "is the node agent's own"),
        (knob("OomScoreAdj", 5000), "OomScoreAdj must be from -1000 to 1000, not 5000"),
        (knob("MemoryLimitInBytes", -5), "MemoryLimitInBytes must be at least 0, not -5"),
        (knob("CpuShares", -1), "CpuShares must be from 0 to 262144, not -1"),
        (knob("Unified", '{"../cgroup.procs": "1"}'), "'../cgroup.procs' is not a cgroup file"),
        ({"example.com/other": Allocation(quantity=2)}, "x.io/a was asked for, and only example.com/other was given"),
        (Allocation(quantity=0), "x.io/a: 2 requested, 0 allocated"),
        (Allocation(quantity=0, scalar=True), "x.io/a: 2 requested, 0 allocated"),
        (Allocation(property="CpusetCpus", result="", exclusive=True, quantity=2), "it names no CPUs"),
        (Allocation(property="CpusetCpus", result="0-999", quantity=2), "80-999 do not exist on this machine"),
    ],
)
async def test_an_allocation_that_cannot_be_refuses_its_pod_only(folder: Path, given: Any, complaint: str) -> None:
    good = Allocation(quantity=2)
    plugin = Scripted("x.io/a", lambda request: given if request.pod == "bad" else good)
    async with bench(folder) as node, node.plugin(plugin):
        outcome = await node.admit(pod("bad", **{"x.io/a": "2"}))
        assert isinstance(outcome, Refusal) and not outcome.retry
        assert "plugin x.io/a gave a wrong answer: " in outcome.message and complaint in outcome.message
        [event] = node.events
        assert event.message.startswith("plugin x.io/a is in the wrong: ") and complaint in event.message
        assert condition(node)[1] == "ResourcePluginAnswerRefused"
        assert counted(node, "x.io/a", "Allocate") == 1
        assert "uid-bad" not in node.manager.allocations
        assert isinstance(await node.admit(pod("good", **{"x.io/a": "2"})), list)
        assert condition(node)[0] == "True"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"pod_uid": "uid-other"}, "it answered about pod uid 'uid-other', not 'uid-web'"),
        ({"pod_name": "other"}, "it answered about pod name 'other', not 'web'"),
        ({"container_name": "sidecar"}, "it answered about container name 'sidecar'"),
        ({"resource_name": "memory"}, "it answered about resource 'memory', not 'x.io/a'"),
    ],
)
@pytest.mark.parametrize("method", ["GetTopologyHints", "Allocate"])
async def test_an_answer_to_another_question_is_none(
    folder: Path, method: str, wrong: dict[str, str], complaint: str
) -> None:
    allocated = pb.ResourceAllocationResponse()
    allocated.allocation_result.resource_allocation["x.io/a"].allocated_quantity = 2
    answers: dict[str, Any] = {"GetTopologyHints": pb.ResourceHintsResponse(), "Allocate": allocated}
    for name, value in wrong.items():
        setattr(answers[method], name, value)
    table = {name: lambda _request, said=said: said for name, said in answers.items()}
    plugin = Introduction(PLUGIN_TYPE, "x.io/a", (VERSION,))
    serving = serve_registration(folder / "r" / "a.sock", plugin, raw_plugin(table))
    async with bench(folder) as node, serving:
        await node.usable("x.io/a")
        outcome = await node.admit(pod("web", **{"x.io/a": "2"}))
        assert isinstance(outcome, Refusal) and complaint in outcome.message
        assert counted(node, "x.io/a", method) == 1


async def test_a_hint_beyond_the_machine_is_refused(folder: Path) -> None:
    plugin = Scripted("x.io/a", Allocation(quantity=9), hints=lambda _request: [Hint(NumaSet.of(77), True)])
    async with bench(folder) as node, node.plugin(plugin):
        outcome = await node.admit(pod("web", **{"x.io/a": "2"}))
        assert isinstance(outcome, Refusal)
        assert "'x.io/a': a hint is wrong: NUMA nodes 77 do not exist on this machine" in outcome.message
        assert "NUMA nodes 77" in condition(node)[2]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (cpus("", exclusive=True), "it names no CPUs"),
        (cpus("", exclusive=False), "it reports no CPUs where 0-3 are the pod's alone"),
        (cpus("0-7"), "it reports 0-7 as shared where 0-3 are the pod's alone"),
        ({"x.io/other": Allocation(quantity=1)}, "it reports no CPUs where 0-3 are the pod's alone"),
    ],
)
async def test_a_report_does_not_free_what_is_somebodys_alone(folder: Path, changed: Any, complaint: str) -> None:
    plugin = Scripted("cpu", lambda request: cpus("0-3" if request.pod == "one" else "4-7", exclusive=True))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("one", cpu="1"))
        plugin.book["uid-one"]["container0"] = changed if isinstance(changed, dict) else {"cpu": changed}
        for _ in range(2):
            assert await node.told() == []
        assert str(node.manager.allocations.cpus()["uid-one", "container0"].cpus) == "0-3"
        assert complaint in condition(node)[2] and complaint in node.events[0].message
        plugin.book["uid-one"]["container0"] = {"cpu": cpus("0-3", exclusive=True)}
        await node.manager.reconcile()
        assert condition(node)[0] == "True"


@pytest.mark.parametrize(
    "changed",
    [
        {"envs": {"LINK": "1"}},
        {"mounts": (MountSpec("/data", "/mnt/1"),)},
        {"devices": (DeviceSpec("/dev/nic", "/dev/nic1"),)},
    ],
)
async def test_a_report_does_not_change_what_a_container_was_created_with(folder: Path, changed: Any) -> None:
    plugin = Scripted("x.io/a", Allocation(quantity=2, envs={"LINK": "0"}))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("one", **{"x.io/a": "2"}))
        plugin.book["uid-one"]["container0"]["x.io/a"] = Allocation(quantity=2, **{"envs": {"LINK": "0"}, **changed})
        await node.manager.reconcile()
        held = node.manager.allocations.get("uid-one", "container0")
        assert held is not None
        given = held.resources["x.io/a"]
        assert (given.envs, given.mounts, given.devices) == ({"LINK": "0"}, (), ())
        assert f"its {next(iter(changed))} changed" in condition(node)[2]


async def test_a_dedicated_container_is_not_given_no_cpus(folder: Path) -> None:
    level = {"katalyst.kubewharf.io/qos_level": "dedicated_cores"}
    async with bench(folder) as node, node.plugin(Scripted("cpu", cpus(""))):
        outcome = await node.admit(pod("one", cpu="1", annotations=level))
        assert isinstance(outcome, Refusal) and "it names no CPUs" in outcome.message


# ---- Registration and releases


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        (registration_pb.PluginInfo(type="ResourcePlugin"), "it gave no name"),
        (registration_pb.PluginInfo(name="x"), "it gave no type"),
        (registration_pb.PluginInfo(type="T", name="x" * 1000), "its name"),
        (registration_pb.PluginInfo(type="T", name="x\ny"), "printable characters"),
        (registration_pb.PluginInfo(type="T", name="x", supported_versions=["v1"] * 100), "it speaks 100 versions"),
    ],
)
def test_who_introduces_itself_wrongly_is_not_taken(info: registration_pb.PluginInfo, complaint: str) -> None:
    assert complaint in info_wrong(info)


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (pb.RegisterRequest(resource_name="cpu", endpoint="../x.sock"), "must be the name of a socket"),
        (pb.RegisterRequest(resource_name="cpu"), "must be the name of a socket"),
        (pb.RegisterRequest(endpoint="x.sock"), "gave no resource name"),
        (pb.RegisterRequest(resource_name="a b", endpoint="x.sock"), "'a b' is not the name of a resource"),
    ],
)
def test_who_registers_itself_wrongly_is_not_taken(sent: pb.RegisterRequest, complaint: str) -> None:
    assert complaint in str(edge.read_registration(sent))


async def test_a_plugin_with_an_invalid_extra_resource_is_refused(folder: Path) -> None:
    plugin = Scripted("x.io/a", Allocation(quantity=1), extra_resources=["not a name"])
    async with bench(folder) as node, running(plugin, Options(folder / "r")):
        await until("refused", lambda: node.events)
        assert node.events[0].reason == "ResourcePluginRefused"
        assert "extra resource 'not a name' is not the name of a resource" in node.events[0].message
        assert node.manager.endpoints.get("x.io/a") is None


async def test_a_refused_release_is_tried_again_ever_more_slowly_and_told(folder: Path) -> None:
    """The plugin refuses one pod for ever; the others are released, and nobody asks it more often than need be."""
    now = [0.0]
    asked: list[str] = []

    def release(uid: str) -> None:
        asked.append(uid)
        if uid == "uid-stuck":
            raise Refuse("not in my book")

    plugin = Scripted("x.io/a", Allocation(quantity=1), release=release)
    async with bench(folder, clock=lambda: now[0]) as node, node.plugin(plugin):
        for name in ("stuck", "free"):
            await node.admit(pod(name, **{"x.io/a": "1"}))
            await node.manager.release(f"uid-{name}")
        await until("free is released", lambda: "uid-free" in asked)
        for _ in range(100):  # five minutes of periods
            now[0] += 3.0
            await node.manager.reconcile()
        assert 5 <= asked.count("uid-stuck") <= 12
        [event] = node.events
        assert "does not take back what pod uid-stuck held" in event.message and "not in my book" in event.message
        assert condition(node)[1] == "ResourcePluginAnswerRefused"
        assert node.manager.endpoints.unreleased == {"x.io/a": ["uid-stuck"]}


# ---- Every field of every message

QUESTION = Question("x.io/a", "x.io/a", "x.io/a", 2.0)
WEB = admitted(pod("web", **{"x.io/a": "2"}))
ASKED = request_for(WEB, refs(WEB)[0], QUESTION, None)


def fields_of(found: Any) -> Iterator[tuple[str, Any]]:
    return iter(found.properties.items())


def usable(given: dict[str, Allocation]) -> None:
    """What was believed can be given to a runtime."""
    granted = _granted(given)
    if isinstance(granted, Nonsense):
        return  # two of its resources contradict each other, which refuses the pod
    for name, value in fields_of(granted):
        low, high = RANGES.get(name, (-(2**63), 2**63 - 1))
        assert isinstance(value, str) or low <= value <= high
    assert all(name and "=" not in name and len(value) < 1 << 18 for name, value in granted.envs.items())
    assert all(one.container_path.startswith("/") and one.host_path.startswith("/") for one in granted.mounts)
    assert granted.exclusive <= MACHINE.online


@given(filled(pb.ResourceAllocationResponse))
def test_any_allocation_is_refused_or_usable(sent: pb.ResourceAllocationResponse) -> None:
    found = edge.read_allocation(ASKED, QUESTION, sent, pb.MAIN, MACHINE)
    if isinstance(found, Nonsense):
        assert len(str(found)) < 2000
    else:
        usable(found)


@given(filled(pb.PodResourceAllocationResponse))
def test_any_allocation_of_a_pod_is_refused_or_usable(sent: pb.PodResourceAllocationResponse) -> None:
    found = edge.read_allocation(ASKED, QUESTION, sent, pb.MAIN, MACHINE)
    if not isinstance(found, Nonsense):
        usable(found)


@given(st.one_of(filled(pb.ResourceHintsResponse), filled(pb.PodResourceHintsResponse)))
def test_any_hints_are_refused_or_on_this_machine(sent: Any) -> None:
    found = edge.read_hints(ASKED, QUESTION, sent, MACHINE)
    if isinstance(found, Nonsense) or found is None:
        return
    assert all(hint.numa is None or hint.numa <= MACHINE.numa for hint in found)


@given(filled(pb.GetTopologyAwareAllocatableResourcesResponse))
def test_any_capacity_is_refused_or_fit_for_a_node(sent: Any) -> None:
    found = edge.read_capacity(sent, MACHINE)
    if isinstance(found, Nonsense):
        return
    for name, one in found.items():
        assert 0 <= one.allocatable <= one.capacity + 0.001 and str(Quantity.from_milli(round(one.capacity * 1000)))
        assert name == "cpu" or not one.shown or one.capacity == round(one.capacity)
        assert one.division is None or CpuSet.parse(one.division.free) <= MACHINE.online


@pytest.mark.parametrize("free", ["0-4000", "some"])
def test_free_cpus_that_the_machine_has_not_are_refused(free: str) -> None:
    sent = pb.GetTopologyAwareAllocatableResourcesResponse()
    told = sent.allocatable_resources["cpu"]
    told.aggregated_capacity_quantity = told.aggregated_allocatable_quantity = 2.0
    told.division.free = free
    assert isinstance(edge.read_capacity(sent, MACHINE), Nonsense)
    told.division.free = str(MACHINE.online)
    assert not isinstance(edge.read_capacity(sent, MACHINE), Nonsense)


@given(filled(pb.GetTopologyAwareResourcesResponse))
def test_any_account_of_a_container_is_refused_or_sound(sent: Any) -> None:
    found = edge.read_container_resources(sent, "uid-web", "container0", MACHINE)
    if not isinstance(found, Nonsense):
        assert all(math.isfinite(one.aggregated_quantity) and one.aggregated_quantity >= 0 for one in found.values())


@given(filled(pb.GetResourcesAllocationResponse), st.booleans())
def test_any_report_leaves_allocations_that_can_be_given(sent: Any, exclusive: bool) -> None:
    """A report is taken over or refused; whoever had CPUs alone has some alone afterwards."""
    allocations = Allocations()
    ref = refs(WEB)[0]
    holding = allocations.open(ref, Placement())
    allocations.put(holding, "x.io/a", {"x.io/a": cpus("0-3", exclusive=exclusive)})
    read = edge.read_report(sent.SerializeToString())
    assert not isinstance(read, Nonsense)
    report = {
        uid: {name: allocations_from_wire(given) for name, given in one.container_resources.items()}
        for uid, one in read.pod_resources.items()
    }
    report.setdefault("uid-web", {}).setdefault("container0", next(iter(report["uid-web"].values()), {}))
    findings = allocations.compare("x.io/a", report, MACHINE)
    for given_now in findings.changed.values():
        usable(dict(given_now))
        allocations.put(holding, "x.io/a", given_now)
    held = holding.held()
    if exclusive:
        assert held is not None and held.cpus and held.owner == "uid-web"


@given(filled(pb.ResourcePluginOptions), filled(pb.RegisterRequest), filled(registration_pb.PluginInfo))
def test_any_introduction_is_judged(options: Any, register: Any, info: Any) -> None:
    for found in (edge.read_options(options), edge.read_registration(register), info_wrong(info)):
        assert not isinstance(found, str) or len(found) < 2000


@given(st.binary(max_size=64))
def test_bytes_that_are_no_report_are_refused(sent: bytes) -> None:
    found = edge.read_report(sent)
    assert isinstance(found, Nonsense | pb.GetResourcesAllocationResponse)
