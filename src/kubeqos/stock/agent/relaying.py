"""The other shell of the agent: for a runtime without NRI, the relay in front of it. `start` chooses.

Both drive the same objects: a keeper of classes (`cri.classes.keeper`), which is told by `annotations` what a pod asks
for, and a keeper of cores (`stock.cores.keeper`). Here the kubelet's calls bring the pods and containers in, and carry
the edits out. Started by `kubeqos agent --relay-socket`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from kubeqos.client import Api
from kubeqos.cri.client import CriClient
from kubeqos.cri.relay import server
from kubeqos.cri.relay.server import Relay
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.stock.agent.agent import LEAVE_SECONDS, Settings, StockAgent, folders_of, is_leaving, make_cores
from kubeqos.stock.agent.annotations import wishes
from kubeqos.stock.agent.leaving import remove_folders
from kubeqos.stock.agent.relaycores import RelayCores
from kubeqos.stock.agent.report import Reporter, cores_told, status_of
from kubeqos.stock.cores.dra import DraDriver
from kubeqos.stock.cores.tableruntime import CriRuntime
from kubeqos.stock.examination import OK, nri_of

LOOK_SECONDS = 1.0
"""How often it is looked whether there is something new to tell: the relay tells nobody by itself."""
log = logger("kubeqos.agent")


class RelayAgent:
    """Classes for the pods of a node whose kubelet asks us, and we the runtime."""

    def __init__(
        self, api: Api, settings: Settings, relay: Relay, reporter: Reporter, cores: RelayCores | None
    ) -> None:
        self._api, self._settings = api, settings
        self.relay = relay
        self.reporter = reporter
        self.cores = cores
        self.ready = reporter.published
        self.registry = CollectorRegistry()

    @classmethod
    async def start(cls, api: Api, settings: Settings) -> RelayAgent:
        """Read the classes (an invalid file stops here) and answer kubelets."""
        assert settings.relay is not None
        settings.state.parent.mkdir(parents=True, exist_ok=True)
        reporter = Reporter(api, settings.node, lambda before, now: agent.told(before, now))
        runtime = CriClient(f"unix://{settings.runtime}")
        keeper = make_cores(api, settings, lambda table: CriRuntime(table, runtime), reporter.changed)
        cores = RelayCores(keeper, runtime, settings.machine.host.version) if keeper is not None else None
        relay = await Relay.start(
            server.Settings(
                settings.relay,
                settings.runtime,
                settings.classes,
                settings.state,
                settings.machine,
                asks=wishes,
                broken=reporter.broken,
                around=cores.around if cores is not None else None,
            )
        )
        agent = cls(api, settings, relay, reporter, cores)
        return agent

    @property
    def offers(self) -> Iterable[str]:
        return self.relay.keeper.catalog.offers

    async def run(self) -> None:
        """Work until cancelled. Nothing is offered before the runtime has told what runs."""
        is_left = False
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.cores is not None:
                    await self._keep_cores(self.cores, tasks)
                await self.relay.keeper.ready.wait()
                tasks.create_task(self.reporter.run())
                tasks.create_task(self._look())
        except asyncio.CancelledError:
            is_left = await self._left()
            raise
        finally:
            await self.relay.close()
            if self.cores is not None:
                await self.cores.close()
            if is_left:  # now: the relay has written its file once more
                await self._remove_files()

    async def _left(self) -> bool:
        """Give back what running pods were kept to, if kubeqos is not to come back."""
        try:
            if not await is_leaving(self._api, self._settings.node):
                return False
            if self.cores is not None:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self.cores.keeper.leave()
            self.relay.keeper.catalog.clear()
        except (KubeqosError, OSError) as error:
            log.warning("what was set on this node stays", reason=str(error) or "no answer in time")
            return False
        return True

    async def _remove_files(self) -> None:
        """Of the relay's own folder only what it wrote: who runs it by hand may keep it where others are, too."""
        settings, state = self._settings, self._settings.state
        for path in (state, *state.parent.glob(f"{state.name}.*")):
            path.unlink(missing_ok=True)
        keeper = self.cores.keeper if self.cores is not None else None
        await remove_folders(folders_of(settings, keeper), settings.host_root)
        if state.parent.is_dir() and not any(state.parent.iterdir()):
            await remove_folders([state.parent], settings.host_root)

    async def _keep_cores(self, cores: RelayCores, tasks: asyncio.TaskGroup) -> None:
        """Until what runs is known the kubelet's calls wait: nobody gets CPUs that may be another's."""
        keeper = cores.keeper
        tasks.create_task(keeper.run())
        if keeper.parts.plugins.cci is not None:
            tasks.create_task(DraDriver(self._api, keeper, self._settings.node, self._settings.kubelet).run())
        await keeper.listed()
        while True:
            try:
                await cores.synchronize()
                break
            except RemoteError as error:
                log.warning("waiting for the container runtime", error=error.what)
                await asyncio.sleep(LOOK_SECONDS)
        await keeper.ready.wait()
        tasks.create_task(cores.follow())

    def told(self, before: dict[str, Any] | None, now: float) -> dict[str, Any]:
        """What the node's NodeQOS is to say."""
        cores = cores_told(self.cores.keeper) if self.cores is not None else None
        return status_of(self.relay.keeper.catalog, self.relay.keeper.holders, before, now, cores)

    async def _look(self) -> None:
        known = None
        while True:
            now = self.told(None, 0.0)
            if now != known:
                known = now
                self.reporter.changed()
            await asyncio.sleep(LOOK_SECONDS)


async def start(api: Api, settings: Settings) -> StockAgent | RelayAgent:
    """The agent in the form that this node's runtime takes; where it cannot be NRI, that is said."""
    if settings.relay is None:
        if not settings.nri.exists():
            remedy = "for one that has none, run `kubeqos agent --relay-socket` as a service of the host"
            log.warning("waiting for the runtime's NRI socket", socket=str(settings.nri), remedy=remedy)
        return await StockAgent.start(api, settings)
    if not (reason := await without_nri(settings)):
        log.info("the runtime has NRI: the kubelet is to ask it directly, nobody listens at --relay-socket")
        return await StockAgent.start(api, settings)
    remedy = f"let the kubelet's containerRuntimeEndpoint be unix://{settings.relay}"
    log.warning("classes are given through the relay", runtime=reason, remedy=remedy)
    return await RelayAgent.start(api, settings)


async def without_nri(settings: Settings) -> str:
    """Why the node's runtime takes no NRI plugins; empty where it does. One that is not there yet is waited for."""
    if settings.nri.exists():
        return ""
    async with CriClient(f"unix://{settings.runtime}") as runtime:
        while True:
            try:
                said = await runtime.version()
            except RemoteError as error:
                log.warning("waiting for the container runtime", error=error.what)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            state, details = nri_of(f"{said.runtime_name}://{said.runtime_version}")
            return "" if state == OK else details
