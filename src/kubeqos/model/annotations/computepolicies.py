"""The form of KEP-3675 that needs no claim: annotations that give containers a compute policy. Pure.

Read by the CCI manager, which puts the policy to the node's driver; by the scheduler, which sends such pods only where
a driver is; and by nodes without drivers, which refuse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeqos.model.annotations.wellknown import CONTAINER_POLICY_ANNOTATION, POLICY_ANNOTATION
from kubeqos.model.objects import PodView

DEFAULT_POLICY: Final = "cci-default"
"""As a container without claim."""
ANY_DRIVER: Final = "*"
"""In the drivers that a pod needs: whichever the node has. A policy names none, so the node must have exactly one."""
_PREFIX = POLICY_ANNOTATION.partition("/")[0].encode()


def compute_policy(annotations: Mapping[str, str] | None, container: str) -> tuple[str, str] | None:
    """The annotation that governs a container and its policy; the container's own wins over the pod's."""
    if not annotations:
        return None
    for key in (CONTAINER_POLICY_ANNOTATION + container, POLICY_ANNOTATION):
        policy = annotations.get(key)
        if policy is not None:
            return None if policy == DEFAULT_POLICY else (key, policy)
    return None


def may_have_policy(annotations: bytes) -> bool:
    """Whether it is worth while to decode these annotations (JSON) and look for a policy."""
    return _PREFIX in annotations


def any_policy(annotations: Mapping[str, str] | None, containers: Iterable[str]) -> tuple[str, str] | None:
    """The first container that has a policy, and the policy."""
    for name in containers:
        found = compute_policy(annotations, name)
        if found is not None:
            return name, found[1]
    return None


def wanted_compute(pod: PodView) -> str:
    """What a pod asks of compute drivers, in words; empty when it asks for nothing."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for container in containers:
        if container.resources.claims:
            return f"container {container.name!r} uses claim {container.resources.claims[0].name!r}"
    if pod.spec.resource_claims:
        return f"the pod names claim {pod.spec.resource_claims[0].name!r}"
    named = any_policy(pod.metadata.annotations, [one.name for one in containers])
    return f"container {named[0]!r} has the compute policy {named[1]!r}" if named else ""
