"""The way to a webhook: its address, its authority, its deadline.

A webhook that is given by a Service is found at a ready address of one of its EndpointSlices, else at its ClusterIP. It
must have a certificate for `NAME.NAMESPACE.svc`.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx2

from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json
from kubeqos.rules.webhooks import Webhook

_SERVICES, _SLICES = kind_named("Service"), kind_named("EndpointSlice", "discovery.k8s.io")
SERVICE_NAME = "kubernetes.io/service-name"
MOST_ANSWER_BYTES = 16 << 20


class CallFailed(Exception):
    """A webhook could not be asked, or gave no answer; the message says why."""


class _Place(NamedTuple):
    """Where a webhook listens, and the name that its certificate must carry when it is not that of the address."""

    url: str
    host: str = ""


@dataclass
class Caller:
    """Asks webhooks."""

    core: Core
    _clients: dict[str, httpx2.AsyncClient] = field(default_factory=dict)
    """By the authority that they trust (PEM in base64); the system's where it is empty."""

    async def ask(self, webhook: Webhook, review: JsonObject) -> JsonObject:
        """The AdmissionReview that comes back."""
        # In a task of its own: requests that are run together have none, and deadlines need one.
        return await asyncio.ensure_future(self._ask(webhook, review))

    async def _ask(self, webhook: Webhook, review: JsonObject) -> JsonObject:
        place = self._place(webhook.client)
        url = f"{place.url}{'&' if '?' in place.url else '?'}timeout={webhook.seconds}s"
        headers = {"content-type": "application/json", "accept": "application/json"}
        extensions = {}
        if place.host:
            headers["host"], extensions["sni_hostname"] = place.host, place.host
        try:
            async with asyncio.timeout(webhook.seconds):
                client = self._client(str(webhook.client.get("caBundle") or ""))
                answer = await client.post(url, content=encode_json(review), headers=headers, extensions=extensions)
        except TimeoutError as error:
            raise CallFailed(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, ValueError) as error:
            raise CallFailed(f'failed to call webhook: Post "{url}": {error or type(error).__name__}') from error
        if answer.status_code != 200:
            said = answer.text[:200].strip()
            told = f"the webhook answered with status {answer.status_code}{f': {said}' if said else ''}"
            raise CallFailed(f"failed to call webhook: {told}")
        if len(answer.content) > MOST_ANSWER_BYTES:
            raise CallFailed(f"failed to call webhook: its answer has more than {MOST_ANSWER_BYTES} bytes")
        try:
            found: JsonObject = decode_json(answer.content)
        except JsonError as error:
            raise CallFailed(f"failed to call webhook: its answer is not JSON: {error}") from error
        return found

    def _client(self, authority: str) -> httpx2.AsyncClient:
        known = self._clients.get(authority)
        if known is None:
            pem = base64.b64decode(authority).decode() if authority else None
            tls = ssl.create_default_context(cadata=pem)
            timeout = httpx2.Timeout(None)  # the webhook's own deadline is around all of it
            known = httpx2.AsyncClient(verify=tls, timeout=timeout, trust_env=False)
            self._clients[authority] = known
        return known

    def _place(self, client: JsonObject) -> _Place:
        service = client.get("service")
        if not service:
            return _Place(str(client.get("url", "")))
        namespace, name = str(service.get("namespace", "")), str(service.get("name", ""))
        path = "/" + str(service.get("path") or "").lstrip("/")
        host = f"{name}.{namespace}.svc"
        address, port = self._endpoint(namespace, name, int(service.get("port") or 443))
        return _Place(f"https://{f'[{address}]' if ':' in address else address}:{port}{path}", host)

    def _endpoint(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        stored = self.core.store.get(_SERVICES.key(namespace, name))
        if stored is None:
            raise CallFailed(f'failed to call webhook: service "{name}" not found')
        spec = decode(stored).get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec.get("externalName", "")), port
        wanted = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
        if wanted is None:
            raise CallFailed(f'failed to call webhook: no service port {port} found for service "{name}"')
        for slice in map(decode, self.core.store.range(_SLICES.range_prefix(namespace)).items):
            if (slice["metadata"].get("labels") or {}).get(SERVICE_NAME) != name:
                continue
            numbers = {str(one.get("name") or ""): one.get("port") for one in slice.get("ports") or ()}
            number = numbers.get(str(wanted.get("name") or ""))
            for one in slice.get("endpoints") or ():
                if number and (one.get("conditions") or {}).get("ready", True) and one.get("addresses"):
                    return str(one["addresses"][0]), int(number)
        if spec.get("clusterIP") not in (None, "", "None"):
            return str(spec["clusterIP"]), port
        raise CallFailed(f'failed to call webhook: no endpoints available for service "{name}"')

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
