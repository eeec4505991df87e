"""What a pod refers to by name: asked by the rule for nodes, which may read what their pods use. Pure."""

from __future__ import annotations

from kubeqos.codec import JsonObject
from kubeqos.rules.storage import ephemeral_claim

_CLAIM_FIELDS = {"resourceclaims": "resourceClaimName", "resourceclaimtemplates": "resourceClaimTemplateName"}


def ephemeral_claims(pod: JsonObject) -> set[str]:
    """The volume claims that are made for the pod alone: named after it, and nowhere in it."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {ephemeral_claim(pod["metadata"]["name"], one["name"]) for one in volumes if one.get("ephemeral")}


def _from_template(claim: JsonObject) -> bool:
    return any(one.get("resourceClaimTemplateName") for one in (claim, claim.get("source") or {}))


def referenced(pod: JsonObject, resource: str) -> set[str]:
    """The names of the ConfigMaps, Secrets or claims that a pod refers to."""
    found: set[str] = set()
    spec = pod.get("spec") or {}
    if resource == "serviceaccounts":
        return {str(spec.get("serviceAccountName") or "default")}
    if resource in _CLAIM_FIELDS:
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        claims = [*(spec.get("resourceClaims") or ()), *statuses]
        sources = [*claims, *(claim.get("source") or {} for claim in claims)]
        found = {str(one[_CLAIM_FIELDS[resource]]) for one in sources if one.get(_CLAIM_FIELDS[resource])}
        if resource == "resourceclaims":
            # What a claim from a template will be called is known before its controller has made it and said so.
            found |= {f"{pod['metadata']['name']}-{claim['name']}" for claim in claims if _from_template(claim)}
        return found
    keys = {
        "configmaps": ("configMap", "configMapRef", "configMapKeyRef"),
        "secrets": ("secret", "secretRef", "secretKeyRef"),
    }
    wanted = keys.get(resource, ("persistentVolumeClaim",))
    pending: list[object] = [spec]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                if key in wanted and isinstance(inner, dict):
                    found.update(str(inner[n]) for n in ("name", "secretName", "claimName") if inner.get(n))
                pending.append(inner)
    if resource == "secrets":
        found.update(s["name"] for s in spec.get("imagePullSecrets") or () if s.get("name"))
    return found
