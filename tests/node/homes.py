"""Two homes for one story: a node on the simulated runtime, and one on real containerd behind the relay.

Both are reached through a real API server, with the controllers running. What a story needs to know of the runtime
(where a process may run, which classes it is in) each home answers from the best source it has: the kernel, or the
simulation's own books.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS, REPLICATION_CONTROLLERS
from kubeqos.codec import decode_json
from kubeqos.controllers.manager import ControllerManager
from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.errors import Code
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.relay.server import Relay
from kubeqos.cri.relay.server import Settings as RelaySettings
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.faults import Fault, Faults
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import Machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.node.run import NodeServices, serve_node
from tests.apiserver.live import LiveServer
from tests.cri.containerd import CGROUPS, Containerd
from tests.cri.providers.trees import TreeKernel, plant
from tests.node.pods import container
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until
from tests.shared import cgroups

OFFERS = (
    Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("exclusive", 1), ClassInfo("limited")), "limited"),
    Advertisement("blockio", Level.CONTAINER, True, (ClassInfo("high-prio"), ClassInfo("throttled"))),
)
CLASSES = """\
resources:
  rdt:
    provider: rdt
    default: limited
    capacity: {exclusive: 1}
    config:
      partitions:
        own: {l3Allocation: "60%", classes: {exclusive: {}}}
        rest: {l3Allocation: "40%", classes: {limited: {}}}
  blockio:
    provider: blockio
    config:
      Classes:
        high-prio: [{Devices: [/dev/vda], ThrottleReadBps: 1Gi}]
        throttled: [{Devices: [/dev/vda], ThrottleReadBps: 1Mi}]
"""
GATES = FeatureGates.parse("QOSResources=true")


@dataclass(frozen=True)
class Work:
    """What a container does: hold some memory, or grow until it is killed."""

    name: str = "main"
    holds_mib: int = 0
    grows: bool = False
    seconds: int | None = None
    """How long it runs; None for ever."""
    resources: dict[str, Any] = field(default_factory=dict)


class Home:
    """A node with its API server."""

    def __init__(self, server: LiveServer, folder: Path, machine: Machine) -> None:
        self.server, self.folder, self.machine = server, folder, machine
        self.agent: NodeAgent
        self.services: NodeServices
        self.api: HttpApi

    # ---- What the homes do differently

    def container(self, work: Work) -> dict[str, Any]:
        raise NotImplementedError

    def spec(self, *works: Work) -> dict[str, Any]:
        """Fields of a pod's spec, and its annotations."""
        raise NotImplementedError

    async def cpus(self, identity: str) -> CpuSet:
        """Where a container's process may run."""
        raise NotImplementedError

    async def classes(self, identity: str) -> dict[str, str]:
        """The classes in which a container really is."""
        raise NotImplementedError

    async def limits(self, identity: str) -> tuple[int, int]:
        """A container's CPU quota in microseconds and its memory limit in bytes."""
        raise NotImplementedError

    async def withdraw(self, resource: str, class_name: str) -> None:
        """The node's administrator removes a class."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def runtime_away(self) -> AsyncIterator[None]:
        """The runtime is killed for the duration of a block; its containers live on."""
        raise NotImplementedError
        yield

    # ---- What all stories do

    def pod(self, name: str, *works: Work, **spec: Any) -> dict[str, Any]:
        chosen = works or (Work(),)
        return bound(name, *map(self.container, chosen), **self.spec(*chosen), **spec)

    async def start(self, name: str, *works: Work, **spec: Any) -> dict[str, Any]:
        """Create a pod and wait until it runs; its status."""
        await self.api.create(PODS, self.pod(name, *works, **spec))
        return await self.phase(name, "Running")

    async def phase(self, name: str, wanted: str, seconds: float = 120) -> dict[str, Any]:
        async def reached() -> Any:
            status = (await get_or_none(self.api, name) or {}).get("status") or {}
            started = all("running" in one["state"] for one in status.get("containerStatuses", ()))
            return status if status.get("phase") == wanted and (started or wanted != "Running") else None

        try:
            found: dict[str, Any] = await until(f"{name} is {wanted}", reached, seconds)
        except AssertionError as error:
            pods = [one for one in self.agent.core.pods.values() if one.view.metadata.name == name]
            known = [(one.status, list(one.story)) for one in pods]
            raise AssertionError(f"{error}: {known}; {list(self.services.housekeeper.pressure.story)[-9:]}") from error
        return found

    async def empty(self) -> None:
        """Remove every pod, by its owner first; the runtime must be empty then."""
        for resource in (REPLICATION_CONTROLLERS, PODS):
            for raw in (await self.api.list(resource, "default")).items:
                metadata = decode_json(raw)["metadata"]
                if "kubernetes.io/config.mirror" not in metadata.get("annotations", {}):
                    try:
                        await self.api.delete(resource, metadata["name"], "default", grace_seconds=1)
                    except ApiError as error:  # its controller, or the collector of garbage, was there before us
                        if not error.not_found:
                            raise

        async def gone() -> bool:
            return not await self.agent.runtime.list_pod_sandboxes()

        await until("nothing is left in the runtime", gone, 60)

    @contextlib.asynccontextmanager
    async def running(
        self, runtime: Runtime, services: ServiceSettings, pressure: PressureSettings | None = None, **settings: Any
    ) -> AsyncIterator[None]:
        own = NodeSettings(
            "n1", self.folder / "state", log_dir=self.folder / "logs", gates=GATES, status_seconds=0.3, **settings
        )
        self.api = HttpApi.from_kubeconfig(self.server.kubeconfig)
        self._parts = own, runtime, services, pressure
        controllers = asyncio.create_task(ControllerManager(self.api).run())
        try:
            await self._boot()
            yield
            assert self.agent.validate() == []
            await self.empty()
        finally:
            await self.halt()
            controllers.cancel()
            await asyncio.gather(controllers, return_exceptions=True)
            await self.api.close()

    async def _boot(self) -> None:
        settings, runtime, services, pressure = self._parts
        parts = assemble(settings, runtime, self.machine, Hosting(self.api), pressure=pressure, services=services)
        self.agent = NodeAgent(parts)
        self._stack = contextlib.AsyncExitStack()
        self.services = await self._stack.enter_async_context(serve_node(self.agent))
        self._task = asyncio.create_task(self.agent.run())
        await asyncio.wait_for(self.agent.ready.wait(), 60)

    async def halt(self) -> None:
        """The agent ends; its containers live on."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()

    async def restart(self, between: Callable[[Path], None]) -> None:
        """A new agent takes over; `between` is done to the state folder of the old one."""
        await self.halt()
        between(self.agent.settings.state_dir)
        await self._boot()


