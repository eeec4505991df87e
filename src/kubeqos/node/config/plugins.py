"""QRM and CCI of a node: which managers its gates ask for, what they tell the agent, and where their plugins register.

One folder serves both: resource plugins and compute drivers register the same way, and the gates decide who takes them.
Made by `node.config.assembly`, run by `node.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubeqos.cci.claims.fetching import fetch_claims
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.gates import CCI, QRM
from kubeqos.model.machine import Machine
from kubeqos.model.objects import PodView
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod.effects import Record
from kubeqos.node.pressure.thresholds import Conditions
from kubeqos.node.runtime.executor import Claims
from kubeqos.plugins import REGISTRY
from kubeqos.plugins.managers import AdmittedPod, Refusal, ResourceManager
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.settings import Event, QrmSettings

LEGACY_FOLDER = "resource-plugins"


@dataclass(frozen=True, slots=True)
class PluginManagers:
    """The managers that ask others, and where these others are met."""

    folder: Path = Path(REGISTRY)
    """Where plugins and drivers register."""
    qrm: QosResourceManager | None = None
    cci: CciManager | None = None
    legacy_folder: Path | None = None
    """Where resource plugins of the first protocol register themselves; nobody listens there if it is left out."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when containers may have to be told something although no pod came or went, or the node of its plugins."""

    @property
    def managers(self) -> tuple[ResourceManager, ...]:
        both: Iterable[ResourceManager | None] = (self.qrm, self.cci)
        return tuple(one for one in both if one is not None)

    def conditions(self) -> Conditions:
        """The health of resource plugins and of compute drivers, as conditions of the Node."""
        return {
            **(self.qrm.conditions() if self.qrm is not None else {}),
            **(self.cci.conditions() if self.cci is not None else {}),
        }

    def drivers(self) -> list[str]:
        """Compute drivers that are with us now."""
        return list(self.cci.drivers.table) if self.cci is not None else []

    def driver_health(self) -> Mapping[str, str]:
        """Compute drivers and what is wrong with each, empty where nothing is; with those that are gone."""
        return self.cci.driver_health() if self.cci is not None else {}

    def registered(self) -> list[str]:
        """The plugins and drivers that are with us now."""
        plugins = [endpoint.name for endpoint in self.qrm.endpoints if endpoint.live] if self.qrm is not None else []
        return plugins + self.drivers()


def plugin_managers(
    settings: NodeSettings,
    machine: Machine,
    events: NodeEvents,
    *,
    folder: Path | None = None,
    legacy_folder: Path | None = None,
    qrm: QrmSettings | None = None,
    cci: CciSettings | None = None,
) -> PluginManagers:
    """What the node's gates ask for. Folders that are left out lie in the state directory."""
    changed = asyncio.Event()
    made = PluginManagers(folder or settings.state_dir / REGISTRY, changed=changed)
    if settings.gates.enabled(QRM):
        policies = {"cpu": settings.cpu_manager_policy, "memory": settings.memory_manager_policy}
        built_in = frozenset(name for name, policy in policies.items() if policy != "none")

        def emit(event: Event) -> None:
            events.node(event.reason, f"pod {event.pod_uid}: {event.message}" if event.pod_uid else event.message)

        own_qrm = replace(qrm or QrmSettings(), built_in=built_in)
        manager = QosResourceManager(own_qrm, machine, emit=emit, changed=changed.set)
        made = replace(made, qrm=manager, legacy_folder=legacy_folder or settings.state_dir / LEGACY_FOLDER)
    if settings.gates.enabled(CCI):
        own = replace(cci or CciSettings(), reserved=settings.reserved_cpus)

        def emit_pod(pod: AdmittedPod, reason: str, message: str) -> None:
            events.pod(pod.raw, Record(pod.uid, "Warning", reason, message))

        manages = CciManager(machine, settings.state_dir, own, emit=events.node, emit_pod=emit_pod, changed=changed.set)
        made = replace(made, cci=manages)
    return made


def claims_from(api: Api) -> Claims:
    """The claims of a pod, as the API server has them."""

    async def claims(raw: Mapping[str, Any]) -> Mapping[str, Any] | Refusal:
        try:
            return await fetch_claims(api, PodView.of(dict(raw)))
        except (ApiError, Unreachable) as error:
            return Refusal("CCIClaimUnreadable", f"cannot read the pod's claims: {error.what}", retry=True)

    return claims
