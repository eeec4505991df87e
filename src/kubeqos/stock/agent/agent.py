"""One node's agent: classes read from its file, the NRI plugin, and what the cluster is told. Composition only.

Started by `kubeqos agent`. Of classes it keeps no file: what runs, and which it was given, the runtime tells after
every (re)connection. Cores have the ledger of the embedded home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from kubeqos.client import Api, ApiError
from kubeqos.cri.classes.classfile import ClassFile, tell_missing
from kubeqos.cri.enforcing.systemd import keep_informed
from kubeqos.cri.providers.catalog import Catalog, LocalMachine, nobody
from kubeqos.cri.providers.reading import read_catalog
from kubeqos.cri.providers.retiring import Used
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import Machine
from kubeqos.nri.plugin import SOCKET, serve
from kubeqos.stock.agent.hooks import ClassHooks, without_unreachable
from kubeqos.stock.agent.leaving import remove_folders
from kubeqos.stock.agent.report import Reporter, cores_told, status_of
from kubeqos.stock.agent.requiring import RequiredPlugin
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.cores.assembly import KUBELET_DIR, is_empty, make_keeper, read_configuration, refuse_kubelet
from kubeqos.stock.cores.dra import DraDriver
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.nriruntime import NriRuntime
from kubeqos.stock.cores.pods import PodTable
from kubeqos.stock.cores.tableruntime import TableRuntime
from kubeqos.stock.names import LEAVING
from kubeqos.stock.validator import running

TEND_SECONDS = 1.0
ASK_SECONDS, LEAVE_SECONDS = 3.0, 15.0
"""How long an end waits for the API server to say whether it is for good, and for the runtime if it is."""
log = logger("kubeqos.agent")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is."""

    node: str
    classes: Path
    machine: LocalMachine
    nri: Path = SOCKET
    cores: Path | None = None
    """A NodeConfiguration; without one the node hands out no cores."""
    kubelet: Path = KUBELET_DIR
    hardware: Machine | None = None
    """The machine whose cores are handed out; this one, unless given."""
    relay: Path | None = None
    """Where the kubelet finds us in place of a runtime without NRI (`relaying`)."""
    runtime: Path = Path("/run/containerd/containerd.sock")
    state: Path = Path("/var/lib/kubeqos/relay.json")
    """That runtime's own socket, and where the relay keeps who has which class."""
    runtime_settings: Path | None = None
    """What may be changed in the settings of the runtime itself (`runtime.yaml`); nothing, unless given."""
    host_root: Path = Path("/proc/1/root")
    """Where the host's files are, seen from where we run."""
    made_for_us: Path | None = None
    """A folder that was made on the host for this agent, whatever it keeps there; it goes when kubeqos goes."""


def make_cores(
    api: Api, settings: Settings, runtime: Callable[[PodTable], TableRuntime], changed: Callable[[], None]
) -> CoreKeeper | None:
    """The keeper of cores, the same for every shell; None on a node that hands out none."""
    if settings.cores is None or is_empty(settings.cores):
        return None
    config = read_configuration(settings.cores, settings.node)
    refuse_kubelet(settings.kubelet)
    hardware = settings.hardware or read_machine(Path("/sys"), name=settings.node)
    return make_keeper(config, hardware, settings.machine.host, api, runtime, changed)


def folders_of(settings: Settings, cores: CoreKeeper | None) -> list[Path]:
    """What is to go from the node when kubeqos goes."""
    both = (cores.parts.settings.state_dir if cores is not None else None, settings.made_for_us)
    return [one for one in both if one is not None]


