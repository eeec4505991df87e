"""The claims of a cluster, for whoever decides as its scheduler would (`simulate fit`, `why`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeqos.cli.connection import Target
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_CLASSES

if TYPE_CHECKING:
    from kubeqos.scheduler.reading.claims import Claimed


def claimed_now(target: Target) -> Claimed:
    """Claims and what they refer to; nothing of a kind that the API server does not have."""
    from kubeqos.scheduler.reading.claims import claimed_in  # only where there are claims to speak of

    found: list[tuple[str, dict[str, Any]]] = []
    for resource in (CONFIG_MAPS, RESOURCE_CLASSES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
        try:
            found += [(resource.kind, raw) for raw in target.api.items(resource.path())]
        except ApiError as error:
            if not error.not_found:
                raise
    return claimed_in(found)
