"""Pod QoS class and effective resources: what the requests and limits of a pod say about how it wants to be treated.

Called by admission (to set status.qosClass), by quota (usage, BestEffort scopes), by the scheduler (fit) and by the
node (cgroups, OOM score, eviction). Requests are expected to be defaulted already, as they are in the API.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kubeqos.model.objects import ContainerView, PodSpec, PodView, ResourceList, Resources, convert
from kubeqos.model.quantity import Quantity

_COMPUTE = ("cpu", "memory")
_ZERO = Quantity.ZERO
_NO_CONTAINER = ContainerView()
_Key = TypeVar("_Key", bound=Hashable)


class QosClass(enum.StrEnum):
    """How a pod is treated when resources run short."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class QosDecision:
    """A pod's class and what decided it."""

    qos_class: QosClass
    because: str


def qos_class(pod: PodView) -> QosDecision:
    """Guaranteed, Burstable or BestEffort, and the container that decided it.

    Pod-level resources, where any of them is set, speak for the whole pod. Otherwise every container and init
    container must agree; ephemeral containers never count.
    """
    return spec_qos_class(pod.spec)


def spec_qos_class(spec: PodSpec) -> QosDecision:
    """The class of a pod with this spec, and why."""
    decided, why = _decide(spec)
    return QosDecision(decided, why())


def class_of_spec(spec: PodSpec) -> QosClass:
    """The class alone, for whoever makes pods by the thousand."""
    return _decide(spec)[0]


def _decide(spec: PodSpec) -> tuple[QosClass, Callable[[], str]]:
    """The class, and how to say what decided it."""
    if spec.resources is not None and pod_level_set(spec.resources):
        whole = spec.resources
        return _shape(whole), lambda: f"spec.resources: {_why(whole)}"
    agreed: QosClass | None = None
    first = _NO_CONTAINER
    for containers in (spec.init_containers, spec.containers):
        for container in containers:
            shape = _shape(container.resources)
            if shape is QosClass.BURSTABLE:
                return shape, partial(_said_by, container)
            if agreed is None:
                agreed, first = shape, container
            elif shape is not agreed:
                return QosClass.BURSTABLE, partial(_disagreement, first, container)
    if agreed is None:
        return QosClass.BEST_EFFORT, lambda: "the pod has no containers"
    return agreed, lambda: f"every container: {_why(first.resources)}"


def _said_by(container: ContainerView) -> str:
    return f"container {container.name!r}: {_why(container.resources)}"


def _disagreement(one: ContainerView, other: ContainerView) -> str:
    classes = _shape(one.resources), _shape(other.resources)
    return f"container {one.name!r} is {classes[0]}, container {other.name!r} is {classes[1]}"


def effective_class(pod: PodView) -> QosClass:
    """The class recorded in the pod's status, or computed where none is recorded yet."""
    recorded = pod.status.qos_class
    return QosClass(recorded) if recorded else class_of_spec(pod.spec)


def pod_level_set(resources: Resources) -> bool:
    """Whether pod-level resources name anything that pods may set: cpu, memory or huge pages, zero included."""
    return any(name in _COMPUTE or name.startswith("hugepages-") for name in (*resources.requests, *resources.limits))


def _shape(resources: Resources) -> QosClass:
    """The class that one set of requests and limits has by itself. Zero counts as absent."""
    requests, limits = resources.requests, resources.limits
    cpu, memory = requests.get("cpu", _ZERO), requests.get("memory", _ZERO)
    if cpu != limits.get("cpu", _ZERO) or memory != limits.get("memory", _ZERO) or cpu.is_zero != memory.is_zero:
        return QosClass.BURSTABLE
    return QosClass.BEST_EFFORT if cpu.is_zero else QosClass.GUARANTEED


def _why(resources: Resources) -> str:
    """What decided that."""
    for name in _COMPUTE:
        request, limit = resources.requests.get(name, _ZERO), resources.limits.get(name, _ZERO)
        if request != limit:
            return f"{name} request {_said(request)} ≠ limit {_said(limit)}"
    return _REASONS[_shape(resources)]


_REASONS = {
    QosClass.BURSTABLE: "only one of cpu and memory is set",
    QosClass.GUARANTEED: "cpu and memory requests equal their limits",
    QosClass.BEST_EFFORT: "no cpu or memory request or limit",
}


def _said(quantity: Quantity) -> str:
    return "none" if quantity.is_zero else str(quantity)


def default_requests(raw_spec: dict[str, Any]) -> None:
    """Fill in container requests that are missing where a limit is given, as the API does for pods (not templates).

    Works in place on the raw pod spec.
    """
    for key in ("containers", "initContainers"):
        for container in raw_spec.get(key) or ():
            resources = container.get("resources")
            if not resources or not resources.get("limits"):
                continue
            requests = resources.get("requests")
            if requests is None:
                requests = resources["requests"] = {}
            for name, limit in resources["limits"].items():
                requests.setdefault(name, limit)


