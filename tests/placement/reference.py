"""A plain, per-node implementation of fit, written for comparison with the columnar one: slow, short, obvious."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kubeqos.codec import decode_json
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.model.objects import LabelSelectorView, NodeView, PodAffinityTerm, PodView, Taint, Toleration
from kubeqos.rules.qos.classes import ClassKey, Level, catalog, demand, fit
from kubeqos.rules.qos.podqos import QosClass, effective_class, effective_requests

Placement = Mapping[str, Sequence[PodView]]
"""Pods by node name."""


def fits(pod: PodView, node: NodeView, nodes: Sequence[NodeView], placed: Placement) -> bool:
    here = placed.get(node.metadata.name, ())
    return (
        _schedulable(pod, node)
        and _selected(pod, node)
        and _ports_free(pod, here)
        and _resources(pod, node, here)
        and _classes(pod, node, here)
        and _pools(pod, node, here)
        and _aligned(pod, node, here)
        and _spread(pod, node, nodes, placed)
        and _affinity(pod, node, nodes, placed)
    )


def _tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(
        (not t.effect or t.effect == taint.effect)
        and ((not t.key and t.operator == "Exists") or t.key == taint.key)
        and (t.operator == "Exists" or t.value == taint.value)
        for t in tolerations
    )


def _schedulable(pod: PodView, node: NodeView) -> bool:
    taints = list(node.spec.taints)
    if node.spec.unschedulable:
        taints.append(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))
    return all(
        _tolerates(pod.spec.tolerations, taint) for taint in taints if taint.effect in ("NoSchedule", "NoExecute")
    )


def labels_of(node: NodeView) -> dict[str, str]:
    return {"kubernetes.io/hostname": node.metadata.name, **node.metadata.labels}


def _selected(pod: PodView, node: NodeView) -> bool:
    labels = labels_of(node)
    return all(labels.get(key) == value for key, value in pod.spec.node_selector.items())


def _ports_free(pod: PodView, here: Sequence[PodView]) -> bool:
    def ports(each: PodView) -> set[int]:
        return {port.host_port for container in each.spec.containers for port in container.ports if port.host_port}

    return not any(ports(pod) & ports(other) for other in here)


def _resources(pod: PodView, node: NodeView, here: Sequence[PodView]) -> bool:
    room = node.status.allocatable
    if "pods" not in room or len(here) + 1 > room["pods"].value():
        return False
    for name, amount in effective_requests(pod.spec).items():
        if amount.is_zero:
            continue
        unit = (lambda q: q.milli()) if name == "cpu" else (lambda q: q.value())
        used = sum(
            unit(effective_requests(other.spec)[name]) for other in here if name in effective_requests(other.spec)
        )
        if name not in room or unit(amount) > unit(room[name]) - used:
            return False
    return True


def _classes(pod: PodView, node: NodeView, here: Sequence[PodView]) -> bool:
    offered = catalog(node.status.qos_resources)
    container_level = {kind.name for kind in offered.of_level(Level.CONTAINER)}
    used: dict[ClassKey, int] = {}
    for other in here:
        for key, count in demand(other.spec, container_level).items():
            used[key] = used.get(key, 0) + count
    return not fit(pod.spec, offered, used)


def _pools(pod: PodView, node: NodeView, here: Sequence[PodView]) -> bool:
    """Room in the pool of the pod's role; whole CPUs come out of the shared pool, but not its last if it is used."""
    told = decode_json(node.metadata.annotations[TOPOLOGY_ANNOTATION].encode()).get("pools", {}).get("cpu")
    asked = _cpu(pod)
    if told is None or not asked:
        return True
    own = sum(math.ceil(_cpu(other)) for other in here if _role(other) == "own")
    if _role(pod) == "own":
        left = told["whole"] - own - math.ceil(asked)
        shared = any(_role(other) == "" for other in here)
        return bool(left > 0 or (left == 0 and not shared))
    pool = "online" if _role(pod) == "web" else "shared"
    if pool not in told["pools"]:
        return False
    used = sum(_cpu(other) for other in here if _role(other) == _role(pod)) + (own if pool == "shared" else 0)
    return bool(used + asked <= told["pools"][pool] + 1e-9)


