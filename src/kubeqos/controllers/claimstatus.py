"""What a ResourceClaim says about its use (KEP-3675): for which pods it is reserved, and where it is allocated.

A claim is reserved for a pod from the moment the pod has a node. It is allocated once the node has started one of the
pod's containers: only then has the node's compute driver given out the cores. Both end with the pod. As long as it is
reserved a finalizer keeps it, as for DRA's claims: whoever deletes it waits for the pods that use it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kubeqos.client import Change
from kubeqos.client.resources import PODS, RESOURCE_CLAIMS, RESOURCE_CLASSES
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.actions import Action, change
from kubeqos.controllers.claims import claim_name
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.podstate import controller_of, is_going, is_terminal

PROTECTION = "resource.kubernetes.io/delete-protection"
"""The finalizer of DRA's claims."""
_STATUSES = ("initContainerStatuses", "containerStatuses")


def claims_used(pod: JsonObject) -> list[str]:
    """Names of the claims that a pod uses, its own ones from templates included."""
    found = []
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        source = claim.get("source") or claim
        if source.get("resourceClaimName"):
            found.append(str(source["resourceClaimName"]))
        elif source.get("resourceClaimTemplateName"):
            found.append(claim_name(pod["metadata"]["name"], claim.get("name", "")))
    return found


def has_started(pod: JsonObject) -> bool:
    """Whether the node has started anything of a pod."""
    status = pod.get("status") or {}
    states = (found.get("state") or {} for field in _STATUSES for found in status.get(field) or ())
    return status.get("phase") == "Running" or any("running" in one or "terminated" in one for one in states)


def desired(claim: JsonObject, pods: Sequence[JsonObject], driver: str) -> list[Action]:
    """What a claim's status needs, given the pods that name it and the driver of its class."""
    owner = controller_of(claim)
    users = [
        pod
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        if (pod.get("spec") or {}).get("nodeName")
        and not is_terminal(pod)
        and (owner is None or owner.get("kind") != "Pod" or owner.get("uid") == pod["metadata"]["uid"])
    ]
    nodes = sorted({pod["spec"]["nodeName"] for pod in users if has_started(pod)})
    wanted: JsonObject = {"reservedFor": [_consumer(pod) for pod in users] or None, "driverName": None}
    wanted["allocation"] = (
        {"availableOnNodes": {"nodeSelectorTerms": [_term(node) for node in nodes]}} if nodes else None
    )
    if nodes and driver:
        wanted["driverName"] = driver
    protected = _protection(claim, needed=bool(users))
    known = claim.get("status") or {}
    # Whatever else a driver wrote about its allocation is its own.
    if nodes and (known.get("allocation") or {}).get("availableOnNodes") == wanted["allocation"]["availableOnNodes"]:
        wanted["allocation"] = known["allocation"]
    if all(known.get(field) == value for field, value in wanted.items()):
        return protected
    if protected:  # first of all: what is reserved must not go, and what goes need not say that it is free
        return protected
    why = f"in use by {', '.join(pod['metadata']['name'] for pod in users)}" if users else "no longer in use"
    return [change(RESOURCE_CLAIMS, claim, {"status": wanted}, why, subresource="status")]


def _protection(claim: JsonObject, *, needed: bool) -> list[Action]:
    """Keep a claim that pods use from being deleted under them, and let one go that nobody uses."""
    finalizers = claim["metadata"].get("finalizers") or []
    if needed == (PROTECTION in finalizers) or (needed and is_going(claim)):
        return []
    kept = [*finalizers, PROTECTION] if needed else [one for one in finalizers if one != PROTECTION]
    why = "pods use it" if needed else "no pod uses it"
    return [change(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": kept}}, why)]


def _consumer(pod: JsonObject) -> JsonObject:
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def _term(node: str) -> JsonObject:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


class ClaimStatusController(Controller):
    """Says of every claim who uses it."""

    name = "resourceclaimstatus"

    def watch(self) -> None:
        self._users: defaultdict[str, set[str]] = defaultdict(set)  # claim → pods that name it
        self.classes = self.follow(RESOURCE_CLASSES, lambda seen: ())
        self.claims = self.follow(RESOURCE_CLAIMS, itself)
        self.pods = self.follow(PODS, self._pod_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        concerned: set[str] = set()
        namespace = split(seen.key)[0]
        for raw, there in ((seen.old, False), (seen.new, True)):
            if raw is None or b'"resourceClaims"' not in raw:
                continue
            for name in claims_used(decode_json(raw)):
                claim = f"{namespace}/{name}"
                concerned.add(claim)
                (self._users[claim].add if there else self._users[claim].discard)(seen.key)
        for claim in concerned:
            if not self._users[claim]:
                del self._users[claim]
        return concerned

    async def reconcile(self, key: str) -> float | None:
        claim = self.claims.get(key)
        if claim is None:
            return None
        users = [pod for name in self._users.get(key, ()) if (pod := self.pods.get(name)) is not None]
        known = self.classes.get((claim.get("spec") or {}).get("resourceClassName", "")) or {}
        await self.context.perform(desired(claim, users, known.get("driverName", "")))
        return None
