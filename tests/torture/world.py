"""The cluster of one run: who is started how, what happens to whom, and what each of the laws is shown."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kubeqos.apiserver.local import LOCAL
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.claims.admission import check_claims
from kubeqos.cci.sdk import keep_serving
from kubeqos.client import TransportApi
from kubeqos.clock import NS, Timer, WallClock
from kubeqos.cluster.clusterfile import NodePlan
from kubeqos.cluster.embedded import SERVER_GATES
from kubeqos.cluster.nodes import configuration
from kubeqos.controllers.manager import ControllerManager
from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.runtime import Method, Request, Response
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.errors import KubeqosError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.run import running_node
from kubeqos.plugins import REGISTRY
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.memory import MemoryConfig, MemoryPlugin
from kubeqos.qrm.sdk.serving import Options, running
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from kubeqos.store import Store
from kubeqos.store.database import Database, Row
from kubeqos.web.identity import Identity
from kubeqos.web.pki import Pki
from tests.torture.components import Components
from tests.torture.disk import DISKS, Disk
from tests.torture.laws import Books, Starts, Violation, check_quota, check_runtime
from tests.torture.network import Network, Wire
from tests.torture.plan import Shape
from tests.torture.sockets import Sockets
from tests.torture.virtualtime import EPOCH, Incarnation, VirtualLoop

GOLD = 2
OFFERS = (Advertisement("rdt", Level.CONTAINER, False, (ClassInfo("gold", GOLD), ClassInfo("silver", 0)), "silver"),)
CAPACITY = {("rdt", "gold"): GOLD}
RESTART_SECONDS = 1.0
CHANGING = frozenset({"StartContainer", "UpdateContainerResources"})


class SlowWriter:
    """A disk that answers in its own time, in order; what it was given by a dead server it does not do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free_at = 0.0

    def put(self, job: Callable[[], None]) -> None:
        loop = self._world.loop
        self._free_at = max(loop.time(), self._free_at) + self._world.chance.uniform(0.0005, 0.008)
        loop.call_at(self._free_at, job)

    async def close(self) -> None:
        await asyncio.sleep(max(0.0, self._free_at - self._world.loop.time()) + 0.001)


class WatchedDatabase(Database):
    """Tells the books what goes to the disk, before it goes and when it is there."""

    world: World

    def insert(self, rows: Any) -> None:
        world, life = self.world, self.world.components.lives["api"]
        world.books.trying(rows)
        try:
            super().insert(rows)
        except Exception as error:
            if world.components.lives["api"] is life and life.alive and type(error).__name__ == "FullError":
                world.books.refused()
            raise
        if life.alive:  # one that died in the middle of it has told nobody
            world.books.written()
            written: list[Row] = list(rows)
            try:
                check_quota(world.books, written)
            except Violation as violation:  # not raised here: the store would take it for an error of the disk
                world.violated(str(violation))


class ProcessTime(WallClock):
    """What passes for processes: a container runs as long as it runs, whatever the clocks on walls say meanwhile."""

    def now_ns(self) -> int:
        return round((EPOCH + asyncio.get_running_loop().time()) * NS)

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, (at_ns - self.now_ns()) / NS), callback)

    async def sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - self.now_ns()) / NS))


class WatchedRuntime(SimulatedRuntime):
    """A runtime that the laws look into after every change."""

    world: World
    node: str

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        answer = await super().call(method, request, timeout=timeout)
        if method.name in CHANGING:
            try:
                self._look(method.name, request)
            except Violation as violation:
                self.world.violated(str(violation))
        return answer

    def _look(self, method: str, request: Any) -> None:
        if self.world.runtimes.get(self.node) is self:
            check_runtime(self.node, self, CAPACITY)
            if isinstance(request, cri.StartContainerRequest):
                one = self.core.containers[request.container_id]
                uid = self.core.sandboxes[one.sandbox_id].config.metadata.uid
                once = self.world.starts_once(uid)
                self.world.starts.started(self.world.runtimes, uid, one.name, once=once)


