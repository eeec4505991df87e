"""Pods that change while they run: resize of cpu, memory and classes; probes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from kubeqos.model.cpuset import CpuSet
from tests.node.admission.test_admission import OFFERS, classed, guaranteed
from tests.node.pods import container, pod, resources
from tests.node.world import World


def changed(raw: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """The pod with other resources for its first container, as the resize subresource leaves it."""
    new = copy.deepcopy(raw)
    new["spec"]["containers"][0]["resources"] = resources
    new["metadata"]["generation"] += 1
    return new


def condition(node: World, uid: str, kind: str) -> dict[str, Any] | None:
    return next((one for one in node.status(uid)["conditions"] if one["type"] == kind), None)


# ---- Resize


@pytest.mark.proves("resize")
async def test_cpu_and_memory_are_resized_in_place(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("web", container(resources={"requests": {"cpu": "1", "memory": "1Gi"}}))
        uid = await node.start(raw)
        before = node.running(uid)["main"]
        wish = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}}
        await node.start(changed(raw, wish))
        after = node.running(uid)["main"]
        assert after.id == before.id and after.resources.cpu_shares == 2048 and after.resources.cpu_quota == 300_000
        assert node.container(uid)["resources"] == wish
        assert condition(node, uid, "PodResizeInProgress") is None


async def test_a_resize_that_never_fits_is_infeasible(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("web", container(resources={"requests": {"cpu": "1"}}))
        uid = await node.start(raw)
        await node.start(changed(raw, {"requests": {"cpu": "20"}}))
        pending = condition(node, uid, "PodResizePending")
        assert pending is not None and pending["reason"] == "Infeasible"
        assert node.container(uid)["allocatedResources"] == {"cpu": "1"}
        assert node.running(uid)["main"].resources.cpu_shares == 1024


@pytest.mark.proves("resize")
async def test_a_deferred_resize_happens_when_there_is_room(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("web", container(resources={"requests": {"cpu": "1"}}))
        uid = await node.start(raw)
        other = await node.start(pod("other", container(resources={"requests": {"cpu": "5"}})))
        await node.start(changed(raw, {"requests": {"cpu": "6"}}))
        pending = condition(node, uid, "PodResizePending")
        assert pending is not None and pending["reason"] == "Deferred"
        await node.end(other)
        await node.advance(40)
        assert node.container(uid)["allocatedResources"] == {"cpu": "6"}
        assert condition(node, uid, "PodResizePending") is None


async def test_exclusive_cpus_cannot_be_resized(tmp_path: Path) -> None:
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:
        raw = pod("owner", guaranteed("2"))
        uid = await node.start(raw)
        await node.start(changed(raw, resources(cpu="3", memory="1Gi")))
        pending = condition(node, uid, "PodResizePending")
        assert pending is not None and pending["reason"] == "Infeasible"
        assert len(CpuSet.parse(node.running(uid)["main"].resources.cpuset_cpus)) == 2


async def test_a_mutable_class_is_changed_in_place_and_an_immutable_one_is_not(tmp_path: Path) -> None:
    async with World(tmp_path, offers=OFFERS) as node:
        raw = pod("web", classed(blockio="slow"))
        uid = await node.start(raw)
        before = node.running(uid)["main"].id
        await node.start(changed(raw, {"qosResources": [{"name": "blockio", "class": "fast"}]}))
        assert {"name": "blockio", "class": "fast"} in node.container(uid)["qosResources"]
        assert node.running(uid)["main"].id == before

        fixed = pod("fixed", classed(rdt="silver"))
        uid = await node.start(fixed)
        await node.start(changed(fixed, {"qosResources": [{"name": "rdt", "class": "gold"}]}))
        pending = condition(node, uid, "PodResizePending")
        assert pending is not None
        assert pending["message"] == "QoS resource rdt cannot be changed while the pod runs"


async def test_an_ephemeral_container_runs_beside_the_others(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("web")
        uid = await node.start(raw)
        debugged = copy.deepcopy(raw)
        debugged["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1"}]
        for _ in range(2):
            await node.start(debugged)
        (told,) = node.status(uid)["ephemeralContainerStatuses"]
        assert told["state"].keys() == {"running"} and set(node.running(uid)) == {"main", "debugger"}
        assert node.events.count(("Started", "Container started: debugger")) == 1


async def test_who_debugs_a_container_shares_its_cpus_and_nobody_elses(tmp_path: Path) -> None:
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:

        def cpus(uid: str, name: str) -> CpuSet:
            return CpuSet.parse(node.running(uid)[name].resources.cpuset_cpus)

        own = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
        raw, shared = pod("exact", container(resources=own)), pod("web")
        exact, web = await node.start(raw), await node.start(shared)
        for one in (raw, shared):
            asked = copy.deepcopy(one)
            asked["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1"}]
            await node.start(asked)
        assert cpus(exact, "debugger") == cpus(exact, "main")
        assert cpus(web, "debugger") == cpus(web, "main")
        late = await node.start(pod("late", container(resources=own)))
        assert cpus(web, "debugger") == cpus(web, "main")
        assert not cpus(web, "debugger") & cpus(late, "main")


# ---- Probes


def probed(kind: str, **probe: Any) -> dict[str, Any]:
    return container(**{f"{kind}Probe": {"periodSeconds": 5, "failureThreshold": 2, **probe}})


async def test_readiness_follows_its_probe(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        check = {"exec": {"command": ["cat", "/ready"]}, "initialDelaySeconds": 5}
        script = {"simulate.kubeqos.io/exec.main": "cat /ready => 0 yes"}
        uid = await node.start(pod("web", probed("readiness", **check), annotations=script))
        assert node.conditions(uid)["Ready"] == "False" and node.container(uid)["ready"] is False
        await node.advance(7)
        assert node.conditions(uid)["Ready"] == "True"


async def test_a_failed_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        script = {"simulate.kubeqos.io/exec.main": "GET /healthz => 1 dead"}
        check = probed("liveness", httpGet={"path": "/healthz", "port": 80})
        uid = await node.start(pod("web", check, annotations=script))
        await node.advance(8)
        assert node.container(uid)["restartCount"] == 1
        assert ("Unhealthy", "Liveness probe failed: dead") in node.events
        assert ("Killing", "Container main failed liveness probe, will be restarted") in node.events


async def test_a_startup_probe_holds_the_others_back(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        script = {"simulate.kubeqos.io/exec.main": "CONNECT 80 => 1 refused\ncat /alive => 1 no"}
        check = probed("startup", tcpSocket={"port": 80}, failureThreshold=6)
        check["livenessProbe"] = {"exec": {"command": ["cat", "/alive"]}, "periodSeconds": 1, "failureThreshold": 1}
        uid = await node.start(pod("web", check, annotations=script))
        await node.advance(20)
        assert node.container(uid)["started"] is False and node.container(uid)["restartCount"] == 0
        assert not any(message.startswith("Liveness") for _, message in node.events)
        await node.advance(15)
        assert node.container(uid)["restartCount"] == 1


async def test_a_sidecar_counts_as_started_when_its_startup_probe_says_so(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        proxy = {**probed("startup", exec={"command": ["up"]}, initialDelaySeconds=3), "name": "proxy"}
        script = {"simulate.kubeqos.io/exec.proxy": "up => 0"}
        uid = await node.start(pod("web", initContainers=[{**proxy, "restartPolicy": "Always"}], annotations=script))
        assert set(node.running(uid)) == {"proxy"}
        await node.advance(5)
        assert set(node.running(uid)) == {"proxy", "main"}
