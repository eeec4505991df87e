"""`kubeqos classes drain`: evict who holds a class that is no longer on offer, lowest priority first.

Through the eviction API, so that PodDisruptionBudgets decide when; what they do not allow now is tried again.
"""

from __future__ import annotations

import time

import click

from kubeqos.client.errors import ApiError
from kubeqos.client.light import LightApi
from kubeqos.errors import InputError, KubeqosError
from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classes import catalog
from kubeqos.views.usage import ClassHolder, holders

AGAIN_SECONDS = 1.0
_TOO_MANY = 429


class NotDrained(KubeqosError):
    """Budgets did not allow it in time."""


def drain(api: LightApi, wanted: str, timeout: float, *, dry_run: bool = False) -> None:
    """Evict every holder of a retired class; raises when some are left."""
    resource, _, cls = wanted.partition("=")
    if not cls:
        raise InputError(f"{wanted!r} is not a class", remedy="say RESOURCE=CLASS")
    nodes = {raw["metadata"]["name"]: NodeView.of(raw) for raw in api.items("/api/v1/nodes")}
    pods = [PodView.of(raw) for raw in api.items("/api/v1/pods")]
    found = [one for one in holders(pods, nodes) if (one.resource, one.cls) == (resource, cls)]
    open_on = sorted({one.node for one in found if one.node in nodes and _offered(nodes[one.node], resource, cls)})
    if open_on:
        remedy = f"name it under `retired` of {resource} in the class file first"
        raise InputError(
            f"{wanted} is still on offer on {', '.join(open_on)}: whoever goes may come back", remedy=remedy
        )
    if not found:
        click.echo(f"Nobody holds {wanted}.", err=True)
        return
    waiting = sorted(found, key=lambda one: (one.priority, one.namespace, one.pod))
    deadline = time.monotonic() + timeout
    while waiting:
        waiting = [one for one in waiting if not _evicted(api, one, dry_run=dry_run)]
        if waiting and time.monotonic() >= deadline:
            names = ", ".join(f"{one.namespace}/{one.pod}" for one in waiting)
            raise NotDrained(
                f"budgets keep {names} in {wanted}", remedy="try again later, or look at their PodDisruptionBudgets"
            )
        if waiting:
            time.sleep(AGAIN_SECONDS)


def _offered(node: NodeView, resource: str, cls: str) -> bool:
    kind = catalog(node.status.qos_resources).types.get(resource)
    return kind is not None and cls in kind.classes


def _evicted(api: LightApi, one: ClassHolder, *, dry_run: bool) -> bool:
    """Whether a holder goes; one that a budget protects stays for now, one that is gone already has gone."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": one.pod, "namespace": one.namespace},
        **({"deleteOptions": {"dryRun": ["All"]}} if dry_run else {}),
    }
    query = {"dryRun": "All"} if dry_run else {}
    try:
        api.write("POST", f"/api/v1/namespaces/{one.namespace}/pods/{one.pod}/eviction", body, **query)
    except ApiError as error:
        if error.status == _TOO_MANY:
            return False
        if not error.not_found:
            raise
    tried = " (dry run)" if dry_run else ""
    click.echo(f"pod/{one.pod} evicted from {one.namespace}, priority {one.priority}{tried}")
    return True
