"""What a deployment needs next: its new ReplicaSet, the scales of the old ones, its history, its status. Pure.

`desired` returns actions; the loop is `deploymentcontroller`. Status fields and conditions are those that
`kubectl rollout status`, `history` and `undo` read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeqos.client.resources import DEPLOYMENTS, REPLICA_SETS
from kubeqos.codec import JsonObject, encode_json
from kubeqos.controllers.actions import Action, Create, Patch, Tell, change, deletion
from kubeqos.controllers.podstate import is_active, is_going, owner_reference
from kubeqos.controllers.workloads.replicas import wanted
from kubeqos.controllers.workloads.rollout import (
    DESIRED,
    MAXIMUM,
    Bounds,
    Scales,
    age,
    annotation,
    grown,
    name_of,
    recreate,
    roll,
    share,
)
from kubeqos.model.annotations.wellknown import REVISION_ANNOTATION as REVISION
from kubeqos.model.annotations.wellknown import TEMPLATE_HASH_LABEL as HASH

REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
"""The numbers that a ReplicaSet had before its template came back."""
_LONGEST_HISTORY = 2000  # characters
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# kubectl's own record of what was applied describes the deployment, not its ReplicaSets.
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, REVISION_HISTORY, DESIRED, MAXIMUM,
               "deprecated.deployment.rollback.to")  # fmt: skip


@dataclass(slots=True)
class Sets:
    """The ReplicaSets of a deployment: the one of its template, if it exists, and the rest, oldest first."""

    new: JsonObject | None = None
    olds: list[JsonObject] = field(default_factory=list)

    @property
    def all(self) -> list[JsonObject]:
        return ([self.new] if self.new else []) + self.olds


def sort_sets(deployment: JsonObject, replica_sets: Iterable[JsonObject]) -> Sets:
    """The oldest ReplicaSet with the deployment's template is the new one: a rollback finds its old self."""
    template, found = _plain(deployment["spec"].get("template") or {}), Sets()
    for each in sorted(replica_sets, key=age):
        if found.new is None and _plain(each["spec"].get("template") or {}) == template:
            found.new = each
        else:
            found.olds.append(each)
    return found


def _plain(template: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def template_hash(template: JsonObject, collisions: int) -> str:
    """Ten letters that name a template, the same in every process; collisions ask for another ten."""
    text = encode_json({"template": _sorted(template), "collisions": collisions})
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(10))


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


def desired(deployment: JsonObject, sets: Sets, pods: Iterable[JsonObject]) -> list[Action]:
    """The next steps of a deployment; nothing when it is where it wants to be.

    `pods` are those of its ReplicaSets: a deployment that recreates waits until the old ones have stopped.
    """
    if is_going(deployment):
        return []
    spec = deployment["spec"]
    if spec.get("paused") or _was_scaled(deployment, sets):
        return [*_scale(deployment, sets, share(deployment, sets.new, sets.olds)), *_history(deployment, sets)]
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        scales = recreate(deployment, sets.olds)
        if scales:
            return _scale(deployment, sets, scales)
        if _still_running(sets, pods):
            return []
    actions = _new_set(deployment, sets)
    if actions or sets.new is None:
        return actions  # what follows is decided on what these leave
    return [*_scale(deployment, sets, roll(deployment, sets.new, sets.olds)), *_history(deployment, sets)]


def _was_scaled(deployment: JsonObject, sets: Sets) -> bool:
    replicas = str(wanted(deployment))
    return any(wanted(each) and annotation(each, DESIRED) not in ("", replicas) for each in sets.all)


def _still_running(sets: Sets, pods: Iterable[JsonObject]) -> bool:
    """Old pods that have not finished, terminating ones included: they may still hold what the new ones need."""
    old = {each["metadata"]["uid"] for each in sets.olds}
    return any(
        (is_active(pod) or is_going(pod))
        and any(owner.get("uid") in old for owner in pod["metadata"].get("ownerReferences") or ())
        for pod in pods
    )


# -- the new ReplicaSet ----------------------------------------------------------------------------------------


def revision_of(obj: JsonObject) -> int:
    text = annotation(obj, REVISION)
    return int(text) if text.isdigit() else 0


def _new_set(deployment: JsonObject, sets: Sets) -> list[Action]:
    """Make the ReplicaSet of the template, or bring its annotations up to date."""
    revision = max((revision_of(old) for old in sets.olds), default=0) + 1
    if sets.new is None:
        body = _made(deployment, revision, grown(deployment, None, sets.olds))
        return [
            Create(REPLICA_SETS, body, f"the template changed: revision {revision}"),
            *_revision(deployment, str(revision)),
        ]
    revision = max(revision, revision_of(sets.new))
    actions: list[Action] = []
    patch: JsonObject = {}
    notes = {**_annotations(deployment, str(revision), sets.new), **_past(sets.new, revision)}
    if notes != (sets.new["metadata"].get("annotations") or {}):
        patch["metadata"] = {"annotations": notes}
    seconds = deployment["spec"].get("minReadySeconds") or None
    if (sets.new["spec"].get("minReadySeconds") or None) != seconds:
        patch["spec"] = {"minReadySeconds": seconds}
    if patch:
        actions.append(change(REPLICA_SETS, sets.new, patch, f"revision {revision}"))
    return actions + _revision(deployment, str(revision))


