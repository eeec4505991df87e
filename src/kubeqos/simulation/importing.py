"""Nodes and pods of a real cluster as a scenario: what runs there is on its node when the scenario begins.

Pods of one owner that ask for the same are one workload. What placement reads of them is kept (resources, classes,
priority, affinity, tolerations, labels, owner), and nothing else, so no command line, environment or secret's name ends
in the file. What a scenario cannot hold is told in one line each. Called by `kubeqos import`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.errors import InputError
from kubeqos.model.annotations.podmarks import only_marks
from kubeqos.model.annotations.published import decode_assignments, decode_machine
from kubeqos.model.annotations.topologysummary import decode_topology
from kubeqos.model.annotations.wellknown import (
    ASSIGNMENTS_ANNOTATION,
    DRIVERS_ANNOTATION,
    MACHINE_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    TOPOLOGY_ANNOTATION,
)
from kubeqos.model.hardware.machinefile import machine_to_dict
from kubeqos.model.objects import PodView, without_nulls
from kubeqos.simulation.scenario import API_VERSION, KIND

Raw = dict[str, Any]

REPLACED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")
"""Controllers that make another pod, on any node, when one of theirs is evicted."""
_SPEC = (
    "overhead", "resources", "qosResources", "priority", "preemptionPolicy", "nodeSelector", "affinity", "tolerations",
    "topologySpreadConstraints", "schedulingGates", "activeDeadlineSeconds", "terminationGracePeriodSeconds",
    "restartPolicy", "hostNetwork",
)  # fmt: skip
_OWN_LABELS = (
    "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index",
)  # fmt: skip
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Imported:
    """A scenario as a document, and what of the cluster is not in it."""

    document: Raw
    lost: tuple[str, ...]


@dataclass(slots=True)
class _Lost:
    """What was left out, counted by what it is."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str) -> None:
        self.counts[what] += 1

    def lines(self) -> tuple[str, ...]:
        return tuple(what.format(count, "" if count == 1 else "s") for what, count in self.counts.items())


@dataclass(slots=True)
class _Group:
    """Pods that are one workload."""

    template: Raw
    names: tuple[str, ...]
    """What to call it: the first that no other group has too."""
    replace: bool
    runs: int | None
    running: list[str] = field(default_factory=list)
    pending: int = 0


def imported(objects: Iterable[Raw], *, duration: str = "1h") -> Imported:
    """Turn nodes and pods into a scenario; objects of other kinds are told as left out."""
    lost, nodes, pods = _Lost(), [], []
    for raw in objects:
        match raw.get("kind"):
            case "Node":
                nodes.append(without_nulls(raw))
            case "Pod":
                pods.append(without_nulls(raw))
            case kind:
                lost.add(f"{{}} object{{}} of kind {kind}: a scenario has nodes and pods only")
    if not nodes:
        raise InputError("no nodes found", remedy="save `kubectl get nodes,pods -A -o json`, and give that file")
    listed = [_node(raw, lost) for raw in nodes]
    workloads = _workloads(pods, {node["name"] for node in listed}, lost)
    document = {"apiVersion": API_VERSION, "kind": KIND, "duration": duration, "nodes": listed, "workloads": workloads}
    return Imported(document, lost.lines())


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node(raw: Raw, lost: _Lost) -> Raw:
    metadata, spec, status = (raw.get(part) or {} for part in ("metadata", "spec", "status"))
    annotations = metadata.get("annotations") or {}
    taints = [{key: one[key] for key in ("key", "value", "effect") if key in one} for one in spec.get("taints") or ()]
    if spec.get("unschedulable") and _UNSCHEDULABLE not in taints:
        taints.append(_UNSCHEDULABLE)
    template = {
        "labels": metadata.get("labels"),
        "annotations": {key: annotations[key] for key in (DRIVERS_ANNOTATION,) if key in annotations},
        "taints": taints,
        "allocatable": status.get("allocatable") or status.get("capacity"),
        "qosResources": status.get("qosResources"),
    }
    if status.get("images"):
        lost.add("images of {} node{}: that the scheduler prefers nodes which have a pod's image is not played")
    made = {"name": metadata.get("name", ""), **_inside(annotations, lost)}
    return {**made, "template": {key: value for key, value in template.items() if value}}


def _inside(annotations: Mapping[str, str], lost: _Lost) -> Raw:
    """The machine of a node that publishes one, and how the node hands out its CPUs."""
    if MACHINE_ANNOTATION not in annotations:
        return {}
    summary = decode_topology(annotations.get(TOPOLOGY_ANNOTATION, ""))
    if summary.pools:
        lost.add("pools of resource plugins on {} node{}: pods get CPUs there as on any other")
        return {}
    found: Raw = {"machine": machine_to_dict(decode_machine(annotations[MACHINE_ANNOTATION]))}
    reserved = decode_assignments(annotations.get(ASSIGNMENTS_ANNOTATION, "{}")).pools.get("reserved")
    if reserved:
        found["reserved"] = str(reserved)
    if "cpu" in summary.free:
        found["cpuManagerPolicy"] = "static"
        lost.add("which CPUs pods own on {} node{}: they are handed out anew, by the node's own policy")
    return {**found, "topologyManagerPolicy": summary.policy, "topologyManagerScope": summary.scope}


# -- pods --------------------------------------------------------------------------------------------------------------


