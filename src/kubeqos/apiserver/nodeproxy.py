"""`kubectl logs`: carried from the client to the pod's node agent, at the address that the node reports.

The agent is asked as kube-apiserver asks a kubelet: HTTPS, `/containerLogs/NAMESPACE/POD/CONTAINER`, with a client
certificate of the cluster's own authority, which must also have signed the agent's.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from kubeqos.apiserver.auth import Pki
from kubeqos.apiserver.auth.identity import MASTERS
from kubeqos.apiserver.core import Core
from kubeqos.apiserver.kinds import kind_named
from kubeqos.apiserver.objects import decode
from kubeqos.apiserver.options import parse_int
from kubeqos.apiserver.requests import Request, Response
from kubeqos.apiserver.status import ApiError, bad_request
from kubeqos.codec import JsonObject

USER = "kube-apiserver-kubelet-client"
CONNECT_SECONDS = 5.0
_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")
_OPTIONS = ("follow", "previous", "timestamps", "sinceTime", *_NUMBERS)
_GROUPS = ("containers", "initContainers", "ephemeralContainers")


class NodeAgents:
    """The way to every node agent of a cluster."""

    def __init__(self, core: Core, pki: Pki) -> None:
        self._core = core
        self._pki = pki
        self._client: httpx2.AsyncClient | None = None

    async def open(self, request: Request, pod: JsonObject, subresource: str) -> Response:
        if subresource != "log":
            raise bad_request(f"{subresource} needs a streaming connection to the node, which is not carried here")
        metadata = pod["metadata"]
        container = chosen_container(pod, request.first("container") or "")
        query = {name: value for name in _OPTIONS if (value := request.first(name)) is not None}
        for name in _NUMBERS:
            if name in query and parse_int(query[name]) < 0:
                raise bad_request(f"{name}: Invalid value: {query[name]}: must be greater than or equal to 0")
        base = self._address(pod["spec"]["nodeName"])
        url = f"{base}/containerLogs/{metadata['namespace']}/{metadata['name']}/{container}"
        return await self._stream(url, query, pod["spec"]["nodeName"])

    def _address(self, node_name: str) -> str:
        status = decode(self._core.stored(kind_named("Node"), "", node_name)).get("status") or {}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        known = [f"{a.get('type')}:{a.get('address')}" for a in status.get("addresses") or ()]
        for wanted in ("InternalIP", "Hostname", "ExternalIP"):
            for address in status.get("addresses") or ():
                if address.get("type") == wanted and port:
                    host = address["address"]
                    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        raise bad_request(f"no preferred addresses found; known addresses: [{' '.join(known)}]")

    async def _stream(self, url: str, query: dict[str, str], node: str) -> Response:
        client = self._client = self._client or self._connected()
        outgoing = client.build_request("GET", url, params=query)
        try:
            answer = await client.send(outgoing, stream=True)
        except httpx2.TransportError as error:
            why = f"the agent of node {node} cannot be reached: {error or type(error).__name__}"
            raise ApiError(503, "ServiceUnavailable", why, details={}) from error
        if answer.status_code >= 400:
            text = (await answer.aread()).decode(errors="replace").strip()
            await answer.aclose()
            raise bad_request(text or f"the agent of node {node} answered {answer.status_code}")
        return Response(200, content_type="text/plain", stream=_body(answer))

    def _connected(self) -> httpx2.AsyncClient:
        pair = self._pki.issue_client(USER, [MASTERS])
        context = ssl.create_default_context(cafile=str(self._pki.ca_file))
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # mode 0600; ssl reads keys from files only
            Path(file.name).write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file.name)
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        return httpx2.AsyncClient(verify=context, timeout=timeout, trust_env=False)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _body(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx2.TransportError:
        return  # the agent went away in the middle: what came so far is all there is
    finally:
        await answer.aclose()


def chosen_container(pod: JsonObject, asked: str) -> str:
    """The container whose log is meant; 400 when that is not clear."""
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    every = [c["name"] for group in _GROUPS for c in spec.get(group) or ()]
    if asked:
        if asked not in every:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    main = [c["name"] for c in spec.get("containers") or ()]
    if len(main) != 1:
        listed = " ".join(main)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(main[0])
