"""The agent's HTTPS endpoint: what a kubelet answers on port 10250, for the API server and for administrators.

    GET /healthz   /metrics   /metrics/resource   /pods   /pinned   /podresources   /stats/summary
    GET /stories/NAMESPACE/POD
    GET /containerLogs/NAMESPACE/POD/CONTAINER?follow&tailLines&sinceSeconds&previous&timestamps
    WebSocket or SPDY /exec/NAMESPACE/POD/CONTAINER?command=…   /attach/NAMESPACE/POD/CONTAINER
    WebSocket or SPDY /portForward/NAMESPACE/POD

Only `/healthz` is for everybody; the rest needs a client certificate of the cluster's authority and what `access` asks
for: the API server has both.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from kubeqos.codec import encode_json
from kubeqos.logs import logger
from kubeqos.node.server.access import NodeAccess
from kubeqos.node.server.endpoint import PORT_FORWARD_PATH, TEXT, NodeServer
from kubeqos.web.asgi import UPGRADE, Receive, Scope, Send, respond
from kubeqos.web.channels import PORT_FORWARD, TUNNEL, passing_on
from kubeqos.web.messages import Query, Response, parse_query
from kubeqos.web.pki import Pki
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.spdy import CHANNELS
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.tls import SCOPE_KEY, server_context
from kubeqos.web.websockets import CHANNEL_PROTOCOLS, Socket, choose_protocol

log = logger("kubeqos.node.server.routes")


class Endpoint:
    """The ASGI application of one agent."""

    def __init__(self, server: NodeServer) -> None:
        self._server = server
        agent = server.agent
        self._access = NodeAccess(agent.settings.node_name, agent.parts.api, agent.now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope)
        except ApiError as error:
            response = Response(error.code, encode_json(error.body()))
        except Exception:  # a bug of ours: the client learns that, the log learns which
            log.exception("%s", scope["path"])
            response = Response(500, b"internal error\n", TEXT)
        headers = [(b"content-type", response.content_type.encode()), *response.headers]
        await respond(response, headers, scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        path = [part for part in scope["path"].split("/") if part]
        if path == ["healthz"]:
            return Response(200, b"ok", TEXT)
        await self._access.check(scope.get(SCOPE_KEY), "/".join(path))
        query = parse_query(scope["query_string"])
        match path:
            case [("exec" | "attach" | "portForward") as what, *_]:
                return await self._streams(scope, what, "/".join(path), query)
        return await self._server.get("/".join(path), query)

    async def _streams(self, scope: Scope, what: str, path: str, query: Query) -> Response:
        spoken = (TUNNEL,) if what == PORT_FORWARD_PATH else CHANNEL_PROTOCOLS
        if UPGRADE in scope:  # as every API server before 1.36 asks
            url = await self._server.stream_url(path, query)
            return passing_on(url, PORT_FORWARD if what == PORT_FORWARD_PATH else CHANNELS)
        protocol = choose_protocol(scope.get("subprotocols", ()), spoken)
        if protocol is None:
            raise bad_request(f"{what} needs SPDY, or a WebSocket that speaks {' or '.join(spoken)}")

        async def streams(socket: Socket) -> None:
            await self._server.stream(path, query, socket)

        return Response(101, streams=streams, protocol=protocol)


@contextlib.asynccontextmanager
async def serving_https(server: NodeServer, address: str, port: int, client_authority: Path) -> AsyncIterator[int]:
    """Serve on an address for the duration of a block, and let the Node say so; yields the port."""
    agent = server.agent
    pki = Pki(agent.settings.state_dir / "pki")
    certificate, key = pki.server_files(list(agent.settings.addresses))
    listener = listen(address, port)
    serving = agent.parts.serving
    serving.port, serving.ca_pem = listener.getsockname()[1], pki.ca_pem.decode()
    async with serve(Endpoint(server), listener, server_context(certificate, key, client_authority)):
        if agent.ready.is_set():
            await agent.node.write()
        yield serving.port
