"""Pods with names and volumes of their own, one after the other: what a StatefulSet needs next. Pure.

Pods are made from the lowest ordinal up and ended from the highest down; with `OrderedReady` each waits for the one
before it. A new template replaces pods from the highest ordinal down to the partition, one at a time. Volume claims
outlive pods unless the retention policy says otherwise. The loop is `statefulcontroller`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Patch, change, deletion
from kubeqos.controllers.podstate import available_in, is_active, is_going, is_terminal, owner_reference, phase
from kubeqos.controllers.workloads.replicas import Standing, pod_from_template, wanted
from kubeqos.controllers.workloads.revisions import REVISION_HASH, History, template_of
from kubeqos.controllers.workloads.rollout import scaled

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(slots=True)
class Members:
    """The pods of a set: those within its replicas by ordinal, and those beyond, the highest first."""

    start: int
    replicas: int
    pods: dict[int, JsonObject] = field(default_factory=dict)
    condemned: list[tuple[int, JsonObject]] = field(default_factory=list)

    @property
    def ordinals(self) -> range:
        return range(self.start, self.start + self.replicas)

    @property
    def all(self) -> list[JsonObject]:
        return [*self.pods.values(), *(pod for _, pod in self.condemned)]


def members(owner: JsonObject, pods: Iterable[JsonObject]) -> Members:
    """Sort the pods of a set; a pod whose name has no ordinal is nobody's business."""
    numbers = _ordinals(owner)
    found = Members(numbers.start, len(numbers))
    for pod in pods:
        ordinal = ordinal_of(owner, pod["metadata"]["name"])
        if ordinal is None:
            continue
        if ordinal in found.ordinals:
            found.pods[ordinal] = pod
        else:
            found.condemned.append((ordinal, pod))
    found.condemned.sort(key=lambda one: -one[0])
    return found


def _ordinals(owner: JsonObject) -> range:
    start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    return range(start, start + wanted(owner))


def ordinal_of(owner: JsonObject, name: str) -> int | None:
    match = re.fullmatch(rf"{re.escape(owner['metadata']['name'])}-(0|[1-9]\d*)", name)
    return int(match[1]) if match else None


def is_member(owner: JsonObject, pod: JsonObject) -> bool:
    """Whether a pod has a name of the set: others stay nobody's, whatever their labels."""
    return ordinal_of(owner, pod["metadata"]["name"]) is not None


# -- the pods and claims of an ordinal -----------------------------------------------------------------------------


def pod_of(owner: JsonObject, ordinal: int, history: History) -> JsonObject:
    """The pod of an ordinal, of the revision that is its turn."""
    revision = _revision_for(owner, ordinal, history)
    template = template_of(revision)
    metadata = owner["metadata"]
    name = f"{metadata['name']}-{ordinal}"
    pod = pod_from_template({**owner, "spec": {**owner["spec"], "template": template}})
    labels = dict(pod["metadata"].get("labels") or {})
    labels |= {POD_NAME: name, POD_INDEX: str(ordinal), REVISION_HASH: revision["metadata"]["name"]}
    spec = {**pod["spec"], "hostname": name, "volumes": _volumes(owner, ordinal, pod["spec"])}
    spec.pop("subdomain", None)  # the service's name is its domain, and nothing else is
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    if not spec["volumes"]:
        del spec["volumes"]
    return {**pod, "metadata": {**pod["metadata"], "name": name, "labels": labels}, "spec": spec}


def _revision_for(owner: JsonObject, ordinal: int, history: History) -> JsonObject:
    update = history.update
    assert update is not None, "asked before the revision was stored"
    status, strategy = owner.get("status") or {}, owner["spec"].get("updateStrategy") or {}
    current = history.named(str(status.get("currentRevision") or ""))
    if current is None or strategy.get("type") == "OnDelete":
        return update
    start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    partition = (strategy.get("rollingUpdate") or {}).get("partition")
    kept = int(status.get("currentReplicas") or 0) if partition is None else int(partition)
    return current if ordinal < start + kept else update


def _claim_names(owner: JsonObject, ordinal: int) -> dict[str, str]:
    """Template name → name of the ordinal's claim."""
    set_name = owner["metadata"]["name"]
    names = [each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates") or ()]
    return {name: f"{name}-{set_name}-{ordinal}" for name in names}


def _volumes(owner: JsonObject, ordinal: int, spec: JsonObject) -> list[JsonObject]:
    claims = _claim_names(owner, ordinal)
    own = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": False}}
        for name, claim in claims.items()
    ]
    return own + [each for each in spec.get("volumes") or () if each["name"] not in claims]


