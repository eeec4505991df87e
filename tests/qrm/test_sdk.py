"""Writing plugins: few lines, honest errors, state that survives, and a kit that finds what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.checkpoint import Checkpoint
from kubeqos.cli.extend.qrm import command as qrm
from kubeqos.errors import ConfigurationError, InputError, RemoteError
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import kep80
from kubeqos.qrm.kit.conformance import KILLED, Kit
from kubeqos.qrm.kit.skeleton import write_skeleton
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk import Allocation, Capacity, Hint, MountSpec, Options, Refuse, Request, running
from kubeqos.qrm.sdk.servicer import Servicer
from kubeqos.topology.alignment.hints import Policy
from tests.qrm.harness import PluginProcess, plugin_processes, pod, until
from tests.qrm.live import Scripted, bench, serving_raw
from tests.shared import commands


class Tiny:
    resource = "example.com/tiny"

    def allocate(self, request: Request) -> Allocation:
        if request.quantity > 5:
            raise Refuse("too much", remedy="ask for 5 or less")
        return Allocation(quantity=request.quantity, scalar=True)


async def test_a_plugin_of_four_lines(folder: Path) -> None:
    async with bench(folder) as node, node.plugin(Tiny()):
        assert isinstance(await node.admit(pod("web", **{"example.com/tiny": "2"})), list)
        refused: Any = await node.admit(pod("big", **{"example.com/tiny": "6"}))
        assert "too much ask for 5 or less" in refused.message


async def test_what_was_given_survives_the_plugins_death(folder: Path) -> None:
    state = folder / "tiny.state"
    async with bench(folder) as node:
        async with node.plugin(Tiny(), state=state):
            await node.admit(pod("web", **{"example.com/tiny": "2"}))
        async with running(Tiny(), Options(folder / "other", state=state)) as servicer:
            assert servicer._book["uid-web"]["container0"]["example.com/tiny"].quantity == 2


async def test_a_damaged_state_file_is_set_aside(folder: Path) -> None:
    state = folder / "tiny.state"
    state.write_text('{"format": "kubeqos')
    async with running(Tiny(), Options(folder / "r", state=state)):
        assert (folder / "tiny.state.damaged-1").exists()


async def test_a_plugin_listens_again_when_its_socket_is_removed(folder: Path) -> None:
    async with bench(folder) as node, node.plugin(Tiny()):
        socket = folder / "r" / "example.com_tiny.sock"
        before = socket.stat().st_ino, socket.stat().st_mtime_ns
        socket.unlink()
        await until(
            "a new socket", lambda: socket.exists() and (socket.stat().st_ino, socket.stat().st_mtime_ns) != before
        )
        await node.usable("example.com/tiny")


async def test_a_second_plugin_on_the_same_socket_ends_the_first(folder: Path) -> None:
    options = Options(folder / "r")
    with pytest.raises(RemoteError, match="another plugin has taken"):
        async with running(Tiny(), options), running(Tiny(), options):
            await asyncio.sleep(30)


async def test_a_bug_in_a_plugin_is_told_as_one(folder: Path) -> None:
    class Broken:
        resource = "broken"

        def allocate(self, request: Request) -> Allocation:
            raise KeyError("oops")

    async with bench(folder) as node, node.plugin(Broken()):
        refused: Any = await node.admit(pod("web", broken="1"))
        assert "KeyError: 'oops' (INTERNAL)" in refused.message


async def test_an_object_that_is_no_plugin_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="object is not a plugin"):
        async with running(object(), Options(folder)):
            pass


async def test_metrics_and_readiness_are_part_of_it(folder: Path) -> None:
    async with running(Tiny(), Options(folder / "r")) as servicer:
        await Kit(folder / "r" / "example.com_tiny.sock").run()
        counted = servicer._calls.labels("Allocate", "OK")
        assert counted._sum.get() > 0


async def test_a_plugin_that_says_it_is_ill_is_not_asked(folder: Path) -> None:
    class Moody(Tiny):
        mood = ""

        def health(self) -> str:
            return self.mood

    async with bench(folder) as node, node.plugin(Moody()) as plugin:
        await node.manager.reconcile()
        assert node.manager.conditions()["ResourcePluginsReady"][0] == "True"
        plugin.mood = "the disk is full"
        await node.manager.reconcile()
        status, _, message = node.manager.conditions()["ResourcePluginsReady"]
        told = "plugin example.com/tiny is not well: it says: the disk is full"
        assert (status, message) == ("False", told)
        refused: Any = await node.admit(pod("web", **{"example.com/tiny": "2"}), Policy.BEST_EFFORT)
        assert refused.retry and told in refused.message
        plugin.mood = ""
        await node.manager.reconcile()
        assert isinstance(await node.admit(pod("web", **{"example.com/tiny": "2"})), list)


# ---- The kit


async def test_the_kit_passes_a_good_plugin(folder: Path) -> None:
    async with running(Tiny(), Options(folder / "r")):
        report = await Kit(folder / "r" / "example.com_tiny.sock").run()
    assert [check for check in report if check.passed is False] == []
    assert [check.detail for check in report if check.passed is None] == ["the plugin serves containers one by one"] * 3


BUILT_IN = {
    "cpu": ('reserved: "0-1,40-41"\nroles: {storage: {dedicated: true, numa: bind}}\n', 1),
    "memory": ("roles: {storage: {numa: bind, knobs: {memory.high: '1000000'}}}\n", 1 << 30),
    "nic": ("{}", 0),
    "knob": ("roles: {storage: {io.weight: 10, CpuShares: 2}}\n", 1),
}


@pytest.mark.parametrize("kind", BUILT_IN)
async def test_the_kit_passes_the_built_in_plugins(folder: Path, kind: str) -> None:
    """As processes, for a pod with CPUs of its own and for one without a role; whole pods included."""
    config, quantity = BUILT_IN[kind]
    plugin = PluginProcess(folder, kind, kep80(), config)
    socket = folder / "r" / f"{'NIC' if kind == 'nic' else kind}.sock"
    with plugin_processes(plugin):
        await until("a socket", socket.exists)
        for role in ("storage", ""):
            report = await Kit(socket, quantity=quantity, role=role, machine=kep80()).run()
            assert [check for check in report if check.passed is False] == [], role
            whole = {check.name: check.passed for check in report if "Pod" in check.name and "Remove" not in check.name}
            knows = {"cpu": {True}, "memory": {True}, "nic": {True, None}, "knob": {None}}[kind]
            assert set(whole.values()) <= knows, report


async def test_the_kit_finds_what_is_wrong(folder: Path) -> None:
    """A plugin that invents a property, answers for others, loses what it gave and changes while it is read."""
    serial = iter(range(1000))

    def report(_request: Any) -> pb.GetResourcesAllocationResponse:
        return pb.GetResourcesAllocationResponse(pod_resources={f"uid-{next(serial)}": pb.ContainerResources()})

    def allocate(request: Any) -> pb.ResourceAllocationResponse:
        answer = pb.ResourceAllocationResponse()
        answer.allocation_result.resource_allocation["odd"].oci_property_name = "Nonsense"
        answer.allocation_result.resource_allocation["odd"].allocation_result = str(next(serial))
        return answer

    hints = lambda _request: pb.ResourceHintsResponse(pod_uid="somebody")  # noqa: E731
    answers = {"GetTopologyHints": hints, "Allocate": allocate, "GetResourcesAllocation": report}
    async with serving_raw(folder, "odd", answers):
        found = {check.name: check for check in await Kit(folder / "r" / "odd.sock").run()}
    failed = {name for name, check in found.items() if check.passed is False}
    assert failed == {
        "GetTopologyHints gives hints or no preference",
        "Allocate gives what can be applied",
        "Allocate gives the same when asked again",
        "GetResourcesAllocation reports the allocation",
        "reading changes nothing",
        "GetTopologyAwareResources answers",
        "GetTopologyAwareAllocatableResources answers",
        "PreStartContainer answers with a message",
        "two pods of two containers hold their own",
        "RemovePod releases",
        "RemovePod releases a whole pod",
        "RemovePod of an unknown pod is fine",
    }
    assert "unknown property 'Nonsense'" in found["Allocate gives what can be applied"].detail
    assert "it answered about pod uid 'somebody'" in found["GetTopologyHints gives hints or no preference"].detail


def knob(name: str, value: object) -> Allocation:
    return Allocation(property=name, result=str(value), quantity=1)


ALLOCATE, HINTS = "Allocate gives what can be applied", "GetTopologyHints gives hints or no preference"
CAPACITY, PODS = "GetTopologyAwareAllocatableResources answers", "two pods of two containers hold their own"
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a NUMA node that is not there": (HINTS, {"hints": lambda _request: (Hint(NumaSet.of(77), True),)}),
    "CPUs that are not there": (ALLOCATE, {"given": knob("CpusetCpus", "0-999")}),
    "CPUs that are no list": (ALLOCATE, {"given": knob("CpusetCpus", "0-x")}),
    "memory that is not there": (ALLOCATE, {"given": knob("CpusetMems", "9")}),
    "a negative capacity": (CAPACITY, {"capacity": lambda: Capacity(-2.5, node=True)}),
    "an endless capacity": (CAPACITY, {"capacity": lambda: Capacity(float("inf"), node=True)}),
    "no number": (CAPACITY, {"capacity": lambda: Capacity(float("nan"), node=True)}),
    "half a unit": (CAPACITY, {"capacity": lambda: Capacity(2.5, node=True)}),
    "capacity of a node that is not there": (CAPACITY, {"capacity": lambda: Capacity(4, by_numa={77: 4.0}, node=True)}),
    "a variable without a name": (ALLOCATE, {"given": Allocation(quantity=1, envs={"A=B": "1"})}),
    "an endless variable": (ALLOCATE, {"given": Allocation(quantity=1, envs={"A": "x" * 200_000})}),
    "a relative mount": (ALLOCATE, {"given": Allocation(quantity=1, mounts=(MountSpec("in", "/out"),))}),
    "a score beyond the kernel's": (ALLOCATE, {"given": knob("OomScoreAdj", 5000)}),
    "a negative limit": (ALLOCATE, {"given": knob("MemoryLimitInBytes", -5)}),
    "negative shares": (ALLOCATE, {"given": knob("CpuShares", -1)}),
    "another resource": (ALLOCATE, {"given": {"example.com/other": Allocation(quantity=1)}}),
    "nothing of what was asked": (ALLOCATE, {"given": Allocation(quantity=0, scalar=True)}),
    "one CPU for two owners": (
        PODS,
        {"given": Allocation(property="CpusetCpus", result="2-3", exclusive=True, quantity=1)},
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_the_kit_fails_a_plugin_that_a_manager_would_refuse(folder: Path, what: str) -> None:
    check, traits = BROKEN[what]
    plugin = Scripted("x.io/a", **{"given": Allocation(quantity=1), **traits})
    async with running(plugin, Options(folder / "r")):
        report = await Kit(folder / "r" / "x.io_a.sock", machine=kep80()).run()
    assert check in {one.name for one in report if one.passed is False}, report


async def test_the_kit_fails_a_plugin_that_knows_one_pod_only(folder: Path) -> None:
    plugin = Scripted("x.io/a", Allocation(quantity=1))
    allocate = plugin.allocate

    async def forgetful(request: Request) -> Any:
        plugin.book.clear()
        return await allocate(request)

    plugin.allocate = forgetful  # type: ignore[method-assign]
    async with running(plugin, Options(folder / "r")):
        report = await Kit(folder / "r" / "x.io_a.sock").run()
    [wrong] = [one.detail for one in report if one.name == PODS]
    assert "is missing in the report once another pod has come" in wrong


def test_the_kit_says_when_nobody_listens(folder: Path) -> None:
    done = commands.run("qrm", "conformance", f"unix://{folder}/nobody.sock")
    assert done.returncode == 1
    assert "registration answers GetInfo   FAILED" in done.stdout


FORGETFUL = """
import os, sys
from pathlib import Path
from kubeqos.qrm.sdk import Allocation, serve