class SimulatedHome(Home):
    runtime: SimulatedRuntime

    def container(self, work: Work) -> dict[str, Any]:
        ends = {"command": ["sh", "-c", f"sleep {work.seconds}"]} if work.seconds is not None else {}
        return container(work.name, resources=work.resources, **ends)

    def spec(self, *works: Work) -> dict[str, Any]:
        loads = {}
        for work in works:
            grows = " growth=20Mi/s" if work.grows else ""
            loads[f"simulate.kubeqos.io/load.{work.name}"] = f"memory={work.holds_mib}Mi{grows}"
        return {"annotations": loads}

    async def cpus(self, identity: str) -> CpuSet:
        return CpuSet.parse(self.runtime.core.containers[identity].resources.cpuset_cpus)

    @contextlib.asynccontextmanager
    async def runtime_away(self) -> AsyncIterator[None]:
        self.runtime.faults = Faults(fault={"*": Fault(Code.UNAVAILABLE, 1.0)})
        try:
            yield
        finally:
            self.runtime.faults = None

    async def limits(self, identity: str) -> tuple[int, int]:
        found = self.runtime.core.containers[identity].resources
        return found.cpu_quota, found.memory_limit_in_bytes

    async def classes(self, identity: str) -> dict[str, str]:
        return dict(self.runtime.core.containers[identity].classes)

    async def withdraw(self, resource: str, class_name: str) -> None:
        self.runtime.set_offers(
            [
                Advertisement(one.name, one.level, one.mutable, tuple(c for c in one.classes if c.name != class_name))
                if one.name == resource
                else one
                for one in OFFERS
            ]
        )


