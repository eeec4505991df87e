"""One node around the CCI manager: the simulated runtime, real sockets, drivers in this process or in their own.

`Node` does what the node agent does, in the agent's order, so that a test can stop between any two steps (`Crash`).
The runtime is observed after every single call: a CPU that one container owns is never in another pod's set.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from kubeqos.cci.drivers import PLUGIN_TYPE, Deadlines
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.cci.sdk import Driver, running
from kubeqos.cci.stateservice import SOCKET_NAME, serve_state
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import State
from kubeqos.model.annotations.wellknown import HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.machine import Machine
from kubeqos.model.objects import PodView
from kubeqos.plugins.managers import AdmittedPod, ContainerRef, Grant, Refusal
from kubeqos.plugins.registration import Watcher
from kubeqos.rules.qos.podqos import effective_class
from kubeqos.topology.alignment.hints import ANYWHERE
from kubeqos.topology.claims.resolving import ResolvedClaim
from tests.node.updates.told import Told

QUICK = Deadlines(call=0.5, health=0.3, probe_every=0.3, probe_sick_every=0.05)
"""For drivers that hang."""
PATIENT = Deadlines(call=30.0, health=10.0, probe_every=0.3, probe_sick_every=0.05)
"""For all others: on a busy machine a healthy one may take seconds."""
DRIVER = "reference.cci.kubeqos.io"

KEP_CLAIM = """{
    "cores" : ["5" , "20"],
    "device attributes" :  [
      "NUMA-DEVICE-AFFINITY-REQUIRED",
      "NO-DEVICE-AFFINITY"
      ],
    "mem attributes" : [
      "NUMA-MEM-AFFINITY-BIND-REQUIRED",
      "NO-MEM-AFFINITY"
    ],
    "cpu attributes" : [
      ["EXCLUSIVE", "CORE-SIBLING-PREFERRED"],
      ["SHARED"]
    ]
}
"""

_serial = itertools.count(1)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def cores(*counts: str, cpu: list[list[str]] | None = None, mem: list[str] | None = None) -> str:
    """A claim's parameters."""
    document: dict[str, Any] = {"cores": list(counts)}
    if cpu:
        document["cpu attributes"] = cpu
    if mem:
        document["mem attributes"] = mem
    return json.dumps(document)


def exclusive(count: int) -> str:
    return cores(str(count), cpu=[["EXCLUSIVE"]])


def bounds(parameters: str) -> tuple[int, int]:
    """The requests and limits that go with a claim."""
    ends = [str(one).partition("-") for one in json.loads(parameters)["cores"]]
    return sum(int(low) for low, _, _ in ends), sum(int(high or low) for low, _, high in ends)


def container(name: str = "main", claim: str = "", parameters: str = "", **limits: str) -> dict[str, Any]:
    """A container; with a claim it has the requests and limits that the claim wants."""
    made: dict[str, Any] = {"name": name, "image": "example.org/app:1"}
    if claim:
        least, most = bounds(parameters)
        made["resources"] = {
            "requests": {"cpu": str(least)},
            "limits": {"cpu": str(most), **limits},
            "claims": [{"name": claim}],
        }
    return made


def admitted(
    name: str, *containers: dict[str, Any], claims: dict[str, str] | None = None, driver: str = DRIVER, **spec: Any
) -> AdmittedPod:
    """A pod whose claims are resolved already: name → parameters."""
    uid = f"uid-{name}-{next(_serial)}"
    raw = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "annotations": spec.pop("annotations", {}),
        },
        "spec": {"containers": list(containers) or [container()], **spec},
    }
    view = PodView.of(raw)
    resolved = {
        claim: ResolvedClaim(
            claim, "default", f"{name}-{claim}", f"{uid}/{claim}", "cpus", driver, text, 'ConfigMap "default/cfg"'
        )
        for claim, text in (claims or {}).items()
    }
    return AdmittedPod(view, raw, effective_class(view), resolved)


def pod(name: str, parameters: str = "", driver: str = DRIVER, **limits: str) -> AdmittedPod:
    """A pod of one container, with one claim or none."""
    if not parameters:
        return admitted(name)
    one = container("main", "compute", parameters, **limits)
    return admitted(name, one, claims={"compute": parameters}, driver=driver)


class Crash(Exception):
    """The agent dies here."""


