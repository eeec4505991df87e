"""Node-pressure eviction: when a node is short of something, and which pod has to go first.

Called by the node agent's pressure loop. Two rankings (DESIGN ruling 7): `qos`, the pod-qos document's order by class
among the pods that use more than they asked for, and `upstream`, exactly Kubernetes'. Critical and static pods never
go.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeqos.errors import ConfigurationError
from kubeqos.model.objects import PodSpec
from kubeqos.model.quantity import Quantity, QuantityError
from kubeqos.rules.qos.podqos import QosClass, effective_requests, pod_level_set, spec_qos_class

CRITICAL_PRIORITY = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Signal:
    """Something a node can run short of: the condition it raises and the resource a message names."""

    condition: str
    resource: str


SIGNALS: Mapping[str, Signal] = {
    "memory.available": Signal("MemoryPressure", "memory"),
    "allocatableMemory.available": Signal("MemoryPressure", "memory"),
    "nodefs.available": Signal("DiskPressure", "ephemeral-storage"),
    "nodefs.inodesFree": Signal("DiskPressure", "inodes"),
    "imagefs.available": Signal("DiskPressure", "ephemeral-storage"),
    "imagefs.inodesFree": Signal("DiskPressure", "inodes"),
    "containerfs.available": Signal("DiskPressure", "ephemeral-storage"),
    "containerfs.inodesFree": Signal("DiskPressure", "inodes"),
    "pid.available": Signal("PIDPressure", "pids"),
}

HARD_DEFAULTS: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


# -- thresholds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, or a part of the capacity."""

    quantity: Quantity | None = None
    fraction: float | None = None

    def of(self, capacity: int) -> int:
        """The amount in units of the signal."""
        if self.quantity is not None:
            return self.quantity.value()
        return int(capacity * (self.fraction or 0.0))

    def __str__(self) -> str:
        if self.quantity is not None:
            return str(self.quantity)
        return f"{(self.fraction or 0.0) * 100:g}%"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Below `minimum` of `signal` the node is short; soft thresholds only after `grace_seconds` of it."""

    signal: str
    minimum: Amount
    grace_seconds: float = 0.0
    reclaim: Amount | None = None

    @property
    def is_hard(self) -> bool:
        return self.grace_seconds == 0.0

    def met(self, available: int, capacity: int, *, until_reclaimed: bool = False) -> bool:
        """Whether the node is short. Once evicting, the minimum reclaim is demanded on top of the threshold."""
        wanted = self.minimum.of(capacity)
        if until_reclaimed and self.reclaim is not None:
            wanted += self.reclaim.of(capacity)
        return wanted > available


def thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] | None = None,
    soft_grace_seconds: Mapping[str, float] | None = None,
    minimum_reclaim: Mapping[str, str] | None = None,
) -> list[Threshold]:
    """Read threshold settings; `0%` and `100%` switch a signal off, as in Kubernetes."""
    grace = soft_grace_seconds or {}
    reclaim = {signal: _reclaim(signal, text) for signal, text in (minimum_reclaim or {}).items()}
    found: list[Threshold] = []
    for setting, values in (("evictionHard", hard), ("evictionSoft", soft or {})):
        for signal, text in values.items():
            minimum = _minimum(setting, signal, text)
            if minimum is None:
                continue
            seconds = 0.0
            if setting == "evictionSoft":
                if signal not in grace:
                    raise ConfigurationError(
                        f"evictionSoft {signal} has no grace period",
                        remedy=f"add {signal} to evictionSoftGracePeriod",
                    )
                seconds = grace[signal]
                if seconds < 0:
                    raise ConfigurationError(f"evictionSoftGracePeriod {signal} must not be negative")
            found.append(Threshold(signal, minimum, seconds, reclaim.get(signal)))
    return found


def _minimum(setting: str, signal: str, text: str) -> Amount | None:
    amount = _amount(setting, signal, text)
    if amount.fraction in (0.0, 1.0):
        return None
    if amount.quantity is not None and amount.quantity <= Quantity.ZERO:
        raise ConfigurationError(f"{setting} {signal} must be positive: {text}")
    return amount


def _reclaim(signal: str, text: str) -> Amount:
    amount = _amount("evictionMinimumReclaim", signal, text)
    if (amount.quantity is not None and amount.quantity < Quantity.ZERO) or amount.fraction == 0.0:
        raise ConfigurationError(f"evictionMinimumReclaim {signal} must not be negative: {text}")
    return amount


def _amount(setting: str, signal: str, text: str) -> Amount:
    if signal not in SIGNALS or signal == "allocatableMemory.available":
        raise ConfigurationError(
            f"{setting} names an unknown signal {signal!r}",
            remedy="use one of " + ", ".join(name for name in SIGNALS if not name.startswith("allocatable")),
        )
    if not text.endswith("%"):
        try:
            return Amount(quantity=Quantity.parse(text))
        except QuantityError as error:
            raise ConfigurationError(f"{setting} {signal}: {text!r} is no quantity or percentage") from error
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = math.nan
    if not 0.0 <= percent <= 100.0:
        raise ConfigurationError(f"{setting} {signal}: percentage must lie between 0% and 100%: {text}")
    return Amount(fraction=percent / 100.0)


# -- ranking -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """Bytes and inodes of one container's writable layer and logs; None where unknown."""

    name: str
    rootfs: tuple[int, int] | None = None
    logs: tuple[int, int] | None = None
    memory_working_set: int | None = None


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod was measured to use."""

    memory_working_set: int | None = None
    processes: int | None = None
    containers: Sequence[ContainerUsage] = ()
    volumes: Sequence[tuple[str, int, int]] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running pod as the ranking sees it."""

    name: str
    spec: PodSpec
    usage: PodUsage | None
    static: bool = False
    requests: Mapping[str, Quantity] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, spec: PodSpec, usage: PodUsage | None, *, static: bool = False) -> Candidate:
        if spec.resources is not None and pod_level_set(spec.resources):
            # Once a pod sets anything at the pod level, eviction looks there alone, for every resource.
            requests = dict(spec.resources.requests)
        else:
            requests = effective_requests(spec, overhead=False)
        for resource, amount in spec.overhead.items():
            if not requests.get(resource, Quantity.ZERO).is_zero:
                requests[resource] += amount
        return cls(name, spec, usage, static, requests)

    @property
    def is_critical(self) -> bool:
        """Static, mirror and system-critical pods must stay."""
        return self.static or (self.spec.priority or 0) >= CRITICAL_PRIORITY

    def requested(self, resource: str) -> int:
        amount = self.requests.get(resource)
        return 0 if amount is None else amount.value()


