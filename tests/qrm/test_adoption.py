"""Ledger lost, plugin state lost, or both: what runs stays where it runs, and the books say so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.annotations.wellknown import PLUGIN_HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.node.api.sources import LocalPods
from kubeqos.plugins.managers import ContainerKind, ContainerRef, LiveContainer
from kubeqos.qrm.allocations import Allocations
from kubeqos.qrm.asking import Placement
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.sdk import Allocation, Options, Request, running
from tests.qrm.harness import QrmNode, pod, qrm_node, until
from tests.qrm.live import Scripted, cpus

CONFIG = """
reserved: "0-1,40-41"
pools:
  online: {size: 16}
roles:
  web: {pool: online}
  pinned: {dedicated: true, fullCores: true}
  storage: {dedicated: true, numa: bind}
advisor: {policy: fixed}
"""
PODS = [
    pod("web", "web", cpu="2"),
    pod("rest", cpu="1"),
    pod("early", "pinned", cpu="4"),
    pod("late", "pinned", cpu="2"),
    pod("bound", "storage", cpu="6"),
]


def plugin() -> CpuPlugin:
    return CpuPlugin(kep80(), read_config(CONFIG, CpuConfig, "test"))


def sets(node: QrmNode) -> dict[str, str]:
    return {one["metadata"]["name"]: str(node.resources(one["metadata"]["uid"])["cpuset_cpus"]) for one in PODS[:]}


@pytest.mark.parametrize("lost", ["ledger", "plugin", "both", "neither"])
@pytest.mark.proves("qrm-pools", "restart")
async def test_whatever_is_lost_everybody_stays_where_he_is(folder: Path, lost: str) -> None:
    runtime, pods, state = SimulatedRuntime(kep80(), logs=False), LocalPods(), folder / "cpu.state"
    first = plugin()
    async with qrm_node(folder, kep80(), runtime=runtime) as node, running(first, Options(folder / "r", state=state)):
        await node.plugins("cpu")
        gone = pod("gone", "pinned", cpu="2")
        await node.run(gone)  # leaves a hole, so that those who come again in the same order would not get the same
        for raw in PODS:
            await node.run(raw)
            pods.set(raw)
        node.remove("uid-gone")
        await until("the hole is there", lambda: "uid-gone" not in node.agent.admission.entries)
        assert not hasattr(first.resize({"online": CpuSet.parse("50-61")}), "violations")
        await until("web has moved", lambda: sets(node)["web"] == "50-61")
        await until("the rest follows", lambda: "50" not in sets(node)["rest"])
        before = sets(node)
    if lost in ("ledger", "both"):
        shutil.rmtree(folder / "node")
    if lost in ("plugin", "both"):
        state.unlink()
    second = plugin()
    async with (
        qrm_node(folder, kep80(), runtime=runtime, pods=pods) as node,
        running(second, Options(folder / "r", state=state)),
    ):
        await node.plugins("cpu")
        await until("all are admitted", lambda: len(node.agent.admission.entries) == len(PODS))
        await until("the plugin knows all", lambda: len(second.state.entries) == len(PODS))
        await node.manager.reconcile()
        assert sets(node) == before
        assert node.calls == [], "nobody was told anything"
        book = second.allocations()
        assert {name: book[f"uid-{name}"]["container0"]["cpu"].result for name in before} == before
        new = await node.run(pod("new", "pinned", cpu="4"))
        others = CpuSet.parse(",".join(sets(node).values()))
        assert not CpuSet.parse(str(new["cpuset_cpus"])) & others
    await runtime.close()


APP = ContainerRef("uid-a", "main", ContainerKind.APP, 0)
OTHER = ContainerRef("uid-b", "main", ContainerKind.APP, 0)


def created(ref: ContainerRef, given: Allocation) -> str:
    """The annotation that a container is created with."""
    made = Allocations()
    made.put(made.open(ref, Placement()), "cpu", {"cpu": given})
    holding = made.get(ref.pod_uid, ref.name)
    assert holding is not None
    grant: Any = holding.grant()
    return str(grant.annotations[PLUGIN_HOLDINGS_ANNOTATION])


def test_where_it_runs_now_counts_and_not_where_it_was_created() -> None:
    mark = created(APP, cpus("2-5", exclusive=True, envs={"A": "1"}))
    books = Allocations()
    assert books.adopt(APP, LiveContainer({PLUGIN_HOLDINGS_ANNOTATION: mark}, cpus="6-9"))
    holding = books.get("uid-a", "main")
    assert holding is not None and holding.resources == {"cpu": cpus("6-9", exclusive=True, envs={"A": "1"})}
    assert holding.asked == {"cpu"}
    assert not books.adopt(APP, LiveContainer({PLUGIN_HOLDINGS_ANNOTATION: mark})), "it is known already"


def test_nothing_is_adopted_that_somebody_else_owns_or_that_makes_no_sense() -> None:
    books = Allocations()
    mark = created(APP, cpus("2-5", exclusive=True))
    assert books.adopt(APP, LiveContainer({PLUGIN_HOLDINGS_ANNOTATION: mark}))
    other = {PLUGIN_HOLDINGS_ANNOTATION: created(OTHER, cpus("5-6"))}
    assert not books.adopt(OTHER, LiveContainer(other))
    assert books.adopt(OTHER, LiveContainer(other, cpus="6")), "it has moved away"
    for text in ("", "{", "[]", "{}", '{"kind": 3}', mark.replace("2-5", "2-x")):
        assert not Allocations().adopt(APP, LiveContainer({PLUGIN_HOLDINGS_ANNOTATION: text})), text
    assert books.validate() == []


@pytest.mark.parametrize("held", ["10-13", "", "10-12", "10-15", "0-3", "nonsense", "200-203"])
def test_a_plugin_gives_what_is_held_if_it_can_and_else_something_good(held: str) -> None:
    state = CpuState.of(kep80(), read_config(CONFIG, CpuConfig, "test"))
    after = state.allocate(Request("uid", "cpu", 4.0, role="pinned", held=held))
    assert isinstance(after, CpuState)
    given = after.allocation(("uid", "main"))
    assert given is not None and len(CpuSet.parse(given.result)) == 4
    assert (given.result == held) == (held == "10-13")


async def test_whom_no_plugin_gives_cpus_runs_on_what_nobody_owns(folder: Path) -> None:
    def given(request: Request) -> Allocation:
        return cpus("2-5", exclusive=True) if request.role == "pinned" else cpus("")

    book = Scripted("cpu", given)
    async with qrm_node(folder, kep80()) as node, running(book, Options(folder / "r")):
        await node.plugins("cpu")
        assert "cpuset_cpus" not in await node.run(pod("rest", cpu="1")), "nobody owns anything: it runs anywhere"
        assert (await node.run(pod("owner", "pinned", cpu="4")))["cpuset_cpus"] == "2-5"
        assert node.resources("uid-rest")["cpuset_cpus"] == "0-1,6-79"
        assert (await node.run(pod("late", cpu="1")))["cpuset_cpus"] == "0-1,6-79"
        node.remove("uid-owner")
        await until("it may run anywhere again", lambda: not node.agent.admission.unthrottled())


async def test_a_plugin_that_placed_what_runs_is_waited_for_by_everybody(folder: Path) -> None:
    """Ledger lost, plugin not back yet: nobody starts unpinned meanwhile, also who asks for nothing."""
    runtime, pods = SimulatedRuntime(kep80(), logs=False), LocalPods()
    options = Options(folder / "r", state=folder / "cpu.state")
    async with qrm_node(folder, kep80(), runtime=runtime) as node, running(plugin(), options):
        await node.plugins("cpu")
        raw = pod("early", "pinned", cpu="4")
        before = await node.run(raw)
        pods.set(raw)
    shutil.rmtree(folder / "node")
    async with qrm_node(folder, kep80(), runtime=runtime, pods=pods) as node:
        pods.set(pod("rest"))
        await until("it waits and says for whom", lambda: any("plugin cpu" in message for _, message in node.told))
        assert not node.running("uid-rest")
        async with running(plugin(), options):
            await node.until_running("uid-rest")
            assert node.resources("uid-early") == before
            mine = CpuSet.parse(str(before["cpuset_cpus"]))
            assert not CpuSet.parse(str(node.resources("uid-rest")["cpuset_cpus"])) & mine
    await runtime.close()
