"""Builds the parts of a node agent, from its configuration (`node_parts`) or from settings made in code (`assemble`).

`kubeqos node`, `kubeqos up` and fleets come through `node_parts`; tests and benchmarks that want one part of their own
through `assemble`. Here files are looked at: how large the disk is, which version the cgroups have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kubeqos.client.api import Api
from kubeqos.clock import Clock, WallClock
from kubeqos.cri.enforcing.host import cgroup_version, counts_swap, hugepage_sizes
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import CCI, QOS_RESOURCES
from kubeqos.model.machine import Machine
from kubeqos.node.admission.ledger import FileLedger, NodeLedger
from kubeqos.node.admission.managers.classes import ClassManager
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.managers.memory import MemoryManager
from kubeqos.node.api import nodestatus
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.api.sources import ApiPods, LocalPods, NodePods
from kubeqos.node.config import configured
from kubeqos.node.config.checks import refuse_machine
from kubeqos.node.config.configuration import NodeConfiguration
from kubeqos.node.config.plugins import PluginManagers, claims_from, plugin_managers
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import SIMULATED_DISK_BYTES, STATIC, NodeSettings
from kubeqos.node.cri.context import Context, NoClasses
from kubeqos.node.parts import EffectsInFlight, NodeParts
from kubeqos.node.pressure import hostfiles
from kubeqos.node.pressure.thresholds import Pressure, PressureSettings
from kubeqos.node.runtime.executor import Claims, no_claims
from kubeqos.plugins.managers import ResourceManager
from kubeqos.rules.qos.cgroups import NodeMemory
from kubeqos.rules.qos.eviction import HARD_DEFAULTS, thresholds

CGROUP_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Hosting:
    """Where an agent lives, which no configuration says: its pods, its time, its ledger, its company."""

    api: Api | None = None
    pods: LocalPods | NodePods | None = None
    """Of an agent without API server, or of one among many that share what they follow."""
    clock: Clock = field(default_factory=WallClock)
    ledger: NodeLedger | None = None
    """None keeps files in the state directory."""
    on_event: Callable[[str, str], None] | None = None
    """Called with the reason and message of every event."""
    in_flight: EffectsInFlight = field(default_factory=EffectsInFlight)
    folders: bool = True
    """Whether containers have logs and volumes, and the node sockets; a fleet of simulated nodes does without."""


def node_parts(
    config: NodeConfiguration,
    runtime: Runtime,
    machine: Machine,
    hosting: Hosting,
    *,
    client_authority: Path | None = None,
    relist_seconds: float | None = None,
) -> NodeParts:
    """All parts of the node that a configuration describes, or what about it this machine cannot follow."""
    refuse_machine(config, machine)
    real = bool(config.runtime_endpoint)
    disk = disk_bytes(config.state_dir) if real else SIMULATED_DISK_BYTES
    # A simulated runtime has no cgroups above its containers, and whoever says so keeps his own.
    owned = CGROUP_MOUNT if real and config.cgroups_per_qos else None
    settings = configured.node_settings(config, machine, disk, owned)
    if relist_seconds is not None:
        settings = replace(settings, relist_seconds=relist_seconds)
    services = configured.service_settings(config, client_authority)
    events = NodeEvents(hosting.api, settings.node_name, hosting.on_event)
    plugins = plugin_managers(
        settings,
        machine,
        events,
        folder=config.plugin_registration_dir,
        legacy_folder=config.qrm_plugin_dir,
        qrm=configured.qrm_settings(config),
        cci=configured.cci_settings(config),
    )
    return assemble(
        settings,
        runtime,
        machine,
        hosting,
        events=events,
        plugins=plugins,
        pressure=configured.pressure_settings(config),
        services=services if hosting.folders else replace(services, pod_resources_socket=None),
    )


def assemble(
    settings: NodeSettings,
    runtime: Runtime,
    machine: Machine,
    hosting: Hosting | None = None,
    *,
    managers: Sequence[ResourceManager] = (),
    plugins: PluginManagers | None = None,
    claims: Claims | None = None,
    events: NodeEvents | None = None,
    pressure: PressureSettings | None = None,
    services: ServiceSettings | None = None,
) -> NodeParts:
    """All parts of a node with these settings; what is left out is as on any node."""
    hosting = hosting or Hosting()
    api, static_cpus = hosting.api, settings.cpu_manager_policy == STATIC
    # Claims live in the API server, and only CCI asks for them.
    if claims is None:
        claims = claims_from(api) if api is not None and settings.gates.enabled(CCI) else no_claims
    classes = ClassManager() if settings.gates.enabled(QOS_RESOURCES) else None
    return NodeParts(
        settings=settings,
        services=services or ServiceSettings(),
        runtime=runtime,
        machine=machine,
        context=replace(
            context_of(settings, runtime, machine), folders=hosting.folders, classes=classes or NoClasses()
        ),
        events=events or NodeEvents(api, settings.node_name, hosting.on_event),
        pods=hosting.pods or (ApiPods(api, settings.node_name) if api is not None else LocalPods()),
        ledger=hosting.ledger or FileLedger(settings.state_dir, threaded=isinstance(hosting.clock, WallClock)),
        pressure=Pressure(pressure or PressureSettings(thresholds(HARD_DEFAULTS))),
        api=api,
        clock=hosting.clock,
        classes=classes,
        cpus=cpu_manager(settings, machine) if static_cpus else None,
        memory=MemoryManager(machine, settings.reserved_memory) if settings.memory_manager_policy == STATIC else None,
        plugins=plugins or PluginManagers(),
        other_managers=tuple(managers),
        claims=claims,
        in_flight=hosting.in_flight,
    )


def cpu_manager(settings: NodeSettings, machine: Machine) -> CpuManager:
    strict = settings.strict_cpu_reservation
    return CpuManager(machine, settings.reserved_cpus, settings.cpu_options, strict_reservation=strict)


def disk_bytes(state_dir: Path) -> int:
    """Size of the file system that a node's state, logs and volumes are on."""
    there = next(folder for folder in (state_dir, *state_dir.absolute().parents) if folder.exists())
    found = hostfiles.filesystem(there)
    return found[0].capacity if found is not None else SIMULATED_DISK_BYTES


def context_of(settings: NodeSettings, runtime: Runtime, machine: Machine) -> Context:
    """What CRI configurations depend on. A simulated machine has cgroup v2."""
    simulated = isinstance(runtime, SimulatedRuntime)
    mount = settings.cgroup_fs or CGROUP_MOUNT
    version = 2 if simulated else cgroup_version(mount)
    total = nodestatus.capacity(machine, settings)["memory"].value()
    usable = nodestatus.allocatable(machine, settings)["memory"].value()
    return Context(
        log_dir=settings.log_dir,
        state_dir=settings.state_dir,
        memory=NodeMemory(max(1, total), usable),
        cgroups=settings.cgroups,
        cgroup_driver=settings.cgroup_driver,
        cgroup_root=settings.cgroup_root,
        cgroup_version=version,
        hugepage_sizes=_simulated_pages(machine) if simulated else hugepage_sizes(mount),
        kills_as_a_whole=not settings.single_process_oom_kill,
        has_swap=not simulated and counts_swap(mount),
        host_files=not simulated,
        host_ip=settings.addresses[0] if settings.addresses else "",
        node_name=settings.node_name,
    )


def _simulated_pages(machine: Machine) -> tuple[int, ...]:
    return tuple(sorted({size for node in machine.nodes for size in node.hugepages}))
