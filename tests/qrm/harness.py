"""A whole node for stories about plugins: real plugin processes, real sockets, the manager in a node agent, and a
simulated runtime in which the outcome is read."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.hardware.machinefile import machine_to_yaml
from kubeqos.model.machine import Machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod import effects as fx
from kubeqos.plugins.managers import AdmittedPod, ContainerRef
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.registry import registering
from kubeqos.qrm.settings import Event, QrmSettings
from kubeqos.topology.alignment.hints import Policy, Scope

PATIENCE_SECONDS = 60.0


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose sockets have short enough paths."""
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        yield Path(name)


async def until(what: str, condition: Callable[[], object | Awaitable[object]]) -> Any:
    """Wait until something is true, and give it back."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        found = condition()
        answer = await found if isinstance(found, Awaitable) else found
        if answer:
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError(f"never happened: {what}")


def pod(
    name: str, role: str = "", *, uid: str = "", annotations: dict[str, str] | None = None, **requests: str
) -> dict[str, Any]:
    """A pod with one container, a role and requests."""
    container = {"name": "container0", "image": "example.org/app:1", "resources": {"requests": requests}}
    return pod_of(name, [container], role, uid=uid, annotations=annotations)


def pod_of(
    name: str,
    containers: list[dict[str, Any]],
    role: str = "",
    *,
    uid: str = "",
    annotations: dict[str, str] | None = None,
    init: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    marks = {"kubernetes.io/pod-role": role} if role else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "annotations": {**marks, **(annotations or {})},
            "generation": 1,
        },
        "spec": {
            "nodeName": "n1",
            "containers": containers,
            "initContainers": init or [],
            "terminationGracePeriodSeconds": 0,
        },
    }


def container(name: str, **requests: str) -> dict[str, Any]:
    return {"name": name, "image": "example.org/app:1", "resources": {"requests": requests}}


def admitted(raw: dict[str, Any]) -> AdmittedPod:
    return AdmittedPod.of(raw)


def refs(known: AdmittedPod) -> list[ContainerRef]:
    return [ref for ref, _ in known.containers()]


class PluginProcess:
    """A built-in plugin as users run it: `kubeqos plugin NAME …`."""

    def __init__(self, folder: Path, kind: str, machine: Machine, config: str) -> None:
        self.kind = kind
        self.registry = folder / "r"
        self.state = folder / f"{kind}.state"
        self.log = folder / f"{kind}.log"
        machine_file, config_file = folder / "machine.yaml", folder / f"{kind}.yaml"
        machine_file.write_text(machine_to_yaml(machine))
        config_file.write_text(config)
        self.command = [
            *(sys.executable, "-m", "kubeqos.cli.main", "plugin", kind),
            *("--machine", str(machine_file), "--config", str(config_file)),
            *("--registry", str(self.registry), "--state", str(self.state)),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> PluginProcess:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        return self

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def set_pool(self, *sizes: str) -> subprocess.CompletedProcess[str]:
        """What an external QoS system would call."""
        command = [*self.command[:3], "plugin", "cpu", "set-pool", "--socket", str(self.registry / "cpu.sock"), *sizes]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class QrmNode:
    """A node agent with a QoS resource manager on a simulated runtime."""

    def __init__(self, agent: NodeAgent, manager: QosResourceManager, runtime: SimulatedRuntime) -> None:
        self.agent = agent
        self.manager = manager
        self.runtime = runtime
        self.events: list[Event] = []
        self.told: list[tuple[str, str]] = []
        """Kubernetes events of the agent: reason and message."""
        self.calls: list[cri.UpdateContainerResourcesRequest] = []
        self._listen()

    def _listen(self) -> None:
        """Write down every update that the runtime is asked for."""
        update = self.runtime.update_container_resources

        async def noted(request: cri.UpdateContainerResourcesRequest) -> None:
            self.calls.append(request)
            await update(request)

        self.runtime.update_container_resources = noted  # type: ignore[method-assign]

    async def plugins(self, *names: str) -> None:
        """Wait until these plugins are in use."""
        for name in names:
            await until(f"plugin {name}", lambda name=name: (e := self.manager.endpoints.get(name)) and e.usable)

    def submit(self, raw: dict[str, Any]) -> None:
        self.agent.feed(fx.PodSet(raw))

    def remove(self, uid: str) -> None:
        self.agent.feed(fx.PodGone(uid))

    async def run(self, raw: dict[str, Any]) -> dict[str, str | int]:
        """Start a pod and return the resources of its first container, as the runtime has them."""
        self.submit(raw)
        uid = raw["metadata"]["uid"]
        await self.until_running(uid)
        return self.resources(uid)

    async def until_running(self, uid: str) -> None:
        await until(f"{uid} runs", lambda: self.running(uid))

    async def refused(self, raw: dict[str, Any]) -> str:
        """Submit a pod that is not admitted; returns why."""
        self.submit(raw)
        uid = raw["metadata"]["uid"]
        await until(f"{uid} is refused", lambda: self.status(uid).get("phase") == "Failed")
        status = self.status(uid)
        return f"{status['reason']}: {status['message']}"

    def status(self, uid: str) -> dict[str, Any]:
        known = self.agent.core.pods.get(uid)
        return dict(known.status) if known is not None and getattr(known, "status", None) else {}

    def running(self, uid: str) -> bool:
        return any(one.state.name == "RUNNING" for one in self._containers(uid))

    def _containers(self, uid: str) -> list[Any]:
        return [
            one
            for one in self.runtime.core.containers.values()
            if self.runtime.core.sandboxes[one.sandbox_id].config.metadata.uid == uid
        ]

    def config(self, uid: str, name: str = "container0") -> cri.ContainerConfig:
        """How the container was created."""
        return next(one.config for one in self._containers(uid) if one.config.metadata.name == name)

    def resources(self, uid: str, name: str = "container0") -> dict[str, str | int]:
        """What the container has now."""
        found = next(one for one in self._containers(uid) if one.config.metadata.name == name)
        return {field.name: value for field, value in found.resources.ListFields() if not hasattr(value, "items")}


@contextlib.asynccontextmanager
async def qrm_node(
    folder: Path,
    machine: Machine,
    *,
    policy: Policy = Policy.RESTRICTED,
    scope: Scope = Scope.CONTAINER,
    settings: QrmSettings | None = None,
    runtime: SimulatedRuntime | None = None,
    cgroup_version: int = 2,
    pods: LocalPods | None = None,
) -> AsyncIterator[QrmNode]:
    events: list[Event] = []
    manager = QosResourceManager(settings or QrmSettings(reconcile_seconds=0.1), machine, emit=events.append)
    own = runtime is None
    runtime = runtime or SimulatedRuntime(machine, logs=False)
    gates = FeatureGates.default().set({QRM: True})
    node = NodeSettings(
        "n1", folder / "node", log_dir=folder / "logs", gates=gates, topology_policy=policy, topology_scope=scope
    )
    told: list[tuple[str, str]] = []
    hosting = Hosting(pods=pods, on_event=lambda reason, message: told.append((reason, message)))
    parts = assemble(node, runtime, machine, hosting, managers=[manager])
    agent = NodeAgent(replace(parts, context=replace(parts.context, cgroup_version=cgroup_version)))
    async with registering(manager, watched=folder / "r", folder=folder / "legacy", scan_seconds=0.05):
        task = asyncio.create_task(agent.run())
        await asyncio.wait_for(agent.ready.wait(), PATIENCE_SECONDS)
        found = QrmNode(agent, manager, runtime)
        found.events, found.told = events, told
        try:
            yield found
            assert manager.validate() == []
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    await manager.close()
    if own:
        await runtime.close()


@contextlib.contextmanager
def plugin_processes(*plugins: PluginProcess) -> Iterator[None]:
    """Plugins that are ended at the end of a block; their logs are shown when the block fails."""
    for plugin in plugins:
        plugin.start()
    try:
        yield
    except BaseException:
        for plugin in plugins:
            print(f"--- {plugin.kind}:\n{plugin.log.read_text()[-3000:]}")
        raise
    finally:
        for plugin in plugins:
            if plugin.process is not None and plugin.process.poll() is None:
                plugin.kill()
