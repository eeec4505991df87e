"""Claims of generic ephemeral volumes: a pod with such a volume gets a claim of its own, which goes with it.

Kubernetes' ephemeral volume controller, with its names, owner references and words. `missing_claims` decides (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeqos.client import ApiError, Change
from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Tell
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, split
from kubeqos.controllers.podstate import controller_of, is_going, owner_reference
from kubeqos.rules.storage import ephemeral_claim


def templates_of(pod: JsonObject) -> dict[str, JsonObject]:
    """The claims that a pod's volumes describe, by the volume's name."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {one["name"]: one["ephemeral"].get("volumeClaimTemplate") or {} for one in volumes if one.get("ephemeral")}


def missing_claims(pod: JsonObject, claims: Mapping[str, JsonObject | None]) -> list[Action]:
    """What a pod's ephemeral volumes need, given the claims of their names."""
    if is_going(pod):
        return []
    actions: list[Action] = []
    meta = pod["metadata"]
    for volume, template in templates_of(pod).items():
        name = ephemeral_claim(meta["name"], volume)
        existing = claims.get(name)
        if existing is None:
            actions.append(Create(PERSISTENT_VOLUME_CLAIMS, _made(pod, name, template), f"volume {volume} needs it"))
        elif (controller_of(existing) or {}).get("uid") != meta["uid"]:
            space = meta["namespace"]
            why = f"PVC {space}/{name} was not created for pod {space}/{meta['name']} (pod is not owner)"
            actions.append(refused(pod, volume, why))
    return actions


def refused(pod: JsonObject, volume: str, why: str) -> Tell:
    return Tell(pod, "FailedBinding", f"ephemeral volume {volume}: {why}", "Warning")


def _made(pod: JsonObject, name: str, template: JsonObject) -> JsonObject:
    described = template.get("metadata") or {}
    kept = {key: described[key] for key in ("labels", "annotations") if described.get(key)}
    metadata = {"name": name, "namespace": pod["metadata"]["namespace"], **kept}
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": {**metadata, "ownerReferences": [owner_reference(pod)]},
        "spec": template.get("spec") or {},
    }


class EphemeralVolumes(Controller):
    """Makes the claims of ephemeral volumes."""

    name = "ephemeral-volume"

    def watch(self) -> None:
        self.pods = self.follow(PODS, self._pod_changed)
        self.claims = self.follow(PERSISTENT_VOLUME_CLAIMS, self._claim_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is not None and b'"ephemeral"' in seen.new:
            yield seen.key

    def _claim_changed(self, seen: Change) -> Iterable[str]:
        """A claim that went is made again while its pod is there; one that was in the way lets its pod have its own."""
        if seen.new is not None:
            return
        meta = meta_of(seen.old)
        if meta.manager is not None and meta.manager.kind == "Pod":
            yield f"{meta.namespace}/{meta.manager.name}"
        else:
            pods = self.context.cache(PODS).in_namespace(meta.namespace)
            yield from (f"{meta.namespace}/{pod['metadata']['name']}" for pod in pods if templates_of(pod))

    async def reconcile(self, key: str) -> float | None:
        pod = self.pods.get(key)
        if pod is None:
            return None
        namespace, name = split(key)
        names = [ephemeral_claim(name, volume) for volume in templates_of(pod)]
        claims = {each: self.claims.get(f"{namespace}/{each}") for each in names}
        for action in missing_claims(pod, claims):
            try:
                await self.context.do(action)
            except ApiError as error:  # such as a quota's refusal, which the pod's owner must hear of
                assert isinstance(action, Create)
                claim = action.body["metadata"]["name"]
                await self.context.do(refused(pod, claim.removeprefix(f"{name}-"), f"create PVC {claim}: {error}"))
                raise
        return None