@dataclass(frozen=True, slots=True)
class Filesystems:
    """Which file systems the node has: a dedicated image file system, and whether it also holds writable layers."""

    image: bool = False
    split: bool = False


ONE_FILESYSTEM = Filesystems()


class Ranking(enum.StrEnum):
    QOS = "qos"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A pod in line for eviction, and why it stands there."""

    candidate: Candidate
    key: tuple[Any, ...]
    because: str


def rank(
    signal: str,
    candidates: Iterable[Candidate],
    ranking: Ranking = Ranking.QOS,
    filesystems: Filesystems = ONE_FILESYSTEM,
) -> list[Ranked]:
    """The pods in the order in which they would be evicted. Ranking `qos` leaves out pods within their requests."""
    measure = _measure(signal, filesystems)
    ranked = []
    for candidate in candidates:
        if ranking is Ranking.UPSTREAM:
            ranked.append(_upstream(signal, candidate, measure))
        elif not candidate.is_critical:
            place = _by_class(signal, candidate, measure)
            if place is not None:
                ranked.append(place)
    return sorted(ranked, key=lambda place: place.key)


def in_line(
    signal: str, candidates: Iterable[Candidate], ranked: Iterable[Ranked], filesystems: Filesystems = ONE_FILESYSTEM
) -> Iterator[tuple[str, int, str]]:
    """Everybody who was looked at, the next to go first: name, place in line (0 stays) and why."""
    stays: dict[str, str] = {}
    place = 0
    measure = _measure(signal, filesystems)
    for one in ranked:
        if one.candidate.is_critical:
            stays[one.candidate.name] = "static or critical: never evicted"
            continue
        place += 1
        stays[one.candidate.name] = ""
        yield one.candidate.name, place, one.because
    for candidate in candidates:
        if (why := stays.get(candidate.name)) != "":
            yield candidate.name, 0, why or _stays(candidate, measure)


def _stays(candidate: Candidate, measure: _Measure) -> str:
    if candidate.is_critical:
        return "static or critical: never evicted"
    used = 0 if candidate.usage is None else measure.usage(candidate.usage)
    asked = candidate.requested(measure.resource)
    return f"uses {used} of {asked} {measure.resource} that it requested: not more than it asked for"


class _Measure:
    """Reads from a pod's usage what a signal is about. An unmeasured pod has no usage at all."""

    def __init__(self, resource: str, parts: frozenset[str] = frozenset()) -> None:
        self.resource = resource
        self.parts = parts

    def usage(self, usage: PodUsage) -> int:
        if self.resource == "memory":
            return usage.memory_working_set or 0
        if self.resource == "pids":
            return usage.processes or 0
        column = 1 if self.resource == "inodes" else 0
        total = 0
        for container in usage.containers:
            for part in ("rootfs", "logs"):
                pair = getattr(container, part)
                if part in self.parts and pair is not None:
                    total += pair[column]
        if "volumes" in self.parts:
            total += sum((size, inodes)[column] for _, size, inodes in usage.volumes)
        return total


