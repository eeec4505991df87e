"""`decisions.kubeqos.io`: the records of pods for those who may read them, and what components tell for them.

A node tells only of pods that are, or were, its own; who may not see a namespace does not learn the names of its pods
from a record of another.
"""

from __future__ import annotations

import msgspec

from kubeqos.apiserver.auth import Attributes
from kubeqos.apiserver.auth.access import Access
from kubeqos.apiserver.decisions.keeper import DecisionKeeper
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import encode_json
from kubeqos.model.decisions import VERSION, Entry, PodDecisions, read_batch, seen_by
from kubeqos.web.identity import Identity
from kubeqos.web.messages import Response
from kubeqos.web.status import ApiError, bad_request

MOST_LISTED = 500


class Decisions:
    """The API of the records of one server."""

    def __init__(self, keeper: DecisionKeeper, access: Access) -> None:
        self._keeper = keeper
        self._access = access

    async def answer(self, request: Request, route: Route, kind: Kind) -> Response:
        """Get and list of PodDecisions, create of a DecisionBatch."""
        if route.verb == "create":
            return await self._take(request)
        if route.name:
            return await self._one(request, route, kind)
        found = await self._keeper.records(route.namespace, _limit(request))
        items = [self._shown(one, request.identity).wire() for one in found]
        body = {"kind": "PodDecisionsList", "apiVersion": VERSION, "metadata": {}, "items": items}
        return Response(200, encode_json(body))

    async def _one(self, request: Request, route: Route, kind: Kind) -> Response:
        found = await self._keeper.record(route.namespace, route.name, request.first("uid") or "")
        if found is None:
            what = f'{kind.plural}.{kind.group} "{route.name}" not found'
            details = {"name": route.name, "group": kind.group, "kind": kind.plural}
            raise ApiError(404, "NotFound", what, details=details)
        return Response(200, encode_json(self._shown(found, request.identity).wire()))

    def _shown(self, record: PodDecisions, reader: Identity) -> PodDecisions:
        def may_see(namespace: str) -> bool:
            wanted = Attributes("list", resource="pods", namespace=namespace)
            return self._access.authorizer.decide(reader, wanted).allowed

        return seen_by(record, may_see)

    async def _take(self, request: Request) -> Response:
        try:
            entries = read_batch(request.body).entries
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is not a DecisionBatch: {error}") from error
        node = request.identity.node
        taken = entries if node is None else [one for one in entries if await self._is_own(node, one)]
        self._keeper.tell(taken)
        counts = {"taken": len(taken), "refused": len(entries) - len(taken)}
        return Response(201, encode_json({"kind": "DecisionBatch", "apiVersion": VERSION, **counts}))

    async def _is_own(self, node: str, entry: Entry) -> bool:
        told = getattr(entry.decision, "node", "")
        return told == node and await self._keeper.node_of(entry.pod) == node


def _limit(request: Request) -> int:
    asked = request.first("limit") or ""
    short = asked.isdecimal() and len(asked) <= 9  # a longer number is more than all there are
    return min(int(asked) or MOST_LISTED, MOST_LISTED) if short else MOST_LISTED
