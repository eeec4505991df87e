"""Scope `pod`: plugins that know pods give to the pod as a whole, others to its containers, all under one hint. And
policy `numeric`, under which each resource has a hint of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import kep80
from kubeqos.node.api.sources import LocalPods
from kubeqos.plugins.managers import Refusal
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reports import container_resources
from kubeqos.qrm.sdk import Allocation, Hint, Options, Request, running
from kubeqos.topology.alignment.hints import Policy, Scope
from kubeqos.topology.alignment.merge import merge
from tests.qrm.harness import (
    PluginProcess,
    admitted,
    container,
    plugin_processes,
    pod,
    pod_of,
    qrm_node,
    refs,
    until,
)
from tests.qrm.live import NUMA_0, NUMA_1, Bench, Scripted, bench, cpus, serving_raw

TWO = [container("a", cpu="6"), container("b", cpu="2")]
ROLES = 'reserved: "0-1,40-41"\nroles: {storage: {dedicated: true, numa: bind}}\n'


class OfPods(Scripted):
    """Knows pods; gives the CPUs of NUMA node 0 to each of them."""

    def __init__(self, resource: str, given: Any, **traits: Any) -> None:
        super().__init__(resource, given, hints=lambda _request: (NUMA_0, NUMA_1), **traits)
        self.hinted: list[Request] = []

    def pod_hints(self, request: Request) -> tuple[Hint, ...]:
        self.hinted.append(request)
        return (NUMA_0,)

    async def allocate_pod(self, request: Request) -> Any:
        return await self.allocate(request)


async def whole(node: Bench, raw: dict[str, Any], policy: Policy = Policy.RESTRICTED) -> Any:
    """Admit a pod as the agent does in scope `pod`."""
    known = admitted(raw)
    merged = merge(await node.manager.pod_offers(known), kep80().numa, policy)
    assert merged.admitted, merged.because
    outcome = await node.manager.allocate_unit(known, refs(known), merged, Scope.POD)
    for name, grant in ({} if isinstance(outcome, Refusal) else outcome).items():
        node.containers.created((known.uid, name), grant)
    return outcome


def held(node: Bench, name: str, resource: str = "cpu", uid: str = "uid-web") -> str:
    holding = node.manager.allocations.get(uid, name)
    assert holding is not None
    return holding.resources[resource].result


async def test_a_plugin_that_knows_pods_is_asked_once_for_all_containers(folder: Path) -> None:
    plugin = OfPods("cpu", cpus("0-7", 8, exclusive=True))
    async with qrm_node(folder, kep80(), scope=Scope.POD) as node, running(plugin, Options(folder / "r")):
        await node.plugins("cpu")
        node.submit(pod_of("web", TWO, "online"))
        await until("both", lambda: len(node._containers("uid-web")) == 2)
        assert [node.resources("uid-web", name)["cpuset_cpus"] for name in "ab"] == ["0-7", "0-7"]
        for name in "ab":  # for the Pod Resources server
            shown = await container_resources(node.manager.endpoints, "uid-web", name)
            assert shown.resources["cpu"].aggregated_quantity == 8
    [hinted], [asked] = plugin.hinted, plugin.asked
    assert (hinted.container, hinted.quantity, hinted.role) == ("", 8.0, "online")
    assert (asked.container, asked.quantity, asked.hint) == ("", 8.0, NUMA_0)


async def test_init_containers_share_too_and_count_when_they_need_more(folder: Path) -> None:
    plugin = OfPods("cpu", cpus("0-11", 12))
    async with bench(folder) as node, node.plugin(plugin):
        grants = await whole(node, pod_of("web", TWO, init=[container("setup", cpu="12")]))
        assert {name: grant.properties["cpuset_cpus"] for name, grant in grants.items()} == dict.fromkeys(
            ("setup", "a", "b"), "0-11"
        )
    assert [one.quantity for one in plugin.asked] == [12.0]


async def test_what_a_pod_was_given_changes_for_all_its_containers(folder: Path) -> None:
    plugin = OfPods("cpu", cpus("0-7", 8))
    async with bench(folder) as node, node.plugin(plugin):
        await whole(node, pod_of("web", TWO))
        assert await node.told() == []
        plugin.book["uid-web"][""]["cpu"] = cpus("0-9", 10)
        assert await node.told() == [("uid-web", "0-9"), ("uid-web", "0-9")]


async def test_only_who_asks_shares_in_it(folder: Path) -> None:
    plugin = OfPods("x.io/a", Allocation(envs={"A": "1"}))
    containers = [container("a", **{"x.io/a": "1"}), container("b", cpu="1")]
    async with bench(folder) as node, node.plugin(plugin):
        grants = await whole(node, pod_of("web", containers))
        assert {name: dict(grant.envs) for name, grant in grants.items()} == {"a": {"A": "1"}, "b": {}}


async def test_a_restart_asks_nothing_again_and_a_plugin_that_forgot_is_asked_once(folder: Path) -> None:
    plugin = OfPods("cpu", cpus("0-7", 8, exclusive=True))
    raw = pod_of("web", TWO)
    async with bench(folder) as node, node.plugin(plugin):
        await whole(node, raw)
        saved, before = node.manager.save(), node
    async with bench(folder) as node:
        await node.restore(saved, {"uid-web": admitted(raw)}, before)
        async with node.plugin(plugin):
            assert await node.told() == []
            assert not isinstance(await whole(node, raw), Refusal)
            assert len(plugin.asked) == 1
            plugin.book.clear()
            plugin.given = cpus("10-17", 8, exclusive=True)
            assert await node.told() == [("uid-web", "10-17"), ("uid-web", "10-17")]
    assert [(one.container, one.quantity, one.hint) for one in plugin.asked] == [("", 8.0, NUMA_0)] * 2


async def test_a_plugin_that_does_not_report_pods_is_not_asked_for_ever(folder: Path) -> None:
    """It knows pods, and reports containers alone: what it gave stays."""
    plugin = OfPods("cpu", cpus("0-7", 8))
    plugin.allocations = dict  # type: ignore[method-assign]
    async with bench(folder) as node, node.plugin(plugin):
        await whole(node, pod_of("web", TWO))
        for _ in range(4):
            assert await node.told() == []
        assert [held(node, name) for name in "ab"] == ["0-7", "0-7"]
    assert len(plugin.asked) == 2


async def test_a_pod_that_grows_is_asked_for_as_a_whole(folder: Path) -> None:
    plugin = OfPods("cpu", lambda request: cpus(f"0-{request.quantity - 1:g}", request.quantity))
    small, large = pod_of("web", TWO), pod_of("web", [container("a", cpu="10"), container("b", cpu="2")])
    async with bench(folder) as node, node.plugin(plugin):
        await whole(node, small)
        assert await node.manager.resize(admitted(small), admitted(large)) is None
        assert [held(node, name) for name in "ab"] == ["0-11", "0-11"]
        assert await node.told() == [("uid-web", "0-11"), ("uid-web", "0-11")]


async def test_a_pod_that_does_not_fit_is_refused_by_its_name_and_leaves_nothing(folder: Path) -> None:
    plugin = OfPods("cpu", cpus("0-3", 4))
    async with bench(folder) as node, node.plugin(plugin):
        outcome = await whole(node, pod_of("web", TWO))
        assert isinstance(outcome, Refusal)
        assert outcome.message == "pod web: cpu: plugin cpu gave a wrong answer: cpu: 8 requested, 4 allocated"
        assert node.manager.allocations.pods == frozenset()


@pytest.mark.parametrize("way", ["unimplemented", "katalyst"])
async def test_plugins_that_know_containers_only_are_asked_for_each(folder: Path, way: str) -> None:
    """Katalyst's plugins answer with a plain error where others say UNIMPLEMENTED."""
    asked: list[tuple[str, tuple[int, ...]]] = []

    def allocate(request: Any) -> pb.ResourceAllocationResponse:
        asked.append((request.container_name, tuple(request.hint.nodes)))
        answer = pb.ResourceAllocationResponse()
        info = answer.allocation_result.resource_allocation["cpu"]
        info.oci_property_name, info.allocation_result, info.allocated_quantity = "CpusetCpus", "0-7", 8
        return answer

    def hints(request: Any) -> pb.ResourceHintsResponse:
        assert request.container_name in ("a", "b")
        only = pb.ListOfTopologyHints(hints=[pb.TopologyHint(nodes=[0], preferred=True)])
        return pb.ResourceHintsResponse(resource_hints=[pb.ResourceHintsEntry(key="cpu", value=only)])

    answers: dict[str, Any] = {"GetTopologyHints": hints, "Allocate": allocate}
    if way == "katalyst":
        answers |= {"GetPodTopologyHints": not_implemented, "AllocateForPod": not_implemented}
    async with bench(folder) as node, serving_raw(folder, "cpu", answers):
        await node.usable("cpu")
        for name in ("web", "next"):
            assert not isinstance(await whole(node, pod_of(name, TWO)), Refusal)
        endpoint = node.manager.endpoints.get("cpu")
        assert endpoint is not None and endpoint.lacks == {"GetPodTopologyHints", "AllocateForPod"}
    assert asked == [("a", (0,)), ("b", (0,))] * 2