def claims_of(owner: JsonObject, ordinal: int, known: Mapping[str, JsonObject]) -> list[Create]:
    """The claims of an ordinal that do not exist yet."""
    made = []
    namespace = owner["metadata"]["namespace"]
    selector = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    names = _claim_names(owner, ordinal)
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        described = template.get("metadata") or {}
        name = names[described["name"]]
        if name in known:
            continue
        metadata: JsonObject = {"name": name, "namespace": namespace}
        metadata["labels"] = {**(described.get("labels") or {}), **selector}
        if described.get("annotations"):
            metadata["annotations"] = described["annotations"]
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        made.append(Create(PERSISTENT_VOLUME_CLAIMS, body, f"pod {owner['metadata']['name']}-{ordinal} keeps its data"))
    return made


def retention(owner: JsonObject, ordinal: int, pod: JsonObject, known: Mapping[str, JsonObject]) -> list[Patch]:
    """Claims that should go with the set or with their pod name it as their controller; others do not.

    A claim that names a namesake which is gone is left to the garbage collector, and one that somebody else controls
    to that one.
    """
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    with_set, with_pod = policy.get("whenDeleted") == "Delete", policy.get("whenScaled") == "Delete"
    us = [owner_reference(owner), owner_reference(pod)]
    keeper = None
    if with_pod and ordinal not in _ordinals(owner):
        keeper = us[1]
    elif with_set:
        keeper = us[0]
    written = []
    for name in _claim_names(owner, ordinal).values():
        if name in known:
            written += _owned_by(known[name], keeper, us, yields=with_set or with_pod)
    return written


def _owned_by(claim: JsonObject, keeper: JsonObject | None, us: list[JsonObject], *, yields: bool) -> list[Patch]:
    before = claim["metadata"].get("ownerReferences") or []
    ours = [each for each in before if any(_names(each, one) for one in us)]
    others = [each for each in before if each not in ours]
    uids = {one["uid"] for one in us}
    if any(each.get("uid") not in uids for each in ours):
        return []
    if yields and any(each.get("controller") for each in others):
        keeper = None
    wanted = [keeper] if keeper else []
    if [each["uid"] for each in wanted] == [each["uid"] for each in ours if each.get("controller")] and (
        len(ours) == len(wanted)
    ):
        return []
    patch = {"metadata": {"ownerReferences": others + wanted}}
    return [change(PERSISTENT_VOLUME_CLAIMS, claim, patch, "the set's retention policy")]


def _names(reference: JsonObject, owner: JsonObject) -> bool:
    """Whether a reference names this owner, or one that had its name."""
    return all(reference.get(key) == owner[key] for key in ("apiVersion", "kind", "name"))


