"""Cgroup values of pods and containers: CPU shares and quota, memory limits, memory QoS, OOM score, cgroup names.

Called by the node agent when it creates pods, containers and the QoS-level cgroups, and by `kubeqos classify`.
Memory QoS follows one of two policies (DESIGN ruling 8): `reserve`, the pod-qos document's (memory.min = request,
memory.high below the limit), or upstream's tiered one (memory.min for Guaranteed, memory.low for Burstable).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeqos.model.objects import ContainerView, PodSpec, PodView, ResourceList
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.podqos import QosClass, aggregate, effective_limits, effective_requests, pod_level_set

MIN_SHARES, MAX_SHARES, SHARES_PER_CPU = 2, 262_144, 1024
MIN_QUOTA_US, DEFAULT_PERIOD_US = 1000, 100_000
PAGE_BYTES = 4096
GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE = -997, 1000
_ZERO = Quantity.ZERO
_NODE_CRITICAL = "system-node-critical"
_CRITICAL_PRIORITY = 2_000_000_000


class MemoryPolicy(enum.StrEnum):
    """How requests become memory protection."""

    OFF = "Off"
    NONE = "None"
    TIERED = "TieredReservation"
    RESERVE = "Reserve"


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """The node's settings that shape cgroup values. The default throttling factor is pod-qos'."""

    memory_policy: MemoryPolicy = MemoryPolicy.RESERVE
    throttling_factor: float | None = 0.9
    enforce_cpu_limits: bool = True
    cpu_period_us: int = DEFAULT_PERIOD_US


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What the node has and what pods may use of it."""

    capacity_bytes: int
    allocatable_bytes: int


@dataclass(frozen=True, slots=True)
class CgroupValues:
    """What to write for one cgroup; None means leave it alone.

    `hugepage_limits` are keyed by page size in bytes, `unified` holds cgroup v2 files by name.
    """

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    cpu_period_us: int | None = None
    memory_limit_bytes: int | None = None
    hugepage_limits: dict[str, int] = field(default_factory=dict)
    unified: dict[str, str] = field(default_factory=dict)


# -- CPU -----------------------------------------------------------------------------------------------------------


