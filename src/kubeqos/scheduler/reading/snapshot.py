"""The cluster of some API objects, as placement sees it. Pure; the start of every rehearsal on a copy of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import Waiting
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.shape import Shape, compile_shape, with_volumes
from kubeqos.scheduler.reading.claims import Claimed, claim_state
from kubeqos.scheduler.reading.objects import node_facts
from kubeqos.scheduler.reading.storage import VolumeIndex


def snapshot(
    nodes: Iterable[dict[str, Any]],
    pods: Iterable[dict[str, Any]],
    claimed: Claimed | None = None,
    volumes: VolumeIndex | None = None,
) -> tuple[Cluster, list[Waiting]]:
    """The nodes with the pods that are on them, and the pods that wait for a node.

    `claimed`: claims, templates, classes and their parameters (KEP-3675), `volumes`: volume claims and what they lead
    to; without them pods are taken as without.
    """
    cluster, waiting = Cluster(), []
    for raw in nodes:
        facts = node_facts(NodeView.of(raw))
        cluster.set_node(facts)
        if volumes is not None:
            cluster.limit_volumes(facts.view.metadata.name, volumes.limits(facts.view.metadata.name))
    for raw in pods:
        pod = PodView.of(raw)
        if pod.is_terminal:
            continue
        name, uid = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid
        shape, waits = shape_with_claims(pod, claimed, volumes)
        cluster.claim_drivers |= (
            {key: volumes.driver(key) for key in shape.volume_claims} if volumes is not None else {}
        )
        if not pod.spec.node_name:
            waiting.append(Waiting(uid, name, shape, waits))
        elif pod.spec.node_name in cluster.row_of:
            cluster.add_pod(pod.spec.node_name, PlacedPod(uid, name, shape))
    return cluster, waiting


def shape_with_claims(pod: PodView, claimed: Claimed | None, volumes: VolumeIndex | None = None) -> tuple[Shape, str]:
    """The shape of a pod, and what its claims wait for."""
    if pod.spec.resource_claims and claimed is None:
        shape, waits = compile_shape(pod), ""
    else:
        state = claim_state(pod, claimed or {})
        shape, waits = compile_shape(pod, claim_drivers=state.drivers, compute=state.need), state.waits
    if waits or volumes is None or pod.spec.node_name:
        return shape, waits
    mounted = volumes.state_of(pod)
    return with_volumes(shape, mounted.need) if mounted.need is not None else shape, mounted.waits
