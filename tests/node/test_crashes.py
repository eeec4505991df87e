"""The agent is killed with SIGKILL at every boundary of a scripted day, and the next one takes over.

The agent is a process of its own (`crash_agent`), on a real API server and a simulated runtime behind its socket, both
of which survive. A quiet day tells which boundaries there are; then there is a day for each of them, on which the agent
dies there and a new one, on the same folder, carries on to the evening. From the runtime's own view no container was
started twice, nobody ran on a CPU that another owns, and what ran ran on; in the new agent's books nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest

from kubeqos.client.api import PatchType
from kubeqos.client.http import HttpApi
from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import NAMESPACES, PODS
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Method, Request, Response
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import Container, State
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.admission.managers.cpu import EXCLUSIVE_ANNOTATION
from tests.apiserver.test_crash import Server
from tests.node import crash_agent
from tests.node.admission.test_admission import OFFERS, guaranteed
from tests.node.crash_agent import Boundary, Life
from tests.node.pods import container, resources
from tests.node.test_live import bound
from tests.shared.victims import nursery

LANES = 6
"""Days that pass side by side: most of a day is waiting."""
TRIES = 3
PATIENCE_SECONDS = 120.0
LAST_SECONDS = 2.0
EXPECTED_STARTS = {
    "web": 1, "owner": 1, "job": 1, "classy": 1, "late": 1, "hooked": 1,
    "web/main": 1, "web/helper": 1, "owner/setup": 1, "owner/main": 1, "job/proxy": 1, "job/main": 1,
    "classy/main": 1, "late/main": 1, "hooked/main": 1,
}  # fmt: skip


class WatchedRuntime(SimulatedRuntime):
    """Counts the sandboxes and containers that are started; after every call, looks who runs on another's CPUs."""

    def __init__(self) -> None:
        super().__init__(laptop8(), OFFERS, logs=False)
        self.starts: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        answer = await super().call(method, request, timeout=timeout)
        if method.name == "RunPodSandbox":
            self.starts[cast(cri.RunPodSandboxRequest, request).config.metadata.name] += 1
        if method.name == "StartContainer":
            self.starts[self._name(self.core.containers[cast(cri.StartContainerRequest, request).container_id])] += 1
        if method.name in crash_agent.CHANGING:
            self.wrong += self._trespassers()
        return answer

    def _name(self, one: Container) -> str:
        return f"{self.core.sandboxes[one.sandbox_id].config.metadata.name}/{one.name}"

    def running(self) -> dict[str, Container]:
        return {self._name(one): one for one in self.core.containers.values() if one.state is State.RUNNING}

    def exclusive(self) -> dict[str, CpuSet]:
        """CPUs of running containers that own them."""
        return {
            name: CpuSet.parse(one.resources.cpuset_cpus)
            for name, one in self.running().items()
            if EXCLUSIVE_ANNOTATION in one.config.annotations
        }

    def _trespassers(self) -> Iterator[str]:
        for name, owned in self.exclusive().items():
            for other, one in self.running().items():
                theirs = CpuSet.parse(one.resources.cpuset_cpus)
                if name.partition("/")[0] != other.partition("/")[0] and owned & theirs:
                    yield f"{other} runs on CPUs {owned & theirs} of {name}"