def shares(milli_cpu: int) -> int:
    """cgroup v1 CPU shares of a request."""
    return max(MIN_SHARES, min(MAX_SHARES, milli_cpu * SHARES_PER_CPU // 1000))


def weight(cpu_shares: int) -> int:
    """cgroup v2 cpu.weight of v1 shares."""
    return 1 + (cpu_shares - 2) * 9999 // 262_142


def quota_us(milli_cpu: int, period_us: int) -> int:
    """CFS quota of a limit; 0 where there is no limit."""
    return max(MIN_QUOTA_US, milli_cpu * period_us // 1000) if milli_cpu else 0


# -- OOM score -----------------------------------------------------------------------------------------------------


def oom_score_adj(spec: PodSpec, container: ContainerView, qos: QosClass, capacity_bytes: int) -> int:
    """How readily the kernel kills this container when memory runs out."""
    if spec.priority_class_name == _NODE_CRITICAL and (spec.priority or 0) >= _CRITICAL_PRIORITY:
        return GUARANTEED_OOM_SCORE
    if qos is QosClass.GUARANTEED:
        return GUARANTEED_OOM_SCORE
    if qos is QosClass.BEST_EFFORT:
        return BEST_EFFORT_OOM_SCORE
    spare = _spare_pod_request(spec)
    score = _score(_memory_request(container) + spare, capacity_bytes)
    if container.is_sidecar and container in spec.init_containers:
        # A sidecar must not be killed before the containers it serves.
        smallest = min((_memory_request(other) for other in spec.containers), default=0)
        score = min(score, _score(smallest + spare, capacity_bytes))
    if score < 1000 + GUARANTEED_OOM_SCORE:
        return 1000 + GUARANTEED_OOM_SCORE
    return BEST_EFFORT_OOM_SCORE - 1 if score == BEST_EFFORT_OOM_SCORE else score


def _score(request_bytes: int, capacity_bytes: int) -> int:
    return 1000 - 1000 * request_bytes // capacity_bytes


def _spare_pod_request(spec: PodSpec) -> int:
    """A container's equal part of what the pod level requests beyond its containers."""
    if spec.resources is None or not pod_level_set(spec.resources):
        return 0
    pod_level = spec.resources.requests.get("memory")
    containers = [*spec.init_containers, *spec.containers]
    if pod_level is None or not containers:
        return 0
    asked = aggregate(spec, "requests").get("memory", _ZERO).value()
    return max(0, pod_level.value() - asked) // len(containers)


def _memory_request(container: ContainerView) -> int:
    return container.resources.requests.get("memory", _ZERO).value()


# -- containers ----------------------------------------------------------------------------------------------------


def container_values(
    spec: PodSpec, container: ContainerView, qos: QosClass, node: NodeMemory, settings: CgroupSettings
) -> CgroupValues:
    """What the runtime is asked to write for one container.

    A container without a limit of its own is bounded by the pod-level limit, if there is one.
    """
    own, pod_level = container.resources, spec.resources
    cpu_request, cpu_limit = own.requests.get("cpu", _ZERO), own.limits.get("cpu", _ZERO)
    memory_limit = own.limits.get("memory", _ZERO)
    if pod_level is not None:
        cpu_limit = cpu_limit or pod_level.limits.get("cpu", _ZERO)
        memory_limit = memory_limit or pod_level.limits.get("memory", _ZERO)
    shares_of = cpu_request if "cpu" in own.requests else cpu_limit
    enforced = settings.enforce_cpu_limits
    return CgroupValues(
        cpu_shares=shares(shares_of.milli()),
        cpu_quota_us=quota_us(cpu_limit.milli(), settings.cpu_period_us) if enforced else None,
        cpu_period_us=settings.cpu_period_us if enforced else None,
        memory_limit_bytes=memory_limit.value() or None,
        unified=_container_memory_qos(spec, container, qos, node, settings),
    )


def _container_memory_qos(
    spec: PodSpec, container: ContainerView, qos: QosClass, node: NodeMemory, settings: CgroupSettings
) -> dict[str, str]:
    if settings.memory_policy is MemoryPolicy.OFF:
        return {"memory.high": "max"}
    request = _memory_request(container)
    limit = container.resources.limits.get("memory", _ZERO).value()
    unified = _protection(request, qos, settings.memory_policy)
    pod_limit = spec.resources.limits.get("memory", _ZERO) if spec.resources else _ZERO
    bounded_by_pod = not limit and not pod_limit.is_zero
    throttled = request != limit or request == 0
    if settings.throttling_factor is not None and throttled and not bounded_by_pod:
        high = memory_high(request, limit or node.allocatable_bytes, settings.throttling_factor)
        if high > request:
            unified["memory.high"] = str(high)
    return unified


def _protection(request: int, qos: QosClass, policy: MemoryPolicy) -> dict[str, str]:
    if policy is MemoryPolicy.RESERVE and request:
        return {"memory.min": str(request)}
    if policy is MemoryPolicy.TIERED and request:
        return {"memory.min" if qos is QosClass.GUARANTEED else "memory.low": str(request)}
    return {"memory.min": "0", "memory.low": "0"}


def memory_high(request: int, ceiling: int, factor: float) -> int:
    """Where throttling begins, on a page boundary: request + factor · (ceiling − request), in IEEE doubles."""
    return int(math.floor(float(request) + (float(ceiling) - float(request)) * factor) / PAGE_BYTES) * PAGE_BYTES


# -- pods ----------------------------------------------------------------------------------------------------------


def pod_values(spec: PodSpec, qos: QosClass, node: NodeMemory, settings: CgroupSettings) -> CgroupValues:
    """What the node agent writes for the pod's own cgroup."""
    requests, limits = effective_requests(spec), effective_limits(spec)
    if qos is QosClass.BEST_EFFORT:
        cpu_shares: int = MIN_SHARES
    else:
        cpu_shares = shares(requests.get("cpu", _ZERO).milli())
    cpu_bounded = qos is QosClass.GUARANTEED or (qos is QosClass.BURSTABLE and _declared(spec, "cpu"))
    memory_bounded = qos is QosClass.GUARANTEED or (qos is QosClass.BURSTABLE and _declared(spec, "memory"))
    quota = None
    if cpu_bounded:
        quota = (
            quota_us(limits.get("cpu", _ZERO).milli(), settings.cpu_period_us) if settings.enforce_cpu_limits else -1
        )
    return CgroupValues(
        cpu_shares=cpu_shares,
        cpu_quota_us=quota,
        cpu_period_us=settings.cpu_period_us if cpu_bounded else None,
        memory_limit_bytes=limits.get("memory", _ZERO).value() if memory_bounded else None,
        hugepage_limits={str(size): limit for size, limit in hugepage_limits(requests, ()).items()},
        unified=_pod_memory_qos(spec, qos, node, settings),
    )


def _declared(spec: PodSpec, resource: str) -> bool:
    """Whether every container has this limit, or the pod level has it for them."""
    if spec.resources is not None and not spec.resources.limits.get(resource, _ZERO).is_zero:
        return True
    everyone = (*spec.init_containers, *spec.containers)
    return all(not container.resources.limits.get(resource, _ZERO).is_zero for container in everyone)


def _pod_memory_qos(spec: PodSpec, qos: QosClass, node: NodeMemory, settings: CgroupSettings) -> dict[str, str]:
    if settings.memory_policy is MemoryPolicy.OFF:
        return {}
    request = effective_requests(spec).get("memory", _ZERO).value()
    unified = _protection(request, qos, settings.memory_policy) if request else {}
    if settings.memory_policy is MemoryPolicy.NONE:
        unified = {}
    pod_level = spec.resources is not None and pod_level_set(spec.resources)
    if settings.throttling_factor is not None and pod_level and _declared(spec, "memory"):
        limit = effective_limits(spec).get("memory", _ZERO).value()
        high = memory_high(request, limit, settings.throttling_factor)
        if request != limit and high > request:
            unified["memory.high"] = str(high)
    return unified


# -- huge pages ----------------------------------------------------------------------------------------------------


def hugepage_limits(asked: ResourceList, sizes: Iterable[int]) -> dict[int, int]:
    """How much of each page size may be used: what is asked for, and nothing of a size that nobody asked for."""
    found = dict.fromkeys(sizes, 0)
    for name, amount in asked.items():
        if name.startswith("hugepages-"):
            found[Quantity.parse(name.removeprefix("hugepages-")).value()] = amount.value()
    return found


def page_size_name(size: int) -> str:
    """A page size as cgroups and CRI spell it: 2MB."""
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        if size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size}B"


# -- names ---------------------------------------------------------------------------------------------------------


def cgroup_parent(pod: PodView, qos: QosClass, driver: str = "cgroupfs") -> str:
    """The pod's cgroup below the root, as the given cgroup driver (cgroupfs or systemd) names it."""
    tier = "" if qos is QosClass.GUARANTEED else qos.lower()
    if driver == "systemd":
        names = ["kubepods", *([f"kubepods-{tier}"] if tier else [])]
        leaf = f"{names[-1]}-pod{pod.metadata.uid.replace('-', '_')}"
        return "/" + "/".join(f"{name}.slice" for name in [*names, leaf])
    return "/" + "/".join(part for part in ("kubepods", tier, f"pod{pod.metadata.uid}") if part)
