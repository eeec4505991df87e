"""QRM and CCI beside a node agent: which managers a node's gates ask for, and what has to run for them.

Called by `kubeqos node` and `kubeqos up`. One plugin folder serves both: resource plugins and compute drivers
register the same way, and the gates decide who takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubeqos.cci.claims.resolving import fetch_claims
from kubeqos.cci.drivers import PLUGIN_TYPE as CCI_TYPE
from kubeqos.cci.manager import CciManager
from kubeqos.cci.manager import Settings as CciSettings
from kubeqos.cci.stateservice import SOCKET_NAME, serve_state
from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.gates import CCI, QRM
from kubeqos.model.machine import Machine
from kubeqos.model.objects import PodView
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.runtime.executor import Claims, no_claims
from kubeqos.plugins import REGISTRY
from kubeqos.plugins.managers import Refusal, ResourceManager
from kubeqos.plugins.registration import Handler, Watcher
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.messages import PLUGIN_TYPE as QRM_TYPE
from kubeqos.qrm.registry import LegacyRegistry, ResourcePluginHandler, serve_legacy
from kubeqos.qrm.settings import Event
from kubeqos.qrm.settings import Settings as QrmSettings

_PUBLISH_SECONDS = 0.2


@dataclass(slots=True)
class Extensions:
    """The managers to hand to an agent, and how to run them."""

    folder: Path
    qrm: QosResourceManager | None = None
    cci: CciManager | None = None
    legacy_folder: Path | None = None
    claims: Claims = no_claims
    managers: list[ResourceManager] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self, agent: NodeAgent) -> AsyncIterator[None]:
        """Let plugins register and re-allocate for the duration of a block."""
        if not self.managers:
            yield
            return
        handlers: dict[str, Handler] = {}
        async with contextlib.AsyncExitStack() as stack:
            if self.qrm is not None:
                handlers[QRM_TYPE] = ResourcePluginHandler(self.qrm)
                self.qrm.emit = lambda event: agent.record_node(event.reason, _named(event))
                agent.plugin_conditions = self.qrm.conditions
                stack.push_async_callback(self.qrm.close)
                if self.legacy_folder is not None:
                    await stack.enter_async_context(serve_legacy(LegacyRegistry(self.qrm, self.legacy_folder)))
            if self.cci is not None:
                handlers[CCI_TYPE] = self.cci.drivers
                agent.drivers = self.cci.drivers.table.keys
                self.cci.emit, self.cci.changed = agent.record_node, agent.settle
                await stack.enter_async_context(self.cci.running())
                await stack.enter_async_context(serve_state(self.cci.store, self.folder.parent / SOCKET_NAME))
            tasks = [
                asyncio.create_task(Watcher([self.folder], handlers).run(), name="plugin watcher"),
                asyncio.create_task(self._publish(agent), name="publish plugins"),
            ]
            try:
                yield
            finally:
                if self.cci is not None:
                    self.cci.emit = lambda _reason, _message: None  # it is we who go
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def registered(self) -> list[str]:
        """The plugins and drivers that are with us now."""
        found = [endpoint.name for endpoint in self.qrm.endpoints if endpoint.live] if self.qrm is not None else []
        return found + (list(self.cci.drivers.table) if self.cci is not None else [])

    async def _publish(self, agent: NodeAgent) -> None:
        """The scheduler looks for drivers and plugins' resources in the Node object, so it hears of them at once."""
        told: tuple[list[str], object] = [], None
        while True:
            await asyncio.sleep(_PUBLISH_SECONDS)
            qrm = self.qrm
            shown = (qrm.conditions(), qrm.node_resources(), qrm.divisions()) if qrm is not None else None
            found = sorted(self.registered()), shown
            if found != told and agent.ready.is_set():
                await agent.write_node()
                told = found


def extensions(
    settings: NodeSettings,
    machine: Machine,
    api: Api | None,
    sockets: Path | None = None,
    *,
    qrm: QrmSettings | None = None,
    cci: CciSettings | None = None,
) -> Extensions:
    """What the node's gates ask for. `sockets` is where plugins meet us, the state directory if left out."""
    sockets = sockets or settings.state_dir
    made = Extensions(sockets / REGISTRY)
    if settings.gates.enabled(QRM):
        built_in = {
            name
            for name, policy in (("cpu", settings.cpu_manager_policy), ("memory", settings.memory_manager_policy))
            if policy != "none"
        }
        made.qrm = QosResourceManager(replace(qrm or QrmSettings(), built_in=frozenset(built_in)), machine)
        made.legacy_folder = sockets / "resource-plugins"
        made.managers.append(made.qrm)
    if settings.gates.enabled(CCI):
        made.cci = CciManager(
            machine, settings.state_dir, replace(cci or CciSettings(), reserved=settings.reserved_cpus)
        )
        made.managers.append(made.cci)
        if api is not None:
            made.claims = _claims_from(api)
    return made


def _named(event: Event) -> str:
    return f"pod {event.pod_uid}: {event.message}" if event.pod_uid else event.message


def _claims_from(api: Api) -> Claims:
    async def claims(raw: Mapping[str, Any]) -> Mapping[str, Any] | Refusal:
        try:
            return await fetch_claims(api, PodView.of(dict(raw)))
        except (ApiError, Unreachable) as error:
            return Refusal("CCIClaimUnreadable", f"cannot read the pod's claims: {error.what}", retry=True)

    return claims
