"""What an allocation comes to in a running node: fields reach CRI, pod scope allocates, sizes change in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubeqos.errors import ConfigurationError
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.hardware.named import kep80
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config import configuration as nodeconfig
from kubeqos.node.config.plugins import plugin_managers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.run import serve_node
from kubeqos.qrm.sdk import Allocation, DeviceSpec, Hint, MountSpec, Options, Refuse, Request, running
from kubeqos.topology.alignment.hints import Policy, Scope
from tests.qrm.harness import (
    PluginProcess,
    admitted,
    container,
    plugin_processes,
    pod,
    pod_of,
    qrm_node,
    until,
)
from tests.qrm.live import NUMA_0, Scripted, cpus


async def test_t16_everything_a_plugin_gives_reaches_the_runtime(folder: Path) -> None:
    given = {
        "example.com/vf": Allocation(
            envs={"VF": "0"},
            annotations={"example.com/vf": "0"},
            mounts=(MountSpec("/var/vf", "/run/vf0", True),),
            devices=(DeviceSpec("/dev/vf", "/dev/vf0", "rw"),),
        ),
        "shares": Allocation(property="CpuShares", result="99"),
        "files": Allocation(property="Unified", result='{"io.weight":"100"}'),
    }
    plugin = Scripted("example.com/vf", given)
    async with qrm_node(folder, kep80()) as node, running(plugin, Options(folder / "r")):
        await node.plugins("example.com/vf")
        resources = await node.run(pod("web", **{"example.com/vf": "1"}))
        assert resources["cpu_shares"] == 99
        config = node.config("uid-web")
        assert {one.key: one.value for one in config.envs}["VF"] == b"0"
        assert config.annotations["example.com/vf"] == "0"
        mounts = {one.container_path: (one.host_path, one.readonly) for one in config.mounts}
        assert mounts["/var/vf"] == ("/run/vf0", True)
        assert [(one.container_path, one.host_path, one.permissions) for one in config.devices] == [
            ("/dev/vf", "/dev/vf0", "rw")
        ]
        assert config.linux.resources.unified["io.weight"] == "100"


async def test_files_that_cgroup_v1_does_not_have_are_told_once_per_pod(folder: Path) -> None:
    """The container runs without them, and whoever relies on them is told."""
    disk = "example.com/disk"
    plugin = Scripted(disk, Allocation(property="Unified", result='{"io.weight":"100"}'))
    async with qrm_node(folder, kep80(), cgroup_version=1) as node, running(plugin, Options(folder / "r")):
        await node.plugins(disk)
        await node.run(pod("web", **{disk: "1"}))
        assert not node.config("uid-web").linux.resources.unified
        plugin.given = plugin.book["uid-web"]["container0"][disk] = Allocation(
            property="Unified", result='{"io.weight":"200"}'
        )
        await until("the change", lambda: "200" in str(node.manager.allocations.get("uid-web", "container0")))
        await node.run(pod("db", **{disk: "1"}))
        assert [message for reason, message in node.told if reason == "CgroupFilesNotApplied"] == [
            "Resource plugins set files of cgroup v2, which node n1 does not have: container container0: "
            f"io.weight={weight}. The containers run without them; boot the node with cgroup v2, or let the plugins "
            "set no Unified values"
            for weight in (100, 200)  # of web, whose change is not told again, and of db
        ]
        async with serve_node(node.agent) as services:
            metrics = services.server.metrics().decode()
        assert 'kubeqos_node_unapplied_cgroup_files_total{file="io.weight"} 2.0' in metrics


async def test_t07_pod_scope_allocates_for_every_container_under_one_hint(folder: Path) -> None:
    wishes = {"a": (NUMA_0,), "b": (Hint(NUMA_0.numa, True), Hint(kep80().numa, False))}
    plugin = Scripted("cpu", cpus("0-3"), hints=lambda request: wishes[request.container])
    raw = pod_of("web", [container("a", cpu="1"), container("b", cpu="1")])
    async with qrm_node(folder, kep80(), scope=Scope.POD) as node, running(plugin, Options(folder / "r")):
        await node.plugins("cpu")
        node.submit(raw)
        await until("runs", lambda: node.running("uid-web"))
        await until("both", lambda: len(node._containers("uid-web")) == 2)
        assert [node.resources("uid-web", name)["cpuset_cpus"] for name in "ab"] == ["0-3", "0-3"]
    assert {one.hint for one in plugin.asked} == {NUMA_0}


async def test_a_pod_changes_its_size_in_place(folder: Path) -> None:
    config = 'reserved: "0-1,40-41"\nroles: {storage: {dedicated: true, numa: bind}}\n'
    cpu = PluginProcess(folder, "cpu", kep80(), config)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            await node.run(pod("web", "storage", cpu="4"))
            old, new, huge = (admitted(pod("web", "storage", cpu=amount)) for amount in ("4", "8", "60"))
            assert await node.agent.admission.resize(old, new) is None
            await node.agent.updater.reconcile()
            await until("told", lambda: node.resources("uid-web")["cpuset_cpus"] == "2-9")
            refusal = await node.manager.resize(new, huge)
            assert refusal is not None and refusal.reason == "Infeasible"
            assert node.manager.grants()["uid-web", "container0"].properties["cpuset_cpus"] == "2-9"
            assert node.manager.allocations.get("uid-web", "container0").resources["cpu"].result == "2-9"  # type: ignore[union-attr]


async def test_knobs_by_role_reach_the_runtime(folder: Path) -> None:
    table = "roles: {etl: {io.weight: 10, CpuShares: 2, memory.high: '400000000'}}\ndefault: {memory.oom.group: 1}\n"
    knob = PluginProcess(folder, "knob", kep80(), table)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(knob):
            await node.plugins("knob")
            assert (await node.run(pod("job", "etl", cpu="1")))["cpu_shares"] == 2
            files = node.config("uid-job").linux.resources.unified
            assert (files["io.weight"], files["memory.high"]) == ("10", "400000000")  # not the node's own value
            await node.run(pod("web", cpu="1"))
            assert node.config("uid-web").linux.resources.unified["memory.oom.group"] == "1"


async def test_a_resize_that_cannot_be_is_refused_before_anything_moves(folder: Path) -> None:
    cpu = PluginProcess(
        folder, "cpu", kep80(), "pools: {a: {size: 40, floor: 4}, b: {size: 30}}\nroles: {a: {pool: a}}\n"
    )
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            before = (await node.run(pod("web", "a", cpu="1")))["cpuset_cpus"]
            for wrong, complaint in (
                (("nope=3",), "there is no pool nope (known: a, b)"),
                (("a=2",), "a has 2 CPUs, its floor is 4"),
                (("a=60", "b=60"), "not enough cpus for the pools: requested=120, available=80"),
                (("a=0-3", "b=2-5"), "both hold 2-3"),
                (("a=0-300",), ""),
                (("a=many",), ""),
            ):
                done = cpu.set_pool(*wrong)
                assert done.returncode != 0 and complaint in done.stderr and "Traceback" not in done.stderr, done.stderr
            assert node.resources("uid-web")["cpuset_cpus"] == before and node.calls == []


async def test_a_refused_pod_says_why_and_leaves_nothing_behind(folder: Path) -> None:
    def no(request: Request) -> Allocation:
        raise Refuse(f"no {request.resource} for {request.pod}")

    first, second = Scripted("x.io/a", Allocation(quantity=100)), Scripted("x.io/b", no)
    options = Options(folder / "r")
    async with qrm_node(folder, kep80()) as node, running(first, options), running(second, options):
        await node.plugins("x.io/a", "x.io/b")
        told = await node.refused(pod("web", **{"x.io/a": "1", "x.io/b": "1"}))
        why = "container container0: x.io/b: plugin x.io/b: Allocate: no x.io/b for web (FAILED_PRECONDITION)"
        assert told == f"UnexpectedAdmissionError: Pod was rejected: {why}"
        assert set(first.released) == {"uid-web"}  # told again when a plugin takes long to acknowledge it
        assert node.manager.allocations.pods == frozenset()


async def test_the_gate_needs_the_topology_manager() -> None:
    settings = NodeSettings("n1", Path("/nowhere"), gates=FeatureGates.default().set({QRM: True}))
    with pytest.raises(ConfigurationError, match='topologyManagerPolicy is "none"'):
        settings.check()


async def test_without_the_gate_plugins_are_not_looked_for(folder: Path) -> None:
    """Gate off: nobody takes plugins, and what pods ask for is nobody's business but the scheduler's."""
    settings = NodeSettings("n1", folder / "s", log_dir=folder / "logs", topology_policy=Policy.RESTRICTED)
    made = plugin_managers(settings, kep80(), NodeEvents(None, "n1"))
    assert (made.qrm, made.managers) == (None, ())
    on = replace(settings, gates=FeatureGates.default().set({QRM: True}))
    made = plugin_managers(on, kep80(), NodeEvents(None, "n1"))
    assert made.managers == (made.qrm,)
    assert made.qrm is not None and made.qrm.reconcile_seconds == 3.0
    assert nodeconfig.load(flags={"qos-resource-manager-reconcile-period": "10s"}).qrm_reconcile_period == 10.0


@pytest.mark.parametrize("resource", ["cpu", "memory"])
async def test_a_plugin_beside_the_built_in_manager_is_refused(folder: Path, resource: str) -> None:
    settings = NodeSettings(
        "n1",
        folder / "s",
        log_dir=folder / "logs",
        gates=FeatureGates.default().set({QRM: True}),
        topology_policy=Policy.RESTRICTED,
        cpu_manager_policy="static",
        memory_manager_policy="Static",
    )
    made = plugin_managers(settings, kep80(), NodeEvents(None, "n1"))
    assert made.qrm is not None
    told = made.qrm.endpoints.why_not(resource, ("v1alpha1",))
    assert told is not None and told.startswith(
        f"the built-in {resource} manager of this node hands out {resource}; set"
    )
