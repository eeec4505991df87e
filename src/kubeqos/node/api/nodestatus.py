"""The Node object: capacity, allocatable, conditions, QoS classes, topology summary. Pure.

`node.api.registration` writes what is built here; admission asks the same numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import PROVIDERS_READY
from kubeqos.model.annotations.published import (
    SHARED_PART,
    Assignments,
    Holding,
    Kept,
    Protected,
    encode_assignments,
    encode_machine,
)
from kubeqos.model.annotations.topologysummary import ByNuma, Division, TopologySummary, encode_topology
from kubeqos.model.annotations.wellknown import (
    ASSIGNMENTS_ANNOTATION,
    DRIVERS_ANNOTATION,
    MACHINE_ANNOTATION,
    PROFILE_LABEL,
    RESIZE_FEATURES,
    TOPOLOGY_ANNOTATION,
    WEBSOCKETS_FEATURE,
)
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeQosResources, ResourceList
from kubeqos.model.quantity import Quantity
from kubeqos.node.config.settings import NodeSettings
from kubeqos.plugins.managers import (
    AdmittedPod,
    AlignsByNode,
    ContainerRef,
    DependsOnPeers,
    Divides,
    Grant,
    NodeResource,
    PlacesOnCpus,
    ResourceManager,
    ServesClaims,
)
from kubeqos.rules.qos.classes import Catalog, Level
from kubeqos.topology.memory import hugepage_resource

VERSION = "v1.37.0-kubeqos"
HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
Conditions = Mapping[str, tuple[str, str, str]]
"""Condition type → (status, reason, message)."""


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """What the runtime says about itself."""

    name: str = ""
    version: str = ""
    problem: str = ""
    """Why it is not ready, empty when it is."""
    cgroup_driver: str = ""
    """Empty where it does not say."""
    absent: str | None = None
    """Class providers that are away, and why; empty when all are back, None where none ever was."""

    def asked(self, status: cri.RuntimeStatus, driver_problem: str = "") -> RuntimeFacts:
        """These facts with what the runtime has just said about itself."""
        away = [
            one.message or one.reason for one in status.conditions if one.type == PROVIDERS_READY and not one.status
        ]
        absent = "; ".join(away) or (None if self.absent is None else "")
        problem = "; ".join(filter(None, (runtime_problem(status), driver_problem)))
        return replace(self, problem=problem, absent=absent)

    @property
    def providers(self) -> str:
        """How class providers are, as event and condition say it."""
        if not self.absent:
            return "every class provider answers"
        return f"classes are off this node until their provider is back: {self.absent}"

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        if self.absent is None:
            return {}
        status, reason = ("False", "ProviderGone") if self.absent else ("True", "ProvidersReady")
        return {PROVIDERS_READY: (status, reason, self.providers)}


_DECISIVE = ("RuntimeReady", "NetworkReady")
"""Conditions that CRI defines; what else a runtime says (containerd warns of old settings) is not about ready."""


def runtime_problem(status: cri.RuntimeStatus) -> str:
    """Why the runtime is not ready; nothing when it is."""
    wrong = (one for one in status.conditions if one.type in _DECISIVE and not one.status)
    return "; ".join(f"{one.type}: {one.message or one.reason}" for one in wrong)


def serving(port: int) -> dict[str, Any]:
    """Where the agent answers, and what it can do that not every node can: streams by WebSocket, resizes."""
    features = sorted([WEBSOCKETS_FEATURE, *RESIZE_FEATURES])
    return {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}, "declaredFeatures": features}


def capacity(machine: Machine, settings: NodeSettings, extra: Iterable[NodeResource] = ()) -> ResourceList:
    """Everything the node has."""
    found: ResourceList = {
        "cpu": Quantity.from_int(len(machine.online)),
        "memory": Quantity.from_bytes(sum(node.memory_bytes for node in machine.nodes)),
        "ephemeral-storage": Quantity.from_bytes(settings.disk_bytes),
        "pods": Quantity.from_int(settings.max_pods),
    }
    pages: dict[int, int] = {}
    for node in machine.nodes:
        for size, count in node.hugepages.items():
            pages[size] = pages.get(size, 0) + size * count
    found |= {hugepage_resource(size): Quantity.from_bytes(total) for size, total in sorted(pages.items())}
    return found | {one.name: Quantity.from_milli(round(one.capacity * 1000)) for one in extra}


def allocatable(machine: Machine, settings: NodeSettings, extra: Iterable[NodeResource] = ()) -> ResourceList:
    """What pods may use of the node's capacity."""
    extra = tuple(extra)
    return usable(capacity(machine, settings, extra), machine, settings, extra)