def _must_wait(owner: JsonObject, ordinal: int, known: Mapping[str, JsonObject]) -> bool:
    """Whether a claim of an ordinal is on its way out, or goes with a pod that is gone: a new one is made then."""
    with_pod = (owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get("whenScaled") == "Delete"
    pod = {"apiVersion": "v1", "kind": "Pod", "name": f"{owner['metadata']['name']}-{ordinal}"}
    for name in _claim_names(owner, ordinal).values():
        claim = known.get(name)
        if claim is None:
            continue
        references = claim["metadata"].get("ownerReferences") or ()
        if is_going(claim) or (with_pod and any(_names(each, pod) for each in references)):
            return True
    return False


def sets_of_claim(owners: Iterable[JsonObject], claim: str) -> list[JsonObject]:
    """Whose claim this is, by its name."""
    stem = claim.rpartition("-")[0]
    return [owner for owner in owners
            if any(f"{each['metadata']['name']}-{owner['metadata']['name']}" == stem
                   for each in owner["spec"].get("volumeClaimTemplates") or ())]  # fmt: skip


# -- what comes next -----------------------------------------------------------------------------------------------


def desired(
    owner: JsonObject, found: Members, history: History, claims: Mapping[str, JsonObject], now: float
) -> list[Action]:
    """The next steps; with `OrderedReady` seldom more than one."""
    if is_going(owner):
        return []
    ordered = _is_ordered(owner)
    actions: list[Action] = []
    for ordinal in found.ordinals:
        steps, ready = _tended(owner, ordinal, found, history, claims, now)
        actions += steps
        if ordered and not ready:
            return actions
    for ordinal, pod in found.condemned:
        actions += retention(owner, ordinal, pod, claims)
    actions, waits = _shrunk(owner, found, actions, ordered, now)
    return actions if waits and ordered else actions + _rolled(owner, found, history, now)


def _tended(
    owner: JsonObject,
    ordinal: int,
    found: Members,
    history: History,
    claims: Mapping[str, JsonObject],
    now: float,
) -> tuple[list[Action], bool]:
    """What one ordinal needs, and whether the next may be looked at."""
    pod = found.pods.get(ordinal)
    if pod is None:
        if _must_wait(owner, ordinal, claims):
            return [], False
        why = f"ordinal {ordinal} has no pod"
        return [*claims_of(owner, ordinal, claims), Create(PODS, pod_of(owner, ordinal, history), why)], False
    if is_terminal(pod):
        why = f"it is {phase(pod)}: another takes its name"
        return ([] if is_going(pod) else [deletion(PODS, pod, why)]), False
    pending, ready = phase(pod) == "Pending", _is_available(owner, pod, now)
    steps: list[Action] = list(claims_of(owner, ordinal, claims)) if pending else []
    if ready or pending or not _is_ordered(owner):
        steps += retention(owner, ordinal, pod, claims)
    if ready or not _is_ordered(owner):
        steps += _identified(pod, ordinal)
    return steps, ready


def _identified(pod: JsonObject, ordinal: int) -> list[Patch]:
    """The labels by which others find a pod of the set, where somebody took them away."""
    name = pod["metadata"]["name"]
    if (pod["metadata"].get("labels") or {}).get(POD_NAME) == name:
        return []
    return [change(PODS, pod, {"metadata": {"labels": {POD_NAME: name, POD_INDEX: str(ordinal)}}}, "it lost its name")]


def _is_ordered(owner: JsonObject) -> bool:
    return bool(owner["spec"].get("podManagementPolicy") != "Parallel")


def _shrunk(
    owner: JsonObject, found: Members, actions: list[Action], ordered: bool, now: float
) -> tuple[list[Action], bool]:
    """End what is beyond the replicas, the highest ordinal first; whether others have to wait for that."""
    # Who is not beyond the replicas is well by now, or nobody waits for anybody.
    sick = [pod for _, pod in reversed(found.condemned) if not _is_available(owner, pod, now)]
    first_sick = sick[0] if sick else None
    for _, pod in found.condemned:
        if is_going(pod):
            if ordered:
                return actions, True
            continue
        if ordered and not _is_available(owner, pod, now) and pod is not first_sick:
            return actions, True
        actions.append(deletion(PODS, pod, f"more than {found.replicas} replicas"))
        if ordered:
            return actions, True
    return actions, bool(found.condemned)


def _rolled(owner: JsonObject, found: Members, history: History, now: float) -> list[Action]:
    """Replace pods of an old template, the highest ordinal first, `maxUnavailable` (one) at a time.

    Where nobody waits for anybody, pods that serve nobody go first and cost nothing.
    """
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    rolling = strategy.get("rollingUpdate") or {}
    lowest = found.start + int(rolling.get("partition") or 0)
    allowed = max(1, scaled(rolling.get("maxUnavailable") or 1, found.replicas, up=False))
    serving = sum(_is_available(owner, pod, now) for pod in found.pods.values())
    old = [pod for ordinal, pod in sorted(found.pods.items(), reverse=True)
           if ordinal >= lowest and revision_name(pod) != history.update_name and is_active(pod)]  # fmt: skip
    gone: list[JsonObject] = []
    if not _is_ordered(owner):
        gone = [pod for pod in old if not _is_available(owner, pod, now)]
        old = [pod for pod in old if pod not in gone]
    gone += old[: max(0, allowed - (found.replicas - serving))]
    return [deletion(PODS, pod, f"it follows {revision_name(pod)}, not {history.update_name}") for pod in gone]


def revision_name(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


def _is_available(owner: JsonObject, pod: JsonObject, now: float) -> bool:
    running = phase(pod) == "Running" and not is_going(pod)
    return running and available_in(pod, owner["spec"].get("minReadySeconds") or 0, now) == 0


# -- status --------------------------------------------------------------------------------------------------------


def standing(owner: JsonObject, found: Members, history: History, now: float) -> Standing:
    """The status as it should be; a roll-out that is complete makes its revision the current one."""
    before = owner.get("status") or {}
    pods = [pod for pod in found.all if phase(pod)]
    running = [pod for pod in pods if phase(pod) == "Running"]
    waits = [available_in(pod, owner["spec"].get("minReadySeconds") or 0, now) for pod in running]
    update = history.update_name
    current = str(before.get("currentRevision") or update)
    if history.named(current) is None:
        current = update
    counts = {
        "replicas": len(pods),
        "readyReplicas": sum(wait is not None for wait in waits),
        "currentReplicas": _following(pods, current),
        "updatedReplicas": _following(pods, update),
        "availableReplicas": sum(wait == 0 for wait in waits),
    }
    done = counts["updatedReplicas"] == counts["replicas"] == counts["readyReplicas"] == found.replicas
    if done and current != update:
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    after: JsonObject = {
        "observedGeneration": owner["metadata"].get("generation", 0),
        "replicas": counts["replicas"],
        "availableReplicas": counts["availableReplicas"],
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": int(before.get("collisionCount") or 0),
    }
    after |= {name: counts[name] or None for name in ("readyReplicas", "currentReplicas", "updatedReplicas")}
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    look_again = min((wait for wait in waits if wait), default=None)
    if not changed:
        return Standing(None, look_again)
    why = f"{counts['replicas']} pods, {counts['readyReplicas']} ready, {counts['updatedReplicas']} of {update}"
    return Standing(change(STATEFUL_SETS, owner, {"status": changed}, why, subresource="status"), look_again)


def _following(pods: Sequence[JsonObject], revision: str) -> int:
    return sum(revision_name(pod) == revision and not is_going(pod) for pod in pods)
