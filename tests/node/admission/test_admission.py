"""What a node takes and what it refuses: fit, classes, exclusive CPUs, NUMA memory, topology; all or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.runtime import PROVIDERS_READY, class_of
from kubeqos.errors import RemoteError
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80, laptop8, regular
from kubeqos.plugins.managers import AdmittedPod, Grant, NodeResource, Refusal
from kubeqos.topology.alignment.hints import Policy, Scope
from tests.node.pods import container, pod, resources
from tests.node.world import World

RDT = Advertisement("rdt", Level.CONTAINER, False, (ClassInfo("gold", 2), ClassInfo("silver", 0)), "silver")
BLOCKIO = Advertisement("blockio", Level.CONTAINER, True, (ClassInfo("fast", 1), ClassInfo("slow", 0)), "slow")
NETWORK = Advertisement("network", Level.POD, False, (ClassInfo("fast", 1), ClassInfo("slow", 0)), "slow")
OFFERS = (RDT, BLOCKIO, NETWORK)


def guaranteed(cpu: str, memory: str = "1Gi", name: str = "main") -> dict[str, Any]:
    return container(name, resources=resources(cpu=cpu, memory=memory))


def classed(**classes: str) -> dict[str, Any]:
    return container(resources={"qosResources": [{"name": name, "class": cls} for name, cls in classes.items()]})


def cpuset(node: World, uid: str, name: str = "main") -> str:
    return node.running(uid)[name].resources.cpuset_cpus


# ---- Fit


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"containers": [guaranteed("9")]},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000",
        ),
        ({"containers": [guaranteed("1", "17Gi")]}, "OutOfmemory", None),
        (
            {"nodeSelector": {"disk": "ssd"}},
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        ({"nodeName": "elsewhere"}, "NodeName", None),
    ],
)
async def test_a_pod_that_does_not_fit_fails_with_kubernetes_reason(
    tmp_path: Path, spec: dict[str, Any], reason: str, message: str | None
) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("web", **spec))
        status = node.status(uid)
        assert (status["phase"], status["reason"]) == ("Failed", reason)
        assert message is None or status["message"] == message
        assert reason in node.reasons() and not node.runtime.core.sandboxes
        await node.end(uid)
        await node.advance(1)
        assert uid not in node.pods.pods


async def test_too_many_pods(tmp_path: Path) -> None:
    async with World(tmp_path, max_pods=1) as node:
        first = await node.start(pod("one"))
        second = await node.start(pod("two"))
        assert node.status(first)["phase"] == "Running"
        assert node.status(second)["reason"] == "OutOfpods"


async def test_host_ports_are_taken_once(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        port = container(ports=[{"containerPort": 80, "hostPort": 8080}])
        await node.start(pod("one", port))
        refused = await node.start(pod("two", port))
        assert node.status(refused)["reason"] == "NodePorts"


# ---- Classes


@pytest.mark.proves("class-changes")
async def test_classes_reach_the_runtime_and_come_back_in_status(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        raw = pod("web", classed(rdt="gold"), container("plain"), qosResources=[{"name": "network", "class": "fast"}])
        uid = await node.start(raw)
        assert node.container(uid)["qosResources"] == [
            {"name": "rdt", "class": "gold"},
            {"name": "blockio", "class": "slow"},
        ]
        assert node.container(uid, "plain")["qosResources"][0] == {"name": "rdt", "class": "silver"}
        assert node.status(uid)["qosResources"] == [{"name": "network", "class": "fast"}]


@pytest.mark.parametrize(
    ("wants", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
async def test_the_runtime_is_told_the_pods_qos_class(tmp_path: Path, wants: dict[str, Any], qos: str) -> None:
    """Information, never a request: it is neither advertised nor assigned (KEP-3008, Pass on Pod QoS class)."""
    async with World(tmp_path, offers=OFFERS) as node:
        uid = await node.start(pod("web", container("main", resources=wants)))
        (sandbox,) = node.runtime.core.sandboxes.values()
        sent = {entry.name: class_of(entry) for entry in sandbox.config.qos_resources}
        assert sent["pod-qos"] == qos
        assert "pod-qos" not in {entry["name"] for entry in node.status(uid)["qosResources"]}
        assert "pod-qos" not in {entry["name"] for entry in node.container(uid)["qosResources"]}
        assert "pod-qos" not in {kind.name for kind in node.agent.classes.catalog.types.values()}


async def test_a_runtime_without_classes_is_not_told(tmp_path: Path) -> None:
    """An unknown field is nothing to bother a stock runtime with."""
    async with World(tmp_path) as node:
        await node.start(pod("web", container("main")))
        (sandbox,) = node.runtime.core.sandboxes.values()
        assert not sandbox.config.qos_resources


async def test_the_metrics_that_the_proposal_names(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        await node.start(pod("a", classed(rdt="gold")))
        metrics = await node.metrics()
        assert 'kubernetes_feature_enabled{name="QOSResources",stage="ALPHA"} 1.0' in metrics
        assert 'kubelet_started_containers_errors_total{code="CreateContainerError"} 0.0' in metrics
        assert 'kubeqos_node_class_held{class="gold",level="container",resource="rdt"} 1.0' in metrics
        assert 'kubeqos_node_class_capacity{class="gold",level="container",resource="rdt"} 2.0' in metrics
        node.runtime.set_offers(())  # the runtime forgets its classes before the node hears of it
        await node.start(pod("b", classed(rdt="gold")))
        assert 'kubelet_started_containers_errors_total{code="CreateContainerError"} 1.0' in await node.metrics()
        [told] = [message for reason, message in node.events if reason == "Failed"]
        assert told.startswith("Error: class 'gold' of QoS resource 'rdt'")


async def test_a_full_class_refuses_and_takes_again_when_freed(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        holders = [await node.start(pod(f"gold-{n}", classed(rdt="gold"))) for n in range(2)]
        third = await node.start(pod("gold-2", classed(rdt="gold")))
        status = node.status(third)
        assert (status["phase"], status["reason"]) == ("Failed", "QOSResourcesUnavailable")
        assert status["message"] == "Pod was rejected: QoS class rdt=gold exhausted (2/2 used)"
        await node.end(holders[0])
        await node.advance(2)
        again = await node.start(pod("gold-3", classed(rdt="gold")))
        assert node.status(again)["phase"] == "Running"


async def test_a_class_is_refused_where_it_is_unknown_and_where_the_gate_is_off(tmp_path: Path) -> None:
    async with World(tmp_path / "on", offers=OFFERS) as node:
        uid = await node.start(pod("web", classed(rdt="platinum")))
        assert node.status(uid)["message"] == "Pod was rejected: QoS class rdt=platinum not available"
    async with World(tmp_path / "off", offers=OFFERS, gates=FeatureGates.default()) as node:
        uid = await node.start(pod("web", classed(rdt="gold")))
        told = "this node gives nobody a class (rdt=gold): the gate QOSResources is off"
        assert (node.status(uid)["phase"], node.status(uid)["reason"]) == ("Failed", "QOSResourcesUnavailable")
        assert node.status(uid)["message"] == f"Pod was rejected: {told}" and node.running(uid) == {}


async def test_who_runs_is_not_touched_when_the_feature_goes_and_comes_back(tmp_path: Path) -> None:
    """KEP-3008, Feature Enablement and Rollback."""
    async with World(tmp_path, offers=OFFERS) as node:
        on, uid = node.settings.gates, await node.start(pod("before", classed(rdt="gold")))
        first = node.container(uid)["containerID"]
        await node.halt()
        node.settings = replace(node.settings, gates=FeatureGates.default())
        await node.boot()
        await node.advance(15)
        assert (node.status(uid)["phase"], node.container(uid)["containerID"]) == ("Running", first)
        between = await node.start(pod("between", classed(rdt="gold")))
        assert node.status(between)["phase"] == "Failed", "it would run as if it had asked for nothing (ruling 16)"
        await node.halt()
        node.settings = replace(node.settings, gates=on)
        await node.boot()
        await node.advance(15)
        assert node.container(uid)["containerID"] == first and node.container(uid)["restartCount"] == 0
        assert {"name": "rdt", "class": "gold"} in node.container(uid)["qosResources"]


async def test_defaults_in_status_follow_the_runtime(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        uid = await node.start(pod("web"))
        assert {"name": "rdt", "class": "silver"} in node.container(uid)["qosResources"]
        node.runtime.set_offers([Advertisement("rdt", Level.CONTAINER, True, RDT.classes, "gold")])
        await node.advance(15)
        assert node.container(uid)["qosResources"] == [{"name": "rdt", "class": "gold"}]


async def test_a_vanished_class_evicts_only_where_asked(tmp_path: Path) -> None:
    for eviction, phase in ((False, "Running"), (True, "Failed")):
        async with World(tmp_path / str(eviction), offers=OFFERS, qos_class_eviction=eviction) as node:
            uid = await node.start(pod("web", classed(rdt="gold")))
            node.runtime.set_offers([BLOCKIO])
            await node.advance(15)
            assert node.status(uid)["phase"] == phase
            if eviction:
                assert node.status(uid)["reason"] == "QOSResourcesUnavailable"


async def test_who_has_a_class_that_is_gone_keeps_it_and_is_told(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        uid, _ = await node.start(pod("web", classed(rdt="gold"))), await node.start(pod("plain"))
        node.runtime.set_offers([BLOCKIO])
        await node.advance(15)
        told = [message for reason, message in node.events if reason == "QOSClassRetired"]
        assert told == ["rdt=gold is no longer on offer here; the pod keeps it until it ends"]
        assert {"name": "rdt", "class": "gold"} in node.container(uid)["qosResources"]


async def test_a_provider_that_goes_and_comes_is_an_event_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        ask = node.runtime.status

        async def without(*words: object) -> cri.StatusResponse:
            answer = await ask(*words)
            answer.status.conditions.add(type=PROVIDERS_READY, status=False, message="turbo: gone")
            return answer

        with monkeypatch.context() as away:
            away.setattr(node.runtime, "status", without)
            await node.advance(15)
        await node.advance(15)
        told = [message for reason, message in node.events if reason == "QOSProvidersChanged"]
        assert told == [
            "classes are off this node until their provider is back: turbo: gone",
            "every class provider answers",
        ]


# ---- CPUs and memory


@pytest.mark.proves("exclusive-cpus")
async def test_exclusive_cpus_shrink_the_shared_pool_and_return_to_it(tmp_path: Path) -> None:
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:
        shared = await node.start(pod("shared"))
        assert cpuset(node, shared) == "0-7"
        owner = await node.start(pod("owner", guaranteed("2")))
        owned = CpuSet.parse(cpuset(node, owner))
        assert len(owned) == 2 and owned == CpuSet.of(2, 3)
        assert CpuSet.parse(cpuset(node, shared)) == laptop8().online - owned
        assert node.running(owner)["main"].resources.cpu_quota == -1
        await node.end(owner)
        await node.advance(2)
        assert cpuset(node, shared) == "0-7"


async def test_smt_alignment_is_refused_in_kubernetes_words(tmp_path: Path) -> None:
    from kubeqos.topology.cpus import CpuOptions

    options = CpuOptions(full_pcpus_only=True)
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0), cpu_options=options) as node:
        uid = await node.start(pod("odd", guaranteed("3")))
        status = node.status(uid)
        assert status["reason"] == "SMTAlignmentError"
        assert status["message"].endswith("requested 3 cpus not multiple cpus per core = 2")


async def test_init_containers_pass_their_cpus_on(tmp_path: Path) -> None:
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:
        init = container("setup", resources=resources(cpu="4", memory="1Gi"), command=["sh", "-c", "sleep 2"])
        uid = await node.start(pod("web", guaranteed("4"), initContainers=[init]))
        first = cpuset(node, uid, "setup")
        await node.advance(3)
        assert cpuset(node, uid) == first


@pytest.mark.proves("numa-alignment")
async def test_single_numa_node_refuses_what_it_cannot_align(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "cpu_manager_policy": "static",
        "memory_manager_policy": "static",
        "reserved_cpus": CpuSet.of(0),
        "topology_policy": Policy.SINGLE_NUMA_NODE,
    }
    async with World(tmp_path, kep80(), **settings) as node:
        first = await node.start(pod("first", guaranteed("30", "100G")))
        assert node.running(first)["main"].resources.cpuset_mems == "0"
        assert CpuSet.parse(cpuset(node, first)) <= kep80().numa_cpus[0]
        second = await node.start(pod("second", guaranteed("20", "20G")))
        assert node.running(second)["main"].resources.cpuset_mems == "1"
        third = await node.start(pod("third", guaranteed("25", "10G")))
        status = node.status(third)
        assert status["reason"] == "TopologyAffinityError"
        assert "Resources cannot be allocated with Topology locality" in status["message"]


@pytest.mark.proves("numa-alignment")
async def test_pod_scope_aligns_all_containers_together(tmp_path: Path) -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=1)
    settings: dict[str, Any] = {
        "cpu_manager_policy": "static",
        "reserved_cpus": CpuSet.of(0),
        "topology_policy": Policy.SINGLE_NUMA_NODE,
        "topology_scope": Scope.POD,
    }
    async with World(tmp_path, machine, **settings) as node:
        # Of seven CPUs five are free, and each container would find its own on one NUMA node, but not both together.
        refused = await node.start(pod("wide", guaranteed("3", name="a"), guaranteed("2", name="b")))
        assert node.status(refused)["reason"] == "TopologyAffinityError"
        uid = await node.start(pod("pair", guaranteed("2", name="a"), guaranteed("2", name="b")))
        cpus = CpuSet.parse(cpuset(node, uid, "a")) | CpuSet.parse(cpuset(node, uid, "b"))
        assert machine.numa_of(cpus) == machine.numa_of(machine.numa_cpus[1])
        # Another one finds too few CPUs: the reserved one is not allocatable.
        late = await node.start(pod("late", guaranteed("2", name="a"), guaranteed("2", name="b")))
        assert node.status(late)["reason"] == "OutOfcpu"


# ---- All or nothing


class Plugin:
    """A manager that wants every container on one CPU, or refuses, or fails."""

    name = "plugin"

    def __init__(self) -> None:
        self.answer: Grant | Refusal | Exception = Grant({"cpuset_mems": "0"})
        self.held: set[str] = set()
        self.resources: tuple[NodeResource, ...] = ()

    async def offers(self, _pod: Any, _container: Any) -> Any:
        return ()

    async def allocate(self, pod: Any, _container: Any, _hint: Any) -> Grant | Refusal:
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Grant):
            self.held.add(pod.uid)
        return self.answer

    async def release(self, pod_uid: str) -> None:
        self.held.discard(pod_uid)

    def grant(self, container: Any) -> Grant | None:
        return self.answer if container.pod_uid in self.held and isinstance(self.answer, Grant) else None

    def grants(self) -> Any:
        return {}

    def save(self) -> Any:
        return sorted(self.held)

    async def restore(self, state: Any, running: Any) -> list[str]:
        self.held = {uid for uid in state or () if uid in running}
        return []

    def node_resources(self) -> Any:
        return self.resources

    def validate(self) -> list[str]:
        return []


async def test_a_refusal_of_the_last_manager_gives_everything_back(tmp_path: Path) -> None:
    node = World(tmp_path, offers=OFFERS, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0))
    plugin = Plugin()
    node.managers = [plugin]
    async with node:
        plugin.answer = Refusal("UnexpectedAdmissionError", "no licence")
        raw = pod(
            "web",
            container(
                resources={**resources(cpu="2", memory="1Gi"), "qosResources": [{"name": "rdt", "class": "gold"}]}
            ),
        )
        uid = await node.start(raw)
        assert node.status(uid)["message"] == "Pod was rejected: no licence"
        assert node.agent.cpus is not None and not node.agent.cpus.owned
        assert node.agent.classes is not None and not node.agent.classes.used()
        assert not plugin.held and not node.agent.admission.entries


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_cgroup_v2_on_a_node_with_v1_is_told_once_in_a_pods_life(tmp_path: Path, version: int) -> None:
    """Neither when the agent is restarted nor for a pod that does not lack anything."""
    node = World(tmp_path)
    node.cgroup_version = version
    plugin = Plugin()
    node.managers = [plugin]
    async with node:
        await node.start(pod("plain"))
        plugin.answer = Grant(unified={"memory.high": "1000", "io.weight": "50"})
        await node.start(pod("web", container("a"), container("b"), uid="web"))
        assert dict(node.running("web")["a"].config.linux.resources.unified).get("io.weight") == (
            "50" if version == 2 else None
        )
        await node.halt()
        await node.boot()
        told = [message for reason, message in node.events if reason == "CgroupFilesNotApplied"]
        each = "io.weight=50, memory.high=1000"
        assert [one.partition(" have: ")[2].partition(". ")[0] for one in told] == (
            [f"container a: {each}; container b: {each}"] if version == 1 else []
        )


async def test_what_plugins_publish_is_what_fit_counts(tmp_path: Path) -> None:
    """A resource of the plugin's own, and less cpu than the machine has; the Node object shows the same numbers."""
    node = World(tmp_path)
    plugin = Plugin()
    plugin.resources = (NodeResource("example.com/link", 40, 30), NodeResource("cpu", 8, 4))
    node.managers = [plugin]
    async with node:
        link = [await node.start(pod(f"l{n}", asking(**{"example.com/link": "15"}))) for n in range(3)]
        assert [node.status(uid)["phase"] for uid in link] == ["Running", "Running", "Failed"]
        refused = node.status(link[2])
        assert (refused["reason"], refused["message"]) == (
            "OutOfexample.com/link",
            "Pod was rejected: Node didn't have enough resource: "
            "example.com/link, requested: 15, used: 30, capacity: 30",
        )
        large = await node.start(pod("large", asking(cpu="5")))
        assert node.status(large)["reason"] == "OutOfcpu"
        unknown = await node.start(pod("unknown", asking(**{"example.com/none": "1"})))
        assert node.status(unknown)["phase"] == "Running"  # as in Kubernetes: not this node's to count