async def is_leaving(api: Api, node: str) -> bool:
    """Whether kubeqos is being uninstalled, or is gone already: our kinds with it."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            report = await api.get(NODE_QOSES, node)
    except ApiError as error:
        if not error.not_served:
            raise
        return True
    return LEAVING in (report["metadata"].get("annotations") or {})


async def read_reachable(settings: Settings, previous: Catalog | None = None, used: Used = nobody) -> Catalog:
    """The file of classes, without what NRI cannot give."""
    return await without_unreachable(await read_catalog(settings.classes, settings.machine, previous, used))


class StockAgent:
    """Everything that runs on one node."""

    def __init__(self, api: Api, hooks: ClassHooks, reporter: Reporter, settings: Settings) -> None:
        self._api = api
        self.hooks = hooks
        self.reporter = reporter
        self.ready = reporter.published
        self.registry = CollectorRegistry()
        self._settings = settings
        self._file = ClassFile(settings.classes, partial(read_reachable, settings), hooks.keeper)
        self._required = RequiredPlugin.read(settings.runtime_settings, settings.host_root, reporter.changed)

    @classmethod
    async def start(cls, api: Api, settings: Settings) -> StockAgent:
        """Read the classes (an invalid file stops here) and make what providers need."""
        catalog = await read_reachable(settings)
        tell_missing(catalog)
        catalog.install()
        reporter = Reporter(api, settings.node, lambda before, now: agent.told(before, now))
        # The keeper of cores changes containers through the plugin, and the plugin asks the keeper: it is made last.
        cores = make_cores(
            api, settings, lambda table: NriRuntime(table, lambda updates: hooks.update(updates)), reporter.changed
        )
        hooks = ClassHooks(catalog, settings.machine.host, reporter.broken, reporter.changed, cores)
        agent = cls(api, hooks, reporter, settings)
        return agent

    @property
    def offers(self) -> Iterable[str]:
        return self.hooks.keeper.catalog.offers

    def told(self, before: dict[str, Any] | None, now: float) -> dict[str, Any]:
        """What the node's NodeQOS is to say."""
        cores = cores_told(self.hooks.cores) if self.hooks.cores is not None else None
        more = self._required.conditions
        return status_of(self.hooks.keeper.catalog, self.hooks.holders, before, now, cores, more)

    async def run(self) -> None:
        """Work until cancelled; then, if the cluster is done with us, leave nothing on the node."""
        working = asyncio.create_task(self._work())
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            left = await self._left()  # with the help of those who work: the runtime is still to be told
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            if left:
                await remove_folders(folders_of(self._settings, self.hooks.cores), self._settings.host_root)
            raise

    async def _left(self) -> bool:
        """Give back what running pods were kept to, if kubeqos is being uninstalled."""
        try:
            if not await is_leaving(self._api, self._settings.node):
                return False
            self._required.remove()
            if self.hooks.cores is not None:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self.hooks.cores.leave()
            self.hooks.keeper.catalog.clear()
            await self._required.left()  # last: those who give back something ask the runtime
        except (KubeqosError, OSError) as error:
            log.warning("what was set on this node stays", reason=str(error) or "no answer in time")
            return False
        return True

    async def _work(self) -> None:
        """Nothing is offered before the runtime has told what runs."""
        cores = self.hooks.cores
        async with asyncio.TaskGroup() as tasks:
            if cores is not None:
                tasks.create_task(cores.run())
                if cores.parts.plugins.cci is not None:
                    tasks.create_task(DraDriver(self._api, cores, self._settings.node, self._settings.kubelet).run())
                await cores.listed()
            tasks.create_task(serve(self.hooks, self._settings.nri))
            tasks.create_task(self._tend())
            tasks.create_task(keep_informed(self._settings.machine.host, self.hooks.keeper.enforce_all))
            await self.hooks.synchronized.wait()
            tasks.create_task(self._see_to_runtime())
            if cores is not None:
                await cores.ready.wait()
            tasks.create_task(self.reporter.run())

    async def _see_to_runtime(self) -> None:
        while True:
            name, version = await self.hooks.runtimes.get()
            await self.hooks.synchronized.wait()
            link = self.hooks.link
            if link is not None and link.socket is not None:
                await self._required.met(name, version, running(link.socket))

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TEND_SECONDS)
            try:
                await self.hooks.keeper.repair()
            except (KubeqosError, OSError) as error:
                log.error("classes could not be looked after", error=str(error))
            if await self._file.look():
                self.reporter.changed()
