"""The CCI manager under the real node agent: killed at every boundary, and on the real containerd."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.cci.sdk import Driver, running
from kubeqos.cci.stateservice import SOCKET_NAME
from kubeqos.cri.client import CriClient
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import State
from kubeqos.gates import CCI, FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import Machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.plugins import PluginManagers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.run import running_plugins
from kubeqos.node.runtime.executor import Executor
from kubeqos.topology.claims.resolving import ResolvedClaim
from tests.cci.world import DRIVER, PATIENT, container, cores, cpus, exclusive, overlaps
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups

GATES = FeatureGates.default().set({CCI: True})


class Crash(BaseException):
    """The agent is gone."""


def claiming(name: str, parameters: str = "", driver: str = DRIVER, **spec: Any) -> dict[str, Any]:
    """A pod for the agent; the claim's parameters travel in an annotation, where the test's resolver finds them."""
    marks = {"claim": parameters, "driver": driver}
    one = container("main", "compute", parameters) if parameters else container()
    made = spec.pop("containers", [one])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": marks},
        "spec": {
            "nodeName": "n1",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 0,
            "containers": made,
            "resourceClaims": [{"name": "compute", "resourceClaimName": name}] if parameters else [],
            **spec,
        },
    }


async def resolved(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    text, driver = (raw["metadata"]["annotations"][key] for key in ("claim", "driver"))
    name = raw["metadata"]["name"]
    claim = ResolvedClaim("compute", "default", name, f"{name}-uid", "cpus", driver, text, "the test")
    return {"compute": claim} if text else {}


class AgentNode:
    """The agent, its CCI manager and a driver, on any runtime; dies at the boundary `crash_at`."""

    def __init__(self, folder: Path, machine: Machine, runtime: Runtime, crash_at: int = 0, **settings: Any) -> None:
        self.folder, self.machine, self.runtime = folder, machine, runtime
        self.crash_at, self.passed, self.crashed = crash_at, 0, False
        self.settings = NodeSettings("n1", folder / "s", log_dir=folder / "l", gates=GATES, **settings)
        self.pods = LocalPods()
        self.cci = CciSettings(deadlines=PATIENT)
        self._stack = contextlib.AsyncExitStack()

    async def boot(self) -> None:
        self.settings.state_dir.mkdir(parents=True, exist_ok=True)
        changed = asyncio.Event()
        self.manager = CciManager(self.machine, self.settings.state_dir, self.cci, changed=changed.set)
        plugins = PluginManagers(self.folder / "r", cci=self.manager, changed=changed)
        hosting = Hosting(pods=self.pods)
        self.agent = NodeAgent(
            assemble(self.settings, self.runtime, self.machine, hosting, plugins=plugins, claims=resolved)
        )
        self._make_mortal(self.agent.executor)
        self._stack = contextlib.AsyncExitStack()
        await self._stack.enter_async_context(running_plugins(self.agent))
        task = asyncio.create_task(self.agent.run())
        self._stack.push_async_callback(_ended, task)

    async def halt(self) -> None:
        await self._stack.aclose()

    def _make_mortal(self, executor: Executor) -> None:
        """Pass a boundary before and after every effect."""
        perform = executor.perform

        async def mortal(pod: PodRecord, effect: fx.Effect) -> fx.Result:
            self._boundary()
            result = await perform(pod, effect)
            self._boundary()
            return result

        executor.perform = mortal  # type: ignore[method-assign]

    def _boundary(self) -> None:
        self.passed += 1
        if self.passed == self.crash_at:
            self.crashed = True
            self.agent.abort()
            raise Crash

    async def until(self, what: str, question: Callable[[], bool], seconds: float = 60) -> None:
        """Wait; an agent that has died is started again, as a service manager would."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not question():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}: {self.told()}"
            if isinstance(self.runtime, SimulatedRuntime):
                assert overlaps(self.runtime) == []
            if self.crashed:
                self.crashed, self.crash_at = False, 0
                await self.halt()
                await self.boot()
            await asyncio.sleep(0.005)

    def told(self) -> list[Any]:
        """What the pods' statuses say, for a test that waits in vain."""
        statuses = [raw.get("status") or {} for raw in self.pods.pods.values()]
        return [(one.get("phase"), one.get("message"), one.get("containerStatuses")) for one in statuses]

    def cpus(self, name: str) -> CpuSet | None:
        assert isinstance(self.runtime, SimulatedRuntime)
        core = self.runtime.core
        found = [
            one
            for one in core.containers.values()
            if one.state is State.RUNNING and core.sandboxes[one.sandbox_id].config.metadata.name == name
        ]
        return cpus(found[-1].resources.cpuset_cpus) if found else None


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Crash):
        await task


@contextlib.asynccontextmanager
async def agent_node(
    machine: Machine,
    runtime: Runtime,
    *,
    drivers: Sequence[Driver] = (),
    cci: CciSettings | None = None,
    **options: Any,
) -> AsyncIterator[AgentNode]:
    folder = Path(tempfile.mkdtemp(prefix="cci-"))
    node = AgentNode(folder, machine, runtime, **options)
    node.cci = cci or node.cci
    try:
        async with contextlib.AsyncExitStack() as stack:
            served = drivers or [Reference(machine, DRIVER)]
            for driver in served:
                await stack.enter_async_context(running(driver, folder / "r", folder / SOCKET_NAME))
            await node.boot()
            for driver in served:
                await node.until("driver", lambda name=driver.name: name in node.manager.drivers.table)  # type: ignore[misc]
            yield node
            await node.halt()
    finally:
        await runtime.close()
        shutil.rmtree(folder)