_IMAGEFS = "imagefs"
_EVERYTHING = frozenset({"rootfs", "logs", "volumes"})


def _measure(signal: str, filesystems: Filesystems) -> _Measure:
    resource = SIGNALS[signal].resource
    if resource in ("memory", "pids"):
        return _Measure(resource)
    if not filesystems.image:
        return _Measure(resource, _EVERYTHING)
    on_image_fs = signal.startswith((_IMAGEFS, "containerfs"))
    if filesystems.split:
        return _Measure(resource, frozenset() if signal.startswith(_IMAGEFS) else _EVERYTHING)
    return _Measure(resource, frozenset({"rootfs"}) if on_image_fs else frozenset({"logs", "volumes"}))


def _upstream(signal: str, candidate: Candidate, measure: _Measure) -> Ranked:
    """Kubernetes' order: over its request, then lower priority, then more over; an unmeasured pod first each time."""
    priority = candidate.spec.priority or 0
    if measure.resource == "pids":
        if candidate.usage is None:
            return Ranked(candidate, (priority, -math.inf), f"priority {priority}, no usage known")
        processes = measure.usage(candidate.usage)
        return Ranked(candidate, (priority, -processes), f"priority {priority}, {processes} processes")
    if candidate.usage is None:
        return Ranked(candidate, (-1, priority, -math.inf), f"no usage known, priority {priority}")
    used = measure.usage(candidate.usage)
    requested = 0 if measure.resource == "inodes" else candidate.requested(measure.resource)
    # Kubernetes subtracts the ephemeral-storage request from inode counts too, in the last comparison only.
    against = candidate.requested("ephemeral-storage") if measure.resource == "inodes" else requested
    over = used > requested
    because = f"uses {used} of {requested} requested, priority {priority}"
    return Ranked(candidate, (0 if over else 1, priority, -(used - against)), because)


_CLASS_ORDER = {QosClass.BEST_EFFORT: 0, QosClass.BURSTABLE: 1, QosClass.GUARANTEED: 2}


def _by_class(signal: str, candidate: Candidate, measure: _Measure) -> Ranked | None:
    """The pod-qos order; None for a pod that stays within what it asked for."""
    qos = spec_qos_class(candidate.spec).qos_class
    priority = candidate.spec.priority or 0
    if candidate.usage is None:
        return Ranked(candidate, (_CLASS_ORDER[qos], priority, -math.inf), f"{qos}, no usage known")
    used = measure.usage(candidate.usage)
    requested = 0 if measure.resource in ("inodes", "pids") else candidate.requested(measure.resource)
    if used <= requested:
        return None
    because = f"{qos}, priority {priority}, uses {used - requested} more {measure.resource} than requested"
    return Ranked(candidate, (_CLASS_ORDER[qos], priority, -(used - requested)), because)


# -- messages ------------------------------------------------------------------------------------------------------


def eviction_message(
    signal: str, threshold: Quantity, available: Quantity, offenders: Iterable[tuple[str, Quantity, Quantity]] = ()
) -> str:
    """Why a pod was evicted, in Kubernetes' words; offenders are (container, usage, request)."""
    resource = SIGNALS[signal].resource
    text = f"The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. "
    for container, usage, request in offenders:
        text += f"Container {container} was using {usage}, request is {request}, has larger consumption of {resource}. "
    return text
