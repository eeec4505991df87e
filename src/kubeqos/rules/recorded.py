"""What admission decided about a pod, told after the fact for its decision record (`model.decisions`). Pure.

Called by the API server's keeper of records, a moment after the pod was stored or refused: the way of a write is not
made longer for it. What LimitRanges filled in is read from the annotation in which they say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kubeqos.model.decisions import Admission, ClassChoice, Refusal
from kubeqos.model.objects import PodView
from kubeqos.rules.limits import ANNOTATION
from kubeqos.rules.qos.classes import WELL_KNOWN, Source, container_classes, requested
from kubeqos.rules.quota import Quota, charge_pod
from kubeqos.rules.quota.explained import charges, verdicts
from kubeqos.rules.requests import RequestRefused

Raw = dict[str, Any]
_SAID = "LimitRanger plugin set: "
BY = "apiserver"


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