def not_implemented(_request: Any) -> Any:
    raise NotImplementedError("not implemented")


# ---- The built-in plugins


async def test_a_pods_containers_share_cpus_for_all_of_them_on_its_numa_node(folder: Path) -> None:
    """Container by container, each of these two would fit on NUMA node 0, and both would not."""
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    memory = PluginProcess(folder, "memory", kep80(), "roles: {storage: {numa: bind}}\n")
    small = [container(name, cpu="4", memory="20Gi") for name in "ab"]
    large = [container(name, cpu="30", memory="150Gi") for name in "ab"]
    async with qrm_node(folder, kep80(), scope=Scope.POD) as node:
        with plugin_processes(cpu, memory):
            await node.plugins("cpu", "memory")
            for raw, wanted in (
                (pod_of("web", small, "storage"), ("2-9", "0")),
                (pod_of("big", large, "storage"), ("10-39,42-71", "0-1")),
            ):
                node.submit(raw)
                uid = raw["metadata"]["uid"]
                await until("both", lambda uid=uid: len(node._containers(uid)) == 2)
                found = [node.resources(uid, name) for name in "ab"]
                assert [(one["cpuset_cpus"], one.get("cpuset_mems")) for one in found] == [wanted] * 2
            cpu.kill()
            await until("noticed", lambda: not node.manager.endpoints.get("cpu").live)  # type: ignore[union-attr]
            cpu.start()
            await node.plugins("cpu")
            assert node.calls == []