def usable(
    has: ResourceList, machine: Machine, settings: NodeSettings, extra: Iterable[NodeResource] = ()
) -> ResourceList:
    """What is left of a capacity without what is reserved, the hard eviction thresholds and huge pages."""
    found = dict(has)
    for name, amount in found.items():
        if name == "cpu":
            found[name] = settings.allocatable_cpu(machine)
            continue
        left = amount
        for reserved in (settings.system_reserved, settings.kube_reserved):
            if name in reserved:
                left -= reserved[name]
        if name == "ephemeral-storage":
            left -= settings.eviction_hard_disk
        if name == "memory":
            left -= settings.eviction_hard_memory
            for page, total in found.items():
                if page.startswith("hugepages-"):
                    left -= total
        found[name] = left if left > Quantity.ZERO else Quantity.ZERO
    return found | {one.name: Quantity.from_milli(round(one.allocatable * 1000)) for one in extra}


class Amounts(NamedTuple):
    """What the node has, and what pods may use of it."""

    capacity: ResourceList
    allocatable: ResourceList

    def fit(self) -> dict[str, int]:
        """The latter as admission reads it: milli CPUs for cpu, whole units for all else."""
        return {name: held.milli() if name == "cpu" else held.value() for name, held in self.allocatable.items()}


def amounts(machine: Machine, settings: NodeSettings, extra: Iterable[NodeResource] = ()) -> Amounts:
    has = capacity(machine, settings, extra)
    return Amounts(has, usable(has, machine, settings, extra))


def node_labels(settings: NodeSettings) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": settings.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture(),
        PROFILE_LABEL: settings.profile,
        **settings.labels,
    }


def node_annotations(
    settings: NodeSettings, managers: Iterable[ResourceManager], drivers: Iterable[str] = ()
) -> dict[str, str]:
    """What the scheduler reads beside the status."""
    managers = tuple(managers)
    divided: dict[str, tuple[Division, Mapping[str, float]]] = {}
    for one in managers:
        if isinstance(one, Divides):
            divided |= one.divisions()
    summary = TopologySummary(
        settings.topology_policy.value,
        settings.topology_scope.value,
        *_by_node([one for one in managers if isinstance(one, AlignsByNode)]),
        {resource: division for resource, (division, _) in divided.items()},
        next((one.compute() for one in managers if isinstance(one, ServesClaims)), None),
        tuple(down for one in managers if isinstance(one, DependsOnPeers) for down in one.down()),
    )
    requested = {resource: asked for resource, (_, asked) in divided.items() if asked}
    found = {TOPOLOGY_ANNOTATION: encode_topology(summary, requested)}
    names = sorted(drivers)
    return found | ({DRIVERS_ANNOTATION: ",".join(names)} if names else {})


def _by_node(managers: Iterable[AlignsByNode]) -> tuple[dict[str, ByNuma], dict[str, dict[str, ByNuma]]]:
    """What is free on each NUMA node, and who holds the rest."""
    free: dict[str, ByNuma] = {}
    held: dict[str, dict[str, ByNuma]] = {}
    for manager in managers:
        free |= manager.free_by_node()
        for uid, amounts in manager.held_by_node().items():
            held.setdefault(uid, {}).update(amounts)
    return free, held


