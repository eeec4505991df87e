"""LimitRange: defaults for what a pod leaves out, and bounds on what one container, pod or claim may ask for.

Called by admission, which fills in defaults before validation (`apply_defaults`) and checks bounds after it
(`check_pod`, `check_claim`), and by defaulting of the LimitRange object itself (`default_limit_range`). A LimitRange is
compiled once per revision; ranges are applied in the order of their names, and the first to give a value wins.

KEP-3008 adds classes: a default class (type Pod for pod-level resources, type Container for container-level ones,
DESIGN ruling 2) and how often one pod may use a class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.objects import LimitRangeItem, PodSpec, ResourceList, Resources, convert, resource_list
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import WELL_KNOWN, Level, demand
from kubeqos.rules.qos.podqos import effective_limits, effective_requests

ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_INT64 = (1 << 63) - 1
_MAX_MILLI = _MAX_INT64 // 1000  # beyond this Kubernetes compares whole units, since thousandths would overflow
_POD_LEVEL = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one item of a LimitRange demands of every object of its type."""

    type: str
    min: ResourceList
    max: ResourceList
    ratio: ResourceList
    class_max: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """One LimitRange, ready to be applied."""

    name: str
    bounds: tuple[Bounds, ...]
    default_limits: Mapping[str, str] = field(default_factory=dict)
    default_requests: Mapping[str, str] = field(default_factory=dict)
    pod_classes: Mapping[str, str] = field(default_factory=dict)
    container_classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_defaults(self) -> bool:
        return bool(self.default_limits or self.default_requests or self.pod_classes or self.container_classes)

    @staticmethod
    def of(raw: dict[str, Any]) -> Limits:
        """Compile a stored (defaulted) LimitRange."""
        items = [convert(item, LimitRangeItem) for item in (raw.get("spec") or {}).get("limits") or ()]
        name = str(raw["metadata"].get("name", ""))
        limits: dict[str, str] = {}
        requests: dict[str, str] = {}
        classes: dict[str, dict[str, str]] = {"Pod": {}, "Container": {}}
        bounds = []
        for item in items:
            if item.type == "Container":
                limits |= {name: str(amount) for name, amount in item.default.items()}
                requests |= {name: str(amount) for name, amount in item.default_request.items()}
            if item.type in classes:
                classes[item.type] |= {one.name: one.default for one in item.qos_resources if one.default}
            class_max = tuple(
                (one.name, most.name, most.capacity)
                for one in item.qos_resources
                for most in one.max
                if most.capacity is not None  # ruling 3: no capacity is no limit, 0 is none
            )
            bounds.append(Bounds(item.type, item.min, item.max, item.max_limit_request_ratio, class_max))
        return Limits(name, tuple(bounds), limits, requests, classes["Pod"], classes["Container"])


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The amounts that a namespace fills in where a container leaves them out."""

    requests: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()

    @staticmethod
    def by(ranges: Sequence[Limits]) -> Defaulted | None:
        """What these ranges fill in; None where they fill in classes too."""
        if any(one.pod_classes or one.container_classes for one in ranges):
            return None
        return Defaulted(
            frozenset(name for one in ranges for name in one.default_requests),
            frozenset(name for one in ranges for name in one.default_limits),
        )

    def __bool__(self) -> bool:
        return bool(self.requests or self.limits)

    def is_met(self, resources: Resources) -> bool:
        """Whether there is nothing left to fill in."""
        return self.requests <= resources.requests.keys() and self.limits <= resources.limits.keys()


# -- defaulting of the LimitRange itself -----------------------------------------------------------------------


def default_limit_range(raw: dict[str, Any]) -> None:
    """Complete a LimitRange in place, for containers only: default from max, defaultRequest from default, then min."""
    spec = raw.setdefault("spec", {})
    spec["limits"] = spec.get("limits") or None  # a Go list without entries, printed although it is empty
    for item in spec["limits"] or ():
        if item.get("type") != "Container":
            continue
        defaults = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **defaults, **(item.get("defaultRequest") or {})}
        if defaults:
            item["default"] = defaults
        if requests:
            item["defaultRequest"] = requests


# -- defaults for pods -----------------------------------------------------------------------------------------


def apply_defaults(raw_pod: dict[str, Any], ranges: Sequence[Limits], *, classes: bool = True) -> None:
    """Fill in, in place, what the pod leaves out, and say so in its annotation.

    `classes` is whether QoS-class resources are enabled (gate QOSResources).
    """
    notes: list[str] = []
    spec = raw_pod["spec"]
    for limits in ranges:
        if not limits.has_defaults:
            continue
        for container in spec.get("containers") or ():
            _default_container(container, limits, "container", notes)
        for container in spec.get("initContainers") or ():
            _default_container(container, limits, "init container", notes)
        if classes:
            _default_classes(spec, limits, notes)
    if notes:
        metadata = raw_pod.setdefault("metadata", {})
        metadata.setdefault("annotations", {})[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _default_container(container: dict[str, Any], limits: Limits, role: str, notes: list[str]) -> None:
    for side, word, defaults in (
        ("requests", "request", limits.default_requests),
        ("limits", "limit", limits.default_limits),
    ):
        if not defaults:
            continue
        resources = container.get("resources")
        if resources is None:
            resources = container["resources"] = {}
        have = resources.get(side) or {}
        missing = {name: amount for name, amount in defaults.items() if name not in have}
        if missing:
            resources[side] = {**have, **missing}
            notes.append(f"{', '.join(sorted(missing))} {word} for {role} {container.get('name', '')}")


def _default_classes(spec: dict[str, Any], limits: Limits, notes: list[str]) -> None:
    """Default classes. What the pod itself asks for at pod level stands before a container default (ruling 2)."""
    asked = {one.get("name") for one in spec.get("qosResources") or ()}
    wanted = {name: cls for name, cls in limits.container_classes.items() if name not in asked}
    for key, role in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(key) or () if wanted else ():
            resources = container.get("resources")
            if resources is None:
                resources = container["resources"] = {}
            _add_classes(resources, wanted, f"{role} {container.get('name', '')}", notes)
    _add_classes(spec, limits.pod_classes, "pod", notes)


def _add_classes(owner: dict[str, Any], wanted: Mapping[str, str], whom: str, notes: list[str]) -> None:
    have = owner.get("qosResources") or []
    known = {one.get("name") for one in have}
    missing = {name: cls for name, cls in wanted.items() if name not in known}
    if missing:
        owner["qosResources"] = [*have, *({"name": name, "class": cls} for name, cls in missing.items())]
        notes.append(f"{', '.join(sorted(missing))} class for {whom}")


# -- bounds ----------------------------------------------------------------------------------------------------


def check_pod(
    spec: PodSpec,
    ranges: Iterable[Limits],
    container_level: Collection[str] = WELL_KNOWN,
    *,
    held: PodSpec | None = None,
    before: PodSpec | None = None,
) -> list[str]:
    """What the first violated LimitRange has against the pod: every violation of it, or nothing.

    `container_level` names the QoS-class resources that the cluster's nodes offer to containers. For a resize `held`
    and `before` are what the pod holds with it and without it (`rules.qos.allocated`): classes count as held, and
    nobody is kept from using less of one.
    """
    held = held or spec
    for limits in ranges:
        found: list[str] = []
        for bounds in limits.bounds:
            if bounds.type == "Container":
                for container in (*spec.containers, *spec.init_containers):
                    found += _violations(bounds, container.resources.requests, container.resources.limits)
            elif bounds.type == "Pod":
                found += _violations(bounds, *_pod_totals(spec))
            if bounds.class_max:
                found += _class_violations(bounds, held, before, container_level)
        if found:
            return list(dict.fromkeys(found))
    return []


def check_claim(raw_claim: dict[str, Any], ranges: Iterable[Limits]) -> list[str]:
    """The same for a PersistentVolumeClaim, whose requests alone count."""
    resources = (raw_claim.get("spec") or {}).get("resources") or {}
    requests = resource_list(resources.get("requests"))
    for limits in ranges:
        found = []
        for bounds in limits.bounds:
            if bounds.type == "PersistentVolumeClaim":
                checks = [_below_min(bounds.type, name, least, requests, {}) for name, least in bounds.min.items()]
                checks += [_request_above_max(bounds.type, name, most, requests) for name, most in bounds.max.items()]
                found += [violation for violation in checks if violation]
        if found:
            return list(dict.fromkeys(found))
    return []


def _pod_totals(spec: PodSpec) -> tuple[ResourceList, ResourceList]:
    """Effective requests and limits without overhead; of pod-level values only cpu and memory count here."""
    requests = effective_requests(spec, pod_level=False, overhead=False)
    limits = effective_limits(spec, pod_level=False, overhead=False)
    if spec.resources is not None:
        for totals, stated in ((requests, spec.resources.requests), (limits, spec.resources.limits)):
            for name in _POD_LEVEL:
                if name in stated:
                    totals[name] = stated[name]
    return requests, limits


def _violations(bounds: Bounds, requests: ResourceList, limits: ResourceList) -> list[str]:
    checks = [_below_min(bounds.type, name, least, requests, limits) for name, least in bounds.min.items()]
    checks += [_above_max(bounds.type, name, most, requests, limits) for name, most in bounds.max.items()]
    checks += [_ratio_above(bounds.type, name, most, requests, limits) for name, most in bounds.ratio.items()]
    return [violation for violation in checks if violation]


def _comparable(*amounts: Quantity | None) -> tuple[int, ...]:
    """The amounts as Kubernetes compares them: thousandths, or whole units where those would overflow."""
    known = [amount or Quantity.ZERO for amount in amounts]
    if all(amount.value() <= _MAX_MILLI for amount in known):
        return tuple(amount.milli() for amount in known)
    return tuple(min(amount.value(), _MAX_INT64) for amount in known)


def _below_min(kind: str, name: str, least: Quantity, requests: ResourceList, limits: ResourceList) -> str | None:
    request, limit = requests.get(name), limits.get(name)
    asked, most, bound = _comparable(request, limit, least)
    said = f"minimum {name} usage per {kind} is {least}"
    if request is None:
        return f"{said}.  No request is specified"
    if asked < bound:
        return f"{said}, but request is {request}"
    if limit is not None and most < bound:
        return f"{said}, but limit is {limit}"
    return None


def _above_max(kind: str, name: str, bound: Quantity, requests: ResourceList, limits: ResourceList) -> str | None:
    request, limit = requests.get(name), limits.get(name)
    asked, most, enforced = _comparable(request, limit, bound)
    said = f"maximum {name} usage per {kind} is {bound}"
    if limit is None:
        return f"{said}.  No limit is specified"
    if most > enforced:
        return f"{said}, but limit is {limit}"
    if request is not None and asked > enforced:
        return f"{said}, but request is {request}"
    return None


def _request_above_max(kind: str, name: str, bound: Quantity, requests: ResourceList) -> str | None:
    request = requests.get(name)
    asked, enforced = _comparable(request, bound)
    said = f"maximum {name} usage per {kind} is {bound}"
    if request is None:
        return f"{said}.  No request is specified"
    return f"{said}, but request is {request}" if asked > enforced else None


def _ratio_above(kind: str, name: str, bound: Quantity, requests: ResourceList, limits: ResourceList) -> str | None:
    asked, most, _ = _comparable(requests.get(name), limits.get(name), bound)
    said = f"{name} max limit to request ratio per {kind} is {bound}"
    if asked == 0:
        return f"{said}, but no request is specified or request is 0"
    if most == 0:
        return f"{said}, but no limit is specified or limit is 0"
    # Floats, as upstream: a ratio that is exactly the maximum may round above it there, and then must here too.
    ratio = float(most) / float(asked)
    fine = bound.value() <= _MAX_MILLI
    over = ratio * 1000 > float(bound.milli()) if fine else ratio > float(min(bound.value(), _MAX_INT64))
    return f"{said}, but provided ratio is {ratio:f}" if over else None


def _class_violations(
    bounds: Bounds, spec: PodSpec, before: PodSpec | None, container_level: Collection[str]
) -> list[str]:
    """Classes that one pod uses too often. An item of type Container counts containers, one of type Pod everything."""
    found = []
    if bounds.type == "Container":
        container_level = {*container_level, *(resource for resource, _, _ in bounds.class_max)}
    needed = demand(spec, container_level)
    had = demand(before, container_level) if before is not None else {}
    levels = (Level.CONTAINER, Level.POD) if bounds.type == "Pod" else (Level.CONTAINER,)
    for resource, cls, most in bounds.class_max:
        count, held = (sum(counts.get((level, resource, cls), 0) for level in levels) for counts in (needed, had))
        if count > most and count > held:
            found.append(f'maximum usage of class "{cls}" of {resource} per Pod is {most}, but {count} is requested')
    return found
