"""The node's stories, end to end through the API server: on the simulated runtime and on real containerd alike."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.api import PatchType
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, NODES, PODS, REPLICATION_CONTROLLERS
from kubeqos.codec import decode_json, encode_yaml
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.quantity import Quantity
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.rules.qos.eviction import thresholds
from tests.apiserver.live import LiveServer, live_server
from tests.cri.containerd import missing
from tests.node.homes import GATES, Home, Work, containerd_home, memory_bytes, simulated_home
from tests.node.pods import resources
from tests.node.test_live import get_or_none, until

Opens = Callable[..., AbstractAsyncContextManager[Home]]
absent = missing()
HOMES = [
    "simulated",
    pytest.param(
        "containerd",
        marks=[pytest.mark.containerd, pytest.mark.skipif(absent is not None, reason=f"real containerd: {absent}")],
    ),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api", GATES) as live:
        yield live


@pytest.fixture(params=HOMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opens(request: pytest.FixtureRequest, kind: str, server: LiveServer, tmp_path: Path) -> Opens:
    """Opens a node of the kind that the test runs on."""
    folder = tmp_path / "node"
    folder.mkdir()
    if kind == "simulated":
        return functools.partial(simulated_home, server, folder)
    return functools.partial(containerd_home, server, folder, request.getfixturevalue("containerd"))


def ids(status: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["containerID"].rpartition("/")[2] for one in status["containerStatuses"]}


def asks(**classes: str) -> dict[str, Any]:
    return {"qosResources": [{"name": name, "class": chosen} for name, chosen in classes.items()]}


async def event_of(api: HttpApi, reason: str, name: str) -> Any:
    events = [decode_json(one) for one in (await api.list(EVENTS, "default")).items]
    return next((one for one in events if (one["reason"], one["involvedObject"]["name"]) == (reason, name)), None)


async def test_noisy_neighbours_are_kept_in_their_classes(opens: Opens) -> None:
    """KEP-3008, "Mitigating noisy neighbors", with the KEP's own manifest."""
    main = Work("main-app", resources=asks(rdt="exclusive", blockio="high-prio"))
    sidecar = Work("sidecar", resources=asks(rdt="limited", blockio="throttled"))
    async with opens() as home:

        async def offered() -> bool:
            node = await get_or_none(home.api, "n1", NODES)
            return bool(((node or {}).get("status") or {}).get("qosResources"))

        await until("the node tells its classes", offered)
        status = await home.start("qos-resource-example", main, sidecar)
        found = ids(status)

        async def enforced() -> bool:
            return await home.classes(found["main-app"]) == {"rdt": "exclusive", "blockio": "high-prio"}

        await until("the main application is in its classes", enforced)
        assert await home.classes(found["sidecar"]) == {"rdt": "limited", "blockio": "throttled"}
        told = {
            one["name"]: {c["name"]: c["class"] for c in one["qosResources"]} for one in status["containerStatuses"]
        }
        assert told == {
            "main-app": {"rdt": "exclusive", "blockio": "high-prio"},
            "sidecar": {"rdt": "limited", "blockio": "throttled"},
        }
        quiet = (await home.start("quiet"))["containerStatuses"][0]
        assert {"name": "rdt", "class": "limited"} in quiet["qosResources"]  # an implicit default, and told
        await home.api.create(PODS, home.pod("noisy", main))
        refused = await home.phase("noisy", "Failed")
        assert refused["reason"] == "QOSResourcesUnavailable"
        assert refused["message"] == "Pod was rejected: QoS class rdt=exclusive exhausted (1/1 used)"
        assert await until("an event tells it", lambda: event_of(home.api, "QOSResourcesUnavailable", "noisy"))


