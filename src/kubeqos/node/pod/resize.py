"""In-place resize: what of a pod's resources may differ between what it wishes for and what it has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeqos.node.pod.effects import Raw

LISTS = ("initContainers", "containers")
SANDBOX = ""
"""Among the names of containers: the pod itself, whose classes its sandbox has."""


def resources_of(raw: Raw) -> dict[str, Any]:
    """Everything that a resize can change, by container; the pod's own under the empty name."""
    spec = raw.get("spec") or {}
    found: dict[str, Any] = {
        SANDBOX: {key: spec[key] for key in ("resources", "qosResources") if spec.get(key)},
    }
    for container in _containers(spec):
        found[container.get("name", "")] = container.get("resources") or {}
    return found


def resources_changed(old: Raw, new: Raw) -> bool:
    """Whether two versions of a pod ask for different resources."""
    return old is not new and resources_of(old) != resources_of(new)


def to_be_told(old: Raw, new: Raw) -> set[str]:
    """The containers whose resources differ, all of them when the pod's own do; the sandbox when its classes do."""
    before, after = resources_of(old), resources_of(new)
    if before[SANDBOX] == after[SANDBOX]:
        return {name for name in after if before.get(name) != after[name]}
    same_classes = before[SANDBOX].get("qosResources") == after[SANDBOX].get("qosResources")
    return after.keys() - {SANDBOX} if same_classes else set(after)


def with_resources(raw: Raw, resources: Mapping[str, Any]) -> Raw:
    """The pod as if it asked for these resources: what a ledger that was written earlier says it has."""
    if resources_of(raw) == resources:
        return raw
    spec = {key: value for key, value in (raw.get("spec") or {}).items() if key not in ("resources", "qosResources")}
    spec |= resources.get(SANDBOX, {})
    for key in LISTS:
        if spec.get(key):
            spec[key] = [
                {**one, "resources": resources.get(one.get("name", ""), one.get("resources") or {})}
                for one in spec[key]
            ]
    return {**raw, "spec": spec}


def _containers(spec: Raw) -> Iterator[Mapping[str, Any]]:
    for key in LISTS:
        yield from spec.get(key) or ()
