"""The API server's way to node agents: logs and exec of pods, what nodes and pods use, and `nodes/NAME/proxy/…`.

An agent in this process is asked directly (`NodeEndpoint`), any other by HTTPS as kube-apiserver asks a kubelet: at the
address and port that its Node object names, with a client certificate of the cluster's own authority. The agent's
certificate must be signed by the authority that its Node object carries, or else by the cluster's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlencode

import httpx2
import websockets
from websockets.asyncio.client import connect

from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, decode_json
from kubeqos.logs import logger
from kubeqos.model.annotations.wellknown import SERVING_CERTIFICATE_ANNOTATION, WEBSOCKETS_FEATURE
from kubeqos.web.channels import (
    ERROR,
    TUNNEL,
    UNREACHABLE,
    StreamOptions,
    bridge,
    failure_status,
    frame,
    node_query,
    tunnel,
    until_one_ends,
)
from kubeqos.web.messages import Query, Response
from kubeqos.web.pki import Pki
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.tls import client_context
from kubeqos.web.websockets import CHANNEL_PROTOCOLS, Socket, choose_protocol

log = logger("kubeqos.apiserver.nodes.proxy")
DIAL_SECONDS, SUMMARY_SECONDS = 5.0, 10.0


class Address(NamedTuple):
    """Where an agent listens and how it is spoken to."""

    host: str
    port: int
    authority: str = ""
    """Its own (PEM), empty when it has none."""
    websockets: bool = False


class NodeEndpoint(Protocol):
    """What a node agent answers."""

    async def logs(self, namespace: str, pod: str, container: str, query: Query) -> Response: ...

    async def stream(self, path: str, query: Query, socket: Socket) -> None:
        """Carry the streams of `exec/…`, `attach/…` or `portForward/…` on the socket, asked as a kubelet is."""

    async def get(self, path: str, query: Query) -> Response:
        """Answer a question as the node's own endpoint does: its pods, metrics, statistics, stories."""

    async def summary(self) -> JsonObject:
        """The stats summary of the node and its pods."""


@dataclass
class NodeProxy:
    """Finds the agent of a node and carries requests to it."""

    core: Core
    pki: Pki
    authority: str = ""
    """Who signs for nodes that carry no authority of their own (PEM); the cluster's authority when empty."""
    local: dict[str, NodeEndpoint] = field(default_factory=dict)
    _remote: dict[str, tuple[Address, HttpEndpoint]] = field(default_factory=dict)

    async def open(self, request: Request, pod: JsonObject, subresource: str) -> Response:
        """Answer a request for a pod's logs or streams."""
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        forwards = subresource == "portforward"
        container = "" if forwards else container_of(pod, request.first("container"))
        endpoint = self.endpoint(node)
        if subresource == "log":
            query = {name: values for name, values in request.query.items() if name != "container"}
            return await endpoint.logs(metadata["namespace"], metadata["name"], container, query)
        path = f"portForward/{where}" if forwards else f"{subresource}/{where}/{container}"
        spoken = (TUNNEL,) if forwards else CHANNEL_PROTOCOLS
        protocol = choose_protocol(request.protocols, spoken)
        if protocol is None:
            what = f"{subresource} needs a WebSocket that speaks {' or '.join(spoken)}"
            raise bad_request(f"{what} (kubectl 1.31 or newer)")

        async def streams(socket: Socket) -> None:
            await endpoint.stream(path, node_query(request.query), socket)

        return Response(101, streams=streams, protocol=protocol)

    def endpoint(self, name: str) -> NodeEndpoint:
        """The agent of a node; 404 or 503 when nothing is known about its address."""
        found = self.local.get(name)
        if found is not None:
            return found
        stored = self.core.store.get(kind_named("Node").key("", name))
        if stored is None:
            raise ApiError(404, "NotFound", f'nodes "{name}" not found', details={"name": name, "kind": "nodes"})
        where = address_of(decode(stored))
        known = self._remote.get(name)
        if known is None or known[0] != where:
            authority = where.authority or self.authority or self.pki.ca_pem.decode()
            tls = client_context(*self.pki.node_client_files(), authority)
            # An agent's own authority signs for it alone, the cluster's for many.
            tls.check_hostname = not where.authority
            known = where, HttpEndpoint(where, tls)
            self._remote[name] = known
        return known[1]

    async def summaries(self, nodes: Sequence[str]) -> Mapping[str, JsonObject]:
        """The summaries of those nodes that answer."""
        answers = await asyncio.gather(*(self._summary(name) for name in nodes))
        return {name: answer for name, answer in zip(nodes, answers, strict=True) if answer is not None}

    async def _summary(self, name: str) -> JsonObject | None:
        try:
            async with asyncio.timeout(SUMMARY_SECONDS):
                return await self.endpoint(name).summary()
        except (ApiError, TimeoutError):
            return None

    async def close(self) -> None:
        for _, endpoint in self._remote.values():
            await endpoint.close()