async def test_a_guaranteed_pod_owns_its_cpus(opens: Opens) -> None:
    async with opens(cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as home:
        online = home.machine.online
        shared = ids(await home.start("shared"))["main"]
        assert await home.cpus(shared) == online
        owner = ids(await home.start("owner", Work(resources=resources(cpu="1", memory="64Mi"))))["main"]
        owned = await home.cpus(owner)
        assert len(owned) == 1 and 0 not in owned and await home.cpus(shared) == online - owned
        await home.api.delete(PODS, "owner", "default", grace_seconds=1)

        async def back() -> bool:
            return await home.cpus(shared) == online

        await until("the shared pool gets its CPU back", back)


async def test_a_memory_hog_is_killed_and_restarted_alone(opens: Opens) -> None:
    async with opens() as home:
        hog = Work("hog", 4, grows=True, resources={"limits": {"memory": "24Mi"}, "requests": {"memory": "24Mi"}})
        calm = ids(await home.start("mixed", hog, Work("calm")))["calm"]

        async def killed() -> Any:
            statuses = (await home.api.get(PODS, "mixed", "default"))["status"]["containerStatuses"]
            one = next(one for one in statuses if one["name"] == "hog")
            ended = one["lastState"].get("terminated")
            return (ended, statuses) if one["restartCount"] >= 1 and ended else None

        ended, statuses = await until("the hog is killed and restarted", killed)
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
        other = next(one for one in statuses if one["name"] == "calm")
        assert other["containerID"].endswith(calm) and other["restartCount"] == 0


async def test_memory_pressure_evicts_in_order_and_the_controller_replaces_the_pod(opens: Opens, kind: str) -> None:
    """200 MiB for pods of which 100 are kept: BestEffort goes first, then who is most over its request."""
    kept = Quantity.from_int(memory_bytes(kind) - (200 << 20))
    pressure = PressureSettings(thresholds({"memory.available": "100Mi"}), transition_seconds=1.0)
    services = ServiceSettings(housekeeping_seconds=0.2)
    async with opens(services, pressure=pressure, kube_reserved={"memory": kept}) as home:
        await home.start("sure", Work(holds_mib=16, resources=resources(cpu="10m", memory="32Mi")))
        small = {"requests": {"memory": "16Mi"}}
        await home.start("burst", Work(holds_mib=20, resources=small))
        template = home.pod("x", Work(holds_mib=30))
        template["metadata"] = {"labels": {"app": "hog"}, "annotations": template["metadata"]["annotations"]}
        await home.api.create(REPLICATION_CONTROLLERS, {
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "hog", "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"app": "hog"}, "template": template},
        })  # fmt: skip

        async def hogs(reason: str = "") -> list[str]:
            pods = [decode_json(one) for one in (await home.api.list(PODS, "default")).items]
            named = [one for one in pods if one["metadata"]["name"].startswith("hog-")]
            return [
                one["metadata"]["name"]
                for one in named
                if not reason or reason in ((one.get("status") or {}).get(key) for key in ("reason", "phase"))
            ]

        (first,) = await until("the hog runs", lambda: hogs("Running"))
        await home.api.create(PODS, home.pod("more", Work(holds_mib=40, resources=small)))
        gone = await home.phase(first, "Failed")
        assert gone["reason"] == "Evicted"
        assert gone["message"].startswith(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: "
        )
        assert "Container main was using" in gone["message"] and "request is 0" in gone["message"]
        told = await until("an event tells it", lambda: event_of(home.api, "Evicted", first))
        assert told["metadata"]["annotations"]["offending_containers"] == "main"

        async def replaced() -> bool:
            return bool(set(await hogs()) - {first})

        await until("the controller makes another", replaced)
        await home.api.delete(REPLICATION_CONTROLLERS, "hog", "default")
        within = Work(holds_mib=30, resources={"requests": {"memory": "34Mi"}})
        await home.api.create(PODS, home.pod("within", within))
        second = await home.phase("more", "Failed", 60)
        assert second["reason"] == "Evicted"
        for name in ("sure", "burst", "within"):
            await home.phase(name, "Running")


async def test_static_pods_are_admitted_and_mirrored(opens: Opens, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    async with opens(static_pod_dir=folder) as home:

        def write(name: str, work: Work) -> None:
            raw = home.pod(name, work)
            raw["spec"].pop("nodeName")
            (folder / f"{name}.yaml").write_text(encode_yaml(raw))

        write("etcd", Work(resources=asks(rdt="exclusive")))
        status = await home.phase("etcd-n1", "Running")
        assert await home.classes(ids(status)["main"]) == {"rdt": "exclusive"}
        write("other", Work(resources=asks(rdt="exclusive")))
        refused = await home.phase("other-n1", "Failed")
        assert refused["reason"] == "QOSResourcesUnavailable"
        for file in folder.iterdir():
            file.unlink()

        async def gone() -> bool:
            return await get_or_none(home.api, "etcd-n1") is None

        await until("the mirror goes with its file", gone)


async def test_a_class_that_is_removed_at_run_time_is_no_longer_given(opens: Opens) -> None:
    async with opens() as home:
        before = await home.start("before", Work(resources=asks(blockio="high-prio")))
        await home.withdraw("blockio", "throttled")

        async def offered() -> set[str]:
            status = (await get_or_none(home.api, "n1", NODES) or {}).get("status") or {}
            kinds = (status.get("qosResources") or {}).get("containerQoSResources") or []
            return {c["name"] for one in kinds if one["name"] == "blockio" for c in one["classes"]}

        async def withdrawn() -> bool:
            return await offered() == {"high-prio"}

        await until("the node no longer offers the class", withdrawn)
        await home.api.create(PODS, home.pod("late", Work(resources=asks(blockio="throttled"))))
        refused = await home.phase("late", "Failed")
        assert refused["reason"] == "QOSResourcesUnavailable" and "throttled" in refused["message"]
        now = (await home.api.get(PODS, "before", "default"))["status"]
        assert ids(now) == ids(before) and now["containerStatuses"][0]["restartCount"] == 0
        assert (await home.classes(ids(now)["main"]))["blockio"] == "high-prio"


async def test_a_class_is_changed_in_place(opens: Opens) -> None:
    async with opens() as home:
        status = await home.start("web", Work(resources=asks(rdt="limited")))
        identity = ids(status)["main"]
        change = {"spec": {"containers": [{"name": "main", "resources": asks(rdt="exclusive")}]}}
        await home.api.patch(PODS, "web", change, "default", type=PatchType.STRATEGIC, subresource="resize")

        async def moved() -> bool:
            with contextlib.suppress(StopIteration):
                return (await home.classes(identity)).get("rdt") == "exclusive"
            return False

        await until("the container is moved", moved)

        async def told() -> bool:
            one = (await home.api.get(PODS, "web", "default"))["status"]["containerStatuses"][0]
            return {"name": "rdt", "class": "exclusive"} in one["qosResources"] and one["restartCount"] == 0

        await until("the status tells it", told)
        assert ids((await home.api.get(PODS, "web", "default"))["status"])["main"] == identity


async def test_cpu_and_memory_are_resized_in_place(opens: Opens) -> None:
    def amounts(cpu: str, memory: str) -> dict[str, Any]:
        return {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": memory}}

    async with opens() as home:
        identity = ids(await home.start("web", Work(resources=amounts("200m", "32Mi"))))["main"]
        assert await home.limits(identity) == (20_000, 32 << 20)
        change = {"spec": {"containers": [{"name": "main", "resources": amounts("500m", "64Mi")}]}}
        await home.api.patch(PODS, "web", change, "default", type=PatchType.STRATEGIC, subresource="resize")

        async def resized() -> bool:
            one = (await home.api.get(PODS, "web", "default"))["status"]["containerStatuses"][0]
            return one.get("resources", {}).get("limits") == {"cpu": "500m", "memory": "64Mi"}

        await until("the status tells the new size", resized)
        assert await home.limits(identity) == (50_000, 64 << 20)
        status = (await home.api.get(PODS, "web", "default"))["status"]
        assert ids(status)["main"] == identity and status["containerStatuses"][0]["restartCount"] == 0


async def test_init_containers_then_sidecars_then_the_application(opens: Opens) -> None:
    """And when the pod is deleted, the sidecar is the last to go."""
    async with opens() as home:
        setup = home.container(Work("setup", seconds=1))
        proxy = {**home.container(Work("proxy")), "restartPolicy": "Always"}
        status = await home.start("web", Work("app"), initContainers=[setup, proxy])
        (app,) = status["containerStatuses"]
        ended, running = [one["state"] for one in status["initContainerStatuses"]]
        assert ended["terminated"]["exitCode"] == 0
        assert (
            ended["terminated"]["finishedAt"] <= running["running"]["startedAt"] <= app["state"]["running"]["startedAt"]
        )
        uid = (await home.api.get(PODS, "web", "default"))["metadata"]["uid"]
        await home.api.delete(PODS, "web", "default", grace_seconds=5)

        async def gone() -> bool:
            return await get_or_none(home.api, "web") is None

        await until("the pod goes", gone)
        stops = [line.split()[3] for line in home.agent.core.story(uid) if "done: StopContainer" in line]
        assert stops == ["app", "proxy"]


async def test_a_critical_pod_gets_room(opens: Opens) -> None:
    async with opens(max_pods=2) as home:
        await home.start("sure", Work(resources=resources(cpu="100m", memory="16Mi")))
        await home.start("best", terminationGracePeriodSeconds=1)
        await home.api.create(PODS, home.pod("hero", priorityClassName="system-node-critical"))
        gone = await home.phase("best", "Failed")
        assert (gone["reason"], gone["message"]) == ("Preempting", "Preempted in order to admit critical pod")
        await home.phase("hero", "Running")
        assert (await home.api.get(PODS, "sure", "default"))["status"]["phase"] == "Running"
        assert await until("an event tells it", lambda: event_of(home.api, "Preempting", "best"))


@pytest.mark.parametrize("damage", [b"", b'{"format":"kubeqos-node-ledger","ver', b'{"policyName":"static"}'])
async def test_a_damaged_ledger_is_rebuilt_from_what_runs(opens: Opens, damage: bytes) -> None:
    """Empty, truncated, foreign: the containers run on and keep their CPUs, and people are told."""

    def spoil(folder: Path) -> None:
        for file in folder.glob("ledger.json*"):
            file.write_bytes(damage)

    async with opens(cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as home:
        owner = ids(await home.start("owner", Work(resources=resources(cpu="1", memory="32Mi"))))["main"]
        shared = ids(await home.start("shared"))["main"]
        owned = await home.cpus(owner)
        await home.restart(spoil)
        assert ids(await home.phase("owner", "Running"))["main"] == owner
        assert ids(await home.phase("shared", "Running"))["main"] == shared
        assert await home.cpus(owner) == owned and not await home.cpus(shared) & owned
        assert home.agent.cpus is not None and home.agent.cpus.owned == owned
        assert await until("an event tells it", lambda: event_of(home.api, "CheckpointDamaged", "n1"))
        assert "kubeqos_node_damaged_checkpoints_total 2.0" in home.services.server.metrics().decode()


async def test_a_class_that_the_runtime_refuses_is_told_and_tried_again(opens: Opens) -> None:
    """Somebody else took the last place of the class, behind the node's back (KEP-3008: CreateContainerError)."""
    async with opens() as home:
        runtime = home.agent.runtime
        config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="foreign", namespace="x", uid="foreign"))
        config.linux.cgroup_parent = home.agent.settings.cgroup_root
        config.linux.security_context.namespace_options.network = cri.NODE
        sandbox = await runtime.run_pod_sandbox(config)
        taken = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            image=cri.ImageSpec(image=home.container(Work())["image"]),
            command=["sleep", "1000"],
            qos_resources=[cri.ContainerQOSResource(**{"name": "rdt", "class": "exclusive"})],
        )
        await runtime.create_container(sandbox, taken, config)
        await home.api.create(PODS, home.pod("late", Work(resources=asks(rdt="exclusive"))))

        async def refused() -> Any:
            status = (await home.api.get(PODS, "late", "default")).get("status") or {}
            waiting = (status.get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {})
            return waiting if waiting.get("reason") == "CreateContainerError" else None

        told = await until("the refusal is told", refused)
        assert "rdt" in told["message"] and "exclusive" in told["message"]
        event = await until("an event tells it", lambda: event_of(home.api, "Failed", "late"))
        assert event["message"] == f"Error: {told['message']}"
        metrics = home.services.server.metrics().decode()
        assert 'kubeqos_node_effect_failures_total{kind="CreateContainer"}' in metrics
        await runtime.stop_pod_sandbox(sandbox)
        await runtime.remove_pod_sandbox(sandbox)
        status = await home.phase("late", "Running", 60)
        assert (await home.classes(ids(status)["main"]))["rdt"] == "exclusive"


async def test_a_node_outlives_its_runtime(opens: Opens) -> None:
    """The runtime is killed: the node says so, a new pod waits, a deleted one too; when it is back, all goes on."""
    async with opens() as home:

        async def ready(status: str) -> Any:
            conditions = ((await get_or_none(home.api, "n1", NODES) or {}).get("status") or {}).get("conditions") or ()
            return next((one for one in conditions if one["type"] == "Ready" and one["status"] == status), None)

        calm = ids(await home.start("calm"))
        await home.start("leaver", terminationGracePeriodSeconds=1)
        async with home.runtime_away():
            told = await until("the node says so", lambda: ready("False"))
            assert told["reason"] == "KubeletNotReady" and "runtime" in told["message"]
            await home.api.create(PODS, home.pod("newcomer"))
            await home.api.delete(PODS, "leaver", "default", grace_seconds=1)
            await asyncio.sleep(1)
            assert (await get_or_none(home.api, "leaver")) is not None
        await until("the node is ready again", lambda: ready("True"))
        await home.phase("newcomer", "Running", 60)
        now = await home.phase("calm", "Running")
        assert ids(now) == calm and now["containerStatuses"][0]["restartCount"] == 0

        async def gone() -> bool:
            return await get_or_none(home.api, "leaver") is None

        await until("what was deleted goes", gone)
