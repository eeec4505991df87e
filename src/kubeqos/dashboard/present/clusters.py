"""The cluster as the dashboard shows it: nodes, classes, quotas, who waits and why, who had to leave. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubeqos.codec import decode_json
from kubeqos.dashboard.objects import Objects, Sight
from kubeqos.dashboard.present.data import (
    ClusterData,
    Happening,
    NodeRow,
    PendingGroup,
    PodsData,
    QuotaRow,
    TimelineData,
)
from kubeqos.dashboard.present.rows import node_row, pod_row, quota_row, summed_classes
from kubeqos.model.objects import NodeView, PodView

LOST = frozenset(
    {"Evicted", "Preempted", "Preempting", "TaintManagerEviction", "EvictionThresholdMet", "OOMKilled", "SystemOOM"}
)
"""Reasons of events about who had to leave, and for whom."""
MOST_HAPPENINGS = 200
MOST_PODS = 1000
COMMANDS = {
    "nodes": "kubeqos top nodes",
    "classes": "kubeqos classes -o wide",
    "quotas": "kubeqos quota -A",
    "pending": "kubectl get pods -A --field-selector status.phase=Pending",
    "happenings": "kubectl get events -A --sort-by=.lastTimestamp",
}
NO_NODES = "nodes: this user may not list them"
NO_USE = "what pods use of nodes: this user may not list pods of all namespaces"


@dataclass
class Rows:
    """The rows of nodes and quotas that are still true: a row is made anew when its node or one of its pods changed."""

    nodes: dict[tuple[str, bool], tuple[int, NodeRow]] = field(default_factory=dict)
    quotas: dict[str, tuple[bytes, QuotaRow]] = field(default_factory=dict)

    def node(self, objects: Objects, name: str, revision: int, *, with_pods: bool) -> NodeRow:
        """A row of the present; the revision is that of the node's last change."""
        known = self.nodes.get((name, with_pods))
        if known is not None and known[0] == revision:
            return known[1]
        row = made(objects, name, with_pods=with_pods)
        self.nodes[name, with_pods] = revision, row
        return row

    def quota(self, key: str, raw: bytes) -> QuotaRow:
        known = self.quotas.get(key)
        if known is None or known[0] is not raw:
            known = self.quotas[key] = raw, quota_row(decode_json(raw))
        return known[1]


def made(objects: Objects, name: str, *, with_pods: bool) -> NodeRow:
    """A node's row, from its objects."""
    return node_row(NodeView.read(objects.nodes[name]), objects.pods_on(name) if with_pods else ())


def cluster_data(
    objects: Objects, sight: Sight, rows: Rows, revisions: Mapping[str, int], nearest: Mapping[str, list[str]]
) -> ClusterData:
    """All of it, as far as it may be seen. `nearest` has the nearest misses by reason, where they are known."""
    with_pods = sight.pods.everything
    nodes: dict[str, NodeRow] = {}
    if sight.nodes.everything:
        for name in objects.nodes:
            if objects.at is None:
                nodes[name] = rows.node(objects, name, revisions.get(name, 0), with_pods=with_pods)
            else:
                nodes[name] = made(objects, name, with_pods=with_pods)
    quotas = {key: rows.quota(key, raw) for key, raw in objects.quotas.items() if sight.quotas.sees(key)}
    waiting = [
        pod
        for pod in objects.pods_on("")
        if sight.pods.sees(f"{pod.metadata.namespace}/{pod.metadata.name}") and not pod.is_terminal
    ]
    left_out = [NO_NODES] if not nodes and not sight.nodes.everything else []
    if sight.nodes.everything and not with_pods:
        left_out.append(NO_USE)
    return ClusterData(
        nodes=nodes,
        classes=summed_classes(nodes.values()),
        quotas=quotas,
        pending=grouped(waiting, nearest if sight.all_pods_and_nodes else {}),
        happenings=visible(objects.of(lambda one: one.reason in LOST), sight)[-MOST_HAPPENINGS:],
        counts={
            "nodes": len(nodes),
            "notReady": sum(not row.ready for row in nodes.values()),
            "pods": sum(map(sight.pods.sees, objects.pods)),
            "pending": len(waiting),
        },
        left_out=left_out,
        commands=COMMANDS,
    )


def why_waiting(pod: PodView) -> str:
    """What the scheduler said last."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return "no scheduler has looked at it yet"


def grouped(waiting: Iterable[PodView], nearest: Mapping[str, list[str]]) -> list[PendingGroup]:
    """Pods by reason, most of them first."""
    found: dict[str, list[str]] = {}
    for pod in waiting:
        found.setdefault(why_waiting(pod), []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return [
        PendingGroup(reason=reason, pods=sorted(pods), nearest=nearest.get(reason, []))
        for reason, pods in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def visible(happenings: Iterable[Happening], sight: Sight) -> list[Happening]:
    """Events as far as they may be seen; those of nodes are in the namespace `default`, and about nodes."""
    return [
        one
        for one in happenings
        if (one.namespace in sight.events if one.namespace else sight.events.everything and sight.nodes.everything)
    ]


def pods_data(objects: Objects, sight: Sight, namespace: str, text: str) -> PodsData:
    """Pods of a namespace, or of all, whose name contains a text."""
    keys = sorted(
        key for key in objects.pods if sight.pods.sees(key) and namespace in ("", key.partition("/")[0]) and text in key
    )
    rows = {key: pod_row(PodView.read(objects.pods[key])) for key in keys[:MOST_PODS]}
    where = f"-n {namespace}" if namespace else "-A"
    return PodsData(pods=rows, total=len(keys), commands={"pods": f"kubectl get pods {where} -o wide"})


def timeline_data(
    objects: Objects, sight: Sight, began: float, now: float, changes: list[tuple[float, int]]
) -> TimelineData:
    """How far back one can look, and what happened since."""
    told = visible(objects.of(lambda one: one.time >= began - 1), sight)
    seen = changes if sight.all_pods_and_nodes else []
    left_out = [] if sight.all_pods_and_nodes else ["how much changed: this user may not list all nodes and pods"]
    return TimelineData(first=began, last=now, changes=seen, happenings=told[-MOST_HAPPENINGS:], left_out=left_out)