def _role(pod: PodView) -> str:
    return pod.metadata.annotations.get("kubernetes.io/pod-role", "")


def _cpu(pod: PodView) -> float:
    return sum(c.resources.requests["cpu"].milli() for c in pod.spec.containers if "cpu" in c.resources.requests) / 1000


def _aligned(pod: PodView, node: NodeView, here: Sequence[PodView]) -> bool:
    """Whole CPUs of a Guaranteed pod on one NUMA node, after everybody who came before took the first that had room."""
    told = decode_json(node.metadata.annotations[TOPOLOGY_ANNOTATION].encode())
    if told["policy"] != "single-numa-node" or not _whole_cpus(pod):
        return True
    free = [told["free"]["cpu"][numa] for numa in ("0", "1")]
    for other in here:
        index = next((n for n in (0, 1) if free[n] >= _whole_cpus(other)), None)
        if index is not None:
            free[index] -= _whole_cpus(other)
    return bool(max(free) >= _whole_cpus(pod))


def _whole_cpus(pod: PodView) -> int:
    cpu = _cpu(pod)
    return int(cpu) if effective_class(pod) is QosClass.GUARANTEED and cpu == int(cpu) else 0


def _matches(selector: LabelSelectorView | None, labels: Mapping[str, str]) -> bool:
    return selector is not None and all(labels.get(k) == v for k, v in selector.match_labels.items())


def _spread(pod: PodView, node: NodeView, nodes: Sequence[NodeView], placed: Placement) -> bool:
    for constraint in pod.spec.topology_spread_constraints:
        key = constraint.topology_key
        if key not in labels_of(node):
            return False
        counts: dict[str, int] = {}
        for other in nodes:
            if key in labels_of(other) and _selected(pod, other):
                matching = [
                    p
                    for p in placed.get(other.metadata.name, ())
                    if p.metadata.namespace == pod.metadata.namespace
                    and _matches(constraint.label_selector, p.metadata.labels)
                ]
                counts[labels_of(other)[key]] = counts.get(labels_of(other)[key], 0) + len(matching)
        itself = int(_matches(constraint.label_selector, pod.metadata.labels))
        if counts and counts.get(labels_of(node)[key], 0) + itself - min(counts.values()) > constraint.max_skew:
            return False
    return True


def _near(
    term: PodAffinityTerm, owner: PodView, node: NodeView, nodes: Sequence[NodeView], placed: Placement
) -> list[PodView]:
    domain = labels_of(node).get(term.topology_key)
    if domain is None:
        return []
    return [
        other
        for each in nodes
        if labels_of(each).get(term.topology_key) == domain
        for other in placed.get(each.metadata.name, ())
        if other.metadata.namespace == owner.metadata.namespace and _matches(term.label_selector, other.metadata.labels)
    ]


def _affinity(pod: PodView, node: NodeView, nodes: Sequence[NodeView], placed: Placement) -> bool:
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []
    if any(_near(term, pod, node, nodes, placed) for term in anti):
        return False
    for each in nodes:
        for other in placed.get(each.metadata.name, ()):
            theirs = other.spec.affinity
            for term in theirs.pod_anti_affinity.required if theirs and theirs.pod_anti_affinity else ():
                domain = labels_of(each).get(term.topology_key)
                if (
                    domain is not None
                    and labels_of(node).get(term.topology_key) == domain
                    and other.metadata.namespace == pod.metadata.namespace
                    and _matches(term.label_selector, pod.metadata.labels)
                ):
                    return False
    terms = affinity.pod_affinity.required if affinity and affinity.pod_affinity else []
    if not terms:
        return True
    if any(term.topology_key not in labels_of(node) for term in terms):
        return False
    nobody = all(not _near(term, pod, each, nodes, placed) for term in terms for each in nodes)
    if nobody and all(_matches(term.label_selector, pod.metadata.labels) for term in terms):
        return True
    return all(_near(term, pod, node, nodes, placed) for term in terms)
