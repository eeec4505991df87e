"""`kubeqos relay`: listens, restores, watches its configuration, exports metrics. Composition only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeqos.checkpoint import Checkpoint
from kubeqos.cri.classes.classfile import ClassFile, tell_missing
from kubeqos.cri.classes.decisions import Asks
from kubeqos.cri.classes.keeper import Broken
from kubeqos.cri.classes.table import ClassTable
from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.enforcing.systemd import keep_informed
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.providers.holders import ClassHolders
from kubeqos.cri.providers.protocol import Sample
from kubeqos.cri.providers.reading import read_catalog
from kubeqos.cri.relay.gate import Gate, gate_path
from kubeqos.cri.relay.keeper import Keeper
from kubeqos.cri.relay.proxy import Hooks, Session
from kubeqos.cri.relay.service import ClassService
from kubeqos.errors import ConfigurationError, KubeqosError, RemoteError
from kubeqos.logs import logger

WATCH_SECONDS = 1.0
RETRY_SECONDS = 0.5
STOP_SECONDS = 10.0
PARTING_SECONDS = 3.0
"""How long a client that was told goodbye and has no calls left may take to hang up."""
DRAIN_POLL_SECONDS = 0.02
log = logger("kubeqos.relay")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is."""

    listen: Path
    runtime: Path
    config: Path
    state: Path
    machine: LocalMachine
    metrics_address: tuple[str, int] | None = None
    require_hook: bool = False
    """Start no container that the OCI hook would not hold back until its classes are enforced."""
    asks: Asks | None = None
    """How pods ask by annotation where somebody else counts that; without it only classes that are opened to them."""
    broken: Broken | None = None
    """Told of pods that run without what they asked for, where somebody can end them."""
    around: Callable[[Hooks], Hooks] | None = None
    """Who else has a say in the calls that are hooked, and stands around our own hooks."""


