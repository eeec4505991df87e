"""Why a pod waits, from the nodes as they are now. Decided in `simulation.remedies`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubeqos.model.objects import PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.shape import compile_shape
from kubeqos.scheduler.explaining import nearest_misses
from kubeqos.scheduler.reading.claims import Claimed
from kubeqos.scheduler.reading.snapshot import shape_with_claims, snapshot
from kubeqos.scheduler.reading.storage import VolumeIndex
from kubeqos.simulation.quotaremedies import quota_remedies
from kubeqos.simulation.remedies import refused_by, remedies

UNREADABLE = "nodes, and with them the nearest miss: this user may not list nodes and pods of all namespaces"


def looked_at(
    raw: dict[str, Any],
    nodes: Iterable[dict[str, Any]],
    pods: Iterable[dict[str, Any]],
    claimed: Claimed | None = None,
    volumes: VolumeIndex | None = None,
    *,
    fix: bool,
) -> dict[str, Any]:
    """Reasons with their nodes, nearest misses and remedies.

    `claimed`: what its claims refer to (KEP-3675); `volumes`: volume claims and what they lead to.
    """
    cluster, _ = snapshot(nodes, pods, claimed, volumes)
    return looked_at_in(cluster, raw, claimed, volumes, fix=fix)


def looked_at_in(
    cluster: Cluster,
    raw: dict[str, Any],
    claimed: Claimed | None = None,
    volumes: VolumeIndex | None = None,
    *,
    fix: bool,
) -> dict[str, Any]:
    """The same on a cluster that was taken in before, for many pods."""
    shape, waits = shape_with_claims(PodView.of(raw), claimed, volumes)
    if waits:
        return {"waits": waits}
    answer = Placer(cluster).place(shape)
    if isinstance(answer, Placed):
        return {"now": f"{answer.node} would take it now"}
    found: dict[str, Any] = {
        "refused": [{"reason": one.reason, "nodes": list(one.nodes)} for one in refused_by(answer)],
        "nearest": nearest_misses(cluster, shape),
    }
    if fix:
        told = remedies(cluster, raw, claimed, volumes)
        found["remedies"] = [{"change": one.change, "node": one.node} for one in told]
    return found


def let_in(
    raw: dict[str, Any],
    quotas: Sequence[dict[str, Any]],
    beside: Sequence[dict[str, Any]],
    cluster: Cluster | None,
) -> dict[str, Any]:
    """What would let a pod in that was refused, `beside` the pods of its namespace; where it would run, if known."""
    found = quota_remedies(raw, quotas, beside)
    if found is None:
        return {"now": "every quota would take it now: create it again"}
    return {"remedies": [{"change": change, "node": _node(cluster, pod)} for change, pod in found]}


def _node(cluster: Cluster | None, pod: dict[str, Any]) -> str:
    answer = None if cluster is None else Placer(cluster).place(compile_shape(PodView.of(pod)))
    return answer.node if isinstance(answer, Placed) else ""