async def scripted_day(crash_at: int) -> int:
    """A standard pod, a shared claim and an owner start; the owner ends. Returns how many boundaries were passed."""
    async with agent_node(laptop8(), SimulatedRuntime(laptop8(), logs=False), crash_at=crash_at) as node:
        node.pods.set(claiming("web"))
        await node.until("web runs", lambda: node.cpus("web") == cpus("0-7"))
        node.pods.set(claiming("shared", cores("2")))
        await node.until("shared runs", lambda: len(node.cpus("shared") or ()) == 2)
        node.pods.set(claiming("owner", exclusive(3)))
        await node.until("owner runs", lambda: len(node.cpus("owner") or ()) == 3)
        owner = node.cpus("owner")
        assert owner is not None
        mine = laptop8().touched_cores(owner)  # full cores
        await node.until("web made room", lambda: node.cpus("web") == cpus("0-7") - mine)
        assert len(node.cpus("shared") or ()) == 2
        node.pods.end("uid-owner", node.agent.now(), 0)
        await node.until("owner is gone", lambda: "uid-owner" not in node.pods.pods)
        await node.until("web has all", lambda: node.cpus("web") == cpus("0-7"))
        await node.until("driver heard", lambda: not node.manager.store.departures)
        assert node.manager.store.available_resources() == cpus("0-7")
        assert node.agent.validate() == [] and len(node.manager.store.entries) == 2
        return node.passed


@pytest.mark.proves("cci-claims", "restart")
async def test_an_agent_that_dies_at_any_boundary() -> None:
    total = await scripted_day(0)
    assert total > 30
    for crash_at in range(1, total + 1, 5):
        await scripted_day(crash_at)


class ForgetfulRuntime(SimulatedRuntime):
    """Loses what it is told between the first instruction of a container and the end of its start: containerd 1.6."""

    async def start_container(self, container_id: str) -> None:
        await super().start_container(container_id)
        container = self.core.containers[container_id]
        known = type(container.resources)()
        known.CopyFrom(container.resources)
        await asyncio.sleep(0.3)
        container.resources.CopyFrom(known)


async def test_room_is_made_by_a_container_that_is_just_starting() -> None:
    async with agent_node(laptop8(), ForgetfulRuntime(laptop8(), logs=False)) as node:
        node.pods.set(claiming("web"))
        await node.until("web begins to run", lambda: node.cpus("web") is not None)
        node.pods.set(claiming("owner", exclusive(3)))
        await node.until("owner runs", lambda: len(node.cpus("owner") or ()) == 3)
        owner = node.cpus("owner")
        assert owner is not None
        mine = laptop8().touched_cores(owner)  # full cores
        assert node.cpus("web") == cpus("0-7") - mine
        await asyncio.sleep(0.5)
        assert node.cpus("web") == cpus("0-7") - mine


@pytest.fixture
def containerd() -> Any:
    if reason := missing():
        pytest.skip(f"real containerd: {reason}")
    with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-"))) as runtime:
        yield runtime
        runtime.remove_pods()
        # The agent leaves pods' groups to the runtime, which keeps the empty ones.
        cgroups.remove(f"{runtime.cgroup_parent}/kubepods")


def kernel_set(runtime: Containerd, name: str) -> str:
    """The cpuset that the kernel has for the container of a pod, by the name of the pod in its mark file."""
    for group in cgroups.below(runtime.cgroup_parent):
        for pid in (group / "cgroup.procs").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            if f"echo {name}" in words:
                return cgroups.of_process(int(pid), "cpuset.cpus")
    return ""


@pytest.mark.containerd
@pytest.mark.proves("cci-claims")
async def test_a_mixed_claim_on_the_real_containerd(containerd: Containerd) -> None:
    """The proposal's claim at the size of this machine: one exclusive core, and shared ones."""
    machine = read_machine(Path("/sys"), name="local")
    if len(machine.online) < 2:
        pytest.skip("an exclusive core and one for everybody else need two CPUs")
    mixed = cores("1", "1", cpu=[["EXCLUSIVE", "CORE-SIBLING-PREFERRED"], ["SHARED"]])

    def pod(name: str, parameters: str = "") -> dict[str, Any]:
        one = container("main", "compute", parameters) if parameters else container()
        one |= {
            "image": BUSYBOX_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", f"while sleep 1; do echo {name}; done"],
        }
        return claiming(name, parameters, containers=[one], hostNetwork=True)

    runtime = CriClient(containerd.endpoint)
    async with agent_node(machine, runtime, cgroup_root=containerd.cgroup_parent) as node:
        everything = str(machine.online)
        node.pods.set(pod("web"))
        await node.until("web runs", lambda: kernel_set(containerd, "web") == everything)
        node.pods.set(pod("owner", mixed))
        await node.until("owner runs", lambda: kernel_set(containerd, "owner") != "")
        [entry] = [one for one in node.manager.store.entries.values() if one.holdings]
        assert len(entry.whole) == 1 and kernel_set(containerd, "owner") == str(entry.cpus)
        assert kernel_set(containerd, "web") == str(machine.online - entry.whole)
        for name in ("owner", "web"):
            node.pods.end(f"uid-{name}", node.agent.now(), 0)
            await node.until(f"{name} is gone", lambda name=name: f"uid-{name}" not in node.pods.pods)  # type: ignore[misc]
            if name == "owner":
                await node.until("web has all", lambda: kernel_set(containerd, "web") == everything)
