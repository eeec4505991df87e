"""Objects to rows of tables: pods, nodes, classes, quotas, events. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kubeqos.dashboard.present.data import Bar, ClassRow, ConditionRow, Happening, NodeRow, PodRow, QuotaRow
from kubeqos.errors import InputError
from kubeqos.model.annotations.published import decode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION, PROFILE_LABEL
from kubeqos.model.objects import Condition, NodeView, PodView
from kubeqos.model.quantity import Quantity
from kubeqos.model.timestamps import seconds_of
from kubeqos.rules.qos.classes import catalog
from kubeqos.rules.qos.podqos import effective_requests, qos_class
from kubeqos.views.quotas import limits, scopes
from kubeqos.views.usage import pod_holdings, running_on, used_classes

_WRONG_WHEN_TRUE = ("Pressure", "Unavailable", "Problem", "Drift", "Failed", "Degraded")


def pod_row(pod: PodView) -> PodRow:
    """A pod in a table."""
    requests = effective_requests(pod.spec)
    waits = next((one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"), None)
    reason = pod.status.reason or (waits.reason if waits is not None and not pod.spec.node_name else "")
    return PodRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        phase="Terminating" if pod.metadata.deletion_timestamp else pod.status.phase or "Pending",
        qos_class=str(pod.status.qos_class or qos_class(pod).qos_class),
        node=pod.spec.node_name,
        cpu=str(requests.get("cpu", "")),
        memory=str(requests.get("memory", "")),
        classes=pod_holdings(pod) if pod.spec.node_name and not pod.is_terminal else {},
        reason=reason,
    )


def condition_row(condition: Condition) -> ConditionRow:
    """`Ready` should be true, pressures and the like should not."""
    wrong_when_true = any(word in condition.type for word in _WRONG_WHEN_TRUE)
    healthy = condition.status == ("False" if wrong_when_true else "True")
    return ConditionRow(
        type=condition.type,
        status=condition.status,
        healthy=healthy,
        reason=condition.reason,
        message=condition.message,
    )


def node_row(node: NodeView, pods: Iterable[PodView]) -> NodeRow:
    """A node with what its pods ask for."""
    here = running_on(pods).get(node.metadata.name, [])
    requested: Counter[str] = Counter()
    for pod in here:
        for name, amount in effective_requests(pod.spec).items():
            requested[name] += amount.nanos
    classes = {f"{row.resource}={row.cls}": [row.used, row.capacity] for row in node_classes(node, here)}
    conditions = [condition_row(one) for one in node.status.conditions]
    return NodeRow(
        name=node.metadata.name,
        ready=any(one.type == "Ready" and one.status == "True" for one in node.status.conditions),
        profile=node.metadata.labels.get(PROFILE_LABEL, ""),
        problems=[one.type for one in conditions if not one.healthy],
        cpus=_units(node.status.allocatable.get("cpu")),
        cpu_requested=requested["cpu"] / 1e9,
        memory_bytes=int(_units(node.status.allocatable.get("memory"))),
        memory_requested=requested["memory"] // 10**9,
        pods=len(here),
        exclusive=_exclusive(node),
        classes=classes,
    )


def _units(amount: Quantity | None) -> float:
    return 0.0 if amount is None else amount.nanos / 1e9


def _exclusive(node: NodeView) -> int:
    annotations = node.metadata.annotations
    if MACHINE_ANNOTATION not in annotations:
        return -1
    try:
        placed = decode_assignments(annotations.get(ASSIGNMENTS_ANNOTATION) or "{}")
    except InputError:
        return -1
    return sum(len(held.cpus) for held in placed.containers.values() if held.exclusive)


def node_classes(node: NodeView, pods: Iterable[PodView]) -> list[ClassRow]:
    """Every class that a node offers, with its use by these pods."""
    offered = catalog(node.status.qos_resources)
    used = used_classes(pods, offered)
    return [
        ClassRow(
            resource=kind.name,
            cls=cls,
            level=str(kind.level),
            capacity=capacity,
            used=used[(kind.level, kind.name, cls)],
            mutable=kind.mutable,
        )
        for kind in sorted(offered.types.values(), key=lambda kind: kind.name)
        for cls, capacity in kind.classes.items()
    ]


def summed_classes(rows: Iterable[NodeRow]) -> list[ClassRow]:
    """Classes over all nodes, as `kubeqos classes` sums them: one node without a limit makes the sum unlimited."""
    found: dict[str, list[int]] = {}
    for row in rows:
        for name, (used, capacity) in row.classes.items():
            total = found.setdefault(name, [0, 0, 0, 0])
            total[0] += used
            total[1] += capacity
            total[2] += 1
            total[3] |= capacity == 0
    return [
        ClassRow(
            resource=name.partition("=")[0],
            cls=name.partition("=")[2],
            level="",
            capacity=0 if unlimited else capacity,
            used=used,
            nodes=nodes,
        )
        for name, (used, capacity, nodes, unlimited) in sorted(found.items())
    ]


def quota_row(raw: Mapping[str, Any]) -> QuotaRow:
    """A quota: its scopes, then a bar for everything that it limits."""
    metadata = raw["metadata"]
    bars = [Bar(resource=one.resource, used=one.used, hard=one.hard, share=one.share) for one in limits(raw)]
    return QuotaRow(namespace=metadata.get("namespace", ""), name=metadata["name"], scopes=scopes(raw), bars=bars)


def happening(raw: Mapping[str, Any]) -> Happening:
    """An event."""
    about = raw.get("involvedObject") or {}
    series = raw.get("series") or {}
    when = series.get("lastObservedTime") or raw.get("lastTimestamp") or raw.get("eventTime")
    return Happening(
        time=seconds(when or (raw.get("metadata") or {}).get("creationTimestamp") or ""),
        reason=raw.get("reason") or "",
        warning=raw.get("type") == "Warning",
        count=series.get("count") or raw.get("count") or 1,
        kind=about.get("kind") or "",
        namespace=about.get("namespace") or "",
        name=about.get("name") or "",
        message=raw.get("message") or "",
        uid=about.get("uid") or "",
        by=raw.get("reportingComponent") or (raw.get("source") or {}).get("component") or "",
    )


def seconds(stamp: str) -> float:
    """A Kubernetes timestamp as seconds since the epoch; 0 for none."""
    return seconds_of(stamp) or 0.0
