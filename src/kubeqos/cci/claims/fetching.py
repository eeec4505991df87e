"""Fetches what the claims of a pod refer to, until `resolving` has all of it.

The node agent runs it before admission; the answer goes into `AdmittedPod.claims`.
"""

from __future__ import annotations

from kubeqos.cci.claims.resolving import Objects, Resolved, resolve
from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.model.objects import PodView


async def fetch_claims(api: Api, pod: PodView) -> Resolved:
    """Resolve a pod's claims with as many reads as they need; no claims, no reads."""
    objects: Objects = {}
    while True:
        answer = resolve(pod, objects)
        if isinstance(answer, dict):
            return answer
        for resource, namespace, name in answer:
            try:
                objects[resource, namespace, name] = await api.get(resource, name, namespace)
            except ApiError as error:
                if not error.not_found:
                    raise
                objects[resource, namespace, name] = None