# ---- Policy numeric


async def test_each_resource_is_allocated_under_its_own_hint(folder: Path) -> None:
    """The CPUs are on node 0; the NIC reaches nodes 0 and 1, and is told so."""
    both = Hint(NumaSet.of(0, 1), True)
    cpu = Scripted("cpu", cpus("0-3"), hints=lambda _request: (NUMA_0,))
    nic = Scripted("x.io/nic", Allocation(envs={"NIC": "eth0"}), hints=lambda _request: (both,))
    options = Options(folder / "r")
    async with (
        qrm_node(folder, kep80(), policy=Policy.NUMERIC) as node,
        running(cpu, options),
        running(nic, options),
    ):
        await node.plugins("cpu", "x.io/nic")
        await node.run(pod("web", cpu="1", **{"x.io/nic": "1"}))
        nic.book.clear()
        await until("asked again", lambda: len(nic.asked) == 2)
    assert [one.hint for one in cpu.asked] == [NUMA_0]
    assert [one.hint for one in nic.asked] == [both, both]


async def test_another_scope_after_a_restart_moves_nobody_and_books_nothing_twice(folder: Path) -> None:
    """Scope `pod`, then `container`, then `pod` again: who runs keeps what it has, who comes gets what is left."""
    given: dict[tuple[str, str], str] = {}

    def next_four(request: Request) -> Allocation:
        first = 4 * len(given)
        key = request.pod_uid, request.container
        return cpus(given.setdefault(key, f"{first}-{first + 3}"), request.quantity, exclusive=True)

    plugin, runtime = OfPods("cpu", next_four), SimulatedRuntime(kep80(), logs=False)
    started: list[str] = []
    pods = LocalPods()
    seen: dict[tuple[str, str], str] = {}
    async with running(plugin, Options(folder / "r")):
        for number, scope in enumerate((Scope.POD, Scope.CONTAINER, Scope.POD)):
            async with qrm_node(folder, kep80(), scope=scope, runtime=runtime, pods=pods) as node:
                await node.plugins("cpu")
                both = [container("a", cpu="2"), container("b", cpu="2")]
                started.append(uid := pods.set(pod_of(f"p{number}", both)))
                await until("both run", lambda uid=uid: len(node._containers(uid)) == 2 and node.running(uid))
                await node.manager.reconcile()
                now = {(uid, name): str(node.resources(uid, name)["cpuset_cpus"]) for uid in started for name in "ab"}
                assert {key: now[key] for key in seen} == seen, "nobody is moved"
                seen = now
                owned = {uid: {now[uid, "a"], now[uid, "b"]} for uid, _ in now}
                everybody = [text for sets in owned.values() for text in sets]
                assert len(everybody) == len(set(everybody)), "what one pod has is no other's"
                assert node.agent.validate() == [] and node.manager.allocations.validate() == []
    assert [len({seen[f"uid-p{n}", name] for name in "ab"}) for n in range(3)] == [1, 2, 1]
    await runtime.close()
