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
from typing import Protocol
from urllib.parse import quote, urlencode

import httpx2
import websockets
from websockets.asyncio.client import ClientConnection, connect

from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.model.annotations.wellknown import SERVING_CERTIFICATE_ANNOTATION
from kubeqos.web.messages import Query, Response
from kubeqos.web.pki import Pki
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.tls import client_context
from kubeqos.web.websockets import Socket, choose_protocol

DIAL_SECONDS, SUMMARY_SECONDS = 5.0, 10.0
Address = tuple[str, int, str]
"""Host, port, and the agent's own authority (PEM), empty when it has none."""


class NodeEndpoint(Protocol):
    """What a node agent answers."""

    async def logs(self, namespace: str, pod: str, container: str, query: Query) -> Response: ...

    async def execute(self, namespace: str, pod: str, container: str, query: Query, socket: Socket) -> None:
        """Run a command with its streams on the socket."""

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
        if subresource not in ("log", "exec"):
            raise bad_request(f"pods/{subresource} is not supported: use exec or logs")
        container = container_of(pod, request.first("container"))
        endpoint = self.endpoint(node)
        query = {name: values for name, values in request.query.items() if name != "container"}
        if subresource == "log":
            return await endpoint.logs(metadata["namespace"], metadata["name"], container, query)
        protocol = choose_protocol(request.protocols)
        if protocol is None:
            raise bad_request(
                "exec needs a WebSocket that speaks v5.channel.k8s.io or v4.channel.k8s.io (kubectl 1.31 or newer)"
            )

        async def streams(socket: Socket) -> None:
            await endpoint.execute(metadata["namespace"], metadata["name"], container, query, socket)

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
            host, port, own = where
            authority = own or self.authority or self.pki.ca_pem.decode()
            tls = client_context(*self.pki.node_client_files(), authority)
            tls.check_hostname = not own  # an agent's own authority signs for it alone, the cluster's for many
            known = where, HttpEndpoint(host, port, tls)
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
    return host, int(port), str(own)


class HttpEndpoint:
    """An agent in another process."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._tls = tls
        timeout = httpx2.Timeout(DIAL_SECONDS, read=None)
        self._client = httpx2.AsyncClient(
            base_url=f"https://{self._where}", verify=tls, timeout=timeout, trust_env=False
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

    async def execute(self, namespace: str, pod: str, container: str, query: Query, socket: Socket) -> None:
        uri = f"wss://{self._where}/exec/{namespace}/{pod}/{container}?{urlencode(query, doseq=True)}"
        protocols = [websockets.Subprotocol(socket.protocol)]
        try:
            async with connect(uri, ssl=self._tls, subprotocols=protocols, max_size=None, proxy=None) as agent:
                await relay(socket, agent)
        except (OSError, websockets.WebSocketException) as error:
            await socket.send(b"\x03" + failure(f"error dialing the node agent at {self._where}: {error}"))

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


async def relay(one: Socket, other: ClientConnection) -> None:
    """Carry messages both ways until the agent's side ends, or the client's."""

    async def forth() -> None:
        while (data := await one.receive()) is not None:
            await other.send(data)

    async def back() -> None:
        async for data in other:
            await one.send(data.encode() if isinstance(data, str) else data)

    tasks = [asyncio.ensure_future(forth()), asyncio.ensure_future(back())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def failure(message: str) -> bytes:
    """What the error stream says when a command could not be run."""
    return encode_json(
        {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}
    )