class Node:
    """One node. `boundary` is called with the name of each step before it is taken."""

    deadlines = PATIENT

    def __init__(self, folder: Path, machine: Machine | None = None, **settings: Any) -> None:
        self.folder = folder
        self.machine = machine or kep80()
        self.settings = CciSettings(**{"deadlines": self.deadlines, **settings})
        self.runtime = SimulatedRuntime(self.machine, logs=False)
        self.sockets = Path(tempfile.mkdtemp(prefix="cci-"))  # a socket's path is short, a test's folder is not
        self.registry = self.sockets / "registry"
        self.pods: dict[str, AdmittedPod] = {}
        self.ids: dict[tuple[str, str], str] = {}
        self.attempts: dict[tuple[str, str], int] = {}
        self.sandboxes: dict[str, str] = {}
        self.boundary: Callable[[str], None] = lambda _step: None
        self.writes: list[tuple[str, str]] = []
        self.ledger: Any = None
        """What the agent's ledger remembers of the manager; tests that want one take it from `manager.save()`."""
        self.time = 0.0
        self.events: list[tuple[str, str]] = []
        self.pod_events: list[tuple[str, str, str]] = []
        self.observed = 0
        self._stack = contextlib.AsyncExitStack()
        self._observe()

    async def __aenter__(self) -> Node:
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        await self.boot()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.halt()
        await self.runtime.close()
        shutil.rmtree(self.sockets)

    async def boot(self) -> list[str]:
        """An agent starts on what is there."""
        state = self.folder / "state"
        self.manager = CciManager(
            self.machine,
            state,
            self.settings,
            clock=lambda: self.time,
            emit=lambda reason, message: self.events.append((reason, message)),
            emit_pod=lambda pod, reason, message: self.pod_events.append((pod.uid, reason, message)),
        )
        repaired = await self.manager.restore(self.ledger, self.pods)
        watcher = Watcher([self.registry], {PLUGIN_TYPE: self.manager.drivers}, scan_seconds=0.02)
        self._stack = contextlib.AsyncExitStack()
        await self._stack.enter_async_context(self.manager.running())
        await self._stack.enter_async_context(serve_state(self.manager.store, self.sockets / SOCKET_NAME))
        task = asyncio.create_task(watcher.run())
        self._stack.push_async_callback(_cancel, task)
        self.told = Told(self.machine.online)
        self.told.found({key: self._has(identity) for key, identity in self.ids.items()}, self.manager.grants())
        await self.apply()
        return repaired

    async def halt(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> list[str]:
        """The agent dies and comes back; containers and drivers live on."""
        await self.halt()
        return await self.boot()

    # ---- What the agent does

    async def start(self, wanted: AdmittedPod) -> Refusal | None:
        """Admit a pod and run its containers, or say why not."""
        refusal = await self.admit(wanted)
        if refusal is None:
            for ref, _ in wanted.containers():
                refusal = await self.run(wanted, ref)
                if refusal is not None:
                    return refusal
        return refusal

    async def admit(self, wanted: AdmittedPod) -> Refusal | None:
        for ref, _ in wanted.containers():
            self.boundary(f"allocate {ref.name}")
            answer = await self.manager.allocate(wanted, ref, ANYWHERE)
            if isinstance(answer, Refusal):
                await self.manager.release(wanted.uid)
                return answer
        self.boundary("ledger")
        self.pods[wanted.uid] = wanted
        await self.apply()
        return None

    async def run(self, wanted: AdmittedPod, ref: ContainerRef) -> Refusal | None:
        metadata = cri.PodSandboxMetadata(name=wanted.view.metadata.name, uid=wanted.uid, namespace="default")
        config = cri.PodSandboxConfig(metadata=metadata)
        if wanted.uid not in self.sandboxes:
            self.boundary("sandbox")
            self.sandboxes[wanted.uid] = await self.runtime.run_pod_sandbox(config)
        self.boundary(f"create {ref.name}")
        grant = self.manager.grant(ref)
        assert grant is not None
        self.attempts[wanted.uid, ref.name] = attempt = self.attempts.get((wanted.uid, ref.name), -1) + 1
        described = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=ref.name, attempt=attempt),
            image=cri.ImageSpec(image="example.org/app:1"),
            annotations=dict(grant.annotations),
            linux=cri.LinuxContainerConfig(resources=cri.LinuxContainerResources(**dict(grant.properties))),
        )
        identity = await self.runtime.create_container(self.sandboxes[wanted.uid], described, config)
        self.ids[wanted.uid, ref.name] = identity
        self.told.created((wanted.uid, ref.name), grant)
        self.boundary(f"add {ref.name}")
        refusal = await self.manager.before_start(wanted, ref, identity, f"/kubepods/pod{wanted.uid}")
        if refusal is None:
            self.boundary(f"start {ref.name}")
            await self.runtime.start_container(identity)
        return refusal

    async def stop(self, wanted: AdmittedPod) -> None:
        """Remove a pod's containers, then give back what it held."""
        self.boundary("stop")
        if wanted.uid in self.sandboxes:
            await self.runtime.stop_pod_sandbox(self.sandboxes[wanted.uid])
            await self.runtime.remove_pod_sandbox(self.sandboxes.pop(wanted.uid))
        self.ids = {key: identity for key, identity in self.ids.items() if key[0] != wanted.uid}
        self.told.removed(wanted.uid)
        self.boundary("release")
        await self.manager.release(wanted.uid)
        self.boundary("forget")
        self.pods.pop(wanted.uid, None)
        await self.apply()

    async def apply(self) -> None:
        """Tell running containers what changed."""
        for update in self.told.updates(self.manager.grants()):
            uid, name = update.key
            self.boundary(f"update {name}")
            await self._write(self.ids[update.key], update.grant)
            self.writes.append((self.pods[uid].view.metadata.name, str(update.grant.properties["cpuset_cpus"])))

    def _has(self, identity: str) -> Grant:
        """What the runtime says that a container has."""
        resources = self.runtime.core.containers[identity].resources
        values = {name: getattr(resources, name) for name in ("cpuset_cpus", "cpuset_mems")}
        return Grant({name: value for name, value in values.items() if value})

    async def _write(self, identity: str, grant: Grant) -> None:
        linux = cri.LinuxContainerResources(**dict(grant.properties))
        await self.runtime.update_container_resources(
            cri.UpdateContainerResourcesRequest(container_id=identity, linux=linux)
        )

    # ---- What tests ask

    def cpus(self, wanted: AdmittedPod, name: str = "main") -> CpuSet:
        """The cpuset of a running container, read from the runtime."""
        return cpus(self.runtime.core.containers[self.ids[wanted.uid, name]].resources.cpuset_cpus)

    def memory(self, wanted: AdmittedPod, name: str = "main") -> str:
        return self.runtime.core.containers[self.ids[wanted.uid, name]].resources.cpuset_mems

    @property
    def available(self) -> CpuSet:
        return self.manager.store.available_resources()

    async def until(self, what: str, question: Callable[[], Any], seconds: float = 120) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not question():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
            await asyncio.sleep(0.01)

    async def driver_up(self, name: str = DRIVER) -> None:
        await self.until(f"{name} is well", lambda: not isinstance(self.manager.drivers.choose(name), str))

    async def driver_down(self, name: str = DRIVER) -> None:
        await self.until(f"{name} is away", lambda: isinstance(self.manager.drivers.choose(name), str))

    @contextlib.asynccontextmanager
    async def driver(self, driver: Driver) -> AsyncIterator[Driver]:
        """A driver in this process that is registered."""
        async with running(driver, self.registry):
            await self.driver_up(driver.name)
            yield driver

    def validate(self) -> None:
        assert self.manager.validate() == []
        self.runtime.core.validate()

    # ---- The observer

    def _observe(self) -> None:
        """Look at the runtime after every call that it performs."""
        perform = self.runtime._perform

        def observed(handler: Any, request: object) -> Any:
            answer = perform(handler, request)
            self.observed += 1
            assert overlaps(self.runtime) == []
            return answer

        self.runtime._perform = observed  # type: ignore[method-assign]


