"""How many pods a ReplicaSet or ReplicationController should have, which to make, which to delete first. Pure.

The loop is `replicacontroller`. Ranking of deletions: Kubernetes' ActivePodsWithRanks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key, partial

from kubeqos.client import Resource
from kubeqos.client.resources import PODS, REPLICA_SETS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, Delete, Patch, change, deletion
from kubeqos.controllers.podstate import (
    available_in,
    is_active,
    is_going,
    is_ready,
    is_terminal,
    owner_reference,
    phase,
    ready_since,
    with_condition,
)
from kubeqos.model.names import SUBDOMAIN_MAX
from kubeqos.model.timestamps import seconds_of

BURST = 500  # pods made or deleted per look, as Kubernetes bounds it
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}
_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What to do about the number of pods."""

    create: Sequence[Create] = ()
    delete: Sequence[Delete] = ()
    because: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why pods could not be made or deleted: becomes the condition ReplicaFailure."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A status to write, if it differs, and when it may change by the passing of time alone."""

    write: Patch | None
    look_again: float | None = field(default=None)


def wanted(owner: JsonObject) -> int:
    found = (owner.get("spec") or {}).get("replicas")
    return 1 if found is None else int(found)


def desired(owner: JsonObject, pods: Iterable[JsonObject], related: Iterable[JsonObject], now: float) -> ReplicaPlan:
    """Bring the number of active pods to the number of replicas; finished and evicted pods do not count.

    `related` are the pods of the same application (of every ReplicaSet of a deployment): nodes that hold more of them
    are thinned out first. A ReplicaSet that nobody manages has none.
    """
    if is_going(owner):
        return ReplicaPlan(because="it is being deleted")
    active = [pod for pod in pods if is_active(pod)]
    replicas = wanted(owner)
    missing = replicas - len(active)
    because = f"{len(active)} of {replicas} replicas"
    if missing > 0:
        made = Create(PODS, pod_from_template(owner), because)
        return ReplicaPlan(create=[made] * min(missing, BURST), because=because)
    if missing < 0:
        order = deletion_order(active, related, now)
        return ReplicaPlan(
            delete=[deletion(PODS, pod, because) for pod in order[: min(-missing, BURST)]], because=because
        )
    return ReplicaPlan(because=because)


def pod_from_template(owner: JsonObject) -> JsonObject:
    """A new pod of a controller; the server completes its name."""
    metadata = owner["metadata"]
    template = owner["spec"].get("template") or {}
    prefix = f"{metadata['name']}-"
    described = template.get("metadata") or {}
    kept = {key: described[key] for key in ("labels", "annotations", "finalizers") if described.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix if len(prefix) <= SUBDOMAIN_MAX else metadata["name"],
            "namespace": metadata["namespace"],
            **kept,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": template.get("spec") or {},
    }


# -- which pods go first ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What of a pod decides when it goes."""

    pod: JsonObject
    first: tuple[bool, int, bool, int, int]
    ready_at: float  # 0 when it is not ready, or nobody said since when
    restarts: tuple[int, int]
    made_at: float
    uid: str


def deletion_order(pods: Iterable[JsonObject], related: Iterable[JsonObject], now: float) -> list[JsonObject]:
    """The pods, the one that is missed least first.

    They are compared in pairs: where two times differ and are of one magnitude, the uid decides and nothing that would
    come later is asked. No key of a single pod can say that.
    """
    crowd = Counter(node for pod in related if is_active(pod) and (node := _node(pod)))
    found = [_candidate(pod, crowd[_node(pod)]) for pod in pods]
    return [each.pod for each in sorted(found, key=cmp_to_key(partial(_compared, now)))]


