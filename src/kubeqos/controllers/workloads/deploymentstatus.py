"""The status of a deployment: counts, and the conditions Available, Progressing and ReplicaFailure. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.client.resources import DEPLOYMENTS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Patch, change
from kubeqos.controllers.podstate import condition, is_going, with_condition
from kubeqos.controllers.workloads.deployments import REVISION_HISTORY, Sets, complete
from kubeqos.controllers.workloads.replicas import wanted
from kubeqos.controllers.workloads.rollout import Bounds, annotation, name_of
from kubeqos.model.timestamps import seconds_of, timestamp

_NO_DEADLINE = 2**31 - 1
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


@dataclass(frozen=True, slots=True)
class Status:
    """A status to write, if it differs, and when the deadline of the rollout is to be looked at."""

    write: Patch | None
    look_again: float | None = None


def status(deployment: JsonObject, sets: Sets, now: float) -> Status:
    """The status as it should be."""
    before = deployment.get("status") or {}
    after: JsonObject = {"observedGeneration": deployment["metadata"].get("generation", 0), **_counts(sets)}
    conditions = _available(deployment, before.get("conditions") or [], after, now)
    conditions = _failing(conditions, sets, now)
    conditions = _progressing(deployment, conditions, sets, before, after, now)
    after["conditions"] = conditions
    look_again = _deadline_in(deployment, conditions, now)
    changed = {name: value or None for name, value in after.items() if (before.get(name) or None) != (value or None)}
    if before.get("terminatingReplicas") != (terminating := _terminating(sets)):
        changed["terminatingReplicas"] = terminating  # here 0 says something else than nothing
    if not changed:
        return Status(None, look_again)
    why = ", ".join(f"{after[name]} {name}" for name in _COUNTS)
    return Status(change(DEPLOYMENTS, deployment, {"status": changed}, why, subresource="status"), look_again)


def _counts(sets: Sets) -> dict[str, int]:
    def total(name: str) -> int:
        return sum(int((each.get("status") or {}).get(name) or 0) for each in sets.all)

    updated = int(((sets.new or {}).get("status") or {}).get("replicas") or 0)
    asked = sum(map(wanted, sets.all))
    ready, available = total("readyReplicas"), total("availableReplicas")
    unavailable = max(0, asked - available)
    return dict(zip(_COUNTS, (total("replicas"), updated, ready, available, unavailable), strict=True))


def _terminating(sets: Sets) -> int | None:
    """Pods on their way out; nobody knows while a ReplicaSet that was looked at does not say."""
    found = [each.get("status") or {} for each in sets.all if (each.get("status") or {}).get("observedGeneration")]
    counts = [int(status["terminatingReplicas"]) for status in found if "terminatingReplicas" in status]
    return sum(counts) if len(counts) == len(found) else None


def _set(
    conditions: list[JsonObject], type: str, status: str, reason: str, message: str, now: float
) -> list[JsonObject]:
    known = next((found for found in conditions if found["type"] == type), {})
    same = (known.get("status"), known.get("reason"), known.get("message")) == (status, reason, message)
    updated = known.get("lastUpdateTime") if same else timestamp(now)
    return with_condition(conditions, type, status, reason, message, now, stamps={"lastUpdateTime": updated or ""})


def _available(deployment: JsonObject, conditions: list[JsonObject], after: JsonObject, now: float) -> list[JsonObject]:
    if after["availableReplicas"] >= Bounds.of(deployment).minimum_available:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
        return _set(conditions, "Available", "True", reason, message, now)
    reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    return _set(conditions, "Available", "False", reason, message, now)


def _failing(conditions: list[JsonObject], sets: Sets, now: float) -> list[JsonObject]:
    """A ReplicaSet that cannot make its pods speaks for the deployment; the new one first."""
    for each in sets.all:
        found = condition(each, "ReplicaFailure")
        if found is not None:
            reason, message = found.get("reason", ""), found.get("message", "")
            return _set(conditions, "ReplicaFailure", found["status"], reason, message, now)
    return [found for found in conditions if found["type"] != "ReplicaFailure"]


def _progressing(
    deployment: JsonObject,
    conditions: list[JsonObject],
    sets: Sets,
    before: JsonObject,
    after: JsonObject,
    now: float,
) -> list[JsonObject]:
    spec = deployment["spec"]
    known = next((found for found in conditions if found["type"] == "Progressing"), None)
    if (spec.get("progressDeadlineSeconds") or _NO_DEADLINE) == _NO_DEADLINE:
        return [found for found in conditions if found["type"] != "Progressing"]
    reason = (known or {}).get("reason")
    if spec.get("paused"):
        return _set(conditions, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now)
    if is_going(deployment):
        return conditions
    if reason == "NewReplicaSetAvailable" and sets.new and _is_made(sets.new, known or {}):
        message = f'Created new replica set "{name_of(sets.new)}"'
        return _set(conditions, "Progressing", "True", "NewReplicaSetCreated", message, now)
    if reason == "NewReplicaSetAvailable" and after["updatedReplicas"] == after["replicas"]:
        return conditions
    subject = f'ReplicaSet "{name_of(sets.new)}"' if sets.new else f'Deployment "{name_of(deployment)}"'
    if complete(deployment, after):
        message = f"{subject} has successfully progressed."
        return _set(conditions, "Progressing", "True", "NewReplicaSetAvailable", message, now)
    if reason == "DeploymentPaused":
        return _set(conditions, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now)
    if known is None or _moved(before, after):
        others = [found for found in conditions if found["type"] != "Progressing"]
        since = known if known is not None and known["status"] == "True" else None
        return _set([*others, *([{**since, "reason": ""}] if since else [])], "Progressing", "True",
                    "ReplicaSetUpdated", f"{subject} is progressing.", now)  # fmt: skip
    if _deadline_in(deployment, conditions, now) == 0:
        message = f"{subject} has timed out progressing."
        return _set(conditions, "Progressing", "False", "ProgressDeadlineExceeded", message, now)
    return conditions


def _is_made(replica_set: JsonObject, known: JsonObject) -> bool:
    """Whether a ReplicaSet is another than the one that was reported, and was made: one that was found has a past."""
    return name_of(replica_set) not in known.get("message", "") and not annotation(replica_set, REVISION_HISTORY)


def _moved(before: JsonObject, after: JsonObject) -> bool:
    """More new replicas, fewer old ones, more ready or more available ones."""
    old = (before.get("replicas") or 0) - (before.get("updatedReplicas") or 0)
    more = any(
        after[name] > (before.get(name) or 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return more or after["replicas"] - after["updatedReplicas"] < old


def _deadline_in(deployment: JsonObject, conditions: list[JsonObject], now: float) -> float | None:
    """Seconds until a rollout that does not move is called failed; None when it has nothing to wait for."""
    known = next((found for found in conditions if found["type"] == "Progressing"), None)
    seconds = deployment["spec"].get("progressDeadlineSeconds") or _NO_DEADLINE
    if known is None or seconds == _NO_DEADLINE or known["reason"] in (
        "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused",
    ):  # fmt: skip
        return None
    since = seconds_of(known.get("lastUpdateTime") or "") or now
    return max(0.0, since + seconds - now)
