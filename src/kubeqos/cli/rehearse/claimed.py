"""The claims and volumes of a cluster, for whoever decides as its scheduler would (`simulate`, `autoscale`, `why`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeqos.cli.connection import Target
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import (
    CONFIG_MAPS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_CLASSES,
    STORING,
)

if TYPE_CHECKING:
    from kubeqos.scheduler.reading.claims import Claimed
    from kubeqos.scheduler.reading.storage import VolumeIndex


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


def volumes_now(target: Target) -> VolumeIndex | None:
    """Volume claims and what they lead to; None where they may not be read, or are not there."""
    from kubeqos.scheduler.reading.storage import volumes_in

    try:
        return volumes_in((one.kind, raw) for one in STORING for raw in target.api.items(one.path()))
    except ApiError as error:
        if not error.not_found and not error.forbidden:
            raise
        return None
