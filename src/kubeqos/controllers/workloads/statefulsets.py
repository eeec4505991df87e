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
from kubeqos.controllers.podstate import available_in, is_going, is_terminal, owner_reference, phase
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
    start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    found = Members(start, wanted(owner))
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


def ordinal_of(owner: JsonObject, name: str) -> int | None:
    match = re.fullmatch(rf"{re.escape(owner['metadata']['name'])}-(0|[1-9]\d*)", name)
    return int(match[1]) if match else None


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
    described = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    spec = {**pod["spec"], "hostname": name, "volumes": _volumes(owner, ordinal, pod["spec"])}
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    if not spec["volumes"]:
        del spec["volumes"]
    return {**pod, "metadata": {**described, "name": name, "labels": labels}, "spec": spec}


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


def retention(owner: JsonObject, found: Members, known: Mapping[str, JsonObject]) -> list[Patch]:
    """Claims that should go with the set or with their pod name it as an owner; others do not."""
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    with_set, with_pod = policy.get("whenDeleted") == "Delete", policy.get("whenScaled") == "Delete"
    condemned = dict(found.condemned)
    written = []
    for ordinal, pod in (*found.pods.items(), *found.condemned):
        for name in _claim_names(owner, ordinal).values():
            claim = known.get(name)
            if claim is None:
                continue
            owners = []
            if with_pod and ordinal in condemned:
                owners = [_plain_reference(pod)]
            elif with_set:
                owners = [_plain_reference(owner)]
            written += _owned_by(claim, owners, {owner["metadata"]["uid"], pod["metadata"]["uid"]})
    return written


def _plain_reference(owner: JsonObject) -> JsonObject:
    reference = owner_reference(owner)
    return {key: reference[key] for key in ("apiVersion", "kind", "name", "uid")}


def _owned_by(claim: JsonObject, owners: list[JsonObject], ours: set[str]) -> list[Patch]:
    before = claim["metadata"].get("ownerReferences") or []
    after = [each for each in before if each.get("uid") not in ours] + owners
    if {each.get("uid") for each in before} == {each.get("uid") for each in after}:
        return []
    patch = {"metadata": {"ownerReferences": after}}
    return [change(PERSISTENT_VOLUME_CLAIMS, claim, patch, "the set's retention policy")]


# -- what comes next -----------------------------------------------------------------------------------------------


def desired(
    owner: JsonObject, found: Members, history: History, claims: Mapping[str, JsonObject], now: float
) -> list[Action]:
    """The next steps; with `OrderedReady` seldom more than one."""
    if is_going(owner):
        return []
    ordered = owner["spec"].get("podManagementPolicy") != "Parallel"
    actions: list[Action] = list(retention(owner, found, claims))
    for ordinal in found.ordinals:
        steps, ready = _tended(owner, ordinal, found, history, claims, now)
        actions += steps
        if ordered and not ready:
            return actions
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
        why = f"ordinal {ordinal} has no pod"
        return [*claims_of(owner, ordinal, claims), Create(PODS, pod_of(owner, ordinal, history), why)], False
    if is_going(pod):
        return [], False
    if is_terminal(pod):
        return [deletion(PODS, pod, f"it is {phase(pod)}: another takes its name")], False
    return list(claims_of(owner, ordinal, claims)), _is_available(owner, pod, now)


def _shrunk(
    owner: JsonObject, found: Members, actions: list[Action], ordered: bool, now: float
) -> tuple[list[Action], bool]:
    """End what is beyond the replicas, the highest ordinal first; whether others have to wait for that."""
    sick = [pod for pod in found.all if not _is_available(owner, pod, now) and not is_going(pod)]
    first_sick = min(sick, key=lambda pod: _ordinal(owner, pod), default=None)
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


def _ordinal(owner: JsonObject, pod: JsonObject) -> int:
    return ordinal_of(owner, pod["metadata"]["name"]) or 0


def _rolled(owner: JsonObject, found: Members, history: History, now: float) -> list[Action]:
    """Replace pods of an old template, the highest ordinal first, `maxUnavailable` (one) at a time."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    rolling = strategy.get("rollingUpdate") or {}
    lowest = found.start + int(rolling.get("partition") or 0)
    allowed = max(1, scaled(rolling.get("maxUnavailable") or 1, found.replicas, up=True))
    down = sum(not _is_available(owner, pod, now) for pod in found.pods.values())
    actions: list[Action] = []
    for ordinal in reversed(found.ordinals):
        pod = found.pods.get(ordinal)
        if ordinal < lowest or pod is None:
            continue
        if revision_name(pod) == history.update_name or is_going(pod):
            continue
        available = _is_available(owner, pod, now)
        if available and down >= allowed:
            break  # what is down already may be what has just been replaced: it comes up first
        actions.append(deletion(PODS, pod, f"it follows {revision_name(pod)}, not {history.update_name}"))
        down += available
    return actions


def revision_name(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


def _is_available(owner: JsonObject, pod: JsonObject, now: float) -> bool:
    running = phase(pod) == "Running" and not is_going(pod)
    return running and available_in(pod, owner["spec"].get("minReadySeconds") or 0, now) == 0


# -- status --------------------------------------------------------------------------------------------------------


def standing(owner: JsonObject, found: Members, history: History, now: float) -> Standing:
    """The status as it should be; a roll-out that is complete makes its revision the current one."""
    before = owner.get("status") or {}
    pods = [pod for pod in found.all if phase(pod) in ("Pending", "Running") or is_going(pod)]
    waits = [available_in(pod, owner["spec"].get("minReadySeconds") or 0, now) for pod in pods]
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
    rolls = (owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete"
    done = counts["updatedReplicas"] == counts["replicas"] == counts["readyReplicas"] == found.replicas
    if rolls and done and current != update:
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    after: JsonObject = {
        "observedGeneration": owner["metadata"].get("generation", 0),
        "replicas": counts["replicas"],
        "availableReplicas": counts["availableReplicas"],
        "currentRevision": current,
        "updateRevision": update,
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