def map_annotations(
    machine: Machine,
    managers: Iterable[ResourceManager],
    pods: Iterable[AdmittedPod],
    kept: Kept,
    grant: Callable[[ContainerRef], Grant],
) -> dict[str, str]:
    """What `kubeqos map` draws: the machine, its pools, and on which CPUs and memory nodes every container runs.

    `grant`: what all managers together gave a container; who hands out CPUs need not know where the memory is.
    """
    placing = [manager for manager in managers if isinstance(manager, PlacesOnCpus)]
    pools = {name: cpus for manager in placing for name, cpus in manager.cpu_pools().items() if cpus}
    containers: dict[str, Holding] = {}
    shielded: dict[str, Protected] = {}
    for pod in pods:
        label = f"{pod.view.metadata.namespace}/{pod.view.metadata.name}"
        if pod.uid in kept.protected:
            shielded[label] = kept.protected[pod.uid]
        for ref, _ in pod.containers():
            for manager in placing:
                held = manager.cpus_of(ref)
                if held is None:
                    continue
                mems = held.mems or NumaSet.parse(str(grant(ref).properties.get("cpuset_mems", "")))
                if held.own:
                    partition = kept.partitions.get((pod.uid, ref.name), "")
                    containers[f"{label}/{ref.name}"] = Holding(held.own, True, mems, partition, held.own - held.cpus)
                if rest := held.cpus - held.own:
                    name = f"{label}/{ref.name}{SHARED_PART}" if held.own else f"{label}/{ref.name}"
                    containers[name] = Holding(rest, False, mems)
    return {
        MACHINE_ANNOTATION: encode_machine(machine),
        ASSIGNMENTS_ANNOTATION: encode_assignments(Assignments(pools, containers, shielded)),
    }


def advertised(info: cri.ResourcesInfo) -> NodeQosResources:
    """The runtime's classes as a node advertises them."""

    def level(resources: Iterable[cri.QOSResourceInfo]) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name,
                "mutable": one.mutable,
                "classes": [{"name": cls.name, "capacity": cls.capacity} for cls in one.classes],
                "runtimeHandlers": [{"name": h.name, "classes": list(h.classes)} for h in one.runtime_handlers],
            }
            for one in resources
        ]

    return NodeQosResources.of(
        {
            "podQoSResources": level(info.pod_qos_resources),
            "containerQoSResources": level(info.container_qos_resources),
        }
    )


def qos_resources(catalog: Catalog) -> dict[str, Any]:
    """`status.qosResources` of the Node."""
    found: dict[str, Any] = {}
    for level, key in ((Level.POD, "podQoSResources"), (Level.CONTAINER, "containerQoSResources")):
        entries = []
        for kind in catalog.of_level(level):
            classes = [
                {"name": name, "capacity": size} if size else {"name": name} for name, size in kind.classes.items()
            ]
            entry = {"name": kind.name, "mutable": kind.mutable, "classes": classes}
            if kind.handlers:
                entry["runtimeHandlers"] = [
                    {"name": name, "classes": [cls for cls in kind.classes if cls in offered]}
                    for name, offered in sorted(kind.handlers.items())
                ]
            entries.append(entry)
        if entries:
            found[key] = entries
    return found


def conditions(runtime: RuntimeFacts, pressure: Conditions, known: Iterable[Mapping[str, Any]], now: str) -> list[Any]:
    """The node's conditions; the time of the last change goes on where nothing changed."""
    before = {one["type"]: one for one in known}
    ready = (
        ("False", "KubeletNotReady", runtime.problem)
        if runtime.problem
        else ("True", "KubeletReady", "kubelet is posting ready status")
    )
    out = []
    for kind, (status, reason, message) in {**HEALTHY, **pressure, **runtime.conditions(), "Ready": ready}.items():
        old = before.get(kind, {})
        since = old.get("lastTransitionTime", now) if old.get("status") == status else now
        out.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since,
            }
        )
    return out


def node_info(runtime: RuntimeFacts) -> dict[str, str]:
    return {
        "architecture": architecture(),
        "bootID": "",
        "containerRuntimeVersion": f"{runtime.name}://{runtime.version}" if runtime.name else "",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": VERSION,
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": platform.system(),
        "systemUUID": "",
    }


def architecture() -> str:
    """The processor as Kubernetes names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def texts(resources: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}
