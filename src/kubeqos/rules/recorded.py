"""What admission decided about a pod, told after the fact for its decision record (`model.decisions`). Pure.

Called by the API server's keeper of records, a moment after the pod was stored or refused: the way of a write is not
made longer for it. What LimitRanges filled in is read from the annotation in which they say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kubeqos.model.decisions import Admission, ClassChoice, Disruption, Refusal, Resize, ResizedContainer
from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.limits import ANNOTATION
from kubeqos.rules.qos.classes import WELL_KNOWN, Source, container_classes, requested
from kubeqos.rules.quota import Quota, charge_pod
from kubeqos.rules.quota.explained import charges, verdicts
from kubeqos.rules.requests import RequestRefused
from kubeqos.rules.taints import untolerated

Raw = dict[str, Any]
_SAID = "LimitRanger plugin set: "
BY = "apiserver"
DISRUPTED, BY_TAINT, BY_API = "DisruptionTarget", "DeletionByTaintManager", "EvictionByEvictionAPI"
OUTSIDE = (BY_TAINT, BY_API, "DeletionByPodGC")
"""Reasons of those who are not the pod's scheduler or node; these tell it themselves."""


def is_worth_telling(value: bytes, quotas: Collection[Quota]) -> bool:
    """Whether admission did more than take a stored pod as it came; told from its bytes."""
    return bool(quotas) or b'"qosResources":' in value or ANNOTATION.encode() in value


def admission(pod: Raw, quotas: Iterable[Quota], container_level: Collection[str], at: str) -> Admission:
    """For a pod that was stored and charged."""
    view = PodView.of(pod)
    filled = filled_in(view)
    return Admission(
        at=at,
        by=BY,
        limit_ranges=filled,
        classes=tuple(class_choices(view, container_level, filled)),
        quotas=charges(quotas, charge_pod(view)),
    )


def refusal(
    pod: Raw, refused: RequestRefused, quotas: Collection[Quota], container_level: Collection[str], at: str
) -> Refusal:
    """For a pod that was asked for and not taken."""
    told = refused.because if len(refused.because) > 1 else ()
    counted = verdicts(quotas, charge_pod(PodView.of(pod)), container_level) if quotas else ()
    metadata = pod.get("metadata") or {}
    message, prefix = refused.message, metadata.get("generateName")
    if prefix:  # each attempt has a name of its own, and all of them fail alike
        message = message.replace(f'"{metadata.get("name")}"', f'"{prefix}"')
    return Refusal(at=at, by=BY, reason=refused.reason, message=message, because=told, quotas=counted)


def resize(before: Raw, after: Raw, at: str) -> Resize | None:
    """For a pod that asks for other resources than it did; None where it does not."""
    old, new = (dict(_resources(pod.get("spec") or {})) for pod in (before, after))
    changed = tuple(
        ResizedContainer(
            name,
            {key: value for key, value in old.get(name, {}).items() if new.get(name, {}).get(key) != value},
            {key: value for key, value in new.get(name, {}).items() if old.get(name, {}).get(key) != value},
        )
        for name in dict.fromkeys((*old, *new))
        if old.get(name, {}) != new.get(name, {})
    )
    return Resize(at=at, by=BY, outcome="Asked", containers=changed) if changed else None


def _resources(spec: Raw) -> Iterator[tuple[str, dict[str, str]]]:
    """Requests, limits and classes by container, each as one line; those of the whole pod under no name."""
    whole = {**(spec.get("resources") or {}), "qosResources": spec.get("qosResources")}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    for name, held in (("", whole), *((one.get("name", ""), one.get("resources") or {}) for one in containers)):
        found = {
            f"{kind}.{resource}": str(amount)
            for kind in ("requests", "limits")
            for resource, amount in (held.get(kind) or {}).items()
        }
        yield name, found | {one.get("name", ""): one.get("class", "") for one in held.get("qosResources") or ()}


def disruption(pod: Raw, node: Raw | None) -> Disruption | None:
    """For a pod whose status says that somebody outside its node ends it; `node` is the one that it is on."""
    view = PodView.of(pod)
    found = next((one for one in view.status.conditions if one.type == DISRUPTED), None)
    if found is None or found.reason not in OUTSIDE:
        return None
    taints: tuple[str, ...] = ()
    if node is not None and found.reason == BY_TAINT:
        lasting = [one for one in view.spec.tolerations if one.toleration_seconds is None]
        taints = tuple(
            f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}"
            for one in NodeView.of(node).spec.taints
            if untolerated((one,), lasting, ("NoExecute",))
        )
    where = view.spec.node_name
    by = "taint-eviction" if found.reason == BY_TAINT else BY
    return Disruption(by=by, reason=found.reason, message=found.message, node=where, taints=taints)


def filled_in(pod: PodView) -> tuple[str, ...]:
    """What LimitRanges set, each in its own words."""
    said = pod.metadata.annotations.get(ANNOTATION, "")
    return tuple(said.removeprefix(_SAID).split("; ")) if said.startswith(_SAID) else ()


def class_choices(
    pod: PodView, container_level: Collection[str] = WELL_KNOWN, filled: Collection[str] = ()
) -> Iterator[ClassChoice]:
    """Who decided each class that the spec has (ruling 2)."""
    spec = pod.spec
    asked = (
        name for one in (*spec.init_containers, *spec.containers) for name in requested(one.resources.qos_resources)
    )
    levels = {*container_level, *asked}  # what a container asks for is a container's, whoever offers it
    for resource, cls in requested(spec.qos_resources).items():
        if resource not in levels:
            yield ClassChoice(resource, cls, _source(filled, resource, "pod", "requested for the pod"))
    for role, containers in (("init container", spec.init_containers), ("container", spec.containers)):
        for one in containers:
            for resource, found in sorted(container_classes(spec, one, levels).items()):
                if found.source is Source.RUNTIME or found.class_name is None:
                    continue
                source = _source(filled, resource, f"{role} {one.name}", found.because)
                yield ClassChoice(resource, found.class_name, source, one.name)


def _source(filled: Collection[str], resource: str, whom: str, otherwise: str) -> str:
    end = f" class for {whom}"
    by_range = any(note.endswith(end) and resource in note.removesuffix(end).split(", ") for note in filled)
    return "the default of a LimitRange" if by_range else otherwise