async def readable(fd: int) -> None:
    """Wait until there is something to read, or an end."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


class Day:
    """One node from morning to evening; its agent dies once, or never."""

    def __init__(self, lane: str, api: HttpApi, phases: Mapping[str, str], life: Life) -> None:
        self.lane, self.api, self.life = lane, api, life
        self._phases = phases
        self.runtime = WatchedRuntime()
        self.died = asyncio.Event()
        self.account: dict[str, Any] = {}
        self.lines: list[Connection] = []

    # ---- The agent

    async def supervise(self) -> None:
        """Run the agent; when it is killed, start another one on what it left."""
        context, life = nursery(), self.life
        while True:
            self.line, theirs = context.Pipe()
            self.lines.append(self.line)  # closed in the evening: somebody may still be listening
            process = context.Process(target=crash_agent.run, args=(life, theirs))
            process.start()
            theirs.close()
            try:
                await readable(process.sentinel)
            except asyncio.CancelledError:
                process.terminate()
                raise
            finally:
                process.join()
            assert process.exitcode == -signal.SIGKILL, f"the agent ended by itself: {process.exitcode}"
            self.died.set()
            life = Life(life.node, life.runtime, life.kubeconfig, life.folder)

    async def books(self) -> dict[str, Any]:
        """What the agent's ledger says; whoever dies before it answers is succeeded by one that does."""
        while True:
            line = self.line
            with contextlib.suppress(OSError, EOFError):
                line.send("books")
                await readable(line.fileno())
                return cast(dict[str, Any], line.recv())
            await asyncio.sleep(0.02)

    async def books_say(self, **wanted: Any) -> None:
        """Wait until the agent has heard of everything, too: then its books are in order, and say this."""
        wanted["broken"] = []
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            self.account = await self.books()
            wrong = {what: found for what in wanted if (found := self.account[what]) != wanted[what]}
            if not wrong:
                return
            assert asyncio.get_running_loop().time() < deadline, f"in the books: {wrong}, not {wanted}"
            await asyncio.sleep(0.05)

    # ---- What a script says

    async def create(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        raw = bound(name, *containers, **spec)
        raw["metadata"]["namespace"], raw["spec"]["nodeName"] = self.lane, self.lane
        await self.api.create(PODS, raw, self.lane)

    async def end(self, name: str, grace_seconds: int = 1) -> None:
        await self.api.delete(PODS, name, self.lane, grace_seconds=grace_seconds)

    def phase(self, name: str) -> str:
        """As the API server has it; nothing when it has no such pod."""
        return self._phases.get(f"{self.lane}/{name}", "")

    async def until(self, what: str, question: Callable[[], Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not question():
                    assert not self.runtime.wrong, self.runtime.wrong
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"never happened: {what}") from None


def gold(name: str) -> dict[str, Any]:
    return container(name, resources={"qosResources": [{"name": "rdt", "class": "gold"}]})


async def morning(day: Day) -> None:
    """Pods of every kind come at once."""
    await day.create("web", container(resources={"requests": {"cpu": "1"}}), container("helper"))
    setup = container("setup", command=["sh", "-c", "sleep 0.2"], resources=resources(cpu="2", memory="1Gi"))
    await day.create("owner", guaranteed("2"), initContainers=[setup])
    main, proxy = container(command=["sh", "-c", "sleep 0.5"]), container("proxy", restartPolicy="Always")
    await day.create("job", main, restartPolicy="Never", initContainers=[proxy])
    await day.create("classy", gold("main"), qosResources=[{"name": "network", "class": "fast"}])
    hooks = {"preStop": {"exec": {"command": ["sleep", "0.1"]}}}
    ready = {"exec": {"command": ["true"]}, "periodSeconds": 60}
    await day.create("hooked", container(lifecycle=hooks, readinessProbe=ready))
    running = {"web", "owner", "classy", "hooked"}
    await day.until("the first pods run", lambda: all(day.phase(name) == "Running" for name in running))


async def noon(day: Day) -> None:
    """They change and go, and others come."""
    kept = {name: one.id for name, one in day.runtime.running().items() if name.startswith("web/")}
    wish = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    await day.api.patch(PODS, "web", wish, day.lane, type=PatchType.STRATEGIC, subresource="resize")
    await day.end("owner")
    await day.create("late", guaranteed("3"))  # beside web and an owner that still ends: all that is not reserved
    await day.end("classy")
    await day.end("hooked", grace_seconds=10)
    await day.until("the job is done", lambda: day.phase("job") == "Succeeded")
    await day.until("late runs", lambda: day.phase("late") == "Running")
    gone = ("owner", "classy", "hooked")
    await day.until("others are gone", lambda: not any(day.phase(name) for name in gone))
    shares = "the resize is done"
    await day.until(shares, lambda: day.runtime.running()["web/main"].resources.cpu_shares == 2048)
    assert {name: one.id for name, one in day.runtime.running().items() if name.startswith("web/")} == kept
    await day.books_say(pods=["late", "web"], classes={}, cpus=str(day.runtime.exclusive()["late/main"]))


async def evening(day: Day) -> None:
    """Everything ends, and nothing is left."""
    for name in ("web", "late", "job"):
        await day.end(name)
    core = day.runtime.core
    await day.until("all pods are gone", lambda: not any(map(day.phase, ("web", "late", "job"))))
    await day.until("the runtime is empty", lambda: not core.sandboxes and not core.containers)


async def live(day: Day) -> None:
    """The whole day, and what the runtime and the last agent's books say of it."""
    await morning(day)
    await noon(day)
    await evening(day)
    if day.life.dies_at is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await day.died.wait()
    await day.books_say(pods=[], known=[], classes={}, cpus="")
    assert day.runtime.starts == EXPECTED_STARTS
    assert not day.runtime.wrong, day.runtime.wrong
    day.runtime.core.validate()


class Calendar:
    """Days on one API server, several side by side."""

    def __init__(self, server: Server, folder: Path, sockets: Path) -> None:
        self._server, self._folder, self._sockets = server, folder, sockets
        self._numbers = itertools.count()
        self._phases: dict[str, str] = {}

    async def __aenter__(self) -> Calendar:
        self._api = HttpApi.from_kubeconfig(self._server.kubeconfig)
        pods = Informer(self._api, PODS)
        pods.on_change(self._pod_changed)
        self._following = asyncio.create_task(pods.run())
        for number in range(LANES):
            await self._api.create(NAMESPACES, {"metadata": {"name": f"lane-{number}"}})
        return self

    async def __aexit__(self, *error: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._api.close()

    def _pod_changed(self, change: Change) -> None:
        self._phases[change.key] = change.object()["status"]["phase"] if change.new is not None else ""

    async def day(self, lane: str, dies_at: Boundary | None = None) -> Day:
        """A day on which the agent dies at a boundary, or on which nothing happens to it."""
        number = next(self._numbers)
        endpoint = f"unix://{self._sockets}/{number}.sock"
        life = Life(lane, endpoint, self._server.kubeconfig, self._folder / str(number), dies_at)
        day = Day(lane, self._api, self._phases, life)
        async with serving(day.runtime, endpoint):
            supervising, living = asyncio.create_task(day.supervise()), asyncio.create_task(live(day))
            try:
                await asyncio.wait([supervising, living], return_when=asyncio.FIRST_COMPLETED)
            finally:
                supervising.cancel()
                ended = await asyncio.gather(supervising, return_exceptions=True)
                for line in day.lines:
                    line.close()
            for error in ended:
                if isinstance(error, AssertionError):
                    living.cancel()
                    raise error
            await living
        await day.runtime.close()
        return day

    async def die_everywhere(self, boundaries: Iterable[Boundary]) -> list[Boundary]:
        """A day for every boundary; those that were never reached."""
        waiting, missed = list(boundaries), []

        async def lane(name: str) -> None:
            while waiting:
                boundary = waiting.pop(0)
                try:
                    day = await self.day(name, boundary)
                except AssertionError as error:
                    raise AssertionError(f"killed {boundary[0]} ({boundary[1]}): {error}") from error
                if not day.died.is_set():
                    missed.append(boundary)

        async with asyncio.TaskGroup() as lanes:
            for number in range(LANES):
                lanes.create_task(lane(f"lane-{number}"))
        return missed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "api").mkdir()
    server = Server(tmp_path / "api", "--feature-gates", "QOSResources=true")
    yield server
    server.kill()


def boundaries(day: Day) -> list[Boundary]:
    return [(name, time) for name, times in day.account["passed"].items() for time in range(1, times + 1)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.proves("restart")
async def test_the_agent_is_killed_at_every_boundary_of_a_day(server: Server, tmp_path: Path) -> None:
    """Writes that come together are one write, so the last of a kind is not passed every day; the first one is."""
    with tempfile.TemporaryDirectory(prefix="kq-") as sockets:
        async with Calendar(server, tmp_path, Path(sockets)) as calendar:
            everywhere = boundaries(await calendar.day("lane-0"))
            missed = everywhere
            for _ in range(TRIES):
                missed = await calendar.die_everywhere(missed)
    kills = len(everywhere) - len(missed)
    print(f"{kills} agents killed, each at another of {len(everywhere)} boundaries")
    assert kills >= 300, f"only {kills} kills: the day is too short to prove anything"
    assert not [name for name, time in missed if time == 1]
