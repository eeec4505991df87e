"""The manager with real sockets: the KEP's test plan point by point, and the defects of other managers as regressions.

T-numbers are those of the list of known defects that these tests guard against.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from kubeqos.model.annotations.wellknown import PLUGIN_HOLDINGS_ANNOTATION
from kubeqos.plugins.managers import DeviceNode, Mount, NodeResource, Refusal
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm import endpoints
from kubeqos.qrm.messages import REGISTRATION_SERVICE, DeviceSpec, MountSpec, NumaHint
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reports import allocatable_resources, container_resources
from kubeqos.qrm.sdk import Allocation, Capacity, Kind, Options, Refuse, Request, running
from kubeqos.qrm.settings import OnError, QrmSettings
from kubeqos.topology.alignment.hints import ANYWHERE, Hint, Policy
from tests.qrm.harness import admitted, container, pod, pod_of, refs, until
from tests.qrm.live import NUMA_0, QUICK, Scripted, bench, cpus, serving_raw

ALIGNED = (Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE, Policy.NUMERIC)


def refusal(outcome: Any) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


# ---- KEP test plan: discovery and registration


async def test_a_listening_plugin_is_discovered_and_used(folder: Path) -> None:
    async with bench(folder) as node:
        async with node.plugin(Scripted("cpu", cpus("0-3"))):
            [grant] = await node.admit(pod("web", cpu="2"))
            assert grant.properties == {"cpuset_cpus": "0-3"}
        await node.gone("cpu")


async def test_t06_a_plugin_may_push_itself_without_options(folder: Path) -> None:
    async with bench(folder) as node:
        plugin = Scripted("example.com/old", Allocation(quantity=1, scalar=True))
        async with running(plugin, Options(folder / "legacy", "old")):
            channel = dial(folder / "legacy" / "kubelet.sock")
            await until("socket", (folder / "legacy" / "old.sock").exists)
            request = pb.RegisterRequest(version="v1alpha1", endpoint="old.sock", resource_name="example.com/old")
            await call(channel, f"/{REGISTRATION_SERVICE}/Register", request, pb.Empty, seconds=10)
            await channel.close(None)
            await node.usable("example.com/old")
            assert await node.admit(pod("web", **{"example.com/old": "1"}))
        await node.gone("example.com/old")


async def test_a_plugin_pushes_itself_with_the_sdk(folder: Path) -> None:
    async with bench(folder) as node:
        options = Options(folder / "legacy", "old", legacy=folder / "legacy" / "kubelet.sock")
        async with running(Scripted("example.com/old", Allocation(quantity=100)), options):
            await node.usable("example.com/old")


async def test_the_built_in_manager_and_a_plugin_for_the_same_are_refused(folder: Path) -> None:
    async with bench(folder, QrmSettings(built_in=frozenset({"cpu"}))) as node:
        assert node.manager.endpoints.why_not("cpu", ("v1alpha1",)) == (
            "the built-in cpu manager of this node hands out cpu; set its policy to none to use a plugin, "
            "or remove the plugin"
        )
        async with running(Scripted("cpu", cpus("0-3")), Options(folder / "r")):
            [event] = await until("an event", lambda: node.events)
            assert "the built-in cpu manager of this node hands out cpu" in event.message
            assert node.manager.endpoints.get("cpu") is None


async def test_two_plugins_for_one_resource_the_second_is_refused_and_takes_over_later(folder: Path) -> None:
    async with bench(folder) as node:
        endpoints = node.manager.endpoints
        second = Scripted("cpu", cpus("4-7"))
        first = contextlib.AsyncExitStack()
        await first.enter_async_context(node.plugin(Scripted("cpu", cpus("0-3")), name="first"))
        async with running(second, Options(folder / "r", "second")):
            refused = await endpoints.attach("cpu", folder / "r" / "second.sock", node.manager.reconciler.synchronise)
            assert refused == f"resource cpu is served already, by the plugin at {folder / 'r' / 'first.sock'}"
            [event] = await until("an event", lambda: node.events)
            assert event.reason == "ResourcePluginRefused"
            assert event.message == f"plugin cpu at {folder / 'r' / 'second.sock'}: {refused}"
            [grant] = await node.admit(pod("web", cpu="1"))
            assert grant.properties["cpuset_cpus"] == "0-3"
            await first.aclose()
            await until("the second is asked for what runs", lambda: second.asked)
            await node.usable("cpu")
            assert await node.told() == [("uid-web", "4-7")]


# ---- KEP test plan: hints


@pytest.mark.parametrize("policy", ALIGNED)
@pytest.mark.parametrize(
    ("entry", "admits"),
    [
        (bytes.fromhex("0a03637075"), True),  # the key alone: no preference
        (bytes.fromhex("0a036370751200"), False),  # the key and an empty list: nowhere
        (None, True),  # no entry at all
    ],
)
async def test_t01_no_preference_and_impossible_are_told_apart(
    folder: Path, policy: Policy, entry: bytes | None, admits: bool
) -> None:
    answer = b"" if entry is None else b"\x52" + bytes([len(entry)]) + entry
    given = pb.ResourceAllocationResponse()
    given.allocation_result.resource_allocation["cpu"].oci_property_name = "CpusetCpus"
    given.allocation_result.resource_allocation["cpu"].allocation_result = "0-3"
    answers = {"GetTopologyHints": lambda _: answer, "Allocate": lambda _: given}
    async with bench(folder) as node, serving_raw(folder, "cpu", answers):
        await node.usable("cpu")
        outcome = await node.admit(pod("web", cpu="1"), policy)
        assert isinstance(outcome, list) is admits, outcome


async def test_t02_t03_mapped_names_travel_under_the_pods_own_name(folder: Path) -> None:
    name = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
    sent: list[dict[str, float]] = []

    def note(request: Any) -> Any:
        sent.append(dict(request.resource_requests))
        return pb.ResourceAllocationResponse()

    hints: Any = lambda request: (note(request), pb.ResourceHintsResponse())[1]  # noqa: E731
    answers = {"Allocate": note, "GetTopologyHints": hints}
    async with bench(folder, QrmSettings(names={name: "cpu"})) as node, serving_raw(folder, "cpu", answers):
        await node.usable("cpu")
        await node.admit(pod("web", **{name: "2k"}))
    assert sent == [{name: 2000.0}] * 2


@pytest.mark.parametrize("key", ["cpu", "resource.katalyst.kubewharf.io/reclaimed_millicpu"])
async def test_t02_t03_plugins_may_answer_under_either_name(folder: Path, key: str) -> None:
    name = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
    given = cpus("0-1", 2)
    plugin = Scripted("cpu", lambda _request: {key: given}, hints=lambda _request: {key: (NUMA_0,)})
    async with bench(folder, QrmSettings(names={name: "cpu"})) as node, node.plugin(plugin):
        for _ in range(2):  # the second time it is known
            [grant] = await node.admit(pod("web", **{name: "2k"}))
            assert grant.properties["cpuset_cpus"] == "0-1"
            assert await node.told() == []
        assert [(one.quantity, one.hint) for one in plugin.asked] == [(2.0, NUMA_0)]
        outcome = refusal(await node.admit(pod("large", **{name: "3k"})))
        assert "cpu: 3 requested, 2 allocated" in outcome.message


async def test_hints_lead_and_the_merged_one_is_allocated_with(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"), hints=lambda _request: (NUMA_0,))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("web", cpu="1"))
    assert plugin.asked[0].hint == NUMA_0


async def test_t04_t08_requests_say_who_asks(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    raw = pod_of(
        "web",
        [container("side", cpu="1"), container("app", cpu="1")],
        "online",
        annotations={"kubernetes.io/main-container-name": "app", "kubernetes.io/resource-type": "shared"},
        init=[container("setup", cpu="1"), container("proxy", cpu="1") | {"restartPolicy": "Always"}],
    )
    async with bench(folder) as node, node.plugin(plugin):
        grants = await node.admit(raw)
    kinds = {one.container: one.kind for one in plugin.asked}
    assert kinds == {"setup": Kind.INIT, "proxy": Kind.SIDECAR, "side": Kind.SIDECAR, "app": Kind.MAIN}
    assert [grant.properties["cpuset_cpus"] for grant in grants] == ["0-3"] * 4
    assert {(one.qos_class, one.role, one.type) for one in plugin.asked} == {("Burstable", "online", "shared")}


async def test_katalysts_keys_name_roles_too(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    raw = pod("web", cpu="1", annotations={"katalyst.kubewharf.io/pod_type": "kind"})
    raw["metadata"]["labels"] = {"katalyst.kubewharf.io/pod_role": "web"}
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(raw)
    assert (plugin.asked[0].role, plugin.asked[0].type) == ("web", "kind")


async def test_t40_a_broken_enhancement_is_refused_with_its_path(folder: Path) -> None:
    key = "katalyst.kubewharf.io/memory_enhancement"
    async with bench(folder) as node, node.plugin(Scripted("cpu", cpus("0-3"))):
        outcome = refusal(await node.admit(pod("web", cpu="1", annotations={key: "{numa_binding: true"})))
        assert f"metadata.annotations[{key}]: Invalid value" in outcome.message


@pytest.mark.parametrize(
    ("marks", "owner", "asked"),
    [
        ({}, "DaemonSet", False),
        ({"katalyst.kubewharf.io/qos_level": "system_cores"}, "DaemonSet", True),
        ({"katalyst.kubewharf.io/skip_qrm_admit": "true"}, "ReplicaSet", False),
        ({}, "ReplicaSet", True),
    ],
)
async def test_who_is_left_alone(folder: Path, marks: dict[str, str], owner: str, asked: bool) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    raw = pod("web", cpu="1", annotations=marks)
    raw["metadata"]["ownerReferences"] = [{"kind": owner, "name": "x", "uid": "u", "controller": True}]
    async with bench(folder) as node, node.plugin(plugin):
        assert isinstance(await node.admit(raw), list)
    assert bool(plugin.asked) is asked


# ---- KEP test plan: allocation results become LinuxContainerResources


async def test_every_property_by_its_name_and_envs_mounts_devices(folder: Path) -> None:
    given = {
        "cpu": cpus("0-3", envs={"NICE": "1"}, annotations={"a/b": "c"}),
        "cpu-shares": Allocation(property="CpuShares", result="512"),
        "oom": Allocation(property="OomScoreAdj", result="-500"),
        "swap": Allocation(property="MemorySwapLimitInBytes", result="1024"),
        "files": Allocation(property="Unified", result='{"io.weight":"100"}'),
        "vf": Allocation(mounts=(MountSpec("/in", "/out", True),), devices=(DeviceSpec("/dev/vf", "/dev/vf0", "rwm"),)),
    }
    async with bench(folder) as node, node.plugin(Scripted("cpu", given)):
        [grant] = await node.admit(pod("web", cpu="1"))
    assert grant.properties == {
        "cpuset_cpus": "0-3",
        "cpu_shares": 512,
        "oom_score_adj": -500,
        "memory_swap_limit_in_bytes": 1024,
    }
    assert grant.unified == {"io.weight": "100"}
    assert grant.envs == {"NICE": "1"}
    assert (grant.annotations.keys(), grant.annotations["a/b"]) == ({"a/b", PLUGIN_HOLDINGS_ANNOTATION}, "c")
    assert grant.mounts == (Mount("/in", "/out", True),)
    assert grant.devices == (DeviceNode("/dev/vf", "/dev/vf0", "rwm"),)


async def test_a_plugin_may_serve_more_than_one_resource(folder: Path) -> None:
    """It says so in its options; two that serve one resource are refused by both names."""
    plugin = Scripted("gpu", lambda request: {request.resource: Allocation(envs={request.resource: "1"})})
    plugin.extra_resources = ("gpu_memory",)  # type: ignore[attr-defined]
    async with bench(folder) as node, node.plugin(plugin):
        [grant] = await node.admit(pod("web", gpu="1", gpu_memory="2"))
        assert grant.envs == {"gpu": "1", "gpu_memory": "1"}
        assert [(one.resource, one.quantity) for one in plugin.asked] == [("gpu", 1.0), ("gpu_memory", 2.0)]
        assert await node.told() == []
        async with running(Scripted("gpu_memory", Allocation(quantity=100)), Options(folder / "r")):
            [event] = await until("an event", lambda: node.events)
            assert event.message.endswith("plugins gpu and gpu_memory both serve gpu_memory")


async def test_t13_two_plugins_with_one_accompanying_resource(folder: Path) -> None:
    one, two = (Scripted(name, {name: Allocation(quantity=1), "vf": Allocation(quantity=1)}) for name in "ab")
    async with bench(folder) as node, node.plugin(one), node.plugin(two):
        outcome = refusal(await node.admit(pod("web", a="1", b="1")))
    assert "plugins a and b both allocate vf for container container0" in outcome.message


async def test_t14_two_plugins_that_disagree_about_an_env(folder: Path) -> None:
    async with bench(folder) as node:
        one, two = (Scripted(name, Allocation(envs={"X": name})) for name in "ab")
        async with node.plugin(one), node.plugin(two):
            outcome = refusal(await node.admit(pod("web", a="1", b="1")))
    assert "a and b both set env X: 'a' and 'b'" in outcome.message
    assert (one.released, two.released) == (["uid-web"], ["uid-web"])


async def test_t09_a_failed_resource_gives_the_others_back(folder: Path) -> None:
    def no(_request: Request) -> Allocation:
        raise Refuse("sold out")

    async with bench(folder) as node:
        first, second = (Scripted(name, Allocation(quantity=1)) for name in "ab")
        async with node.plugin(first), node.plugin(second), node.plugin(Scripted("z", no)):
            outcome = refusal(await node.admit(pod("web", a="1", b="1", z="1")))
            assert "container container0: z: plugin z: Allocate: sold out" in outcome.message
            assert not outcome.retry
            assert first.released == second.released == ["uid-web"]
            assert node.manager.allocations.pods == frozenset()


async def test_t10_t11_what_happens_without_the_plugin_is_a_setting(folder: Path) -> None:
    settings = QrmSettings(on_error={"b": OnError.IGNORE})
    async with bench(folder, settings) as node:
        async with node.plugin(Scripted("a", Allocation(quantity=100))), node.plugin(Scripted("b", Allocation())):
            pass
        await node.gone("a")
        await node.gone("b")
        outcome = refusal(await node.admit(pod("web", a="1"), Policy.BEST_EFFORT))
        assert outcome.retry and "plugin a is not connected" in outcome.message
        assert await node.admit(pod("web", b="1"))
        [event] = node.events
        assert (event.reason, event.pod_uid) == ("ResourceIgnored", "uid-web")


# ---- KEP test plan: the checkpoint


async def test_t12_a_restart_and_a_reconcile_ask_nothing_again(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"), hints=lambda _request: (NUMA_0,))
    known = admitted(pod("web", cpu="1"))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(known.raw)
        saved = node.manager.save()
    async with bench(folder) as node:
        assert await node.manager.restore(saved, {known.uid: known}) == []
        async with node.plugin(plugin):
            assert await node.told() == []
            [offer] = await node.manager.offers(known, refs(known)[0])
            assert offer.hints == (NUMA_0,)
            assert isinstance(await node.admit(known.raw), list)
    assert len(plugin.asked) == 1


async def test_a_larger_request_is_asked_for_again(folder: Path) -> None:
    plugin = Scripted("cpu", lambda request: cpus("0-7", request.quantity))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("web", cpu="2"))
        await node.admit(pod("web", cpu="2"))
        await node.admit(pod("web", cpu="4"))
    assert [one.quantity for one in plugin.asked] == [2, 4]


async def test_gone_pods_are_released_after_a_restart(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("web", cpu="1"))
        saved = node.manager.save()
    async with bench(folder) as node:
        assert await node.manager.restore(saved, {}) == ["pod uid-web is gone; what it held is given back"]
        assert node.manager.save()["owed"] == {"cpu": ["uid-web"]}
        async with node.plugin(plugin):
            assert plugin.released == ["uid-web"]
            assert node.manager.save()["owed"] == {}


async def test_t23_one_damaged_entry_does_not_cost_the_others(folder: Path) -> None:
    async with bench(folder) as node, node.plugin(Scripted("cpu", cpus("0-3"))):
        await node.admit(pod("web", cpu="1"))
        await node.admit(pod("other", cpu="1"))
        saved = node.manager.save()
        saved["pods"]["uid-web"]["container0"]["resources"]["cpu"]["allocated_quantity"] = "much"
    async with bench(folder) as node:
        everybody = {f"uid-{name}": admitted(pod(name, cpu="1")) for name in ("web", "other")}
        [repair] = await node.manager.restore(saved, everybody)
        assert repair.startswith("pod uid-web container container0")
        assert node.manager.allocations.pods == {"uid-other"}


async def test_t25_t27_a_release_waits_for_a_plugin_that_is_away(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    async with bench(folder) as node:
        async with node.plugin(plugin):
            await node.admit(pod("web", cpu="1"))
        await node.gone("cpu")
        await node.manager.release("uid-web")
        assert node.manager.allocations.pods == frozenset()
        assert plugin.released == []
        async with node.plugin(plugin):
            assert plugin.released == ["uid-web"]


async def test_a_plugin_that_does_not_take_back_holds_up_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs in RemovePod: the first release waits for it a little, the others not at all; all are repeated."""
    monkeypatch.setattr(endpoints, "RELEASE_SECONDS", 0.1)
    done = asyncio.Event()

    class Clinging(Scripted):
        async def release(self, pod_uid: str) -> None:  # type: ignore[override]
            await done.wait()
            super().release(pod_uid)

    async with bench(folder) as node, node.plugin(Clinging("cpu", cpus("0-3"))) as plugin:
        for name in "abc":
            await node.admit(pod(name, cpu="1"))
        for name in "abc":
            await node.manager.release(f"uid-{name}")
        assert node.manager.save()["owed"] == {"cpu": ["uid-a", "uid-b", "uid-c"]}
        done.set()
        await until("all are released", lambda: not node.manager.save()["owed"])
        assert sorted(plugin.released) == ["uid-a", "uid-b", "uid-c"]


