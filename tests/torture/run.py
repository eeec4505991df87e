"""One run: a seed and its faults, until everything has settled or a law is broken."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import kubeqos.checkpoint
import kubeqos.node.run
import kubeqos.store.store
from kubeqos.checkpoint import Checkpoint
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.pressure.usage import SimulatedMachine
from kubeqos.web.pki import Pki
from tests.torture import disk
from tests.torture.network import Weather
from tests.torture.plan import Fault, shape_of
from tests.torture.settled import unsettled
from tests.torture.users import Users
from tests.torture.virtualtime import VirtualLoop, enter
from tests.torture.world import Complaints, WatchedDatabase, World

SETTLE_SECONDS = 2400.0
LOOK_SECONDS = 10.0
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run. `digest` is the same for the same run, step by step."""

    seed: int
    faults: int
    steps: int
    seconds: float
    deaths: int
    acknowledged: int
    starts: int
    violation: str = ""
    digest: str = ""
    told: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return asdict(self)


@contextlib.contextmanager
def made_pki() -> Iterator[Pki]:
    """Keys for all runs: what they are changes nothing, and making them takes long."""
    with tempfile.TemporaryDirectory(prefix="kq-pki-") as folder:
        pki = Pki(Path(folder) / "pki")
        pki.token_key()
        yield pki


def run(seed: int, faults: Sequence[Fault], pki: Pki) -> Outcome:
    """To be called once in a process: clocks, gRPC and SQLite's files are replaced in it."""
    gc.disable()  # the dead must not be cleaned up behind our back, nor at another time in another run
    gc.collect = lambda *_: 0  # type: ignore[assignment]  # what components do when they have started: a long look
    logging.disable(logging.NOTSET)
    folder = Path(tempfile.mkdtemp(prefix="kq", dir=MEMORY if MEMORY.is_dir() else None))
    loop = VirtualLoop(Random(f"loop {seed}"))
    try:
        enter(loop, seed)
        disk.install()
        kubeqos.store.store.Database = WatchedDatabase  # type: ignore[attr-defined]
        kubeqos.node.run.HostMachine = _machine  # type: ignore[attr-defined]
        asyncio.set_event_loop(loop)
        world = World(loop, folder, shape_of(seed), seed, pki)
        _fill_node_disks(world)
        root = logging.getLogger()
        root.handlers[:] = [Complaints(world)]
        loop.failed = world.callback_failed
        loop.set_exception_handler(lambda _loop, _context: None)
        users = Users(world.api("users"), seed, world.shape)
        loop.run_until_complete(_story(world, users, faults))
        return Outcome(
            seed, len(faults), loop.steps, loop.time(), world.components.deaths, world.books.acknowledged,
            world.starts.starts.total(), world.violation, hashlib.sha256(loop.trace).hexdigest()[:16], world.told,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _machine(_state_dir: Path, *, reserved_bytes: int, **_: Any) -> SimulatedMachine:
    """How much of a node is used is what its pods use: how much of this machine is would differ from run to run."""
    return SimulatedMachine(laptop8(), reserved_bytes)


def _fill_node_disks(world: World) -> None:
    """Checkpoints of nodes whose disk is full cannot be saved."""
    save = Checkpoint.save_text

    def save_text(self: Checkpoint, text: bytes) -> None:
        def before(step: str) -> None:
            if step == "write" and any(f"/{node}/" in str(self.path) for node in world.full_nodes):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

        self._before_step = before
        save(self, text)

    Checkpoint.save_text = save_text  # type: ignore[method-assign]
    kubeqos.checkpoint.os.fsync = lambda _fd: None  # type: ignore[assignment]  # the folder is in memory


async def _story(world: World, users: Users, faults: Sequence[Fault]) -> None:
    for node in world.shape.nodes:
        (world.folder / node).mkdir()
    for name in world.starters:
        world.start(name)
    working = asyncio.ensure_future(_work(users))
    troubles = [asyncio.ensure_future(_strike(world, fault)) for fault in faults]
    while world.loop.time() < world.shape.seconds and not world.violation:
        await asyncio.sleep(1)
        world.validate()
    users.stopped = True
    if not world.violation:
        await asyncio.gather(*troubles)
        _heal(world)
        await working
        await _settle(world)
    for task in (working, *troubles):
        task.cancel()


async def _work(users: Users) -> None:
    await users.prepare()
    await users.work()


async def _settle(world: World) -> None:
    end = world.loop.time() + SETTLE_SECONDS
    while not world.violation:
        await asyncio.sleep(LOOK_SECONDS)
        world.validate()
        wrong = unsettled(world.books, world.agents, world.runtimes)
        if not wrong:
            return
        if world.loop.time() > end:
            world.violated("it does not settle: " + "; ".join(wrong[:4]))


def _heal(world: World) -> None:
    world.network.weather.clear()
    world.disk_fails = ""
    world.full_nodes.clear()
    world.down.clear()
    for life in world.components.lives.values():
        life.dies_at = None
    if world.disk is not None:
        world.disk.before_write = lambda: None


async def _strike(world: World, fault: Fault) -> None:
    """Let one fault happen, and end."""
    await asyncio.sleep(fault.at)
    world.tell(str(fault))
    match fault.kind:
        case "crash":
            world.down[fault.target] = fault.seconds
            life = world.components.lives[fault.target]
            life.dies_at = life.steps + int(fault.amount)
        case "power cut" | "crash in write":
            _crash_in_write(world, fault)
        case "disk full" | "disk broken":
            world.disk_fails = fault.kind.removeprefix("disk ")
            await asyncio.sleep(fault.seconds)
            world.disk_fails = ""
        case "weather":
            chance = fault.amount
            world.network.weather[fault.target] = Weather(2.0, chance, chance, chance)
            await asyncio.sleep(fault.seconds)
            world.network.weather.pop(fault.target, None)
        case "partition" | "runtime hangs":
            world.network.weather[fault.target] = Weather(away=True)
            await asyncio.sleep(fault.seconds)
            world.network.weather.pop(fault.target, None)
        case "clock jump":
            world.loop.wall_offset += fault.amount
        case "reboot" | "wipe":
            if fault.kind == "wipe":
                world.wiped.add(fault.target)
            world.down[f"node-{fault.target}"] = fault.seconds + 1
            world.down[f"runtime-{fault.target}"] = fault.seconds
            for part in ("runtime", "node"):
                world.components.kill(world.components.lives[f"{part}-{fault.target}"])
        case "node disk full":
            world.full_nodes.add(fault.target)
            await asyncio.sleep(fault.seconds)
            world.full_nodes.discard(fault.target)


def _crash_in_write(world: World, fault: Fault) -> None:
    """So many writes of the disk from now; then the process, or the whole machine, is gone in the middle of one."""
    if world.disk is None or not world.components.lives["api"].alive:
        return
    last, life = world.disk.writes + int(fault.amount), world.components.lives["api"]

    def before() -> None:
        if world.disk is not None and world.disk.writes >= last and life.alive:
            world.power_cut = fault.kind == "power cut"
            world.down["api"] = fault.seconds
            world.components.kill(life)

    world.disk.before_write = before
