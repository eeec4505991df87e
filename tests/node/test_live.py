"""A whole node on a real API server: pods are created by a client, run in the simulated runtime, and go away."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import CONFIG_MAPS, LEASES, NODES, PODS, RUNTIME_CLASSES, Resource
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import FeatureGates
from kubeqos.model.annotations.wellknown import RUNTIME_HANDLER_ANNOTATION
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from tests.apiserver.live import LiveServer, live_server
from tests.node.admission.test_admission import OFFERS
from tests.node.pods import container, pod


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


@contextlib.asynccontextmanager
async def running_agent(
    server: LiveServer, folder: Path, offers: Iterable[Advertisement] = (), **settings: Any
) -> AsyncIterator[tuple[NodeAgent, HttpApi]]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    runtime = SimulatedRuntime(laptop8(), offers, logs=False)
    own = NodeSettings("n1", folder / "state", log_dir=folder / "logs", **settings)
    agent = NodeAgent(assemble(own, runtime, laptop8(), Hosting(api)))
    task = asyncio.create_task(agent.run())
    try:
        await asyncio.wait_for(agent.ready.wait(), 60)
        yield agent, api
        assert agent.validate() == []
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runtime.close()
        await api.close()


async def until(what: str, question: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        answer = await question()
        if answer:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


async def get_or_none(api: Api, name: str, resource: Resource = PODS) -> Any:
    try:
        return await api.get(resource, name, "default" if resource.namespaced else "")
    except ApiError as error:
        if error.not_found:
            return None
        raise


def bound(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = pod(name, *containers, **spec)
    for key in ("uid", "generation"):
        del made["metadata"][key]
    return made


async def test_a_pod_runs_and_is_deleted_gracefully(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):
        await api.create(PODS, bound("web", container(), container("side")))

        async def running() -> Any:
            found = await api.get(PODS, "web", "default")
            return found if (found.get("status") or {}).get("phase") == "Running" else None

        found = (await until("pod runs", running))["status"]
        ready = {one["type"]: one["status"] for one in found["conditions"]}
        assert ready == {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
            "PodScheduled": "True",
        }
        assert found["podIP"].startswith("10.88.") and found["hostIP"] == "127.0.0.1"
        assert [one["ready"] for one in found["containerStatuses"]] == [True, True]
        kubectl = ["kubectl", "--kubeconfig", server.kubeconfig, "get", "pod", "web", "--no-headers"]
        listed = await asyncio.to_thread(subprocess.run, kubectl, capture_output=True, text=True, check=True)
        assert listed.stdout.split()[:4] == ["web", "2/2", "Running", "0"]

        await api.delete(PODS, "web", "default")

        async def gone() -> bool:
            return await get_or_none(api, "web") is None

        await until("pod is gone", gone)


async def test_the_node_registers_itself_and_keeps_a_lease(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):

        async def registered() -> Any:
            node = await get_or_none(api, "n1", NODES)
            return node if node and (node.get("status") or {}).get("allocatable") else None

        node = await until("node registers", registered)
        assert node["status"]["capacity"]["cpu"] == "8"
        assert node["status"]["capacity"]["memory"] == "16Gi"
        assert node["status"]["allocatable"]["memory"] == "16284Mi"
        assert node["status"]["capacity"]["ephemeral-storage"] == "100Gi"
        assert node["status"]["allocatable"]["ephemeral-storage"] == "90Gi"
        ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")

        async def leased() -> Any:
            with contextlib.suppress(ApiError):
                return await api.get(LEASES, "n1", "kube-node-lease")

        lease = await until("lease is renewed", leased)
        assert lease["spec"]["holderIdentity"] == "n1"


@pytest.fixture(scope="module")
def classy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("classy"), FeatureGates.parse("QOSResources=true")) as live:
        yield live


async def kubectl(server: LiveServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(server.kubeconfig), *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


async def test_classes_from_manifest_to_runtime_and_a_resize_by_kubectl(
    classy_server: LiveServer, tmp_path: Path
) -> None:
    """KEP-3008: the node advertises, the pod asks, the status tells; a mutable class is changed in place."""
    gates = FeatureGates.parse("QOSResources=true")
    async with running_agent(classy_server, tmp_path, offers=OFFERS, gates=gates) as (agent, api):
        node = await until("classes are advertised", lambda: _node_with_classes(api))
        assert node["status"]["qosResources"]["podQoSResources"][0]["name"] == "network"
        ask = {"qosResources": [{"name": "rdt", "class": "gold"}, {"name": "blockio", "class": "slow"}]}
        await api.create(PODS, bound("web", container(resources=ask)))

        async def given() -> Any:
            status = (await api.get(PODS, "web", "default")).get("status") or {}
            found = (status.get("containerStatuses") or [{}])[0].get("qosResources")
            return {one["name"]: one["class"] for one in found} if found and status["phase"] == "Running" else None

        assert await until("classes are assigned", given) == {"rdt": "gold", "blockio": "slow"}
        patch = '{"spec":{"containers":[{"name":"main","resources":{"qosResources":[{"name":"rdt","class":"gold"},{"name":"blockio","class":"fast"}]}}]}}'  # noqa: E501
        done = await kubectl(classy_server, "patch", "pod", "web", "--subresource=resize", "-p", patch)
        assert done.returncode == 0, done.stderr

        async def changed() -> bool:
            return (await given() or {}).get("blockio") == "fast"

        await until("the class is changed in place", changed)
        (only,) = agent.runtime.core.containers.values()  # type: ignore[attr-defined]
        assert only.classes == {"rdt": "gold", "blockio": "fast"} and only.config.metadata.attempt == 0
        await api.delete(PODS, "web", "default", grace_seconds=1)


async def test_a_class_of_a_whole_pod_is_changed_or_refused_by_kubectl(
    classy_server: LiveServer, tmp_path: Path
) -> None:
    """KEP-3008, Beta: from the resize subresource to UpdatePodSandboxResources."""
    gates = FeatureGates.parse("QOSResources=true")
    storage = Advertisement("storage", Level.POD, False, (ClassInfo("near"), ClassInfo("far")))
    network = Advertisement("network", Level.POD, True, (ClassInfo("fast", 1), ClassInfo("slow")))
    async with running_agent(classy_server, tmp_path, offers=(network, storage), gates=gates) as (agent, api):
        await until("classes are advertised", lambda: _node_with_classes(api))
        raw = bound("moves", container())
        raw["spec"]["qosResources"] = [{"name": "network", "class": "slow"}, {"name": "storage", "class": "near"}]
        await api.create(PODS, raw)

        async def status() -> Any:
            return (await api.get(PODS, "moves", "default")).get("status") or {}

        async def runs() -> bool:
            return (await status()).get("phase") == "Running"

        await until("the pod runs", runs)

        async def resize(name: str, cls: str) -> None:
            patch = f'{{"spec":{{"qosResources":[{{"name":"{name}","class":"{cls}"}}]}}}}'
            done = await kubectl(classy_server, "patch", "pod", "moves", "--subresource=resize", "-p", patch)
            assert done.returncode == 0, done.stderr

        await resize("network", "fast")

        async def changed() -> bool:
            return {"name": "network", "class": "fast"} in (await status()).get("qosResources", ())

        await until("the sandbox has the other class", changed)
        (sandbox,) = agent.runtime.core.sandboxes.values()  # type: ignore[attr-defined]
        assert sandbox.classes == {"network": "fast", "storage": "near"}
        assert len(sandbox.containers) == 1, "nothing was started anew"
        await resize("storage", "far")

        async def pending() -> Any:
            found = [one for one in (await status())["conditions"] if one["type"] == "PodResizePending"]
            return found[0] if found else None

        refusal = await until("the other is refused", pending)
        text = "QoS resource storage cannot be changed while the pod runs"
        assert (refusal["reason"], refusal["message"]) == ("Infeasible", text)
        assert sandbox.classes == {"network": "fast", "storage": "near"}
        await api.delete(PODS, "moves", "default", grace_seconds=1)


async def test_the_handler_of_a_runtime_class_decides_which_classes_a_pod_gets(
    classy_server: LiveServer, tmp_path: Path
) -> None:
    """KEP-3008, Beta, integration with RuntimeClasses: from the object to the sandbox."""
    gates = FeatureGates.parse("QOSResources=true")
    classes = ClassInfo("gold"), ClassInfo("silver")
    rdt = Advertisement("rdt", Level.CONTAINER, True, classes, handlers={"kata": frozenset({"silver"})})
    async with running_agent(classy_server, tmp_path, offers=(rdt,), gates=gates) as (agent, api):

        async def advertised() -> Any:
            found = ((await _node_with_classes(api) or {}).get("status", {}).get("qosResources") or {}).get(
                "containerQoSResources"
            )
            return found[0].get("runtimeHandlers") if found else None

        assert await until("handlers are advertised", advertised) == [{"name": "kata", "classes": ["silver"]}]
        boxed = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"}}
        await api.create(RUNTIME_CLASSES, {**boxed, "handler": "kata"})

        async def create(name: str, cls: str, **spec: str) -> Any:
            ask = {"qosResources": [{"name": "rdt", "class": cls}]}
            raw = bound(name, container(resources=ask))
            raw["metadata"]["annotations"] = {RUNTIME_HANDLER_ANNOTATION: "claimed"}
            raw["spec"] |= spec
            return await api.create(PODS, raw)

        stored = await create("silver", "silver", runtimeClassName="boxed")
        assert stored["metadata"]["annotations"] == {RUNTIME_HANDLER_ANNOTATION: "kata"}
        assert "annotations" not in (await create("free", "gold"))["metadata"], "nobody claims a handler"
        await create("gold", "gold", runtimeClassName="boxed")

        async def phases() -> Any:
            pods = [await api.get(PODS, name, "default") for name in ("silver", "free", "gold")]
            found = [(one.get("status") or {}).get("phase") for one in pods]
            return found if found == ["Running", "Running", "Failed"] else None

        await until("two run and one is refused", phases)
        refused = (await api.get(PODS, "gold", "default"))["status"]
        assert refused["message"] == "Pod was rejected: QoS class rdt=gold not available to runtime handler kata"
        core = agent.runtime.core  # type: ignore[attr-defined]
        assert {one.config.metadata.name: one.runtime_handler for one in core.sandboxes.values()} == {
            "silver": "kata",
            "free": "",
        }
        shown = await kubectl(classy_server, "annotate", "pod", "silver", f"{RUNTIME_HANDLER_ANNOTATION}-")
        assert shown.returncode == 0, shown.stderr
        kept = (await api.get(PODS, "silver", "default"))["metadata"]["annotations"]
        assert kept == {RUNTIME_HANDLER_ANNOTATION: "kata"}, "what was written down stays"
        for name in ("silver", "free", "gold"):
            await api.delete(PODS, name, "default", grace_seconds=1)


async def _node_with_classes(api: HttpApi) -> Any:
    node = await get_or_none(api, "n1", NODES)
    return node if node and (node.get("status") or {}).get("qosResources") else None


async def test_configuration_reaches_the_container(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (agent, api):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"level": "debug"}}
        await api.create(CONFIG_MAPS, body, "default")
        env = [
            {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "BOTH", "value": "$(LEVEL)@$(NODE)"},
        ]
        await api.create(PODS, bound("configured", container(env=env)))

        async def made() -> Any:
            return list(agent.runtime.core.containers.values())  # type: ignore[attr-defined]

        (only,) = await until("container is made", made)
        assert {one.key: one.value for one in only.config.envs}["BOTH"] == b"debug@n1"
        missing = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "x"}}}]
        await api.create(PODS, bound("misconfigured", container(env=missing)))

        async def told() -> Any:
            status = (await api.get(PODS, "misconfigured", "default")).get("status") or {}
            return ((status.get("containerStatuses") or [{}])[0].get("state") or {}).get("waiting")

        async def config_error() -> Any:
            waiting = await told()
            return waiting if waiting and waiting.get("reason") == "CreateContainerConfigError" else None

        assert (await until("the mistake is told", config_error))["message"] == 'configmap "absent" not found'