async def test_a_pod_that_is_tried_again_is_not_released_afterwards(folder: Path) -> None:
    """Its last attempt's release was not acknowledged; the plugin must not hear of it after the new attempt."""
    failing = [True]

    class Clumsy(Scripted):
        def release(self, pod_uid: str) -> None:
            if failing:
                raise RuntimeError("not now")
            super().release(pod_uid)

    async with bench(folder) as node, node.plugin(Clumsy("cpu", cpus("0-3"))) as plugin:
        await node.admit(pod("web", cpu="1"))
        await node.manager.release("uid-web")
        assert node.manager.save()["owed"] == {"cpu": ["uid-web"]}
        failing.clear()
        assert isinstance(await node.admit(pod("web", cpu="1")), list)
        await node.manager.reconcile()
        assert plugin.released == [] and "uid-web" in plugin.book


async def test_everything_is_counted(folder: Path) -> None:
    """Calls, allocations, reconciles, updates, drift, releases that are owed, and who is up."""

    def some(request: Request) -> Allocation:
        if request.pod == "greedy":
            raise Refuse("sold out")
        return cpus("0-3")

    async with bench(folder) as node:
        async with node.plugin(Scripted("cpu", some)) as plugin:
            await node.admit(pod("web", cpu="1"))
            refusal(await node.admit(pod("greedy", cpu="1")))
            plugin.book["uid-web"]["container0"]["cpu"] = cpus("4-7")
            assert await node.told() == [("uid-web", "4-7")]
            plugin.book["uid-web"]["container0"]["cpu"] = cpus("0-500")
            await node.told()
        await node.gone("cpu")
        await node.manager.release("uid-web")
        text = generate_latest(node.manager.metrics.registry).decode()
    for line in (
        'kubeqos_qrm_call_seconds_count{code="OK",method="Allocate",plugin="cpu"} 1.0',
        'kubeqos_qrm_call_seconds_count{code="FAILED_PRECONDITION",method="Allocate",plugin="cpu"} 1.0',
        'kubeqos_qrm_call_seconds_count{code="OK",method="RemovePod",plugin="cpu"} 1.0',
        'kubeqos_qrm_allocations_total{outcome="allocated",resource="cpu"} 1.0',
        'kubeqos_qrm_allocations_total{outcome="refused",resource="cpu"} 1.0',
        "kubeqos_qrm_reconcile_seconds_count 2.0",
        "kubeqos_qrm_updates_total 1.0",
        'kubeqos_qrm_drift_total{kind="nonsense",plugin="cpu"} 1.0',
        'kubeqos_qrm_releases_owed{plugin="cpu"} 1.0',
        'kubeqos_qrm_plugin_up{plugin="cpu"} 0.0',
    ):
        assert line in text, text