def _candidate(pod: JsonObject, neighbours: int) -> _Candidate:
    metadata = pod["metadata"]
    first = (
        bool(_node(pod)),  # nobody runs it yet
        _PHASES.get(phase(pod), 0),
        is_ready(pod),
        _cost(pod),
        -neighbours,  # its node holds more of the same
    )
    made_at = seconds_of(metadata.get("creationTimestamp") or "") or 0.0
    return _Candidate(pod, first, ready_since(pod) or 0.0, _restarts(pod), made_at, metadata["uid"])


def _compared(now: float, a: _Candidate, b: _Candidate) -> int:
    """Below zero when `a` goes first."""
    if a.first != b.first:
        return -1 if a.first < b.first else 1
    if a.ready_at != b.ready_at:  # ready for a shorter time
        return _younger(now, a.ready_at, b.ready_at) or _by_uid(a, b)
    if a.restarts != b.restarts:  # restarted more often
        return -1 if a.restarts > b.restarts else 1
    return _younger(now, a.made_at, b.made_at) or _by_uid(a, b)


def _younger(now: float, a: float, b: float) -> int:
    """By order of magnitude, so that long-running pods go in no predictable order; an unknown time is the youngest."""
    if not (a and b):
        return bool(a) - bool(b)
    return _magnitude(now - a) - _magnitude(now - b)


def _by_uid(a: _Candidate, b: _Candidate) -> int:
    return (a.uid > b.uid) - (a.uid < b.uid)


def _node(pod: JsonObject) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _cost(pod: JsonObject) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _restarts(pod: JsonObject) -> tuple[int, int]:
    """The most of any container, then of any sidecar."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    beside = [one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars]
    return _most_restarts(status.get("containerStatuses") or ()), _most_restarts(beside)


def _most_restarts(statuses: Iterable[JsonObject]) -> int:
    return max((int(found.get("restartCount") or 0) for found in statuses), default=0)


def _magnitude(seconds: float) -> int:
    """The power of two of an age in nanoseconds, which is where Kubernetes draws the lines."""
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1


# -- status ----------------------------------------------------------------------------------------------------


def standing(
    owner: JsonObject, resource: Resource, pods: Iterable[JsonObject], failure: Failure | None, now: float
) -> Standing:
    """The status as it should be; `pods` are those that it manages and selects."""
    spec, before = owner.get("spec") or {}, owner.get("status") or {}
    labels = (((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}).items()
    pods = list(pods)
    active = [pod for pod in pods if is_active(pod)]
    waits = [available_in(pod, spec.get("minReadySeconds") or 0, now) for pod in active]
    counts = {
        "fullyLabeledReplicas": sum(labels <= (pod["metadata"].get("labels") or {}).items() for pod in active),
        "readyReplicas": sum(wait is not None for wait in waits),
        "availableReplicas": sum(wait == 0 for wait in waits),
    }
    after: JsonObject = {"replicas": len(active), "observedGeneration": owner["metadata"].get("generation", 0)}
    after |= {name: counts[name] or None for name in _COUNTS}
    if resource is REPLICA_SETS:  # ReplicationControllers have no such field
        after["terminatingReplicas"] = sum(is_going(pod) and not is_terminal(pod) for pod in pods)
    after["conditions"] = _conditions(before.get("conditions") or [], failure, now) or None
    look_again = min((wait for wait in waits if wait), default=None)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if not changed:
        return Standing(None, look_again)
    why = f"{len(active)} pods, {counts['readyReplicas']} ready, {counts['availableReplicas']} available"
    return Standing(change(resource, owner, {"status": changed}, why, subresource="status"), look_again)


def _conditions(before: list[JsonObject], failure: Failure | None, now: float) -> list[JsonObject]:
    if failure is None:
        return [found for found in before if found.get("type") != "ReplicaFailure"]
    if any(found.get("type") == "ReplicaFailure" for found in before):
        # It tells of the first failure until one look goes well. The message names the pod that was refused, another
        # one each time: writing it would wake us up again.
        return before
    return with_condition(before, "ReplicaFailure", "True", failure.reason, failure.message, now)
