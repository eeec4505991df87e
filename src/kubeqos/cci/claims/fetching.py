"""Fetches what the claims of a pod refer to, until `resolving` has all of it.

The node agent runs it before admission; the answer goes into `AdmittedPod.claims`.
"""

from __future__ import annotations

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_CLASSES
from kubeqos.model.objects import PodView
from kubeqos.topology.claims.resolving import Key, Raw, Resolved, resolve

_RESOURCES = {one.kind: one for one in (CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_CLASSES)}


async def fetch_claims(api: Api, pod: PodView) -> Resolved:
    """Resolve a pod's claims with as many reads as they need; no claims, no reads."""
    objects: dict[Key, Raw | None] = {}
    while True:
        answer = resolve(pod, objects)
        if isinstance(answer, dict):
            return answer
        for kind, namespace, name in answer:
            try:
                objects[kind, namespace, name] = await api.get(_RESOURCES[kind], name, namespace)
            except ApiError as error:
                if not error.not_found:
                    raise
                objects[kind, namespace, name] = None
