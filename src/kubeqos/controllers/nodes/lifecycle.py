"""Node lifecycle: silent nodes become Unknown, conditions become taints, taints evict. Pure.

The loops are in `controllers.nodes.controller`. Times are told, not read: how long a node has been silent is what the
caller has observed with its own clock, so that a node whose clock is wrong is not taken for dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeqos.client import PatchType
from kubeqos.client.resources import NODES, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Patch, Tell, change, deletion
from kubeqos.controllers.podstate import condition, is_going, is_ready
from kubeqos.model.objects import Taint, Toleration
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.rules.taints import tolerates

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# condition type → status → the taint that keeps new pods away
CONDITION_TAINTS: dict[str, dict[str, str]] = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
}
_OURS = {key for table in CONDITION_TAINTS.values() for key in table.values()} | {UNSCHEDULABLE}
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_NEVER = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
_STOPPED = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


def silenced(node: JsonObject, now: float) -> list[Action]:
    """A node has not been heard of for too long: nobody knows how it is."""
    conditions = {found["type"]: found for found in (node.get("status") or {}).get("conditions") or ()}
    unknown = []
    for kind in _REPORTED:
        known = conditions.get(kind)
        if known is None:
            reason, message = _NEVER
            heard = node["metadata"].get("creationTimestamp") or timestamp(now)
        else:
            reason, message = _STOPPED
            heard = known.get("lastHeartbeatTime")
        if known is None or known.get("status") != "Unknown":
            stamps = {"lastHeartbeatTime": heard, "lastTransitionTime": timestamp(now)}
            unknown.append({"type": kind, "status": "Unknown", "reason": reason, "message": message, **stamps})
    if not unknown:
        return []
    name = node["metadata"]["name"]
    why = "its lease and its status were not renewed in time"
    write = _status(node, {"conditions": unknown}, why)
    said = f"Node {name} status is now: NodeNotReady"
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    return [write, Tell(node, "NodeNotReady", said)] if ready else [write]


def _status(node: JsonObject, status: JsonObject, because: str) -> Patch:
    patch = {"status": status}
    return change(NODES, node, patch, because, subresource="status", checked=False, type=PatchType.STRATEGIC)


def wanted_taints(node: JsonObject, now: float) -> list[JsonObject]:
    """The node's taints as its conditions want them; taints that are not ours stay as they are."""
    spec = node.get("spec") or {}
    wanted: list[tuple[str, str]] = []
    for kind, taints in CONDITION_TAINTS.items():
        status = (condition(node, kind) or {}).get("status", "")
        # A node that never reported is not ready yet: the taint it was born with stays.
        key = taints.get(status) or (NOT_READY if kind == "Ready" and not status else None)
        if key:
            wanted.append((key, "NoSchedule"))
            if kind == "Ready" and status:
                wanted.append((key, "NoExecute"))
    if spec.get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    known = {(taint.get("key", ""), taint.get("effect", "")): taint for taint in spec.get("taints") or ()}
    kept = [taint for (key, effect), taint in known.items() if not _ours(key, effect)]
    stamp = timestamp(now)
    return kept + [known.get(each) or {"key": each[0], "effect": each[1], "timeAdded": stamp} for each in wanted]


def _ours(key: str, effect: str) -> bool:
    if effect == "NoExecute":
        return key in (NOT_READY, UNREACHABLE)
    return effect == "NoSchedule" and key in _OURS


def tainted(node: JsonObject, now: float) -> list[Action]:
    """Bring the taints in line with the conditions."""
    before = (node.get("spec") or {}).get("taints") or []
    after = wanted_taints(node, now)
    if sorted(map(_name, before)) == sorted(map(_name, after)):
        return []
    added = ", ".join(sorted({_name(t) for t in after} - {_name(t) for t in before}))
    removed = ", ".join(sorted({_name(t) for t in before} - {_name(t) for t in after}))
    because = "; ".join(text for text in (added and f"added {added}", removed and f"removed {removed}") if text)
    return [change(NODES, node, {"spec": {"taints": after or None}}, because)]


def _name(taint: JsonObject) -> str:
    return f"{taint.get('key', '')}={taint.get('value') or ''}:{taint.get('effect', '')}"


def unready_pods(pods: Iterable[JsonObject], now: float) -> list[Action]:
    """Pods of a node that is not ready serve nobody, whatever their last report says."""
    actions: list[Action] = []
    for pod in pods:
        if is_ready(pod) and not is_going(pod):
            stamps = {"lastProbeTime": None, "lastTransitionTime": timestamp(now)}
            status = {"conditions": [{"type": "Ready", "status": "False", "reason": "NodeNotReady", **stamps}]}
            why = "its node is not ready"
            strategic = PatchType.STRATEGIC
            actions.append(
                change(PODS, pod, {"status": status}, why, subresource="status", checked=False, type=strategic)
            )
            actions.append(Tell(pod, "NodeNotReady", "Node is not ready", "Warning"))
    return actions


# -- eviction --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a pod may stay on a tainted node: forever (None), or until a time; and why."""

    until: float | None
    because: str = ""


def stay(pod: JsonObject, taints: Sequence[JsonObject], now: float) -> Stay:
    """A pod stays as long as it tolerates every NoExecute taint; the shortest toleration counts from its taint."""
    tolerations = [Toleration.of(each) for each in (pod.get("spec") or {}).get("tolerations") or ()]
    until: float | None = None
    because = ""
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        matching = [each for each in tolerations if tolerates(each, Taint.of(taint))]
        if not matching:
            return Stay(now, f"it does not tolerate {_name(taint)}")
        seconds = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
        if not seconds:
            continue
        since = seconds_of(taint.get("timeAdded") or "") or now
        end = since + max(0, min(seconds))
        if until is None or end < until:
            until, because = end, f"it tolerates {_name(taint)} for {max(0, min(seconds))}s"
    return Stay(until, because)


def evicted(pod: JsonObject, because: str, now: float) -> list[Action]:
    """Delete a pod that may not stay; its status says why it goes."""
    metadata = pod["metadata"]
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": timestamp(now),
    }
    patch = {"status": {"conditions": [target]}}
    return [
        Tell(pod, "TaintManagerEviction", f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}"),
        change(PODS, pod, patch, because, subresource="status", checked=False, type=PatchType.STRATEGIC),
        deletion(PODS, pod, because),
    ]