def _past(replica_set: JsonObject, revision: int) -> dict[str, str]:
    """The numbers that a ReplicaSet had, with the one that it has until it gets this one; the oldest are forgotten."""
    before, number = annotation(replica_set, REVISION_HISTORY), annotation(replica_set, REVISION)
    if not number or revision_of(replica_set) >= revision:
        return {}
    past = [*filter(None, before.split(",")), number]
    while len(",".join(past)) > _LONGEST_HISTORY:
        del past[0]
    return {REVISION_HISTORY: ",".join(past)}


def _annotations(deployment: JsonObject, revision: str, replica_set: JsonObject | None = None) -> dict[str, str]:
    own = (replica_set["metadata"].get("annotations") or {}) if replica_set else {}
    copied = deployment["metadata"].get("annotations") or {}
    return {**own, **{k: v for k, v in copied.items() if k not in _NOT_COPIED}, REVISION: revision}


def _made(deployment: JsonObject, revision: int, replicas: int) -> JsonObject:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec.get("template") or {}
    digest = template_hash(template, int((deployment.get("status") or {}).get("collisionCount") or 0))
    described = template.get("metadata") or {}
    labels = {**(described.get("labels") or {}), HASH: digest}
    selector = spec.get("selector") or {}
    selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: digest}}
    made: JsonObject = {
        "replicas": replicas,
        "selector": selector,
        "template": {**template, "metadata": {**described, "labels": labels}},
    }
    if spec.get("minReadySeconds"):
        made["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {**_annotations(deployment, str(revision)), **_sizes(deployment)},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": made,
    }


def _sizes(deployment: JsonObject) -> dict[str, str]:
    bounds = Bounds.of(deployment)
    return {DESIRED: str(bounds.replicas), MAXIMUM: str(bounds.replicas + bounds.surge)}


def _revision(deployment: JsonObject, revision: str) -> list[Action]:
    if annotation(deployment, REVISION) == revision:
        return []
    patch = {"metadata": {"annotations": {REVISION: revision}}}
    # By way of the status, which leaves the generation as it is: annotations are of it, and nobody changed a wish.
    return [change(DEPLOYMENTS, deployment, patch, f"revision {revision}", checked=False, subresource="status")]


# -- scales and history ----------------------------------------------------------------------------------------


def _scale(deployment: JsonObject, sets: Sets, scales: Scales) -> list[Action]:
    actions: list[Action] = []
    for each in sets.all:
        size = scales.get(name_of(each), wanted(each))
        notes = annotation(each, DESIRED), annotation(each, MAXIMUM)
        sizes = _sizes(deployment)
        if size == wanted(each) and (not size or notes == tuple(sizes.values())):
            continue
        patch: JsonObject = {"metadata": {"annotations": sizes}}
        because = f"replicas {wanted(each)} → {size} of {wanted(deployment)}"
        if size != wanted(each):
            patch["spec"] = {"replicas": size}
            verb = "up" if size > wanted(each) else "down"
            message = f"Scaled {verb} replica set {name_of(each)} from {wanted(each)} to {size}"
            actions.append(Tell(deployment, "ScalingReplicaSet", message))
        actions.insert(0, change(REPLICA_SETS, each, patch, because))
    return actions


def _history(deployment: JsonObject, sets: Sets) -> list[Action]:
    """Old ReplicaSets beyond the history limit go once the rollout is complete, the oldest revision first."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    if limit is None or not complete(deployment, deployment.get("status") or {}):
        return []
    idle = [
        old
        for old in sets.olds
        if not wanted(old) and not (old.get("status") or {}).get("replicas") and not is_going(old)
        and (old.get("status") or {}).get("observedGeneration", 0) >= old["metadata"].get("generation", 0)
    ]  # fmt: skip
    idle.sort(key=revision_of)
    because = f"more than {limit} old revisions"
    return [deletion(REPLICA_SETS, old, because) for old in idle[: max(0, len(sets.olds) - limit)]]


def complete(deployment: JsonObject, status: JsonObject) -> bool:
    """Whether every replica is of the new template and available, and nothing else is left."""
    replicas = wanted(deployment)
    counts = (status.get(name) or 0 for name in ("updatedReplicas", "replicas", "availableReplicas"))
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and all(count == replicas for count in counts)


def collided(deployment: JsonObject) -> Patch:
    """A ReplicaSet of our name with another template exists: ask for another name."""
    count = int((deployment.get("status") or {}).get("collisionCount") or 0) + 1
    patch = {"status": {"collisionCount": count}}
    why = "a ReplicaSet of another template has the name"
    return change(DEPLOYMENTS, deployment, patch, why, subresource="status")
