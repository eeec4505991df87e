"""From the claims that a pod names to drivers and parameters: claim or template → ResourceClass → ConfigMap.

Looks into objects that were fetched and says which are still missing; `fetching` is the loop around it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.objects import (
    ParametersReference,
    PodResourceClaim,
    PodView,
    ResourceClaimSpec,
    ResourceClaimTemplateView,
    ResourceClaimView,
    ResourceClassView,
)
from kubeqos.topology.claims.parameters import CONFIG_KEY

CONFIG_MAPS, RESOURCE_CLASSES = "ConfigMap", "ResourceClass"
RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES = "ResourceClaim", "ResourceClaimTemplate"

Raw = dict[str, Any]
Key = tuple[str, str, str]
Objects = Mapping[Key, Raw | None]
"""What was fetched, by kind, namespace and name; None is known not to exist."""


@dataclass(frozen=True, slots=True)
class ResolvedClaim:
    """A claim whose class, driver and parameters are known. `source` names the document for error messages."""

    name: str
    namespace: str
    claim_name: str
    claim_uid: str
    class_name: str
    driver: str
    parameters: str
    source: str
    within: CpuSet = NO_CPUS
    """The cores that a scheduler chose for it already; none where the driver chooses from all."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a claim leads nowhere; with `retry`, the object may still be created."""

    message: str
    retry: bool = True


Resolved = dict[str, ResolvedClaim | Unresolved]


def resolve(pod: PodView, objects: Objects) -> Resolved | tuple[Key, ...]:
    """The pod's claims by the names it gives them, or the objects that have to be looked at first."""
    resolver = _Resolver(pod, objects)
    found = {claim.name: resolver.claim(claim) for claim in pod.spec.resource_claims}
    if resolver.missing:
        return tuple(dict.fromkeys(resolver.missing))
    return {name: claim for name, claim in found.items() if claim is not None}


@dataclass
class _Resolver:
    """Follows references; what is not there yet is noted in `missing` and the claim left at None."""

    pod: PodView
    objects: Objects
    missing: list[Key] = field(default_factory=list)

    def look(self, kind: str, namespace: str, name: str) -> Raw | None:
        key = (kind, namespace, name)
        if key not in self.objects:
            self.missing.append(key)
            return None
        return self.objects[key]

    def claim(self, named: PodResourceClaim) -> ResolvedClaim | Unresolved | None:
        namespace = self.pod.metadata.namespace
        made = f"{self.pod.metadata.name}-{named.name}"  # what a controller calls the claim that it makes
        origin = named.origin
        if origin.resource_claim_name:
            raw = self.look(RESOURCE_CLAIMS, namespace, origin.resource_claim_name)
            if raw is not None:
                return self.existing(named, raw)
            return self.absent(f'ResourceClaim "{namespace}/{origin.resource_claim_name}" does not exist')
        if not origin.resource_claim_template_name:
            return Unresolved(f"claim {named.name!r} names neither a ResourceClaim nor a template", retry=False)
        raw = self.look(RESOURCE_CLAIMS, namespace, made)
        if raw is not None:
            owners = (raw.get("metadata") or {}).get("ownerReferences") or ()
            if any(owner.get("uid") == self.pod.metadata.uid for owner in owners):
                return self.existing(named, raw)
            return Unresolved(f'ResourceClaim "{namespace}/{made}" exists already and belongs to somebody else')
        template = self.look(RESOURCE_CLAIM_TEMPLATES, namespace, origin.resource_claim_template_name)
        if template is None:
            absent = f'ResourceClaimTemplate "{namespace}/{origin.resource_claim_template_name}" does not exist'
            return self.absent(absent)
        spec = ResourceClaimTemplateView.of(template).spec.spec
        return self.by_class(named, made, f"{self.pod.metadata.uid}/{named.name}", spec)

    def absent(self, message: str) -> Unresolved | None:
        return None if self.missing else Unresolved(message)

    def existing(self, named: PodResourceClaim, raw: Raw) -> ResolvedClaim | Unresolved | None:
        claim = ResourceClaimView.of(raw)
        users = (raw.get("status") or {}).get("reservedFor") or ()
        if raw["metadata"].get("deletionTimestamp") and all(one.get("uid") != self.pod.metadata.uid for one in users):
            return Unresolved(f'ResourceClaim "{claim.metadata.namespace}/{claim.metadata.name}" is being deleted')
        return self.by_class(named, claim.metadata.name, claim.metadata.uid, claim.spec)

    def by_class(
        self, named: PodResourceClaim, claim_name: str, claim_uid: str, spec: ResourceClaimSpec
    ) -> ResolvedClaim | Unresolved | None:
        raw = self.look(RESOURCE_CLASSES, "", spec.resource_class_name)
        if raw is None:
            return self.absent(f'ResourceClass "{spec.resource_class_name}" of claim {claim_name!r} does not exist')
        chosen = ResourceClassView.of(raw)
        namespace = self.pod.metadata.namespace
        reference = spec.parameters_ref or chosen.parameters_ref
        if reference is None:
            return Unresolved(f"claim {claim_name!r} and its class have no parametersRef", retry=False)
        if not spec.parameters_ref:
            namespace = reference.namespace or namespace
        text = self.parameters(reference, namespace)
        if not isinstance(text, str):
            return text
        source = f'ConfigMap "{namespace}/{reference.name}", {CONFIG_KEY}'
        own = self.pod.metadata.namespace
        return ResolvedClaim(
            named.name, own, claim_name, claim_uid, spec.resource_class_name, chosen.driver_name, text, source
        )

    def parameters(self, reference: ParametersReference, namespace: str) -> str | Unresolved | None:
        if reference.kind != "ConfigMap" or reference.api_group:
            kind = f"{reference.api_group}/{reference.kind}".lstrip("/")
            return Unresolved(f"parametersRef names a {kind}; only a ConfigMap can be read", retry=False)
        raw = self.look(CONFIG_MAPS, namespace, reference.name)
        if raw is None:
            return self.absent(f'ConfigMap "{namespace}/{reference.name}" does not exist')
        data = raw.get("data") or {}
        if CONFIG_KEY not in data:
            return Unresolved(f'ConfigMap "{namespace}/{reference.name}" has no key {CONFIG_KEY!r}')
        return str(data[CONFIG_KEY])
