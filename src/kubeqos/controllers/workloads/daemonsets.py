"""One pod on every node that is meant: which nodes, which pods come and go, and how a new template rolls out. Pure.

`desired` looks at the nodes one by one, as Kubernetes does: a node that should run the daemon has one pod, a node that
may not keep it has none. The pod is bound by the scheduler, which a node affinity by name leaves no choice. The loop is
`daemoncontroller`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeqos.client.resources import DAEMON_SETS, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, Delete, Patch, Tell, change, deletion
from kubeqos.controllers.podstate import available_in, is_going, is_ready, is_terminal, phase
from kubeqos.controllers.workloads.replicas import Standing, pod_from_template
from kubeqos.controllers.workloads.revisions import REVISION_HASH
from kubeqos.controllers.workloads.rollout import scaled
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.timestamps import seconds_of
from kubeqos.placement.expressions import selects
from kubeqos.rules.taints import untolerated

BURST = 250  # pods made or deleted per look, as Kubernetes bounds it
FIRST_RETRY, LONGEST_RETRY = 1.0, 900.0  # of a failed daemon pod on its node
_NODE = "node.kubernetes.io/"
_ALWAYS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """What to do now."""

    create: Sequence[Create] = ()
    delete: Sequence[Delete] = ()
    tell: Sequence[Tell] = ()
    look_again: float | None = None


class FailedPods:
    """Since when and how often daemon pods fail on nodes: a new one follows later and later."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], tuple[float, float]] = {}

    def wait(self, node: str, generation: int, now: float) -> float:
        """Seconds until a failed pod of this node is replaced; 0 is now, and makes the next wait longer.

        What failed in another generation of the daemon set says nothing about this one.
        """
        due, delay = self._next.get((node, generation), (now, FIRST_RETRY))
        if now < due <= now + LONGEST_RETRY:  # what is due later than that was noted before the clock was set back
            return due - now
        forgotten = now - due > 2 * LONGEST_RETRY
        delay = FIRST_RETRY if forgotten else delay
        self._next[node, generation] = now + delay, min(2 * delay, LONGEST_RETRY)
        return 0.0


@dataclass(slots=True)
class DaemonNode:
    """One node, what the daemon set wants of it, and the pods that are meant for it."""

    name: str
    runs: bool
    """A pod belongs here."""
    keeps: bool
    """A pod that is here may stay."""
    pods: list[JsonObject] = field(default_factory=list)
    is_there: bool = True