def _workloads(pods: Iterable[Raw], nodes: set[str], lost: _Lost) -> list[Raw]:
    groups: dict[bytes, _Group] = {}
    for raw in pods:
        where = (raw.get("spec") or {}).get("nodeName", "")
        if (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            lost.add("{} finished pod{}: they hold nothing")
        elif where and where not in nodes:
            lost.add("{} pod{} on nodes that are not among those given")
        else:
            group = _group(raw, lost)
            key = encode_json([group.template, group.replace, group.runs, group.names])
            group = groups.setdefault(key, group)
            if where:
                group.running.append(where)
            else:
                group.pending += 1
    names = _names(list(groups.values()))
    return [_workload(name, group) for name, group in zip(names, groups.values(), strict=True)]


def _workload(name: str, group: _Group) -> Raw:
    made: Raw = {"name": name}
    if group.running:
        made["running"] = sorted(group.running)
    if group.pending:
        made["arrivals"] = {"at": ["0s"] * group.pending}
    if group.runs is not None:
        made["runs"] = f"{group.runs}s"
    if group.replace:
        made["replace"] = True
    return {**made, "template": group.template}


def _names(groups: Sequence[_Group]) -> list[str]:
    """The shortest name of each that is its own; numbered where even the longest is somebody else's too."""
    counted = Counter(name for group in groups for name in set(group.names))
    taken: Counter[str] = Counter()
    found = []
    for group in groups:
        name = next((one for one in group.names if counted[one] == 1), group.names[-1])
        taken[name] += 1
        found.append(f"{name}-v{taken[name]}" if taken[name] > 1 else name)
    return found


def _group(raw: Raw, lost: _Lost) -> _Group:
    metadata, status = raw.get("metadata") or {}, raw.get("status") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace") or "default"
    owner: Raw = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    spec = _spec(raw, lost)
    known: Raw = {"namespace": namespace}
    if labels := metadata.get("labels"):
        known["labels"] = _common(labels, owner)
    if marks := only_marks(metadata.get("annotations") or {}):
        known["annotations"] = dict(marks)
    names = [owner.get("name", name), f"{namespace}-{owner.get('name', name)}"]
    if owner:
        known["ownerReferences"] = [
            {key: owner[key] for key in ("apiVersion", "kind", "name", "controller") if key in owner}
        ]
        template_hash = (metadata.get("labels") or {}).get(TEMPLATE_HASH_LABEL, "")
        if owner.get("kind") == "ReplicaSet" and template_hash:
            names.insert(0, names[0].removesuffix(f"-{template_hash}"))
    if owner.get("kind") == "DaemonSet" and spec.get("affinity") and (raw.get("spec") or {}).get("nodeName"):
        _unpin(spec)
        lost.add("{} pod{} of DaemonSets: on its node from the start; one that is evicted does not come back")
    runs = int(metadata.get("deletionGracePeriodSeconds") or 0) if metadata.get("deletionTimestamp") else None
    if runs is not None:
        lost.add("{} pod{} being deleted: gone after the grace period, and nobody comes in its place")
    if _is_resized(status):
        lost.add("{} pod{} whose resources are being changed: what the spec asks for counts")
    replace = owner.get("kind") in REPLACED and runs is None
    return _Group({"metadata": known, "spec": spec}, tuple(names), replace, runs)


def _common(labels: Mapping[str, str], owner: Mapping[str, Any]) -> dict[str, str]:
    """Without those by which a controller tells its pods apart, so that they are one workload."""
    return {key: value for key, value in labels.items() if not (owner and key in _OWN_LABELS)}


def _spec(raw: Raw, lost: _Lost) -> Raw:
    given = raw.get("spec") or {}
    kept: Raw = {key: given[key] for key in _SPEC if key in given}
    for key in ("initContainers", "containers"):
        if given.get(key):
            kept[key] = [_container(one) for one in given[key]]
    if any("persistentVolumeClaim" in one for one in given.get("volumes") or ()):
        lost.add("persistent volumes of {} pod{}: where these can be attached is not played")
    if given.get("resourceClaims"):
        lost.add("resource claims of {} pod{}: they are placed as if they had none")
    if (scheduler := given.get("schedulerName", "default-scheduler")) != "default-scheduler":
        lost.add(f"that {scheduler} places {{}} pod{{}}: default-scheduler does")
    if b'"namespaceSelector":{' in encode_json(given.get("affinity") or {}):
        lost.add("labels of namespaces, by which affinities of {} pod{} choose: no namespace has any")
    try:
        PodView.of({"spec": kept})
    except InputError as error:
        name = (raw.get("metadata") or {}).get("name", "")
        raise InputError(error.what, where=f"pod {name!r}: {error.where or 'spec'}") from error
    return kept


def _container(raw: Raw) -> Raw:
    kept = {key: raw[key] for key in ("name", "restartPolicy") if key in raw}
    resources = {key: value for key, value in (raw.get("resources") or {}).items() if key != "claims" and value}
    ports = [one for one in raw.get("ports") or () if one.get("hostPort")]
    return kept | ({"resources": resources} if resources else {}) | ({"ports": ports} if ports else {})


def _unpin(spec: Raw) -> None:
    """Take away what ties a daemon to its one node: the pods of one DaemonSet are one workload then."""
    affinity = dict(spec["affinity"])
    node = {
        key: value
        for key, value in (affinity.get("nodeAffinity") or {}).items()
        if key != "requiredDuringSchedulingIgnoredDuringExecution"
    }
    affinity = {key: value for key, value in {**affinity, "nodeAffinity": node}.items() if value}
    spec.pop("affinity")
    if affinity:
        spec["affinity"] = affinity


def _is_resized(status: Raw) -> bool:
    resizing = ("PodResizePending", "PodResizeInProgress")
    return any(one.get("type") in resizing and one.get("status") == "True" for one in status.get("conditions") or ())
