"""What a kube-scheduler asks its extenders (k8s.io/kube-scheduler/extender/v1), answered by our rules. Pure.

The kube-scheduler has looked at everything that it knows: what is answered here is what only we know, that is classes,
pools, NUMA nodes, compute policies, and plugins that are down. Messages are Go structures without tags, so that keys
begin with capitals. Called by `serving`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kubeqos.errors import InputError
from kubeqos.placement.fit import FILTERS, Explanation, feasible
from kubeqos.placement.preempt import dry_run
from kubeqos.placement.rows import ManyRows
from kubeqos.placement.score import Weights, load_parts
from kubeqos.placement.shape import Shape
from kubeqos.placement.spreading import MAX_POINTS
from kubeqos.stock.scheduling.scheduler import StockScheduler

Raw = Mapping[str, Any]
MOST_POINTS = 10
"""Kubernetes' MaxExtenderPriority."""
OURS = {
    name: FILTERS[name]
    for name in (
        "QOSResources",
        "ComputeClaims",
        "PeersDown",
        "ResourcePools",
        "NUMATopology",
        "ComputeFit",
        "NodeRefusals",
    )
}
_WEIGHTS = Weights(resources=0, balance=0)
_UNKNOWN = "node(s) about which kubeqos knows nothing yet"


def filtered(core: StockScheduler, args: Raw) -> dict[str, Any]:
    """ExtenderFilterResult: the nodes of ExtenderArgs that can have the pod, and why the others cannot."""
    shape = core.shape_of(_pod(args))
    refused = Explanation(core.cluster, shape, core.namespaces, OURS).by_node()
    fits: list[str] = []
    failed: dict[str, str] = {}
    hopeless: dict[str, str] = {}
    for name in _names(args):
        if name in refused:
            said = ", ".join(refused[name].reasons)
            (failed if refused[name].resolvable else hopeless)[name] = said
        elif name not in core.cluster.row_of and _asks(shape):
            failed[name] = _UNKNOWN
        else:
            fits.append(name)
    answer: dict[str, Any] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": hopeless, "Error": ""}
    if args.get("NodeNames") is not None:
        return {**answer, "NodeNames": fits}
    nodes = args["Nodes"]
    kept = [node for node in nodes.get("items") or () if node["metadata"]["name"] in set(fits)]
    return {**answer, "Nodes": {**nodes, "items": kept}}


def prioritized(core: StockScheduler, args: Raw) -> list[dict[str, Any]]:
    """HostPriorityList: how well each node suits what the pod asks of classes and compute drivers."""
    shape, names = core.shape_of(_pod(args)), _names(args)
    known = [name for name in names if name in core.cluster.row_of]
    rows = np.array([core.cluster.row_of[name] for name in known], dtype=np.int64)
    parts = load_parts(core.cluster, shape, ManyRows(core.cluster, rows), _WEIGHTS) if known else {}
    most = MAX_POINTS * sum(getattr(_WEIGHTS, part) for part in parts)
    total = sum(parts.values(), start=np.zeros(len(known), dtype=np.int64))
    points = dict(zip(known, (total * MOST_POINTS // max(most, 1)).tolist(), strict=True))
    return [{"Host": name, "Score": points.get(name, 0)} for name in names]


def preempted(core: StockScheduler, args: Raw) -> dict[str, Any]:
    """ExtenderPreemptionResult: the nodes where evicting helps by our rules, too, with more victims if need be."""
    shape = core.shape_of(_pod(args))
    found: dict[str, Any] = {}
    for name, victims in _victims(args).items():
        plan = _plan(core, shape, name, victims)
        if plan is not None:
            pods, violations = plan
            found[name] = {"Pods": [{"UID": uid} for uid in pods], "NumPDBViolations": violations}
    return {"NodeNameToMetaVictims": found}


def _plan(core: StockScheduler, shape: Shape, node: str, victims: Raw) -> tuple[Sequence[str], int] | None:
    uids, violations = [_uid(one) for one in victims.get("Pods") or ()], int(victims.get("NumPDBViolations") or 0)
    row = core.cluster.row_of.get(node)
    if row is None:
        return None if _asks(shape) else (uids, violations)
    with core.cluster.without([uid for uid in uids if core.cluster.where.get(uid) == row]):
        if feasible(core.cluster, shape, np.array([row]), core.namespaces, OURS)[0]:
            return uids, violations
    more = dry_run(core.cluster, row, shape, core.budgets, core.namespaces)
    if more is None:
        return None
    return list(dict.fromkeys((*uids, *(one.uid for one in more.victims)))), max(violations, more.violations)


def _asks(shape: Shape) -> bool:
    """Whether a node that says nothing of itself cannot have the pod."""
    return bool(shape.class_needs or shape.claim_drivers or shape.marks.role)


def _pod(args: Raw) -> dict[str, Any]:
    pod = args.get("Pod")
    if not isinstance(pod, dict) or not isinstance(pod.get("metadata"), dict) or not isinstance(pod.get("spec"), dict):
        raise InputError("no pod is asked about", where="Pod", remedy="send what a kube-scheduler sends (extender v1)")
    return pod


def _names(args: Raw) -> list[str]:
    if args.get("NodeNames") is not None:
        return list(map(str, args["NodeNames"]))
    if not isinstance(args.get("Nodes"), dict):
        raise InputError("no nodes are asked about", where="NodeNames", remedy="set nodeCacheCapable: true")
    return [str(node["metadata"]["name"]) for node in args["Nodes"].get("items") or ()]


def _victims(args: Raw) -> Mapping[str, Raw]:
    found: Mapping[str, Raw] = args.get("NodeNameToMetaVictims") or args.get("NodeNameToVictims") or {}
    return found


def _uid(victim: Raw) -> str:
    return str(victim.get("UID") or (victim.get("metadata") or {}).get("uid") or "")