def container_of(pod: JsonObject, asked: str | None) -> str:
    """The container that a request is about, in Kubernetes' words when it is not clear."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    apps = [one["name"] for one in spec.get("containers") or ()]
    others = [one["name"] for key in ("initContainers", "ephemeralContainers") for one in spec.get(key) or ()]
    if asked:
        if asked not in (*apps, *others):
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(apps) == 1:
        return str(apps[0])
    choices = f"choose one of: [{' '.join(apps)}]"
    if others:
        choices += f" or one of the init containers: [{' '.join(others)}]"
    raise bad_request(f"a container name must be specified for pod {name}, {choices}")


def address_of(node: JsonObject) -> Address:
    """Where a node's agent listens; 400 in Kubernetes' words while it does not say."""
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    addresses = status.get("addresses") or ()
    known = {one.get("type"): str(one.get("address")) for one in reversed(addresses)}
    host = next((known[kind] for kind in ("InternalIP", "Hostname", "ExternalIP") if kind in known), "")
    if not host or not port:
        listed = " ".join(f"{one.get('type')}:{one.get('address')}" for one in addresses)
        raise bad_request(f"no preferred addresses found; known addresses: [{listed}]")
    own = (node["metadata"].get("annotations") or {}).get(SERVING_CERTIFICATE_ANNOTATION, "")
    return Address(host, int(port), str(own), WEBSOCKETS_FEATURE in (status.get("declaredFeatures") or ()))


class HttpEndpoint:
    """An agent in another process."""

    def __init__(self, address: Address, tls: ssl.SSLContext) -> None:
        host, port = address.host, address.port
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._websockets = address.websockets
        self._tls = tls
        timeout = httpx2.Timeout(DIAL_SECONDS, read=None)
        self._client = httpx2.AsyncClient(
            base_url=f"https://{self._where}",
            verify=tls,
            timeout=timeout,
            trust_env=False,
            headers={"accept-encoding": "identity"},  # what a node says is passed on as it comes
        )

    async def logs(self, namespace: str, pod: str, container: str, query: Query) -> Response:
        return await self.get(f"containerLogs/{namespace}/{pod}/{container}", query)

    async def get(self, path: str, query: Query) -> Response:
        target = f"/{quote(path)}?{urlencode(query, doseq=True)}"
        try:
            answer = await self._client.send(self._client.build_request("GET", target), stream=True)
        except httpx2.RequestError as error:
            raise self._unreachable(error) from error
        kind = answer.headers.get("content-type", "text/plain")
        if answer.status_code >= 400:
            body = await answer.aread()
            await answer.aclose()
            return Response(answer.status_code, body, kind)
        return Response(answer.status_code, content_type=kind, stream=_chunks(answer))

    async def stream(self, path: str, query: Query, socket: Socket) -> None:
        target = f"{self._where}/{quote(path)}?{urlencode(query, doseq=True)}"
        try:
            if socket.protocol == TUNNEL:
                await tunnel(f"https://{target}", socket, self._tls)
            elif self._websockets:
                await self._relay(f"wss://{target}", socket)
            else:
                await bridge(f"https://{target}", StreamOptions.of(query), socket, self._tls)
        except (*UNREACHABLE, websockets.WebSocketException) as error:
            told = f"error dialing the node agent at {self._where}: {error or type(error).__name__}"
            if socket.protocol == TUNNEL:  # which has no stream for errors
                log.warning("port-forward: %s", told)
            else:
                await socket.send(frame(ERROR, failure_status(told)))

    async def _relay(self, uri: str, socket: Socket) -> None:
        """Carry messages both ways until the agent's side ends, or the client's."""
        protocols = [websockets.Subprotocol(socket.protocol)]
        async with connect(uri, ssl=self._tls, subprotocols=protocols, max_size=None, proxy=None) as agent:

            async def forth() -> None:
                while (data := await socket.receive()) is not None:
                    await agent.send(data)

            async def back() -> None:
                async for data in agent:
                    await socket.send(data.encode() if isinstance(data, str) else data)

            await until_one_ends(forth(), back())

    async def summary(self) -> JsonObject:
        try:
            answer = await self._client.get("/stats/summary", timeout=SUMMARY_SECONDS)
            answer.raise_for_status()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        found: JsonObject = decode_json(answer.content)
        return found

    async def close(self) -> None:
        await self._client.aclose()

    def _unreachable(self, error: Exception) -> ApiError:
        what = f"error dialing the node agent at {self._where}: {error or type(error).__name__}"
        return ApiError(500, "InternalError", what, details={})


async def _chunks(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
