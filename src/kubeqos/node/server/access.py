"""Who may ask a node agent what: as a kubelet decides it, by asking the API server (SubjectAccessReview).

The API server's own certificate differs from cluster to cluster: here and in older ones it is in `system:masters`,
which may do everything; kubeadm's is in a group that a role binding knows. Answers are remembered for as long as a
kubelet remembers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError as Refused
from kubeqos.client.errors import Unreachable
from kubeqos.client.resources import resource_of
from kubeqos.codec import JsonObject
from kubeqos.logs import logger
from kubeqos.web.identity import MASTERS, Identity
from kubeqos.web.status import ApiError

ALLOWED_SECONDS, DENIED_SECONDS = 300.0, 30.0
MOST_REMEMBERED = 1000
_PARTS = {"metrics": "metrics", "stats": "stats", "containerLogs": "proxy", "pods": "pods", "healthz": "healthz"}
"""The subresource of the Node that the beginning of a path belongs to; `proxy` is all of them."""
STREAMS = ("exec", "attach", "portForward")

log = logger("kubeqos.node.server.access")


@dataclass
class NodeAccess:
    """Decides about requests to the endpoint of one node."""

    node: str
    api: Api | None
    now: Callable[[], float]
    _known: dict[tuple[Identity, str, str], tuple[bool, float]] = field(default_factory=dict)

    async def check(self, peer: Identity | None, path: str) -> None:
        """401 or 403 unless the peer may read this path, or open these streams."""
        if peer is None:
            raise ApiError(401, "Unauthorized", "Unauthorized", details={})
        if MASTERS in peer.groups:
            return
        first = path.split("/")[0]
        verb = "create" if first in STREAMS else "get"
        if await self._may(peer, verb, "proxy") or (
            _PARTS.get(first, "proxy") != "proxy" and await self._may(peer, verb, _PARTS[first])
        ):
            return
        asked = f"(user={peer.user}, verb={verb}, resource=nodes, subresource={_PARTS.get(first, 'proxy')})"
        raise ApiError(403, "Forbidden", f"Forbidden {asked}", details={})

    async def _may(self, peer: Identity, verb: str, subresource: str) -> bool:
        question = peer, verb, subresource
        known = self._known.get(question)
        if known is not None and known[1] > self.now():
            return known[0]
        allowed = await self._asked(peer, verb, subresource)
        if allowed is None:
            return False
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[question] = allowed, self.now() + (ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        return allowed

    async def _asked(self, peer: Identity, verb: str, subresource: str) -> bool | None:
        """What the API server says; None when it says nothing."""
        reviews = resource_of("authorization.k8s.io/v1", "SubjectAccessReview")
        if self.api is None or reviews is None:
            return None
        wanted = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": self.node}
        spec = {"user": peer.user, "groups": list(peer.groups), "uid": peer.uid, "resourceAttributes": wanted}
        body: JsonObject = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}}
        try:
            answer = await self.api.create(reviews, {**body, "spec": spec})
        except (Refused, Unreachable) as error:
            log.warning("cannot ask whether %s may %s nodes/%s: %s", peer.user, verb, subresource, error)
            return None
        return bool((answer.get("status") or {}).get("allowed"))