def daemon_nodes(owner: JsonObject, nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> list[DaemonNode]:
    """Every node with its pods; pods of nodes that are gone stand under a node that is not there.

    A pod that has ended and only waits for its finalizers takes nobody's place.
    """
    by_node: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for pod in pods:
        if not (is_going(pod) and is_terminal(pod)):
            by_node[target(pod)].append(pod)
    like = PodView.of({"metadata": {}, "spec": _spec(owner, "")})
    found = []
    for node in nodes:
        view = NodeView.of(node)
        name = view.metadata.name
        runs, keeps = _wanted(like, view)
        found.append(DaemonNode(name, runs, keeps, by_node.pop(name, [])))
    found += [DaemonNode(name, False, False, left, is_there=False) for name, left in by_node.items()]
    return sorted(found, key=lambda one: one.name)


def _wanted(pod: PodView, node: NodeView) -> tuple[bool, bool]:
    labels = node.metadata.labels or {}
    if pod.spec.node_name not in ("", None, node.metadata.name):
        return False, False
    if not selects(pod.spec, node.metadata.name, labels):
        return False, False
    taints, tolerations = node.spec.taints, pod.spec.tolerations
    runs = untolerated(taints, tolerations) is None
    return runs, runs or untolerated(taints, tolerations, ("NoExecute",)) is None


def target(pod: JsonObject) -> str:
    """The node that a daemon pod runs on or is meant for."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchFields") or ():
            if expression.get("key") == "metadata.name" and expression.get("operator") == "In":
                return str((expression.get("values") or [""])[0])
    return ""


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_pod(owner: JsonObject, node: str, revision: str) -> JsonObject:
    """The pod of one node: it tolerates what comes and goes on nodes, and fits on no other."""
    pod = pod_from_template(owner)
    labels = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: revision}
    generation = (owner["metadata"].get("annotations") or {}).get("deprecated.daemonset.template.generation")
    if generation:
        labels["pod-template-generation"] = generation
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": _spec(owner, node)}


def _spec(owner: JsonObject, node: str) -> dict[str, Any]:
    spec = dict((owner["spec"].get("template") or {}).get("spec") or {})
    always = _ALWAYS + ((("network-unavailable", "NoSchedule"),) if spec.get("hostNetwork") else ())
    added = [{"key": _NODE + key, "operator": "Exists", "effect": effect} for key, effect in always]
    given = list(spec.get("tolerations") or ())
    spec["tolerations"] = given + [one for one in added if one not in given]
    if node:
        affinity = dict(spec.get("affinity") or {})
        by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        preferred = dict(affinity.get("nodeAffinity") or {})
        affinity["nodeAffinity"] = {**preferred, _REQUIRED: {"nodeSelectorTerms": [by_name]}}
        spec["affinity"] = affinity
    return spec


# -- who comes and who goes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Roll:
    """How a new template spreads: the revision that is wanted, and how far pods may be missing or double."""

    revision: str
    unavailable: int = 0
    surge: int = 0
    rolls: bool = True

    @classmethod
    def of(cls, owner: JsonObject, nodes: Sequence[DaemonNode], revision: str) -> Roll:
        strategy = owner["spec"].get("updateStrategy") or {}
        limits, many = strategy.get("rollingUpdate") or {}, sum(one.runs for one in nodes)
        surge = scaled(limits.get("maxSurge", 0), many, up=True)
        unavailable = scaled(limits.get("maxUnavailable", 1), many, up=True)
        if not surge and not unavailable:
            unavailable = 1  # percentages of a few nodes: something has to give way
        return cls(revision, unavailable, surge, strategy.get("type") != "OnDelete")


def desired(
    owner: JsonObject, nodes: Sequence[DaemonNode], roll: Roll, now: float, failures: FailedPods | None = None
) -> DaemonPlan:
    """What should happen on every node."""
    if is_going(owner):
        return DaemonPlan()
    failures = failures or FailedPods()
    missing: list[str] = []
    ended: list[JsonObject] = []
    tell: list[Tell] = []
    waits: list[float] = []
    for node in nodes:
        if not node.keeps:
            # The pods of a node that is gone are collected with those of everybody else; who never got there is not.
            ended += [pod for pod in _living(node) if node.is_there or not pod["spec"].get("nodeName")]
            continue
        over, wait = _over(owner, node, failures, now)
        waits += [wait] if wait else []
        ended += over
        tell += [_told(owner, node.name, pod) for pod in over]
        more, less = _numbered(owner, node, roll, now)
        missing += [node.name] * more
        ended += less
    if roll.rolls and not missing and not ended:  # what has just been told to come or go is seen first
        missing, ended = rolled(owner, nodes, roll, now)
    created = [Create(PODS, daemon_pod(owner, name, roll.revision), f"node {name} has none") for name in missing]
    gone = [deletion(PODS, pod, "its node should not run it, or runs another") for pod in ended]
    return DaemonPlan(created[:BURST], gone[:BURST], tell, min(waits, default=None))


def _living(node: DaemonNode) -> list[JsonObject]:
    return [pod for pod in node.pods if not is_going(pod)]


def _over(owner: JsonObject, node: DaemonNode, failures: FailedPods, now: float) -> tuple[list[JsonObject], float]:
    """Pods that have ended and make room for another: at once if they ended well, else later and later."""
    failed = [pod for pod in _living(node) if phase(pod) == "Failed"]
    succeeded = [pod for pod in _living(node) if phase(pod) == "Succeeded"]
    generation = int((owner.get("status") or {}).get("observedGeneration") or 0)
    wait = failures.wait(node.name, generation, now) if failed else 0.0
    return (succeeded if wait else failed + succeeded), wait


def _told(owner: JsonObject, node: str, pod: JsonObject) -> Tell:
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if phase(pod) == "Failed":
        return Tell(owner, "FailedDaemonPod", f"Found failed daemon pod {name} on node {node}, will try to kill it",
                    "Warning")  # fmt: skip
    message = f"Found succeeded daemon pod {name} on node {node}, will try to delete it"
    return Tell(owner, "SucceededDaemonPod", message)


def _numbered(owner: JsonObject, node: DaemonNode, roll: Roll, now: float) -> tuple[bool, list[JsonObject]]:
    """Whether a node needs a pod, and which it has too many.

    Of several the oldest stays. With surge an old one stays beside the new one as long as it is ready and the new one
    is not available, and a pod on its way out is not waited for.
    """
    running = sorted((pod for pod in _living(node) if not is_terminal(pod)), key=_seniority)
    if not (roll.rolls and roll.surge):
        return node.runs and not node.pods, running[1:]
    new, old = [p for p in running if _is_new(p, roll)], [p for p in running if not _is_new(p, roll)]
    surplus = new[1:] + old[1:]
    if new and old and (not is_ready(old[0]) or _is_available(owner, new[0], now)):
        surplus.append(old[0])
    return node.runs and not running, surplus


def _seniority(pod: JsonObject) -> tuple[object, ...]:
    created = seconds_of(pod["metadata"].get("creationTimestamp") or "") or 0.0
    return (not (pod.get("spec") or {}).get("nodeName"), created, pod["metadata"]["name"])


def _is_new(pod: JsonObject, roll: Roll) -> bool:
    return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) == roll.revision


def _is_available(owner: JsonObject, pod: JsonObject, now: float) -> bool:
    return available_in(pod, owner["spec"].get("minReadySeconds") or 0, now) == 0


def rolled(
    owner: JsonObject, nodes: Sequence[DaemonNode], roll: Roll, now: float
) -> tuple[list[str], list[JsonObject]]:
    """Nodes that get a new pod beside their old one, and old pods that make room for a new one."""
    return _surged(owner, nodes, roll, now) if roll.surge else ([], _replaced(owner, nodes, roll, now))


def _generations(node: DaemonNode, roll: Roll) -> tuple[list[JsonObject], list[JsonObject]]:
    living = _living(node)
    return [p for p in living if _is_new(p, roll)], [p for p in living if not _is_new(p, roll)]


def _replaced(owner: JsonObject, nodes: Sequence[DaemonNode], roll: Roll, now: float) -> list[JsonObject]:
    """Old pods that may go so that never more than `unavailable` nodes are without an available pod.

    Pods that serve nobody go first and cost nothing. A node that merely keeps its pod counts as any other.
    """
    useless: list[JsonObject] = []
    candidates: list[JsonObject] = []
    down = 0
    for node in nodes:
        if not node.runs and not node.pods:
            continue
        new, old = _generations(node, roll)
        serves = len(new) + len(old) == 1 and _is_available(owner, (new + old)[0], now)
        down += not serves
        if len(old) == 1 and not new:
            (candidates if serves else useless).append(old[0])
    return useless + candidates[: max(0, roll.unavailable - down)]


def _surged(
    owner: JsonObject, nodes: Sequence[DaemonNode], roll: Roll, now: float
) -> tuple[list[str], list[JsonObject]]:
    """A new pod comes first, and the old one goes when the new one is available.

    Beside a pod that serves nobody a new one comes whatever the limit. A pod on a node that would not get one any more
    goes when as many others serve as there should be.
    """
    at_once: list[str] = []
    wanted: list[str] = []
    done: list[JsonObject] = []
    leaving: list[JsonObject] = []
    doubled = serving = 0
    for node in nodes:
        new, old = _generations(node, roll)
        if len(new) > 1 or len(old) > 1:
            doubled += 1
            continue
        serves = any(_is_available(owner, pod, now) for pod in (old or new))
        serving += serves
        if not old or not node.is_there:
            continue
        if new:
            if _is_available(owner, new[0], now):
                done += old
            else:
                doubled += 1
        elif node.runs:
            (wanted if serves else at_once).append(node.name)
        else:
            (leaving if serves else done).append(old[0])
    spare = serving - sum(node.runs for node in nodes)
    return at_once + wanted[: max(0, roll.surge - doubled)], done + leaving[: max(0, spare)]


# -- status ------------------------------------------------------------------------------------------------------


def standing(owner: JsonObject, nodes: Sequence[DaemonNode], roll: Roll, now: float) -> Standing:
    """The status as it should be. The oldest pod of a node speaks for it, on its way out or not."""
    counts = dict.fromkeys(("desired", "current", "misscheduled", "ready", "updated", "available"), 0)
    waits: list[float] = []
    for node in nodes:
        pods = sorted(node.pods, key=_seniority)
        counts["desired"] += node.runs
        if pods and node.is_there and not node.runs:
            counts["misscheduled"] += 1
        if not pods or not node.runs:
            continue
        counts["current"] += 1
        wait = available_in(pods[0], owner["spec"].get("minReadySeconds") or 0, now)
        counts["ready"] += wait is not None
        counts["available"] += wait == 0
        counts["updated"] += _is_new(pods[0], roll)
        waits += [wait] if wait else []
    return Standing(_written(owner, counts), min(waits, default=None))


def _written(owner: JsonObject, counts: dict[str, int]) -> Patch | None:
    before = owner.get("status") or {}
    after: JsonObject = {
        "currentNumberScheduled": counts["current"],
        "numberMisscheduled": counts["misscheduled"],
        "desiredNumberScheduled": counts["desired"],
        "numberReady": counts["ready"],
        "observedGeneration": owner["metadata"].get("generation", 0),
        "updatedNumberScheduled": counts["updated"] or None,
        "numberAvailable": counts["available"] or None,
        "numberUnavailable": counts["desired"] - counts["available"] or None,
    }
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if not changed:
        return None
    why = f"{counts['current']} of {counts['desired']} nodes, {counts['available']} available"
    return change(DAEMON_SETS, owner, {"status": changed}, why, subresource="status")
