"""The cluster of some API objects, as placement sees it. Pure; the start of every rehearsal on a copy of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster, PlacedPod
from kubeqos.placement.shape import compile_shape
from kubeqos.scheduler.reading import node_facts
from kubeqos.simulation.scaleup import Waiting


def snapshot(nodes: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]]) -> tuple[Cluster, list[Waiting]]:
    """The nodes with the pods that are on them, and the pods that wait for a node."""
    cluster, waiting = Cluster(), []
    for raw in nodes:
        cluster.set_node(node_facts(NodeView.of(raw)))
    for raw in pods:
        pod = PodView.of(raw)
        if pod.is_terminal:
            continue
        name, uid = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid
        if not pod.spec.node_name:
            waiting.append(Waiting(uid, name, compile_shape(pod)))
        elif pod.spec.node_name in cluster.row_of:
            cluster.add_pod(pod.spec.node_name, PlacedPod(uid, name, compile_shape(pod)))
    return cluster, waiting
