"""Settings of a node agent that contradict each other, and which of them to change (DESIGN ruling 13). Pure.

Called by `node.config.configuration` when it has read everything, and with the machine at hand by the agent when it
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kubeqos.errors import ConfigurationError
from kubeqos.gates import MEMORY_QOS, QOS_RESOURCES
from kubeqos.model.machine import Machine
from kubeqos.model.quantity import Quantity
from kubeqos.node.config.contradictions import Contradiction, ManagerChoices, contradictions, gate
from kubeqos.node.config.readers import CPU_OPTIONS
from kubeqos.rules.qos.cgroups import MemoryPolicy
from kubeqos.topology.alignment.hints import Policy

if TYPE_CHECKING:
    from kubeqos.node.config.configuration import NodeConfiguration


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
    where = next((config.given_at[name] for name in found.settings if name in config.given_at), None)
    raise ConfigurationError(f"node configuration: {found.what}", where=where, remedy=found.remedy)


def _managers(config: NodeConfiguration) -> Iterator[Contradiction]:
    options, key = config.cpu_options, "cpuManagerPolicyOptions"
    names = [name for name, field in CPU_OPTIONS.items() if getattr(options.allocation, field)]
    if config.cpu_manager_policy == "none" and (names or options.strict_reservation):
        yield Contradiction(
            f'{key} are given, but cpuManagerPolicy is "none"',
            ("cpuManagerPolicy", key),
            f"set cpuManagerPolicy to static, or remove {key}",
        )
    reserved = [amounts.get("cpu", Quantity.ZERO) for amounts in (config.kube_reserved, config.system_reserved)]
    yield from contradictions(
        ManagerChoices(
            config.gates,
            config.topology_policy,
            config.cpu_manager_policy,
            config.memory_manager_policy,
            options.allocation,
            reserves_cpus=bool(config.reserved_cpus) or not all(cpu.is_zero for cpu in reserved),
        )
    )


def _memory(config: NodeConfiguration) -> Iterator[Contradiction]:
    if config.memory_manager_policy == "Static" and not config.reserved_memory:
        yield Contradiction(
            'memoryManagerPolicy is "Static", but reservedMemory says for no NUMA node what the system keeps',
            ("memoryManagerPolicy",),
            "set reservedMemory; it adds up to kubeReserved + systemReserved + evictionHard memory.available",
        )
    given = "memoryReservationPolicy" in config.given_at
    if given and config.memory_policy is not MemoryPolicy.OFF and not config.gates.enabled(MEMORY_QOS):
        yield Contradiction(
            f'memoryReservationPolicy is "{config.memory_policy}", but the gate {MEMORY_QOS} is off',
            ("memoryReservationPolicy", gate(MEMORY_QOS)),
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


def _images(config: NodeConfiguration) -> Iterator[Contradiction]:
    low, high = config.image_gc_low, config.image_gc_high
    if low >= high:
        yield Contradiction(
            f"imageGCLowThresholdPercent is {low}, which is not below imageGCHighThresholdPercent {high}",
            ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent"),
            "images are removed from the high threshold down to the low one: lower imageGCLowThresholdPercent",
        )
    if 0 < config.image_maximum_age <= config.image_minimum_age:
        yield Contradiction(
            f"imageMaximumGCAge is {config.image_maximum_age:g} s, which is not above imageMinimumGCAge "
            f"{config.image_minimum_age:g} s",
            ("imageMaximumGCAge", "imageMinimumGCAge"),
            "raise imageMaximumGCAge, or set it to 0s to keep images while there is room",
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
    _managers,
    _memory,
    _classes,
    _images,
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
            f"reservedMemory adds up to {Quantity.from_bytes(found)}, but kubeReserved + systemReserved + evictionHard "
            f"memory.available are {Quantity.from_bytes(wanted)}",
            ("reservedMemory",),
            "make both sums equal",
        )