def asking(**amounts: str) -> dict[str, Any]:
    return container(resources={"requests": amounts, "limits": amounts})


async def test_a_plugin_that_is_away_makes_its_pod_wait(tmp_path: Path) -> None:
    node = World(tmp_path)
    plugin = Plugin()
    node.managers = [plugin]
    async with node:
        plugin.answer = RemoteError("plugin does not answer")
        uid = await node.start(pod("web"))
        await node.advance(3)
        assert node.status(uid) == {} and "UnexpectedAdmissionError" in node.reasons()
        plugin.answer = Grant({"cpuset_mems": "0"})
        await node.advance(5)
        assert node.status(uid)["phase"] == "Running"


async def test_managers_that_contradict_each_other_refuse_the_pod(tmp_path: Path) -> None:
    node = World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0))
    plugin = Plugin()
    plugin.answer = Grant({"cpuset_cpus": "1"})
    node.managers = [plugin]
    async with node:
        uid = await node.start(pod("web"))
        assert "manager cpu wants '0-7', manager plugin wants '1'" in node.status(uid)["message"]
        assert not plugin.held


async def test_a_plugin_that_does_not_take_back_is_asked_again(tmp_path: Path) -> None:
    node = World(tmp_path)
    plugin = Plugin()
    node.managers = [plugin]
    refuses = True

    async def release(pod_uid: str) -> None:
        if refuses:
            raise RemoteError("plugin does not answer")
        plugin.held.discard(pod_uid)

    async with node:
        uid = await node.start(pod("web"))
        plugin.release = release  # type: ignore[method-assign]
        await node.end(uid)
        await node.advance(2)
        assert uid not in node.pods.pods and plugin.held == {uid}
        refuses = False
        other = await node.start(pod("other"))
        assert plugin.held == {other}


async def test_who_asks_what_a_container_should_have_changes_nothing(tmp_path: Path) -> None:
    """The pool has shrunk, and somebody looks at a container of it before that is told."""
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:
        uid = await node.start(pod("shared"))
        admission, [(ref, _)] = node.agent.admission, node.agent.core.pods[uid].admitted.containers()
        assert await admission.admit(_admitted(pod("owner", guaranteed("2"), uid="owner"))) is None
        for _ in range(2):
            assert admission.grant(ref).properties == {"cpuset_cpus": "0-1,4-7"}
            assert admission.grants()[uid, "main"].properties == {"cpuset_cpus": "0-1,4-7"}
        assert admission.cpus_of(ref) == CpuSet.parse("0-1,4-7")
        assert node.running(uid)["main"].resources.cpuset_cpus == "0-7"
        await node.agent.update_containers()
        await node.settle()
        assert node.running(uid)["main"].resources.cpuset_cpus == "0-1,4-7"
        await admission.release("owner")


def _admitted(raw: dict[str, Any]) -> AdmittedPod:
    return AdmittedPod.of(raw)
