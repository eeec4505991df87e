"""Defects of other implementations that have no place in the story of one component: each test fails if we had it.

The whole list, with the tests that are elsewhere, is in docs/qrm.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import kep80
from kubeqos.node.config import configuration as nodeconfig
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm.answers import PROPERTIES
from kubeqos.qrm.messages import SERVICE
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk import Allocation, Kind, Options, Refuse, Request, running
from kubeqos.qrm.sdk.values import request_from_wire
from kubeqos.topology.alignment.hints import Hint, Offer, Policy
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.answers import Unsatisfiable
from tests.qrm.harness import PluginProcess, plugin_processes, pod, qrm_node, until
from tests.qrm.live import QUICK, Scripted, bench, cpus
from tests.shared import commands

# ---- The protocol


async def test_t05_prestart_answers_with_a_message_also_when_nobody_asked_for_it(folder: Path) -> None:
    async with (
        running(Scripted("cpu", Allocation(quantity=100)), Options(folder / "r")),
        dial(folder / "r" / "cpu.sock") as channel,
    ):
        asked = pb.PreStartContainerRequest(pod_uid="uid", container_name="main")
        path = f"/{SERVICE}/PreStartContainer"
        answer = await call(channel, path, asked, pb.PreStartContainerResponse, seconds=5)
        assert answer == pb.PreStartContainerResponse()


def test_t08_an_ephemeral_container_is_known_as_one() -> None:
    """The node agent runs none; managers that do may say so."""
    asked = request_from_wire(pb.ResourceRequest(container_type=pb.EPHEMERAL, resource_name="cpu"))
    assert asked.kind is Kind.EPHEMERAL
    state = _state("roles: {storage: {dedicated: true, numa: bind}}")
    main = state.allocate(Request("a", "cpu", 4, role="storage", hint=Hint(NumaSet.of(0), True)))
    assert isinstance(main, CpuState)
    after = main.allocate(Request("a", "cpu", 0, container="debug", kind=Kind.EPHEMERAL, role="storage"))
    assert isinstance(after, CpuState)
    assert after.allocation(("a", "debug")) == main.allocation(("a", "main"))


# ---- The manager


async def test_t18_a_period_without_change_calls_and_writes_nothing(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    async with qrm_node(folder, kep80()) as node, running(plugin, Options(folder / "r")):
        await node.plugins("cpu")
        for name in ("web", "api"):
            await node.run(pod(name, cpu="1"))

        def written() -> dict[str, int]:
            return {file.name: file.stat().st_mtime_ns for file in (folder / "node").iterdir() if file.is_file()}

        def rounds() -> float:
            [family] = node.manager.metrics.reconciles.collect()
            return next(one.value for one in family.samples if one.name.endswith("_count"))

        before, start = written(), rounds()
        assert before
        await until("five periods", lambda: rounds() >= start + 5)
        assert written() == before
        assert node.calls == []


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
async def test_t23_a_flipped_byte_costs_nobody_anything(folder: Path, where: float) -> None:
    """The node agent stays up, everybody keeps their CPUs, and nobody else gets them."""
    runtime = SimulatedRuntime(kep80(), logs=False)
    cpu = PluginProcess(folder, "cpu", kep80(), "roles: {storage: {dedicated: true, numa: bind}}\n")
    pods = [pod(name, "storage", cpu="4") for name in ("web", "db")]
    with plugin_processes(cpu):
        async with qrm_node(folder, kep80(), runtime=runtime) as node:
            await node.plugins("cpu")
            held = [(await node.run(raw))["cpuset_cpus"] for raw in pods]
        [ledger] = (folder / "node").glob("*ledger*.json")
        text = bytearray(ledger.read_bytes())
        text[int(len(text) * where)] ^= 0x01
        ledger.write_bytes(text)
        async with qrm_node(folder, kep80(), runtime=runtime) as node:
            for raw in pods:
                node.submit(raw)
            await node.plugins("cpu")
            await until("both are known", lambda: len(node.manager.allocations.pods) == 2)
            new = await node.run(pod("new", "storage", cpu="4"))
            assert [node.resources(raw["metadata"]["uid"])["cpuset_cpus"] for raw in pods] == held
            assert len({*held, new["cpuset_cpus"]}) == 3
            assert any("damaged" in file.name for file in (folder / "node").iterdir())
    await runtime.close()


async def test_t26_a_dead_plugin_is_noticed_although_its_socket_remains(folder: Path) -> None:
    """Nobody calls it: the connection ends. That is when its grace begins."""
    now = [1000.0]
    cpu = PluginProcess(folder, "cpu", kep80(), "{}")
    async with bench(folder, QUICK, clock=lambda: now[0]) as node:
        with plugin_processes(cpu):
            await node.usable("cpu")
            cpu.kill()
            assert (folder / "r" / "cpu.sock").exists()
            await node.gone("cpu")
        assert node.manager.conditions() == {
            "ResourcePluginsReady": ("False", "ResourcePluginNotReady", "plugin cpu is not connected")
        }
        endpoint = node.manager.endpoints.get("cpu")
        assert endpoint is not None and endpoint.stopped_at == now[0]


def test_t29_one_preferred_hint_is_enough_wherever_it_stands() -> None:
    aligned = ("cpu", "memory", "hugepages")
    for lucky in aligned:
        offers = [Offer("qrm", name, (Hint(NumaSet.of(0), name == lucky),)) for name in aligned]
        merged = merge(offers, NumaSet.of(0, 1), Policy.NUMERIC, aligned=aligned)
        assert merged.admitted, (lucky, merged.because)
    nobody = [Offer("qrm", name, (Hint(NumaSet.of(0), False),)) for name in aligned]
    assert not merge(nobody, NumaSet.of(0, 1), Policy.NUMERIC, aligned=aligned).admitted


def test_t30_the_defaults_start() -> None:
    """A node without a topology policy starts; one for plugins has one, and says so when it is taken away."""
    assert nodeconfig.load().topology_policy is Policy.NONE
    assert nodeconfig.load(flags={"profile": "qrm"}).topology_policy is Policy.BEST_EFFORT
    done = commands.run("node", "--profile", "qrm", "--topology-manager-policy", "")
    assert done.returncode != 0 and "topologyManagerPolicy" in done.stderr and "Traceback" not in done.stderr


async def test_t31_the_same_allocation_gives_the_same_container_on_every_way(folder: Path) -> None:
    """Given at creation, told to a running container, and given again to one that is made anew after a restart."""
    wanted = {
        "cpu": cpus("4-7", 4),
        "mems": Allocation(property="CpusetMems", result="0"),
        "limit": Allocation(property="MemoryLimitInBytes", result=str(1 << 30)),
        "shares": Allocation(property="CpuShares", result="99"),
        "quota": Allocation(property="CpuQuota", result="50000"),
        "oom": Allocation(property="OomScoreAdj", result="-7"),
        "files": Allocation(property="Unified", result='{"io.weight":"50"}'),
        "pages": Allocation(property="HugepageLimits", result='{"2MB":4194304,"1GB":0}'),
        "period": Allocation(property="CpuPeriod", result="90000"),
        "swap": Allocation(property="MemorySwapLimitInBytes", result=str(2 << 30)),
    }
    assert {one.property for one in wanted.values()} == set(PROPERTIES)  # all that CRI has
    other = {**wanted, "cpu": cpus("0-3", 4), "mems": Allocation(property="CpusetMems", result="1")}
    other |= {"limit": Allocation(property="MemoryLimitInBytes", result=str(1 << 20))}
    names = sorted({field.name for field in PROPERTIES.values()} - {"unified", "hugepage_limits"})
    runtime = SimulatedRuntime(kep80(), logs=False)
    plugin = Scripted("cpu", lambda request: wanted if request.pod == "created" else other)
    options = Options(folder / "r")

    async with qrm_node(folder, kep80(), runtime=runtime) as node, running(plugin, options):
        await node.plugins("cpu")
        created = await node.run(pod("created", cpu="1"))
        assert (await node.run(pod("told", cpu="1")))["cpuset_cpus"] == "0-3"
        plugin.book["uid-told"]["container0"] = wanted
        await until("told", lambda: node.resources("uid-told")["cpuset_cpus"] == "4-7")
        told = node.resources("uid-told")
        assert {name: told.get(name) for name in names} == {name: created.get(name) for name in names}
        assert _pages(node.calls[-1].linux) == _pages(node.config("uid-created").linux.resources) == PAGES
        [running_now] = node._containers("uid-told")
        await runtime.stop_container(running_now.id, grace_seconds=0)
        await runtime.remove_container(running_now.id)
    async with qrm_node(folder, kep80(), runtime=runtime) as node:
        for name in ("created", "told"):
            node.submit(pod(name, cpu="1"))
        await node.until_running("uid-told")
        again = node.config("uid-told").linux.resources
        assert {name: getattr(again, name) for name in names} == {name: created.get(name) for name in names}
        assert again.unified["io.weight"] == "50"
        assert _pages(again) == PAGES
    await runtime.close()


PAGES = {"2MB": 4194304, "1GB": 0}


def _pages(resources: cri.LinuxContainerResources) -> dict[str, int]:
    return {one.page_size: one.limit for one in resources.hugepage_limits}


async def test_t32_a_pod_that_does_not_fit_is_never_started(folder: Path) -> None:
    def no(_request: Request) -> Allocation:
        raise Refuse("sold out")

    plugin = Scripted("x.io/a", no)
    async with qrm_node(folder, kep80()) as node, running(plugin, Options(folder / "r")):
        await node.plugins("x.io/a")
        assert "sold out" in await node.refused(pod("web", **{"x.io/a": "1"}))
        await asyncio.sleep(0.3)  # several periods
        assert not node.runtime.core.sandboxes and not node.runtime.core.containers


# ---- The CPU plugin


def _state(text: str) -> CpuState:
    return CpuState.of(kep80(), read_config(text, CpuConfig, "cpu.yaml"))


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 79), max_size=20),
    st.lists(st.tuples(st.sampled_from(["web", "storage", ""]), st.integers(1, 9)), max_size=8),
    st.integers(2, 30),
)
def test_t33_reserved_cpus_are_in_nobodys_set(reserved: set[int], pods: list[tuple[str, int]], size: int) -> None:
    kept = CpuSet.from_ids(reserved)
    text = f"reserved: {str(kept)!r}\npools: {{web: {{size: 10}}}}\nroles: {{web: {{pool: web}}, "
    state = _state(text + "storage: {dedicated: true, numa: bind}}")
    for number, (role, count) in enumerate(pods):
        after = state.allocate(Request(f"pod-{number}", "cpu", count, role=role))
        state = state if isinstance(after, Unsatisfiable) else after
    resized = state.resize({"web": size})
    for one in (state, state if isinstance(resized, Unsatisfiable) else resized):
        for containers in one.allocations().values():
            for given_ in containers.values():
                assert not CpuSet.parse(given_["cpu"].result) & kept


@pytest.mark.parametrize(
    "role",
    ["{dedicated: true, numa: bind, evenly: true, fullCores: true}", "{dedicated: true, numa: bind, evenly: true}"],
)
def test_t34_every_numa_node_must_be_able_to_give_its_part(role: str) -> None:
    """NUMA node 1 has CPUs enough, but none whose sibling is free; or too few of them."""
    halves = ",".join(str(cpu) for cpu in range(41, 80, 2)) if "fullCores" in role else "50-79"
    able, unable = (_state(f"reserved: {text!r}\nroles: {{big: {role}}}") for text in ("", halves))
    ask = Request("a", "cpu", 48, role="big", hint=Hint(NumaSet.of(0, 1), True))
    after = able.allocate(ask)
    assert isinstance(after, CpuState)
    given_ = after.allocation(("a", "main"))
    assert given_ is not None and given_.result == "0-23,40-63" and given_.assignments == {0: 24, 1: 24}
    assert unable.hints(ask) == ()
    assert isinstance(unable.allocate(ask), Unsatisfiable)


def test_t34_an_odd_number_has_no_equal_parts() -> None:
    state = _state("roles: {big: {dedicated: true, numa: bind, evenly: true}}")
    assert state.hints(Request("a", "cpu", 49, role="big")) == ()
    assert state.hints(Request("a", "cpu", 9, role="big")) == tuple(Hint(NumaSet.of(node), True) for node in (0, 1))


def test_t35_cpu_and_numa_ids_cannot_be_mixed() -> None:
    mixed: Any = NumaSet.of(0)
    with pytest.raises(TypeError):
        CpuSet.of(0) & mixed


# ---- Concurrency and values


async def test_t38_containers_that_are_allocated_at_once_get_ids_of_their_own(folder: Path) -> None:
    class Ids:
        """Looks for a free id, thinks, and takes it: wrong, unless calls come one at a time."""

        resource = "x.io/id"

        def __init__(self) -> None:
            self.taken: list[int] = []

        async def allocate(self, _request: Request) -> Allocation:
            free = next(number for number in range(100) if number not in self.taken)
            await asyncio.sleep(0.001)
            self.taken.append(free)
            return Allocation(result=str(free), envs={"ID": str(free)})

    async with running(Ids(), Options(folder / "r")), dial(folder / "r" / "x.io_id.sock") as channel:

        async def allocate(number: int) -> str:
            asked = pb.ResourceRequest(pod_uid="uid", container_name=f"c{number}", resource_name="x.io/id")
            answer = await call(channel, f"/{SERVICE}/Allocate", asked, pb.ResourceAllocationResponse, seconds=5)
            assert answer.container_name == f"c{number}"
            return str(answer.allocation_result.resource_allocation["x.io/id"].envs["ID"])

        found = await asyncio.gather(*map(allocate, range(20)))
    assert sorted(map(int, found)) == list(range(20))


@pytest.mark.parametrize("score", [-300, 1000])
async def test_t39_an_oom_value_reaches_the_runtime_as_it_was_written(folder: Path, score: int) -> None:
    config = f"roles: {{kept: {{knobs: {{OomScoreAdj: {score}}}}}}}\n"
    memory = PluginProcess(folder, "memory", kep80(), config)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(memory):
            await node.plugins("memory")
            assert (await node.run(pod("web", "kept", memory="1Gi")))["oom_score_adj"] == score