class ContainerdHome(Home):
    containerd: Containerd
    relay: Relay
    resctrl: Path

    def container(self, work: Work) -> dict[str, Any]:
        if work.seconds is not None:
            return busybox(work.name, f"sleep {work.seconds}", resources=work.resources)
        hold = f"dd if=/dev/zero of=/dev/shm/held bs=1M count={work.holds_mib} 2>/dev/null; " if work.holds_mib else ""
        script = "sleep 1; tail /dev/zero" if work.grows else hold + SLEEP
        return busybox(work.name, script, resources=work.resources)

    def spec(self, *works: Work) -> dict[str, Any]:
        return {"hostNetwork": True}

    async def _pid(self, identity: str) -> int:
        answer = await self.agent.runtime.container_status(identity, verbose=True)
        return int(decode_json(answer.info["info"].encode())["pid"])

    async def cpus(self, identity: str) -> CpuSet:
        lines = Path(f"/proc/{await self._pid(identity)}/status").read_text().splitlines()
        return CpuSet.parse(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))

    @contextlib.asynccontextmanager
    async def runtime_away(self) -> AsyncIterator[None]:
        self.containerd.crash()
        try:
            yield
        finally:
            await asyncio.to_thread(self.containerd.start_again)

    async def _cgroup(self, identity: str, meaning: str) -> str:
        return cgroups.of_process(await self._pid(identity), meaning)

    async def limits(self, identity: str) -> tuple[int, int]:
        return int(await self._cgroup(identity, "cpu.quota")), int(await self._cgroup(identity, "memory.limit"))

    async def classes(self, identity: str) -> dict[str, str]:
        pid = str(await self._pid(identity))
        found = {}
        for name in ("exclusive", "limited"):
            if pid in (self.resctrl / f"kubeqos.{name}" / "tasks").read_text().split():
                found["rdt"] = name
        limits = await self._cgroup(identity, "io.read_bps")
        rates = {str(1 << 30): "high-prio", str(1 << 20): "throttled"}
        if limits:
            found["blockio"] = rates[limits.split()[1]]
        return found

    async def withdraw(self, resource: str, class_name: str) -> None:
        lines = {"exclusive": "        own: {", "throttled": "        throttled:"}[class_name]
        text = "".join(line for line in CLASSES.splitlines(True) if not line.startswith(lines))
        self.relay.settings.config.write_text(text.replace("    capacity: {exclusive: 1}\n", ""))
        await self.relay.file.reload()


@contextlib.asynccontextmanager
async def simulated_home(
    server: LiveServer, folder: Path, services: ServiceSettings | None = None, **settings: Any
) -> AsyncIterator[Home]:
    home = SimulatedHome(server, folder, laptop8())
    home.runtime = SimulatedRuntime(home.machine, OFFERS, logs=False)
    async with home.running(home.runtime, services or ServiceSettings(), **settings):
        yield home
    await home.runtime.close()


@contextlib.asynccontextmanager
async def containerd_home(
    server: LiveServer, folder: Path, containerd: Containerd, services: ServiceSettings | None = None, **settings: Any
) -> AsyncIterator[Home]:
    home = ContainerdHome(server, folder, read_machine(Path("/sys"), name="n1"))
    home.containerd = containerd
    home.resctrl = plant("full", folder / "resctrl")
    config = folder / "classes.yaml"
    config.write_text(CLASSES)
    machine = LocalMachine(Host(CGROUPS), home.resctrl, TreeKernel(home.resctrl), mbps_mode=False)
    with tempfile.TemporaryDirectory(prefix="kq-") as short:
        listen = Path(short) / "cri.sock"
        home.relay = await Relay.start(RelaySettings(listen, containerd.socket, config, folder / "relay.json", machine))
        own = {"cgroup_root": containerd.cgroup_parent, "cgroup_fs": CGROUPS, **settings}
        try:
            async with (
                CriClient(f"unix://{listen}", relist_seconds=0.1) as client,
                home.running(client, services or ServiceSettings(), **own),
            ):
                yield home
            assert home.agent.cgroups is not None
            home.agent.cgroups.files.remove(f"{containerd.cgroup_parent}/kubepods")  # tiers outlive agents
        finally:
            await home.relay.close()


def memory_bytes(home: str) -> int:
    """What the node of a home publishes."""
    machine = laptop8() if home == "simulated" else read_machine(Path("/sys"))
    return sum(node.memory_bytes for node in machine.nodes)