class Relay:
    """One running relay."""

    def __init__(self, settings: Settings, keeper: Keeper) -> None:
        self.settings = settings
        self.keeper = keeper
        self.service = ClassService(keeper, settings.machine.host, require_hook=settings.require_hook)
        self._sessions: set[Session] = set()
        self._background: list[asyncio.Task[None]] = []
        self._servers: list[asyncio.Server] = []
        self._wake = asyncio.Event()
        self.file = ClassFile(settings.config, partial(read_catalog, settings.config, settings.machine), keeper)

    @classmethod
    async def start(cls, settings: Settings) -> Relay:
        """Read the configuration (an invalid one stops here), restore, listen."""
        catalog = await read_catalog(settings.config, settings.machine)
        checkpoint = Checkpoint(settings.state, format="kubeqos.relay", version=1)
        loaded = checkpoint.load()
        for name in loaded.set_aside:
            log.error("a damaged checkpoint was set aside", file=name)
        tell_missing(catalog)
        catalog.install()
        runtime = CriClient(f"unix://{settings.runtime}")
        pods = PodCgroups(settings.machine.host)
        table = ClassTable(catalog.offers, _holders_of(loaded.data), settings.asks)
        relay = cls(settings, Keeper(catalog, table, checkpoint, runtime, pods, settings.broken))
        informing = keep_informed(settings.machine.host, relay.keeper.enforce_all)
        relay._background = [asyncio.create_task(work) for work in (relay._restore(), relay._tend(), informing)]
        await relay._listen()
        return relay

    async def _listen(self) -> None:
        hooks, path = self.service.hooks(), str(self.settings.runtime)
        if self.settings.around is not None:
            hooks = self.settings.around(hooks)
        listen, gate = self.settings.listen, gate_path(self.settings.listen)
        loop = asyncio.get_running_loop()
        self._servers = [
            await asyncio.start_unix_server(
                Gate(self.service.starts.admit).attend, sock=_bind(gate, self.settings.runtime)
            ),
            await loop.create_unix_server(
                lambda: Session(path, hooks, self._sessions).client, sock=_bind(listen, self.settings.runtime)
            ),
        ]
        log.info("relay is ready", listen=str(listen), runtime=path)

    async def _restore(self) -> None:
        while True:
            try:
                await self.keeper.restore()
                return
            except RemoteError as error:
                log.warning("waiting for the container runtime", error=error.what)
                await asyncio.sleep(RETRY_SECONDS)

    async def _tend(self) -> None:
        """Write what changed meanwhile, and look at the configuration."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._wake.wait()
            forced = self._wake.is_set()
            self._wake.clear()
            try:
                await self._look_after()
            except KubeqosError as error:
                log.error("cannot look after what runs", error=" ".join(error.lines()))
            await self.file.look(again=forced)

    async def _look_after(self) -> None:
        self.settings.machine.resctrl_kernel.tick()
        if self.keeper.doubtful:
            await self.keeper.resync()
        await self.keeper.repair()
        await self.keeper.save()

    def wake(self) -> None:
        self._wake.set()

    async def samples(self) -> list[Sample]:
        out: list[Sample] = []
        for provider in self.keeper.catalog.distinct_providers():
            try:
                out += await provider.report()
            except KubeqosError as error:
                log.error("a provider cannot report", error=error.what)
        return out

    async def close(self) -> None:
        """Take no new connection or call, let those under way finish, save."""
        gate, listener = self._servers
        listener.close()
        # Gone before the wait: whoever starts next makes a socket of its own there, which is not ours to remove.
        self.settings.listen.unlink(missing_ok=True)
        for task in self._background:
            task.cancel()
        await self._drain()
        gate.close()
        gate_path(self.settings.listen).unlink(missing_ok=True)
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.keeper.save()
        for provider in self.keeper.catalog.distinct_providers():
            await provider.close()
        await self.keeper.runtime.close()

    async def _drain(self) -> None:
        """Every client hears that we go; its calls under way end as they would have, within the grace.

        Clients hang up, not we: a client may begin a call before it has read our goodbye. On a connection that is
        still open the goodbye tells it that the call was not taken and can go elsewhere; on a closed one the call
        would fail with a broken pipe, as if it had been dropped.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS
        busy_at = loop.time()
        while self._sessions and loop.time() < deadline:
            for session in list(self._sessions):
                session.drain()  # also those whose connection was accepted while we began to stop
            if not all(session.idle for session in self._sessions):
                busy_at = loop.time()
            elif loop.time() > busy_at + PARTING_SECONDS:
                for session in list(self._sessions):
                    session.client.close()
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        late = [task for session in self._sessions for task in session.tasks]
        if self._sessions:
            log.warning("calls were cut off", connections=len(self._sessions), seconds=STOP_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for session in list(self._sessions):
            session.client.close()


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the configuration again."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    relay = await Relay.start(settings)
    loop.add_signal_handler(signal.SIGHUP, relay.wake)
    if settings.metrics_address:
        host, port = settings.metrics_address
        registry = CollectorRegistry()
        registry.register(RelayCollector(relay, loop))
        start_http_server(port, host, registry)
    await stop.wait()
    await relay.close()


class RelayCollector(Collector):
    """The relay's metrics: how full each class is, and what the providers measure."""

    def __init__(self, relay: Relay, loop: asyncio.AbstractEventLoop) -> None:
        self.relay = relay
        self.loop = loop

    def collect(self) -> Iterator[Metric]:
        used, capacity, samples = asyncio.run_coroutine_threadsafe(self._look(), self.loop).result(10)
        labels = ("resource", "class")
        in_use = GaugeMetricFamily(
            "kubeqos_class_in_use", "Subjects that asked for a class and have it.", labels=labels
        )
        room = GaugeMetricFamily(
            "kubeqos_class_capacity", "Most subjects a class takes; 0 is unlimited.", labels=labels
        )
        for (resource, name), count in used.items():
            in_use.add_metric((resource, name), count)
            room.add_metric((resource, name), capacity[resource, name])
        text = "Values of classes that somebody else had changed in a container's cgroup, put right."
        drifts = CounterMetricFamily("kubeqos_class_drifts", text, value=self.relay.keeper.drifts)
        text = "Annotations of pods that asked for a class and were answered by nobody."
        vain = CounterMetricFamily("kubeqos_class_annotations_unanswered", text, value=self.relay.keeper.unanswered)
        yield from (in_use, room, drifts, vain)
        yield from _families(samples)

    async def _look(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int], list[Sample]]:
        keeper = self.relay.keeper
        classes = {(o.name, c.name): c.capacity for o in keeper.catalog.offers.values() for c in o.classes}
        return {pair: keeper.holders.used(*pair) for pair in classes}, classes, await self.relay.samples()


def _families(samples: list[Sample]) -> Iterator[Metric]:
    families: dict[str, Any] = {}
    for sample in samples:
        names = tuple(sorted(sample.labels))
        if sample.name not in families:
            family = CounterMetricFamily if sample.counter else GaugeMetricFamily
            families[sample.name] = family(sample.name, sample.help, labels=names)
        families[sample.name].add_metric([sample.labels[name] for name in names], sample.value)
    yield from families.values()


def _holders_of(data: Any) -> ClassHolders:
    """The saved assignments. What cannot be read is found again in the marks on what the runtime has."""
    try:
        return ClassHolders.load(data or {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.error("the saved assignments cannot be read and are rebuilt from the runtime", error=repr(error))
        return ClassHolders()


def _bind(path: Path, like: Path) -> socket.socket:
    """A listening socket with the owner and mode of the runtime's, replacing one that a crash left behind."""
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise ConfigurationError(
                    "another process listens on this socket",
                    where=str(path),
                    remedy="stop it or choose another --listen",
                )
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen: {error.strerror or error}",
            where=str(path),
            remedy="choose a --listen of at most 100 characters in a folder that this user may write to",
        ) from error
    with contextlib.suppress(OSError):
        status = like.stat()
        os.chmod(path, status.st_mode & 0o777)
        os.chown(path, status.st_uid, status.st_gid)
    return listener