class World:
    """Everything of one run."""

    def __init__(self, loop: VirtualLoop, folder: Path, shape: Shape, seed: int, pki: Pki) -> None:
        self.loop, self.folder, self.shape, self.pki = loop, folder, shape, pki
        self.chance = random.Random(f"world {seed}")
        self.components = Components(loop)
        self.network = Network(self.components, self.chance)
        self.network.server, self.network.acknowledged = self._server, self._acknowledged
        Sockets(self.network).install()
        self.books, self.starts = Books(), Starts()
        self.disk: Disk | None = None
        self._unsynced: dict[str, list[tuple[int, bytes, bytes]]] = {}
        self.disk_fails = ""
        self.full_nodes: set[str] = set()
        self.wiped: set[str] = set()
        """Nodes whose runtime will have forgotten everything when it starts again."""
        self.runtimes: dict[str, SimulatedRuntime] = {}
        self.agents: dict[str, NodeAgent] = {}
        self.violation = ""
        self.told: list[str] = []
        self.down: dict[str, float] = {}
        """How long a component stays away after its next death, where it is not as ever."""
        self.power_cut = False
        self._up: tuple[Incarnation, ApiServer] | None = None
        self._api_folders = 0
        WatchedDatabase.world = self
        self.starters: dict[str, Callable[[Incarnation], Coroutine[Any, Any, None]]] = {
            "api": self._run_api,
            "scheduler": self._run_scheduler,
            "controllers": self._run_controllers,
        }
        for node, kind in shape.nodes.items():
            self.starters[f"runtime-{node}"] = lambda life, node=node: self._run_runtime(node)  # type: ignore[misc]
            self.starters[f"node-{node}"] = lambda life, node=node: self._run_node(node, life)  # type: ignore[misc]
            if kind == "qrm":
                self.starters[f"plugins-{node}"] = lambda life, node=node: self._run_plugins(node)  # type: ignore[misc]
            if kind == "cci":
                self.starters[f"driver-{node}"] = lambda life, node=node: self._run_driver(node)  # type: ignore[misc]

    # ---- Lives

    def violated(self, what: str) -> None:
        """The first violation is the one that is told: others follow from it."""
        if not self.violation:
            self.violation = f"{self.loop.time():.3f} s: {what}"

    def tell(self, what: str) -> None:
        self.told.append(f"{self.loop.time():.3f} s: {what}")

    def start(self, name: str) -> None:
        """Begin a life of a component; when it dies, another one follows."""
        life = self.components.begin(name)
        if name == "api":
            self._prepare_disk(life)
        life.on_death[lambda: self._buried(name)] = None
        self.tell(f"{name} starts")
        task = self.components.spawn(life, self.starters[name](life))
        task.add_done_callback(lambda done: self._ended(name, life, done))

    def _buried(self, name: str) -> None:
        seconds = self.down.pop(name, RESTART_SECONDS)
        self.tell(f"{name} dies, for {seconds:.3f} s")
        self.loop.call_later(seconds, self._start_again, name, context=_nobody())

    def _start_again(self, name: str) -> None:
        if not self.components.lives[name].alive:
            self.start(name)

    def _ended(self, name: str, life: Incarnation, task: asyncio.Task[None]) -> None:
        """None of them should; but what cannot write its files on a full disk says so, and is tried again."""
        if not life.alive:
            return
        error = None if task.cancelled() else task.exception()
        kind, _, node = name.partition("-")
        full = self.disk_fails if name == "api" else kind in ("plugins", "driver") and node in self.full_nodes
        if not (full and isinstance(error, KubeqosError)):
            self.violated(f"{name} ended by itself: {_causes(error)}")
        self.components.kill(life)

    def callback_failed(self, callback: Callable[..., Any], error: Exception) -> None:
        """A traceback in the log of whoever it was."""
        self.violated(f"{getattr(callback, '__qualname__', callback)} failed: {_causes(error)}")

    def starts_once(self, uid: str) -> bool:
        """Whether the containers of a pod may start once at most."""
        found = next((pod for pod in self.books.pods() if pod["metadata"]["uid"] == uid), None)
        return found is not None and found["spec"].get("restartPolicy") == "Never"

    # ---- The API server

    def _prepare_disk(self, life: Incarnation) -> None:
        folder = self.folder / f"api-{self._api_folders}"
        if self._api_folders == 0:
            folder.mkdir()
        disk = self.disk = Disk(folder, self.chance)
        disk.inherit(self._unsynced)
        disk.fail = lambda: self.disk_fails if life.alive else ""
        DISKS.append(disk)
        self._api_folders += 1

        def died() -> None:
            # At once: what a write that is under way does after this nobody will see.
            disk.copy(self.folder / f"api-{self._api_folders}", power_cut=self.power_cut)
            self._unsynced = {} if self.power_cut else disk.left()
            self.power_cut = False
            self._up = None

        life.on_death[died] = None

    async def _run_api(self, life: Incarnation) -> None:
        assert self.disk is not None
        path = self.disk.folder / "kubeqos.db"
        store = Store.open(path, writer=lambda: SlowWriter(self), clock=time.monotonic)
        self.books.opened(store)
        settings = Settings(self.disk.folder, audit=False, gates=SERVER_GATES, checks=(check_claims,))
        server = ApiServer(settings, store, self.pki, "api:6443")
        async with server.running():
            self._up = life, server
            while store.failure is None:  # noqa: ASYNC110 - as a liveness probe does
                await asyncio.sleep(1)
            await asyncio.sleep(self.chance.uniform(1, 10))  # until somebody sees that it is not healthy
            self.tell(f"api is restarted: {store.failure}")
            self.components.kill(life)
            await asyncio.sleep(0)

    def _server(self) -> tuple[Incarnation, ApiServer] | None:
        return self._up if self._up is not None and self._up[0].alive else None

    def _acknowledged(self, call: Any, answer: Any) -> None:
        try:
            self.books.answered(call, answer)
        except Violation as violation:
            self.violated(str(violation))

    def api(self, link: str, identity: Identity = LOCAL) -> TransportApi:
        return TransportApi(Wire(self.network, link, identity))

    # ---- The others

    async def _run_scheduler(self, _life: Incarnation) -> None:
        await SchedulerService(self.api("scheduler"), Scheduler()).run()

    async def _run_controllers(self, _life: Incarnation) -> None:
        await ControllerManager(self.api("controllers"), clock=time.time).run()

    def _sockets(self, node: str) -> Path:
        return self.folder / node

    async def _run_runtime(self, node: str) -> None:
        """A runtime that remembers what there was before a reboot, unless that was wiped; nothing runs any more."""
        WatchedRuntime.world = self
        runtime = WatchedRuntime(laptop8(), OFFERS, name=node, logs=False, clock=ProcessTime())
        runtime.node = node
        if (before := self.runtimes.get(node)) is not None:
            if node in self.wiped:
                self.wiped.discard(node)
                self.starts.forgotten |= {one.config.metadata.uid for one in before.core.sandboxes.values()}
            else:
                runtime.core = before.core
                for sandbox in list(runtime.core.sandboxes):
                    runtime.core.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), time.time_ns())
        self.runtimes[node] = runtime
        socket = self._sockets(node) / "cri.sock"
        async with serving(runtime, f"unix://{socket}"):
            await asyncio.Event().wait()

    async def _run_node(self, node: str, life: Incarnation) -> None:
        state = self._sockets(node) / "state"
        state.mkdir(parents=True, exist_ok=True)
        plan = NodePlan(node, laptop8(), self.shape.nodes[node], OFFERS, reserved_cpus=CpuSet.parse("0,4"))
        config = configuration(plan, state, self._sockets(node))
        runtime = CriClient(f"unix://{self._sockets(node)}/cri.sock")
        api = self.api(f"node-{node}", Identity.authenticated(f"system:node:{node}", ["system:nodes"]))
        parts = node_parts(config, runtime, plan.machine, Hosting(api, folders=False))
        async with AsyncExitStack() as stack:
            agent, _ = await stack.enter_async_context(running_node(parts))
            self.agents[node] = agent
            await agent.run()

    async def _run_plugins(self, node: str) -> None:
        sockets = self._sockets(node)
        cpu, memory = CpuPlugin(laptop8(), CpuConfig(reserved="0,4")), MemoryPlugin(laptop8(), MemoryConfig())
        with_state = {one.resource: Options(sockets / REGISTRY, state=sockets / one.resource) for one in (cpu, memory)}
        async with running(cpu, with_state["cpu"], cpu.install), running(memory, with_state["memory"]):
            await asyncio.Event().wait()

    async def _run_driver(self, node: str) -> None:
        await keep_serving(Reference(laptop8()), self._sockets(node) / REGISTRY)

    def validate(self) -> None:
        """What every agent says of its own books."""
        for node, agent in self.agents.items():
            if self.components.lives[f"node-{node}"].alive and agent.ready.is_set():
                for problem in agent.validate():
                    self.violated(f"node {node}: {problem}")


class Complaints(logging.Handler):
    """Tracebacks in the log: errors that nobody thought of."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, KubeqosError):
            self.world.violated(f"{record.name}: {record.getMessage()}: {_causes(error)}")


def _causes(error: BaseException | None) -> str:
    if error is None:
        return "without a reason"
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_causes(one) for one in error.exceptions)
    trace, where = error.__traceback__, ""
    while trace is not None:
        where, trace = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}", trace.tb_next
    return f"{type(error).__name__}: {error} ({where})"


def _nobody() -> contextvars.Context:
    return contextvars.Context()
