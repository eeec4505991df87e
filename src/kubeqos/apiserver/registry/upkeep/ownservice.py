"""The Service by which pods find this server: default/kubernetes, with its Endpoints and its EndpointSlice.

Kept by the server itself, as Kubernetes does: made at the start, and put right again when somebody changes or removes
it. Kubelets read from it what they tell containers in KUBERNETES_SERVICE_HOST. `server` starts it.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address
from typing import Any

from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.registry.writes import Write, create, update
from kubeqos.codec import JsonObject
from kubeqos.logs import logger
from kubeqos.web.status import ApiError

log = logger("kubeqos.apiserver")
SECONDS = 10.0
NAME, NAMESPACE = "kubernetes", "default"
_SERVICE, _ENDPOINTS = kind_named("Service"), kind_named("Endpoints")
_SLICE = kind_named("EndpointSlice", "discovery.k8s.io")
_ELSEWHERE = "192.0.2.1"  # RFC 5737: an address that is nobody's; nothing is sent to it


def advertised(host: str) -> str:
    """The address under which others reach a server that listens here; empty where nobody else can.

    Kubernetes takes no loopback address among endpoints: in a pod it is the pod itself.
    """
    found = ip_address(host)
    if found.is_unspecified:
        with socket.socket(socket.AF_INET6 if found.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((_ELSEWHERE if found.version == 4 else "2001:db8::1", 9))
            except OSError:
                return ""
            found = ip_address(probe.getsockname()[0])
    return "" if found.is_loopback else str(found)


@dataclass(frozen=True)
class OwnService:
    """Where this server is, for those who look for it."""

    core: Core
    address: str
    """Empty where nobody else can reach it; then the Service has no endpoints."""
    port: int
    addresses: IPv4Network

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            await self.keep()

    async def keep(self) -> None:
        """Make what is missing, and put right what is wrong."""
        for kind, obj in self.wanted():
            try:
                await self._keep(kind, obj)
            except ApiError as error:  # a quota, a webhook, an address that somebody took
                log.warning("%s %s/%s cannot be kept: %s", kind.kind, NAMESPACE, NAME, error)

    def wanted(self) -> list[tuple[Kind, JsonObject]]:
        port = {"name": "https", "port": self.port, "protocol": "TCP"}
        found: list[tuple[Kind, JsonObject]] = [(_SERVICE, self._service())]
        if self.address:
            subsets = [{"addresses": [{"ip": self.address}], "ports": [port]}]
            labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
            found.append((_ENDPOINTS, {"metadata": _metadata(labels), "subsets": subsets}))
            slice = {
                "metadata": _metadata({"kubernetes.io/service-name": NAME}),
                "addressType": f"IPv{ip_address(self.address).version}",
                "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
                "ports": [port],
            }
            found.append((_SLICE, slice))
        return found

    def _service(self) -> JsonObject:
        spec = {
            "type": "ClusterIP",
            "clusterIP": str(self.addresses[1]),
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": self.port}],
        }
        return {"metadata": _metadata({"component": "apiserver", "provider": "kubernetes"}), "spec": spec}

    async def _keep(self, kind: Kind, obj: JsonObject) -> None:
        stored = self.core.store.get(kind.key(NAMESPACE, NAME), pending=True)
        if stored is None:
            await create(self.core, Write(kind, NAMESPACE, NAME), obj)
            return
        if kind is _SERVICE:
            obj["spec"].pop("clusterIP")  # an address that it once had stays its own
        held = decode(stored)
        if _says(held, obj):
            return

        def mended(old: JsonObject) -> JsonObject:
            labels = {**(old["metadata"].get("labels") or {}), **obj["metadata"]["labels"]}
            spec = {"spec": {**old["spec"], **obj["spec"]}} if "spec" in obj else {}
            return {**old, **obj, "metadata": {**old["metadata"], "labels": labels}, **spec}

        await update(self.core, Write(kind, NAMESPACE, NAME), mended)


def _metadata(labels: dict[str, str]) -> JsonObject:
    return {"name": NAME, "namespace": NAMESPACE, "labels": labels}


def _says(held: Any, wanted: Any) -> bool:
    """Whether an object holds all that it should; what defaults or others added does not matter."""
    if isinstance(wanted, dict):
        return isinstance(held, dict) and all(_says(held.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(held, list) and len(held) == len(wanted)
        return same and all(map(_says, held, wanted))
    return bool(held == wanted)