# ---- KEP test plan: reconcileState


async def test_t18_only_changes_are_told_and_only_once(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("web", cpu="1"))
        await node.admit(pod("other", cpu="1"))
        assert await node.told() == []
        plugin.book["uid-web"]["container0"]["cpu"] = cpus("4-7")
        saved = node.manager.save()
        assert await node.told() == [("uid-web", "4-7")]
        assert node.manager.save() != saved
        assert await node.told() == []


async def test_t15_a_container_is_created_with_what_it_would_be_told(folder: Path) -> None:
    plugin = Scripted("cpu", {"cpu": cpus("0-3"), "shares": Allocation(property="CpuShares", result="99")})
    async with bench(folder) as node, node.plugin(plugin):
        [created] = await node.admit(pod("web", cpu="1"))
        plugin.book["uid-web"]["container0"]["cpu"] = cpus("4-7")
        await node.manager.reconcile()
        [update] = node.containers.updates(node.manager.grants())
        assert update.grant.properties == {**created.properties, "cpuset_cpus": "4-7"}


async def test_t19_a_plugin_that_forgot_is_asked_again_under_the_same_hint(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"), hints=lambda _request: (NUMA_0,))
    known = admitted(pod("web", cpu="1"))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(known.raw)
        saved, before = node.manager.save(), node
    async with bench(folder) as node:
        await node.restore(saved, {known.uid: known}, before)
        plugin.book.clear()
        async with node.plugin(plugin):
            assert [one.hint for one in plugin.asked] == [NUMA_0] * 2
            assert await node.told() == []


async def test_roles_are_known_before_the_api_server_is_there(folder: Path) -> None:
    """A node that starts alone asks a plugin that forgot for the right role, from its own checkpoint."""
    plugin = Scripted("cpu", cpus("0-3"))
    raw = pod("web", "online", cpu="1")
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(raw)
        saved = node.manager.save()
    del raw["metadata"]["annotations"]
    plugin.book.clear()
    async with bench(folder) as node:
        await node.manager.restore(saved, {"uid-web": admitted(raw)})
        async with node.plugin(plugin):
            assert [one.role for one in plugin.asked] == ["online", "online"]


async def test_a_sidecar_that_waits_for_its_main_container_is_told_later(folder: Path) -> None:
    plugin = Scripted("cpu", lambda request: cpus("0-3") if request.kind is Kind.MAIN else None)
    raw = pod_of("web", [container("app", cpu="1"), container("side", cpu="1")])
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(raw)
        assert await node.told() == []
        plugin.book["uid-web"]["side"] = {"cpu": cpus("0-3")}
        assert await node.told() == [("uid-web", "0-3")]


async def test_strangers_are_sent_away(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3"))
    plugin.book["uid-gone"] = {"main": {"cpu": cpus("4-7")}}
    async with bench(folder) as node, node.plugin(plugin):
        await node.manager.reconcile()
        await node.manager.reconcile()
    assert plugin.released == ["uid-gone"]


async def test_an_interrupted_change_is_finished_after_a_restart(folder: Path) -> None:
    """The agent died before anybody was told: who gains is told after who loses, as if nothing had happened."""
    plugin = Scripted("cpu", lambda request: cpus("0-3" if request.pod == "one" else "4-7", exclusive=True))
    pods = {f"uid-{name}": admitted(pod(name, cpu="1")) for name in ("one", "two")}
    async with bench(folder) as node, node.plugin(plugin):
        for known in pods.values():
            await node.admit(known.raw)
        plugin.book["uid-one"]["container0"]["cpu"] = cpus("0-1", exclusive=True)
        plugin.book["uid-two"]["container0"]["cpu"] = cpus("2-7", exclusive=True)
        await node.manager.reconcile()
        saved, before = node.manager.save(), node
    async with bench(folder) as node:
        await node.restore(saved, pods, before)
        async with node.plugin(plugin):
            assert await node.told() == [("uid-one", "0-1"), ("uid-two", "2-7")]
            assert await node.told() == []


# ---- Plugins that come later than pods


async def test_a_plugin_that_comes_late_serves_what_runs_already(folder: Path) -> None:
    daemon = pod("agent", cpu="1", annotations={"katalyst.kubewharf.io/skip_qrm_admit": "true"})
    async with bench(folder) as node:
        for raw in (pod("web", cpu="1"), pod("other"), daemon):
            assert isinstance(await node.admit(raw), list)
        async with node.plugin(Scripted("cpu", cpus("0-3"))) as plugin:
            assert [one.pod for one in plugin.asked] == ["web"]
            assert await node.told() == [("uid-web", "0-3")]
            assert await node.told() == []
        async with node.plugin(Scripted("NIC", None, implicit=True)) as nic:
            await node.told()
            await node.told()
            assert [one.pod for one in nic.asked] == ["web", "other"]  # once, although it gives nothing


async def test_a_plugin_without_reports_that_comes_late(folder: Path) -> None:
    given = pb.ResourceAllocationResponse()
    given.allocation_result.resource_allocation["cpu"].oci_property_name = "CpusetCpus"
    given.allocation_result.resource_allocation["cpu"].allocation_result = "0-3"
    answers = {"Allocate": lambda _: given, "GetResourcePluginOptions": lambda _: pb.ResourcePluginOptions()}
    async with bench(folder) as node:
        await node.admit(pod("web", cpu="1"))
        async with serving_raw(folder, "cpu", answers):
            await node.usable("cpu")
            assert await node.told() == [("uid-web", "0-3")]
            assert await node.told() == []


async def test_the_gate_off_and_on_again_takes_over_what_plugins_remember(folder: Path) -> None:
    """Nothing of the manager's state is left, the pods run, and the plugin must not give their CPUs away."""
    now = [0.0]
    plugin = Scripted("cpu", lambda request: cpus("0-3" if request.pod == "web" else "4-7", exclusive=True))
    known = admitted(pod("web", cpu="1"))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(known.raw)
    async with bench(folder, QrmSettings(stranger_seconds=60), clock=lambda: now[0]) as node:
        assert await node.manager.restore(None, {known.uid: known}) == []
        async with node.plugin(plugin):
            for _ in range(2):
                await node.manager.reconcile()
                now[0] += 100
            assert plugin.released == [] and len(plugin.asked) == 1
            holding = node.manager.allocations.get("uid-web", "container0")
            assert holding is not None and holding.resources["cpu"].result == "0-3"
            assert isinstance(await node.admit(pod("two", cpu="1")), list)


async def test_a_plugin_that_will_not_serve_what_runs_is_asked_once(folder: Path) -> None:
    def no(_request: Request) -> Allocation:
        raise Refuse("sold out")

    async with bench(folder) as node:
        await node.admit(pod("web", cpu="1"))
        for visit in (1, 2):
            async with node.plugin(Scripted("cpu", no)) as plugin:
                for _ in range(3):
                    assert await node.told() == []
                assert len(plugin.asked) == 1, visit
            await node.gone("cpu")
        assert node.events[0].reason == "ResourcePluginAnswer"
        assert "pod uid-web container container0: plugin cpu: Allocate: sold out" in node.events[0].message


# ---- KEP test plan: capacity and the pod-resources server


async def test_t21_capacity_comes_stays_and_goes(folder: Path) -> None:
    now = [0.0]
    plugin = Scripted("example.com/gpu", Allocation(quantity=100), capacity=lambda: Capacity(8, 6, node=True))
    async with bench(folder, QUICK, clock=lambda: now[0]) as node:
        async with node.plugin(plugin):
            full = [NodeResource("example.com/gpu", 8, 6)]
            assert node.manager.node_resources() == full
            plugin.capacity = lambda: 1 / 0
            await node.manager.reconcile()
            assert node.manager.node_resources() == full
        await node.gone("example.com/gpu")
        now[0] += 299
        assert node.manager.node_resources() == full
        now[0] += 2
        assert node.manager.node_resources() == [NodeResource("example.com/gpu", 0, 0)]
        plugin.capacity = lambda: Capacity(4, node=True)
        async with node.plugin(plugin):
            assert node.manager.node_resources() == [NodeResource("example.com/gpu", 4, 4)]


async def test_t20_one_plugins_error_hides_nothing_of_the_others(folder: Path) -> None:
    def broken(_request: Any) -> Any:
        raise RuntimeError("unknown container")

    async with bench(folder) as node:
        whole = {0: 40.0, 1: 40.0}
        told = Capacity(80, 76, {0: 38.0, 1: 38.0}, total_by_numa=whole)
        plugin = Scripted("cpu", cpus("0-3", 4), capacity=lambda: told)
        async with node.plugin(plugin), serving_raw(folder, "odd", {"GetTopologyAwareResources": broken}):
            await node.usable("odd")
            await node.admit(pod("web", cpu="1"))
            found = await container_resources(node.manager.endpoints, "uid-web", "container0")
            assert found.resources["cpu"].aggregated_quantity == 4
            [error] = found.errors
            assert error.startswith("plugin odd: GetTopologyAwareResources")
            able = await allocatable_resources(node.manager.endpoints)
            assert able.resources["cpu"].aggregated_allocatable_quantity == 76
            spread = able.resources["cpu"].topology_aware_capacity_quantity_list
            assert {one.node: one.resource_value for one in spread} == whole


async def test_implicit_plugins_are_asked_for_everybody(folder: Path) -> None:
    plugin = Scripted("NIC", Allocation(envs={"NIC": "eth0"}), implicit=True)
    async with bench(folder) as node, node.plugin(plugin):
        [grant] = await node.admit(pod("web", cpu="1"))
    assert grant.envs == {"NIC": "eth0"}
    assert plugin.asked[0].quantity == 0


async def test_release_is_idempotent_and_hints_survive_as_values(folder: Path) -> None:
    given = cpus("0-3", hints=(NumaHint((1,), True),))
    async with bench(folder) as node, node.plugin(Scripted("cpu", given, hints=lambda _request: None)):
        known = admitted(pod("web", cpu="1"))
        await node.manager.allocate(known, refs(known)[0], ANYWHERE)
        [offer] = await node.manager.offers(known, refs(known)[0])
        assert offer.hints == (Hint(type(node.manager.machine.numa).of(1), True),)  # type: ignore[union-attr]
        for _ in range(2):
            await node.manager.release(known.uid)
        assert node.manager.grant(refs(known)[0]) is None


async def test_an_update_that_was_not_made_is_told_again_after_a_restart(folder: Path) -> None:
    """Its container could not be told, then others changed, then the agent died."""
    plugin = Scripted("cpu", lambda request: cpus("0-3" if request.pod == "web" else "4-7"))
    pods = {f"uid-{name}": admitted(pod(name, cpu="1")) for name in ("web", "db")}
    async with bench(folder) as node, node.plugin(plugin):
        for name in ("web", "db"):
            assert isinstance(await node.admit(pod(name, cpu="1")), list)
        plugin.book["uid-web"]["container0"]["cpu"] = cpus("0-1")
        await node.manager.reconcile()
        node.containers.pending.require(node.manager.grants())
        node.containers.pending.pause(("uid-web", "container0"))
        plugin.book["uid-db"]["container0"]["cpu"] = cpus("6-7")
        await node.manager.reconcile()
        assert [next(node.containers.updates(node.manager.grants())).key[0]] == ["uid-db"]
        node.containers.has["uid-db", "container0"] = node.manager.grants()["uid-db", "container0"]
        saved, before = node.manager.save(), node
    async with bench(folder) as node:
        await node.restore(saved, pods, before)
        told = node.containers.updates(node.manager.grants())
        assert [(one.key[0], one.grant.properties["cpuset_cpus"]) for one in told] == [("uid-web", "0-1")]
