"""Settings of a node agent that contradict each other, and which of them to change (DESIGN ruling 13). Pure.

Called by `node.config` when it has read everything, and with the machine at hand by the agent when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI, MEMORY_QOS, QOS_RESOURCES, QRM
from kubeqos.model.machine import Machine
from kubeqos.model.quantity import Format, Quantity
from kubeqos.node.configreading import CPU_OPTIONS
from kubeqos.rules.cgroups import MemoryPolicy
from kubeqos.topology.hints import Policy

if TYPE_CHECKING:
    from kubeqos.node.config import NodeConfiguration

_POLICIES = "best-effort, restricted or single-numa-node"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What does not go together, the settings that say so (the first that was given is shown), and what to do."""

    what: str
    settings: tuple[str, ...]
    remedy: str


def refuse_conflicts(config: NodeConfiguration) -> None:
    """Raise the first contradiction."""
    for check in _CHECKS:
        for found in check(config):
            _refuse(config, found)


def refuse_machine(config: NodeConfiguration, machine: Machine) -> None:
    """Raise the first setting that this machine cannot follow."""
    for found in _machine_problems(config, machine):
        _refuse(config, found)


def _refuse(config: NodeConfiguration, found: Contradiction) -> None:
    where = next((config.places[name] for name in found.settings if name in config.places), None)
    raise ConfigurationError(f"node configuration: {found.what}", where=where, remedy=found.remedy)


def _gate(name: str) -> str:
    return f"featureGates.{name}"


def _resource_managers(config: NodeConfiguration) -> Iterator[Contradiction]:
    """KEP-3461 builds on the topology manager; KEP-3675 in its Alpha forbids it and the CPU and memory managers."""
    qrm, cci = config.gates.enabled(QRM), config.gates.enabled(CCI)
    if qrm and cci:
        yield Contradiction(
            f"{QRM} and {CCI} are both on, but one needs the topology manager and the other forbids it",
            (_gate(QRM), _gate(CCI), "featureGates"),
            f"turn {QRM} or {CCI} off",
        )
    if qrm and config.topology_policy is Policy.NONE:
        yield Contradiction(
            f'{QRM} is on, but topologyManagerPolicy is "none"',
            ("topologyManagerPolicy", _gate(QRM), "featureGates"),
            f"set topologyManagerPolicy to {_POLICIES}, or turn {QRM} off",
        )
    if not cci:
        return
    for name, value in (
        ("topologyManagerPolicy", config.topology_policy.value),
        ("cpuManagerPolicy", config.cpu_manager_policy),
        ("memoryManagerPolicy", config.memory_manager_policy),
    ):
        if value.lower() != "none":
            off = "None" if name.startswith("memory") else "none"
            yield Contradiction(
                f'{CCI} is on, but {name} is "{value}"',
                (name, _gate(CCI), "featureGates"),
                f"set {name} to {off} (KEP-3675 in its Alpha stage works alone), or turn {CCI} off",
            )


def _cpu_manager(config: NodeConfiguration) -> Iterator[Contradiction]:
    options, key = config.cpu_options, "cpuManagerPolicyOptions"
    names = [name for name, field in CPU_OPTIONS.items() if getattr(options.allocation, field)]
    if config.cpu_manager_policy == "none" and (names or options.strict_reservation):
        yield Contradiction(
            f'{key} are given, but cpuManagerPolicy is "none"',
            ("cpuManagerPolicy", key),
            f"set cpuManagerPolicy to static, or remove {key}",
        )
    for conflict in options.allocation.conflicts():
        yield Contradiction(f"{key}: {conflict}", (f"{key}.{conflict.rule}", key), "turn one of them off")
    if options.allocation.align_by_socket and config.topology_policy is Policy.SINGLE_NUMA_NODE:
        yield Contradiction(
            f'{key}: align-by-socket cannot be combined with topologyManagerPolicy "single-numa-node"',
            (f"{key}.align-by-socket", key),
            "turn align-by-socket off, or set topologyManagerPolicy to best-effort or restricted",
        )
    reserved = [amounts.get("cpu", Quantity.ZERO) for amounts in (config.kube_reserved, config.system_reserved)]
    if config.cpu_manager_policy == "static" and not config.reserved_cpus and all(cpu.is_zero for cpu in reserved):
        yield Contradiction(
            'cpuManagerPolicy is "static", but no CPU is reserved for the system',
            ("cpuManagerPolicy",),
            "set reservedSystemCPUs, or cpu in systemReserved or kubeReserved",
        )


def _memory(config: NodeConfiguration) -> Iterator[Contradiction]:
    if config.memory_manager_policy == "Static" and not config.reserved_memory:
        yield Contradiction(
            'memoryManagerPolicy is "Static", but reservedMemory says for no NUMA node what the system keeps',
            ("memoryManagerPolicy",),
            "set reservedMemory; it adds up to kubeReserved + systemReserved + evictionHard memory.available",
        )
    given = "memoryReservationPolicy" in config.places
    if given and config.memory_policy is not MemoryPolicy.OFF and not config.gates.enabled(MEMORY_QOS):
        yield Contradiction(
            f'memoryReservationPolicy is "{config.memory_policy}", but the gate {MEMORY_QOS} is off',
            ("memoryReservationPolicy", _gate(MEMORY_QOS)),
            f'turn {MEMORY_QOS} on, or set memoryReservationPolicy to "{MemoryPolicy.OFF}"',
        )


