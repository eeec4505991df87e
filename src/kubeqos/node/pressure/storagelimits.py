"""Pods that outgrow their own disk limits: emptyDir sizes and ephemeral-storage. Pure.

Such a pod goes whether or not the node is short of disk, before any threshold is looked at (Kubernetes' rule and
words). Called by `node.pressure.thresholds`.
"""

from __future__ import annotations

from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity, QuantityError
from kubeqos.node.pressure.samples import PodSample
from kubeqos.rules.qos.podqos import effective_limits

STORAGE = "ephemeral-storage"
EMPTY_DIR, POD, CONTAINER = "emptydirfs.limit", "ephemeralpodfs.limit", "ephemeralcontainerfs.limit"


def over_limit(pod: PodView, used: PodSample) -> tuple[str, str] | None:
    """Which limit the pod is over, as (signal, message)."""
    return _empty_dirs(pod, used) or _whole_pod(pod, used) or _containers(pod, used)


def _empty_dirs(pod: PodView, used: PodSample) -> tuple[str, str] | None:
    sizes = {name: size for name, size, _ in used.volumes}
    for volume in pod.spec.volumes:
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        if limit is None:
            continue
        try:
            most = Quantity.parse(limit)
        except QuantityError:
            continue  # admission has refused such pods; one that came around it keeps running
        if not most.is_zero and sizes.get(volume.get("name", ""), 0) > most.value():
            return EMPTY_DIR, f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{most}". '
    return None


def _disk(used: PodSample) -> int:
    total = sum(size for _, size, _ in used.volumes)
    for container in used.containers:
        total += sum(part[0] for part in (container.rootfs, container.logs) if part is not None)
    return total


def _whole_pod(pod: PodView, used: PodSample) -> tuple[str, str] | None:
    most = effective_limits(pod.spec).get(STORAGE)
    every = all(STORAGE in one.resources.limits for one in pod.spec.containers)
    if most is None or not every or _disk(used) <= most.value():
        return None
    return POD, f"Pod ephemeral local storage usage exceeds the total limit of containers {most}. "


def _containers(pod: PodView, used: PodSample) -> tuple[str, str] | None:
    limits = {one.name: one.resources.limits.get(STORAGE) for one in pod.spec.containers}
    for container in used.containers:
        most = limits.get(container.name)
        size = sum(part[0] for part in (container.rootfs, container.logs) if part is not None)
        if most is not None and size > most.value():
            return CONTAINER, f'Container {container.name} exceeded its local ephemeral storage limit "{most}". '
    return None
