"""What a pod holds while its resources are changed in place (KEP-1287): for the quota that counts it, for the scheduler
that must not give away twice what a node has set aside."""

from __future__ import annotations

import msgspec

from kubeqos.model.objects import ContainerStatus, ContainerView, PodSpec, PodView
from kubeqos.rules.podqos import max_into


def held_spec(pod: PodView) -> PodSpec:
    """The spec with what the node has set aside so far: during a resize the larger of both counts."""
    infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)
    statuses = {status.name: status for status in pod.status.container_statuses}
    sidecars = {status.name: status for status in pod.status.init_container_statuses}
    return msgspec.structs.replace(
        pod.spec,
        containers=[_resized(c, statuses.get(c.name), infeasible) for c in pod.spec.containers],
        init_containers=[
            _resized(c, sidecars.get(c.name), infeasible) if c.is_sidecar else c for c in pod.spec.init_containers
        ],
    )


def _resized(container: ContainerView, status: ContainerStatus | None, infeasible: bool) -> ContainerView:
    if status is None or status.resources is None:
        return container
    wanted = container.resources
    requests = {} if infeasible else dict(wanted.requests)
    max_into(requests, status.resources.requests)
    max_into(requests, status.allocated_resources)
    limits = {} if infeasible else dict(wanted.limits)
    max_into(limits, status.resources.limits)
    return msgspec.structs.replace(
        container, resources=msgspec.structs.replace(wanted, requests=requests, limits=limits)
    )