def _classes(config: NodeConfiguration) -> Iterator[Contradiction]:
    if config.gates.enabled(QOS_RESOURCES):
        return
    for name, on in (("classesFile", config.classes_file is not None), ("qosClassEviction", config.qos_class_eviction)):
        if on:
            yield Contradiction(
                f"{name} is set, but the gate {QOS_RESOURCES} is off",
                (name,),
                f"turn {QOS_RESOURCES} on, or remove {name}",
            )


def _runtime(config: NodeConfiguration) -> Iterator[Contradiction]:
    if config.simulated_machine and config.runtime_endpoint:
        yield Contradiction(
            "simulatedMachine and containerRuntimeEndpoint are both set",
            ("simulatedMachine", "containerRuntimeEndpoint"),
            "a simulated machine has its own runtime: remove one of them",
        )
    if config.classes_file is not None and config.runtime_endpoint:
        yield Contradiction(
            "classesFile is set, but containerRuntimeEndpoint names a real runtime",
            ("classesFile", "containerRuntimeEndpoint"),
            "give the file to `kubeqos relay` and let containerRuntimeEndpoint be the relay's socket",
        )
    if config.runtime_endpoint and not config.runtime_endpoint.startswith("unix://"):
        yield Contradiction(
            f'containerRuntimeEndpoint is "{config.runtime_endpoint}", which is not a socket',
            ("containerRuntimeEndpoint",),
            "write it like unix:///run/containerd/containerd.sock",
        )


_CHECKS: tuple[Callable[[NodeConfiguration], Iterator[Contradiction]], ...] = (
    _resource_managers,
    _cpu_manager,
    _memory,
    _classes,
    _runtime,
)


def _machine_problems(config: NodeConfiguration, machine: Machine) -> Iterator[Contradiction]:
    missing = config.reserved_cpus - machine.online
    if missing:
        yield Contradiction(
            f"reservedSystemCPUs names CPUs that this machine does not have online: {missing}",
            ("reservedSystemCPUs",),
            f"use CPUs out of {machine.online}",
        )
    sockets = len({cpu.socket for cpu in machine.cpus})
    if config.cpu_options.allocation.align_by_socket and sockets > len(machine.nodes):
        yield Contradiction(
            f"align-by-socket needs a NUMA node per socket, but this machine has {sockets} sockets and "
            f"{len(machine.nodes)} NUMA nodes",
            ("cpuManagerPolicyOptions.align-by-socket", "cpuManagerPolicyOptions"),
            "turn align-by-socket off",
        )
    most = config.topology_options.max_numa_nodes
    if most and len(machine.nodes) > most and config.topology_policy is not Policy.NONE:
        yield Contradiction(
            f"topologyManagerPolicyOptions allow {most} NUMA nodes, but this machine has {len(machine.nodes)}",
            ("topologyManagerPolicyOptions.max-allowable-numa-nodes", "topologyManagerPolicyOptions"),
            "raise max-allowable-numa-nodes, or leave it out",
        )
    kept = sum(one.get("cpu", Quantity.ZERO).milli() for one in (config.kube_reserved, config.system_reserved))
    if kept > len(machine.online) * 1000:
        yield Contradiction(
            f"kubeReserved and systemReserved keep {Quantity.from_milli(kept)} CPUs of {len(machine.online)}",
            ("systemReserved", "kubeReserved"),
            "reserve fewer CPUs",
        )
    yield from _reserved_memory(config, machine)


def _reserved_memory(config: NodeConfiguration, machine: Machine) -> Iterator[Contradiction]:
    """Kubernetes' rule: what NUMA nodes keep back adds up to what the node keeps back."""
    known = {node.id for node in machine.nodes}
    for numa in config.reserved_memory:
        if numa not in known:
            yield Contradiction(
                f"reservedMemory names NUMA node {numa}, which this machine does not have",
                ("reservedMemory",),
                f"use {', '.join(map(str, sorted(known)))}",
            )
    if config.memory_manager_policy != "Static":
        return
    capacity = sum(node.memory_bytes for node in machine.nodes)
    hard = [one for one in config.thresholds() if one.is_hard and one.signal == "memory.available"]
    wanted = sum(one.minimum.of(capacity) for one in hard)
    for amounts in (config.kube_reserved, config.system_reserved):
        wanted += amounts.get("memory", Quantity.ZERO).value()
    found = sum(limits.get("memory", Quantity.ZERO).value() for limits in config.reserved_memory.values())
    if found != wanted:
        yield Contradiction(
            f"reservedMemory adds up to {_bytes(found)}, but kubeReserved + systemReserved + evictionHard "
            f"memory.available are {_bytes(wanted)}",
            ("reservedMemory",),
            "make both sums equal",
        )


def _bytes(count: int) -> Quantity:
    return Quantity.from_int(count, Format.BINARY_SI)
