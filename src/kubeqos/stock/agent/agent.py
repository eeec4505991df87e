"""One node's agent: classes read from its file, the NRI plugin, and what the cluster is told. Composition only.

Started by `kubeqos agent`. It keeps no file: what runs, and which classes it was given, the runtime tells after every
(re)connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from kubeqos.client import Api
from kubeqos.cri.enforcing.systemd import Systemd, UnitValues, is_systemds
from kubeqos.cri.providers.catalog import Machine
from kubeqos.cri.providers.reading import read_catalog
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.nri.plugin import SOCKET, serve
from kubeqos.stock.agent.hooks import ClassHooks, without_unreachable
from kubeqos.stock.agent.report import Reporter, status_of

TEND_SECONDS, COMPARE_SECONDS = 1.0, 10.0
log = logger("kubeqos.agent")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is."""

    node: str
    classes: Path
    machine: Machine
    nri: Path = SOCKET


class StockAgent:
    """Everything that runs on one node."""

    def __init__(self, hooks: ClassHooks, reporter: Reporter, settings: Settings) -> None:
        self.hooks = hooks
        self.reporter = reporter
        self.ready = reporter.published
        self.registry = CollectorRegistry()
        self._settings = settings

    @classmethod
    async def start(cls, api: Api, settings: Settings) -> StockAgent:
        """Read the classes (an invalid file stops here) and make what providers need."""
        catalog, troubles = await without_unreachable(await read_catalog(settings.classes, settings.machine))
        for trouble in troubles:
            log.warning("a resource is not offered", reason=trouble)
        catalog.install()
        reporter = Reporter(
            api, settings.node, lambda before, now: status_of(hooks.catalog, hooks.holders, troubles, before, now)
        )
        hooks = ClassHooks(catalog, settings.machine.host, reporter.broken, reporter.changed)
        return cls(hooks, reporter, settings)

    async def run(self) -> None:
        """Work until cancelled. Nothing is offered before the runtime has told what runs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(self.hooks, self._settings.nri))
            tasks.create_task(self._tend(TEND_SECONDS, self.hooks.tend))
            tasks.create_task(self._tend(COMPARE_SECONDS, self.hooks.put_right))
            tasks.create_task(self._inform())
            await self.hooks.synchronized.wait()
            tasks.create_task(self.reporter.run())

    async def _inform(self) -> None:
        """Let systemd know what classes set in its units, and set it again where a reload took it back."""
        host = self._settings.machine.host
        if is_systemds(host.cgroup_root):
            units = UnitValues(Systemd(), host.cgroup_root)
            host.written = units.note
            await units.run(self.hooks.enforce_all)

    @staticmethod
    async def _tend(period_seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_seconds)
            try:
                await look()
            except (KubeqosError, OSError) as error:
                log.error("classes could not be looked after", error=str(error))
