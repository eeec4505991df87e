"""Claims from templates (KEP-3675): a pod that names a ResourceClaimTemplate gets a ResourceClaim of its own.

The name is the pod's and the claim's, so that it can be told before it is there and is never made twice. The claim is
owned by the pod: it goes with it, and earlier when the pod has finished, since a finished pod needs no cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeqos.client import Change
from kubeqos.client.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Tell, change, deletion
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, split
from kubeqos.controllers.podstate import controller_of, is_going, is_terminal, owner_reference


def claim_name(pod: str, claim: str) -> str:
    return f"{pod}-{claim}"


def templates_of(pod: JsonObject) -> dict[str, str]:
    """The claims that a pod wants from templates: claim → template. Both of the KEP's spellings are read."""
    found = {}
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        source = claim.get("source") or claim
        if source.get("resourceClaimTemplateName"):
            found[claim["name"]] = source["resourceClaimTemplateName"]
    return found


def desired(
    pod: JsonObject, templates: Mapping[str, JsonObject | None], claims: Mapping[str, JsonObject | None]
) -> list[Action]:
    """What a pod's claims need, given the templates by their name and the existing claims by theirs."""
    wanted = templates_of(pod)
    if is_going(pod):
        return []  # they go with it
    if is_terminal(pod):
        names = (claim_name(pod["metadata"]["name"], each) for each in wanted)
        done = [claim for name in names if (claim := claims.get(name)) and _owned(claim, pod) and not is_going(claim)]
        return [deletion(RESOURCE_CLAIMS, claim, "its pod has finished") for claim in done]
    actions: list[Action] = []
    there: list[JsonObject] = []
    for each, template in wanted.items():
        name = claim_name(pod["metadata"]["name"], each)
        existing = claims.get(name)
        if existing is not None and not _owned(existing, pod):
            actions.append(_refused(pod, f"ResourceClaim {name!r} exists already and belongs to somebody else"))
        elif existing is None and (found := templates.get(template)) is None:
            actions.append(_refused(pod, f"ResourceClaimTemplate {template!r} does not exist"))
        else:
            if existing is None:
                assert found is not None
                actions.append(Create(RESOURCE_CLAIMS, _made(pod, name, found), f"from template {template}"))
            there.append({"name": each, "resourceClaimName": name})
    known = (pod.get("status") or {}).get("resourceClaimStatuses") or []
    if there and known != there:
        why = "its claims have names"
        patch = {"status": {"resourceClaimStatuses": there}}
        actions.append(change(PODS, pod, patch, why, subresource="status", checked=False))
    return actions


def _owned(claim: JsonObject, pod: JsonObject) -> bool:
    return bool((controller_of(claim) or {}).get("uid") == pod["metadata"]["uid"])


def _refused(pod: JsonObject, why: str) -> Tell:
    return Tell(pod, "FailedResourceClaimCreation", why.replace("'", '"'), "Warning")


def _made(pod: JsonObject, name: str, template: JsonObject) -> JsonObject:
    body = template.get("spec") or {}
    described = body.get("metadata") or {}
    kept = {key: described[key] for key in ("labels", "annotations") if described.get(key)}
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": name,
            "namespace": pod["metadata"]["namespace"],
            **kept,
            "ownerReferences": [owner_reference(pod)],
        },
        "spec": body.get("spec") or {},
    }


class ClaimController(Controller):
    """Makes claims for pods."""

    name = "resourceclaim"

    def watch(self) -> None:
        self.templates = self.follow(RESOURCE_CLAIM_TEMPLATES, self._template_changed)
        self.claims = self.follow(RESOURCE_CLAIMS, self._claim_changed)
        self.pods = self.follow(PODS, self._pod_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is not None and b'"resourceClaimTemplateName"' in seen.new:
            yield seen.key

    def _claim_changed(self, seen: Change) -> Iterable[str]:
        meta = meta_of(seen.old if seen.new is None else seen.new)
        if meta.manager is not None and meta.manager.kind == "Pod":
            yield f"{meta.namespace}/{meta.manager.name}"
        elif seen.new is None:
            yield from self._waiting(meta.namespace)

    def _template_changed(self, seen: Change) -> Iterable[str]:
        return self._waiting(split(seen.key)[0]) if seen.new is not None else ()

    def _waiting(self, namespace: str) -> Iterable[str]:
        pods = self.context.cache(PODS).in_namespace(namespace)
        return [f"{namespace}/{pod['metadata']['name']}" for pod in pods if templates_of(pod)]

    async def reconcile(self, key: str) -> float | None:
        pod = self.pods.get(key)
        if pod is None:
            return None
        namespace, wanted = split(key)[0], templates_of(pod)
        names = [claim_name(pod["metadata"]["name"], each) for each in wanted]
        templates = {name: self.templates.get(f"{namespace}/{name}") for name in wanted.values()}
        claims = {name: self.claims.get(f"{namespace}/{name}") for name in names}
        await self.context.perform(desired(pod, templates, claims))
        return None
