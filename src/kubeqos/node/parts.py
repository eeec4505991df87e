"""What a node agent is made of: one frozen value, given to `NodeAgent` whole.

Made by `node.config.assembly` for `kubeqos node`, `kubeqos up`, fleets and tests. Nothing is set on an agent later:
what changes while it runs (conditions, drivers, where it is served) it asks its parts for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubeqos.clock import Clock, WallClock
from kubeqos.gates import CCI, QOS_RESOURCES
from kubeqos.model.annotations.computepolicies import wanted_compute
from kubeqos.node.pressure.thresholds import ActivePod, Conditions, Pressure
from kubeqos.node.runtime.executor import Claims, no_claims
from kubeqos.plugins.managers import AdmittedPod, Refusal, ResourceManager
from kubeqos.rules.qos.classes import demand

if TYPE_CHECKING:
    from kubeqos.client.api import Api
    from kubeqos.cri.runtime import Runtime
    from kubeqos.model.machine import Machine
    from kubeqos.node.admission.ledger import NodeLedger
    from kubeqos.node.admission.managers.classes import ClassManager
    from kubeqos.node.admission.managers.cpu import CpuManager
    from kubeqos.node.admission.managers.memory import MemoryManager
    from kubeqos.node.api.events import NodeEvents
    from kubeqos.node.api.sources import PodSource
    from kubeqos.node.config.plugins import PluginManagers
    from kubeqos.node.config.services import ServiceSettings
    from kubeqos.node.config.settings import NodeSettings
    from kubeqos.node.cri.context import Context


NO_CLAIMS_HERE = "CCIUnsupported"
"""The reason of pods that ask for cores by claim or policy on a node without compute drivers (ruling 16)."""
NO_CLASSES_HERE = "QOSResourcesUnavailable"
"""The same for classes, as where the runtime has none."""


@dataclass(slots=True)
class EffectsInFlight:
    """How many effects are being carried out; the nodes of a fleet share one, to know when all of them are idle."""

    count: int = 0


@dataclass(slots=True)
class AgentCounters:
    """What metrics read."""

    effects: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    damaged_checkpoints: int = 0


@dataclass(slots=True)
class ServingAddress:
    """Where the API server finds logs, exec and statistics; `node.server.routes` fills it in when it listens."""

    port: int = 0
    ca_pem: str = ""
    """The authority of the certificate that is served there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """Everything that one agent is given."""

    settings: NodeSettings
    services: ServiceSettings
    """What `node.run` runs around the agent."""
    runtime: Runtime
    machine: Machine
    context: Context
    """What CRI configurations depend on, before the runtime has told its classes."""
    events: NodeEvents
    pods: PodSource
    """Also where statuses go, if there is no API server."""
    ledger: NodeLedger
    pressure: Pressure
    api: Api | None = None
    clock: Clock = field(default_factory=WallClock)
    classes: ClassManager | None = None
    cpus: CpuManager | None = None
    memory: MemoryManager | None = None
    plugins: PluginManagers
    other_managers: tuple[ResourceManager, ...] = ()
    claims: Claims = no_claims
    serving: ServingAddress = field(default_factory=ServingAddress)
    in_flight: EffectsInFlight = field(default_factory=EffectsInFlight)

    @property
    def managers(self) -> tuple[ResourceManager, ...]:
        """All resource managers, in the order in which they are asked."""
        own: Iterable[ResourceManager | None] = (self.classes, self.cpus, self.memory)
        return (*(one for one in own if one is not None), *self.plugins.managers, *self.other_managers)

    def conditions(self) -> Conditions:
        """The Node's conditions beside Ready: pressure, and the health of plugins."""
        named = self.events.named
        told = {kind: (*one[:2], named(one[2])) for kind, one in self.plugins.conditions().items()}
        return {**self.pressure.shown(), **told}

    def refuses(self, pod: AdmittedPod, static: bool) -> Refusal | None:
        """Asked first: promises that the node cannot keep, and pods that it cannot take under pressure."""
        if self.plugins.cci is None and (wanted := wanted_compute(pod.view)):
            message = f"{wanted}, and this node gives no cores to claims: the gate {CCI} is off"
            return Refusal(NO_CLAIMS_HERE, message)
        if self.classes is None and (asked := demand(pod.view.spec)):
            classes = ", ".join(sorted(f"{name}={cls}" for _, name, cls in asked))
            return Refusal(
                NO_CLASSES_HERE, f"this node gives nobody a class ({classes}): the gate {QOS_RESOURCES} is off"
            )
        return self.pressure.admit(ActivePod(pod.view, static))
