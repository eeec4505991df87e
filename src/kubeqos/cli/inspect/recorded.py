"""The decision record of a pod, read from the cluster. Called by `kubeqos why`; told by `views.decided`."""

from __future__ import annotations

from typing import Any

from kubeqos.cli.connection import Target
from kubeqos.client.errors import ApiError
from kubeqos.model.decisions import REFUSED, PodDecisions

GROUP = "/apis/decisions.kubeqos.io/v1"


def record_of(target: Target, name: str) -> PodDecisions | None:
    """What the cluster keeps; nothing where it keeps no records or this user may not read them."""
    try:
        return PodDecisions.of(target.api.get(target.path("poddecisions", name, GROUP)))
    except ApiError as error:
        if error.not_found or error.forbidden:
            return None
        raise


def refused(target: Target, record: PodDecisions, *, fix: bool) -> dict[str, Any]:
    """What would let a refused pod in, with the namespace, and the nodes if they can be read, as they are now."""
    if not fix or record.object is None or not record.pod.uid.startswith(REFUSED):
        return {}
    from kubeqos.scheduler.reading.snapshot import snapshot  # loads numpy
    from kubeqos.views.pending import let_in

    quotas, beside = target.items("resourcequotas"), target.items("pods")
    try:
        cluster, _ = snapshot(target.reader.items("/api/v1/nodes"), target.reader.items("/api/v1/pods"))
    except ApiError as error:
        if not error.forbidden:
            raise
        return let_in(record.object, quotas, beside, None)
    return let_in(record.object, quotas, beside, cluster)
