"""Replicas of the controller in a test's own process, and a client that asks them as an API server does."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import jsonpatch

from kubeqos.client import Api, ApiError
from kubeqos.client.leadership import Terms
from kubeqos.client.resources import NAMESPACES, Resource, resource_named
from kubeqos.codec import decode_json, encode_json
from kubeqos.manifests import read
from kubeqos.model.kinds import APIEXTENSIONS
from kubeqos.stock.cluster import CLASSES, LIMIT_RANGES, NODE_QOSES, PODS, QUOTAS, RESOURCES
from kubeqos.stock.control.controller import Settings, StockController
from kubeqos.stock.control.registration import Address
from tests.qrm.harness import until
from tests.stock.kube_apiserver import free_ports

NAMESPACE = "kubeqos-system"
QUICK = Terms(lease_seconds=3.0, renew_seconds=2.0, retry_seconds=0.2)
DEFINITIONS = resource_named("CustomResourceDefinition", APIEXTENSIONS)
Raw = dict[str, Any]


async def ensured(api: Api, resource: Resource, body: Raw, namespace: str = "") -> None:
    try:
        await api.create(resource, body, namespace=namespace)
    except ApiError as error:
        if not error.already_exists:
            raise


async def prepared(api: Api, *namespaces: str) -> None:
    """Our kinds and these namespaces, known and served."""
    for manifest in read([str(files("kubeqos.stock") / "crds")]):
        await ensured(api, DEFINITIONS, manifest.raw)
    for name in (NAMESPACE, *namespaces):
        await ensured(api, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for resource in (CLASSES, RESOURCES, QUOTAS, LIMIT_RANGES, NODE_QOSES):
        await until("served", lambda resource=resource: _is_served(api, resource))


async def _is_served(api: Api, resource: Resource) -> bool:
    try:
        await api.list(resource)
    except ApiError as error:
        if error.not_served:
            return False
        raise
    return True


def utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@asynccontextmanager
async def replica(
    api: Api,
    name: str,
    port: int = 0,
    now: Callable[[], datetime.datetime] = utc,
    *,
    strict_names: bool = False,
    period: float = 0.2,
) -> AsyncIterator[StockController]:
    """One replica, answering; gone after the block."""
    port = port or free_ports(1)[0]
    address = Address(url=f"https://127.0.0.1:{port}")
    settings = Settings(address, NAMESPACE, name, "127.0.0.1", port, strict_names, period, QUICK)
    controller = StockController(api, settings, now)
    running = asyncio.create_task(controller.run())
    try:
        async with asyncio.timeout(60):
            await controller.ready.wait()
        yield controller
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def asked(port: int, path: str, bundle: bytes, request: Raw) -> Raw:
    """What a webhook answers to an AdmissionReview, over TLS that trusts the published authorities alone."""
    tls = ssl.create_default_context(cadata=bundle.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", **request}}
    body = encode_json(review)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    found: Raw = decode_json(answer.partition(b"\r\n\r\n")[2])["response"]
    return found


class Uids:
    """The uids that a server gives; the next one can be chosen: webhooks see the uid of a pod before it is stored."""

    def __init__(self) -> None:
        self.next = ""

    def __call__(self) -> str:
        chosen, self.next = self.next or str(uuid.uuid4()), ""
        return chosen


async def admitted(api: Api, uids: Uids, port: int, bundle: bytes, pod: Raw) -> str:
    """Create a pod as an API server with webhooks does: changed, then judged, then stored; why not, or nothing."""
    namespace = pod["metadata"]["namespace"]
    request = {"operation": "CREATE", "namespace": namespace, "object": pod}
    mutated = await asked(port, "/mutate", bundle, request)
    if not mutated["allowed"]:
        return str(mutated["status"]["message"])
    if "patch" in mutated:
        pod = jsonpatch.apply_patch(pod, decode_json(base64.b64decode(mutated["patch"])))
    uid = pod["metadata"]["uid"] = str(uuid.uuid4())
    judged = await asked(port, "/validate", bundle, {**request, "object": pod})
    if not judged["allowed"]:
        return str(judged["status"]["message"])
    uids.next = uid
    assert (await api.create(PODS, pod, namespace))["metadata"]["uid"] == uid
    return ""
