"""What `placement.growth` is told of API objects: pods of nodes that might go, and how a new node would look. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.model.objects import LabelSelectorView, NodeView, PodView, convert
from kubeqos.placement.growth.groups import Occupant
from kubeqos.placement.nodes import NodeFacts
from kubeqos.placement.selectors import labels_predicate
from kubeqos.rules.qos.classes import catalog
from kubeqos.scheduler.reading.objects import node_facts
from kubeqos.scheduler.reading.snapshot import shape_with_claims
from kubeqos.scheduler.reading.storage import VolumeIndex

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""What owners of pods tell Kubernetes' autoscaler, and this one."""
MIRROR = "kubernetes.io/config.mirror"


def occupants(
    pods: Iterable[Mapping[str, Any]], budgets: Iterable[Mapping[str, Any]], volumes: VolumeIndex | None = None
) -> dict[str, list[Occupant]]:
    """The pods of each node, and which of them cannot be moved: for lack of somebody who makes them again, because a
    PodDisruptionBudget allows no eviction now, or because of their volumes."""
    full = [_Budget(raw) for raw in budgets if int((raw.get("status") or {}).get("disruptionsAllowed") or 0) <= 0]
    found: dict[str, list[Occupant]] = {}
    for raw in pods:
        pod = PodView.of(dict(raw))
        meta, node = pod.metadata, pod.spec.node_name
        if not node or pod.is_terminal:
            continue
        owner = meta.controller()
        daemon = MIRROR in meta.annotations or (owner is not None and owner.kind == "DaemonSet")
        stays = "" if daemon else _stays(pod, full)
        name = f"{meta.namespace}/{meta.name}"
        shape, waits = shape_with_claims(_free(pod), None, volumes)
        found.setdefault(node, []).append(Occupant(meta.uid, name, shape, stays or waits, daemon))
    return found


class _Budget:
    def __init__(self, raw: Mapping[str, Any]) -> None:
        metadata, selector = raw["metadata"], (raw.get("spec") or {}).get("selector")
        self.name, self.namespace = metadata["name"], metadata.get("namespace", "")
        self.covers = labels_predicate(None if selector is None else convert(selector, LabelSelectorView))


def _stays(pod: PodView, full: Iterable[_Budget]) -> str:
    meta = pod.metadata
    safe = meta.annotations.get(SAFE_TO_EVICT)
    if safe == "false":
        return "is marked as not safe to evict"
    if meta.controller() is None and safe != "true":
        return "nobody would make it again"
    budget = next((one for one in full if one.namespace == meta.namespace and one.covers(meta.labels)), None)
    return f"PodDisruptionBudget {budget.name} allows no eviction now" if budget is not None else ""


def _free(pod: PodView) -> PodView:
    """The pod as its controller would make it again: without the node that it has now."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


_PASSING = ("node.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
"""Taints that say how a node is, not what it is for."""


def described(said: Mapping[str, Any], beneath: Mapping[str, Any] | None = None) -> NodeFacts:
    """A node that is not there yet: what a file says of it (`TEMPLATE`), over what is known of it anyhow."""
    node = beneath or {"metadata": {}, "spec": {}, "status": {"allocatable": {"pods": "110"}}}
    metadata, status = node["metadata"], node["status"]
    offered = [status.get("qosResources") or {}, said.get("qosResources") or {}]
    levels = {level for one in offered for level in one}
    raw = {
        "metadata": {**metadata, **{key: _over(metadata, said, key) for key in ("labels", "annotations")}},
        "spec": {"taints": [*(node["spec"].get("taints") or ()), *(said.get("taints") or ())]},
        "status": {
            "allocatable": _over(status, said, "allocatable"),
            "qosResources": {level: _joined(*(one.get(level) or () for one in offered)) for level in sorted(levels)},
        },
    }
    return node_facts(NodeView.of(raw))


def lacks(raw: Mapping[str, Any], template: NodeFacts) -> list[str]:
    """What a node of a template does not offer (yet), by name: plugins come a while after their node."""
    expected, here = template.view.status, NodeView.of(dict(raw)).status
    wanted, offered = (catalog(status.qos_resources).types for status in (expected, here))
    return [*sorted(expected.allocatable.keys() - here.allocatable.keys()), *sorted(wanted.keys() - offered.keys())]


TEMPLATE = ("labels", "annotations", "taints", "allocatable", "qosResources")


def _over(known: Mapping[str, Any], said: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {**(known.get(key) or {}), **(said.get(key) or {})}


def _joined(known: Iterable[Mapping[str, Any]], said: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Resources of one level; of one that both name, what is said."""
    return list({str(one.get("name")): one for one in (*known, *said)}.values())


def template_of(raw: Mapping[str, Any]) -> NodeFacts:
    """A new node like this one: without what is on it, and without what only holds for a while.

    What its agent publishes of its inside speaks of pods that run there, so it is left out.
    """
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    taints = [one for one in spec.get("taints") or () if not str(one.get("key", "")).startswith(_PASSING)]
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != TOPOLOGY_ANNOTATION
    }
    plain = {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}, "annotations": annotations},
        "spec": {"taints": taints},
        "status": raw.get("status") or {},
    }
    return node_facts(NodeView.of(plain))