def overlaps(runtime: SimulatedRuntime) -> list[str]:
    """CPUs that a running container owns, by what it was created with, and that another pod's can run on."""
    core = runtime.core
    alive = [one for one in core.containers.values() if one.state is State.RUNNING]
    found = []
    for one in alive:
        owned = owned_by(one.config.annotations.get(HOLDINGS_ANNOTATION, ""))
        for other in alive:
            same_pod = (
                core.sandboxes[one.sandbox_id].config.metadata.uid
                == core.sandboxes[other.sandbox_id].config.metadata.uid
            )
            both = owned & cpus(other.resources.cpuset_cpus)
            if both and not same_pod:
                found.append(f"{both} of {one.id} is in the set of {other.id}")
        if not one.resources.cpuset_cpus:
            found.append(f"{one.id} has no cpuset")
    return found


def owned_by(holdings: str) -> CpuSet:
    together = CpuSet()
    for holding in json.loads(holdings)["holdings"] if holdings else ():
        for one in holding["sets"]:
            if one["exclusive"]:
                together |= cpus(one["cpuset"])
    return together


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


class DriverProcess:
    """The test driver as a process of its own, with a script that tests rewrite."""

    def __init__(self, node: Node, machine: str = "kep80", name: str = DRIVER) -> None:
        self.node, self.machine, self.name = node, machine, name
        self.script = node.folder / f"{name}.json"
        self.process: subprocess.Popen[bytes] | None = None

    def rule(self, *rules: dict[str, Any]) -> None:
        self.script.write_text(json.dumps(rules))

    def spawn(self) -> None:
        command = [sys.executable, "-m", "kubeqos.cli.main", "driver", "test", "--machine", self.machine]
        command += ["--name", self.name, "--registry", str(self.node.registry), "--script", str(self.script)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)

    async def up(self) -> None:
        self.spawn()
        await self.node.driver_up(self.name)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def driver_process(node: Node, **options: Any) -> Iterator[DriverProcess]:
    process = DriverProcess(node, **options)
    try:
        yield process
    finally:
        process.kill()