class Forgetful:
    resource = "x.io/a"

    def __init__(self):
        self.book = {}

    def allocate(self, request):
        held = self.book.setdefault(request.pod_uid, {})
        return held.setdefault(request.container, {"x.io/a": Allocation(quantity=1, envs={"AT": str(os.getpid())})})

    def allocations(self):
        return self.book

    def release(self, pod_uid):
        self.book.pop(pod_uid, None)

serve(Forgetful(), Path(sys.argv[1]))
"""


def test_the_kit_kills_the_plugin_and_starts_it_again(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), "{}")
    (folder / "forgetful.py").write_text(FORGETFUL)
    forgets = [sys.executable, str(folder / "forgetful.py"), str(folder / "r")]
    for name, command, result in (("cpu", cpu.command, "ok"), ("x.io_a", forgets, "FAILED")):
        asked = ["conformance", str(folder / "r" / f"{name}.sock"), "--command", shlex.join(command), "-o", "json"]
        done = CliRunner().invoke(qrm, asked)
        rows = {row["check"]: row for row in json.loads(done.output)}
        assert rows[KILLED]["result"] == result, rows[KILLED]
        assert done.exit_code == (result == "FAILED"), done.output


# ---- The skeleton


def test_a_new_plugin_works_with_its_own_test(folder: Path) -> None:
    plugin, test = write_skeleton("my-thing", folder)
    assert len(plugin.read_text().splitlines()) < 40
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', 'src')}:{plugin.parent}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(test)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_a_wrong_name_or_an_existing_folder_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="'My Thing' cannot be a plugin's name"):
        write_skeleton("My Thing", folder)
    write_skeleton("thing", folder)
    with pytest.raises(InputError, match="exists already"):
        write_skeleton("thing", folder)


async def test_a_state_that_the_plugin_goes_on_changing_is_written_each_time(tmp_path: Path) -> None:
    """`save` may return its own dictionary: it is compared by value with what was written."""

    class Own:
        resource = "example.com/own"

        def __init__(self) -> None:
            self.state: dict[str, str] = {}

        def save(self) -> dict[str, str]:
            return self.state

        def restore(self, state: dict[str, str]) -> None:
            self.state = state

    checkpoint = Checkpoint(tmp_path / "own.state", format="kubeqos-test", version=1)
    plugin = Own()
    servicer = Servicer(plugin, checkpoint)
    servicer.save()
    plugin.state["uid-one"] = "device-1"
    servicer.save()
    again = Own()
    Servicer(again, checkpoint).restore()
    assert again.state == {"uid-one": "device-1"}