def default_pod_level(raw_spec: dict[str, Any]) -> None:
    """Complete pod-level resources from the containers' values; in place, after `default_requests`.

    Huge page limits and all requests come from the containers' sum; a request without any comes from the pod's limit; a
    limit is the larger of the pod's request and the containers' sum, provided every container has that limit.
    """
    if not raw_spec.get("resources"):
        return
    spec = convert(raw_spec, PodSpec)
    if spec.resources is None or not pod_level_set(spec.resources):
        return
    container_requests, container_limits = aggregate(spec, "requests"), aggregate(spec, "limits")
    requests, limits = dict(spec.resources.requests), dict(spec.resources.limits)
    for name, amount in container_limits.items():
        if name.startswith("hugepages-"):
            limits.setdefault(name, amount)
    for name, amount in container_requests.items():
        if name in _COMPUTE:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    everyone = [container.resources.limits for container in (*spec.init_containers, *spec.containers)]
    for name, amount in container_limits.items():
        if name in _COMPUTE and name not in limits and all(name in own for own in everyone):
            limits[name] = max(amount, requests.get(name, _ZERO))
    for side, amounts in (("requests", requests), ("limits", limits)):
        if amounts:
            raw_spec["resources"][side] = {name: str(amount) for name, amount in amounts.items()}


def effective_requests(spec: PodSpec, *, pod_level: bool = True, overhead: bool = True) -> ResourceList:
    """What the pod needs at once: the larger of its long-running containers and its init peak, plus overhead."""
    totals = aggregate(spec, "requests")
    if pod_level and spec.resources is not None:
        _override(totals, spec.resources.requests)
    if overhead:
        add_into(totals, spec.overhead)
    return totals


def effective_limits(spec: PodSpec, *, pod_level: bool = True, overhead: bool = True) -> ResourceList:
    """The most the pod may use. Overhead is added only where there is a limit to add it to."""
    totals = aggregate(spec, "limits")
    if pod_level and spec.resources is not None:
        _override(totals, spec.resources.limits)
    if overhead:
        for name, amount in spec.overhead.items():
            if name in totals and not totals[name].is_zero:
                totals[name] += amount
    return totals


def aggregate(spec: PodSpec, side: str, missing: Mapping[str, Quantity] | None = None) -> ResourceList:
    """max(app containers + sidecars, init peak) per resource, over the containers' `requests` or `limits`.

    Init containers run one at a time, each beside the sidecars that were started before it. `missing` stands in where a
    container says nothing about a resource.
    """
    if len(spec.containers) == 1 and not spec.init_containers:  # most pods: nothing to add up
        return dict(_own(spec.containers[0], side, missing))
    totals: ResourceList = {}
    for container in spec.containers:
        add_into(totals, _own(container, side, missing))
    if not spec.init_containers:
        return totals
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for container in spec.init_containers:
        own = _own(container, side, missing)
        if container.is_sidecar:
            add_into(totals, own)
            add_into(sidecars, own)
            max_into(peak, sidecars)
        elif sidecars:
            beside = dict(own)
            add_into(beside, sidecars)
            max_into(peak, beside)
        else:
            max_into(peak, own)
    max_into(totals, peak)
    return totals


def _own(container: ContainerView, side: str, missing: Mapping[str, Quantity] | None) -> ResourceList:
    amounts: ResourceList = getattr(container.resources, side)
    return amounts if missing is None else {**missing, **amounts}


def max_counts(spec: PodSpec, count: Callable[[ContainerView], Mapping[_Key, int]]) -> dict[_Key, int]:
    """The same rule for things that are counted: how many of each are in use at once, at most."""
    totals: Counter[_Key] = Counter()
    for container in spec.containers:
        totals.update(count(container))
    sidecars: Counter[_Key] = Counter()
    peak: Counter[_Key] = Counter()
    for container in spec.init_containers:
        own = Counter(count(container))
        if container.is_sidecar:
            totals += own
            sidecars += own
            peak |= sidecars
        else:
            peak |= own + sidecars
    return dict(totals | peak)


def _override(totals: ResourceList, pod_level: Mapping[str, Quantity]) -> None:
    for name, amount in pod_level.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            totals[name] = amount


def add_into(totals: ResourceList, more: Mapping[str, Quantity]) -> None:
    """Add every amount of `more` to `totals`."""
    for name, amount in more.items():
        have = totals.get(name)
        totals[name] = amount if have is None else have + amount


def max_into(totals: ResourceList, other: Mapping[str, Quantity]) -> None:
    """Raise every amount of `totals` to at least that of `other`."""
    for name, amount in other.items():
        have = totals.get(name)
        if have is None or have < amount:
            totals[name] = amount
