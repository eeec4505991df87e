"""The other shell of the agent: for a runtime without NRI, the relay in front of it. `start` chooses.

What is decided is the same in both: what a pod's annotations ask for (`core.wishes`), who gets a class and who does not
(`cri.relay.core`), how providers enforce it (`cri.relay.enforce`). Here the kubelet's calls bring the pods and
containers in, and carry the edits out. Started by `kubeqos agent --relay-socket`.
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
from kubeqos.errors import ConfigurationError, RemoteError
from kubeqos.logs import logger
from kubeqos.stock.agent.agent import Settings, StockAgent
from kubeqos.stock.agent.core import wishes
from kubeqos.stock.agent.report import Reporter, status_of
from kubeqos.stock.cores.assembly import is_empty
from kubeqos.stock.examination import OK, nri_of

LOOK_SECONDS = 1.0
"""How often it is looked whether there is something new to tell: the relay tells nobody by itself."""
log = logger("kubeqos.agent")


class RelayAgent:
    """Classes for the pods of a node whose kubelet asks us, and we the runtime."""

    def __init__(self, relay: Relay, reporter: Reporter) -> None:
        self.relay = relay
        self.reporter = reporter
        self.ready = reporter.published
        self.registry = CollectorRegistry()

    @classmethod
    async def start(cls, api: Api, settings: Settings) -> RelayAgent:
        """Read the classes (an invalid file stops here) and answer kubelets."""
        assert settings.relay is not None
        if settings.cores is not None and not is_empty(settings.cores):
            raise ConfigurationError(
                "cores are handed out through NRI, which this runtime does not have",
                where=str(settings.cores),
                remedy="use a runtime with NRI, or leave out --node-config: classes work through the relay",
            )
        settings.state.parent.mkdir(parents=True, exist_ok=True)
        relay = await Relay.start(
            server.Settings(
                settings.relay, settings.runtime, settings.classes, settings.state, settings.machine, asks=wishes
            )
        )
        return cls(relay, Reporter(api, settings.node, lambda before, now: _told(relay, before, now)))

    @property
    def offers(self) -> Iterable[str]:
        return self.relay.keeper.catalog.offers

    async def run(self) -> None:
        """Work until cancelled. Nothing is offered before the runtime has told what runs."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self.relay.keeper.ready.wait()
                tasks.create_task(self.reporter.run())
                tasks.create_task(self._look())
        finally:
            await self.relay.close()

    async def _look(self) -> None:
        known, missed = None, self.relay.keeper.missed
        while True:
            while missed:
                self.reporter.broken(*missed.pop())
            now = _told(self.relay, None, 0.0)
            if now != known:
                known = now
                self.reporter.changed()
            await asyncio.sleep(LOOK_SECONDS)


def _told(relay: Relay, before: dict[str, Any] | None, now: float) -> dict[str, Any]:
    return status_of(relay.keeper.catalog, relay.keeper.holders, (), before, now)


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
