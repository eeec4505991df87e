"""The smallest changes that would make a waiting pod run. Pure.

Every change is tried on the placement engine before it is told. Used by `kubeqos why`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kubeqos.model.objects import PodView, Taint
from kubeqos.model.quantity import Quantity
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.shape import Shape
from kubeqos.rules.taints import untolerated
from kubeqos.scheduler.explaining import amount, class_holders, free_of, named, short_of
from kubeqos.scheduler.reading.claims import Claimed
from kubeqos.scheduler.reading.snapshot import shape_with_claims
from kubeqos.scheduler.reading.storage import VolumeIndex

Raw = dict[str, Any]
_TRIED_NODES = 8


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """A reason and the nodes that give it."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change, and the node on which the pod would run after it."""

    change: str
    node: str


def refused_by(answer: Unplaced) -> list[RefusedNodes]:
    """The nodes by reason, most of them first."""
    found: dict[str, list[str]] = {}
    for node, why in answer.explanation.by_node().items():
        for reason in why.reasons:
            found.setdefault(reason, []).append(node)
    return [RefusedNodes(reason, tuple(sorted(nodes))) for reason, nodes in sorted(found.items(), key=_most_first)]


def _most_first(item: tuple[str, list[str]]) -> tuple[int, str]:
    return -len(item[1]), item[0]


def remedies(
    cluster: Cluster, pod: Raw, claimed: Claimed | None = None, volumes: VolumeIndex | None = None
) -> list[Remedy]:
    """Changes of the pod or around it, each of which alone would let it run now."""
    shape, _ = shape_with_claims(PodView.of(pod), claimed, volumes)
    if isinstance(Placer(cluster).place(shape), Placed):
        return []
    verified: Verified = partial(_verified, cluster, claimed, volumes)
    return [*_smaller(cluster, pod, shape, verified), *_elsewhere(pod, verified),
            *_tolerating(cluster, pod, shape, verified), *_freed(cluster, shape)]  # fmt: skip


Verified = Callable[[Raw, str], Iterator[Remedy]]
"""Tries a changed pod, and tells of the change if it helps."""


def _verified(
    cluster: Cluster, claimed: Claimed | None, volumes: VolumeIndex | None, pod: Raw, change: str
) -> Iterator[Remedy]:
    shape, waits = shape_with_claims(PodView.of(pod), claimed, volumes)
    answer = None if waits else Placer(cluster).place(shape)
    if isinstance(answer, Placed):
        yield Remedy(change, answer.node)


def _smaller(cluster: Cluster, pod: Raw, shape: Shape, verified: Verified) -> Iterator[Remedy]:
    """Ask for as much as some node has free: the largest amount that works."""
    for name in short_of(cluster, shape):
        sizes = sorted({int(size) for size in free_of(cluster, name)[cluster.alive]}, reverse=True)
        for size in [size for size in sizes if 0 < size < shape.requests[name]][:_TRIED_NODES]:
            lowered = _lowered(pod, name, shape.requests[name] - size)
            if lowered is None:
                continue
            change = f"lower {name} from {amount(name, shape.requests[name])} to {amount(name, size)}"
            found = list(verified(lowered, change))
            if found:
                yield found[0]
                break


def _lowered(pod: Raw, name: str, less: int) -> Raw | None:
    """The pod with so much less in the container that asks for the most; its limit goes down with its request."""
    made = copy.deepcopy(pod)
    asking = [one for one in made["spec"]["containers"] if name in ((one.get("resources") or {}).get("requests") or {})]
    if not asking:
        return None
    largest = max(asking, key=lambda one: Quantity.parse(str(one["resources"]["requests"][name])))
    resources = largest["resources"]
    asked = Quantity.parse(str(resources["requests"][name]))
    left = (asked.milli() if name == "cpu" else asked.value()) - less
    if left <= 0:
        return None
    limits = resources.get("limits") or {}
    if name in limits and Quantity.parse(str(limits[name])) == asked:
        limits[name] = amount(name, left)
    resources["requests"][name] = amount(name, left)
    return made


def _elsewhere(pod: Raw, verified: Verified) -> Iterator[Remedy]:
    """Let it run on nodes that its own selector or affinity leaves out."""
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        made = copy.deepcopy(pod)
        del made["spec"]["nodeSelector"][key]
        yield from verified(made, f"remove {key}={value} from its nodeSelector")
    affinity = pod["spec"].get("affinity") or {}
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            made = copy.deepcopy(pod)
            del made["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
            yield from verified(made, f"make its required {kind} preferred")


def _tolerating(cluster: Cluster, pod: Raw, shape: Shape, verified: Verified) -> Iterator[Remedy]:
    """Let it run on nodes that a taint keeps it off."""
    seen: set[Taint] = set()
    for number in sorted({int(each) for each in cluster.taint_set[cluster.alive]}):
        taint = untolerated(cluster.taint_sets.values[number], shape.tolerations)
        if taint is None or taint in seen:
            continue
        seen.add(taint)
        made = copy.deepcopy(pod)
        tolerated = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        made["spec"]["tolerations"] = [*(made["spec"].get("tolerations") or []), tolerated]
        yield from verified(made, f"tolerate the taint {taint.key}:{taint.effect}")


def _freed(cluster: Cluster, shape: Shape) -> Iterator[Remedy]:
    """End one of those who hold a class that it asks for."""
    for key, holders in class_holders(cluster, shape).items():
        for row in np.flatnonzero(cluster.alive).tolist():
            held = cluster.rows[row]
            holding = [pod for pod in held.pods.values() if key in set(held.keys_of(pod))]
            for pod in holding[:1]:
                with cluster.without([pod.uid]):
                    answer = Placer(cluster).place(shape)
                if isinstance(answer, Placed):
                    yield Remedy(f"free one slot of {key[1]}={key[2]}, held by {named(holders)}", answer.node)
                    break
            else:
                continue
            break
