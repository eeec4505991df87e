"""ComponentStatus: how the parts of the control plane are, for tools that still ask (`kubectl get cs`).

The store is this server's own; of the others it knows that their leases are renewed.
"""

from __future__ import annotations

from kubeqos.apiserver.observe import Health
from kubeqos.apiserver.present.negotiation import form_of
from kubeqos.apiserver.present.tables import list_response, object_response
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.reads import Listing
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import JsonObject, encode_json
from kubeqos.store import Stored
from kubeqos.web.messages import Response
from kubeqos.web.status import not_found


def component_statuses(core: Core, health: Health, request: Request, route: Route, kind: Kind) -> Response:
    """Answer get and list."""
    statuses = {"etcd-0": _status(kind, "etcd-0", health.checks["etcd"]())}
    if route.name:
        found = statuses.get(route.name)
        if found is None:
            raise not_found(kind.plural, kind.group, route.name)
        return object_response(kind, encode_json(found), form_of(request, kind), request, core.clock())
    form = form_of(request, kind, collection=True)
    items = [Stored(kind.key("", name), encode_json(found), 0, 0) for name, found in statuses.items()]
    return list_response(kind, Listing(items, core.store.revision), form, request, core.clock())


def _status(kind: Kind, name: str, problem: str | None) -> JsonObject:
    condition = {"type": "Healthy", "status": "False" if problem else "True", "message": problem or "ok"}
    if problem:
        condition["error"] = problem
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    return {**head, "metadata": {"name": name}, "conditions": [condition]}
