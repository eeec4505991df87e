"""Puts kubeqos into a stock cluster and takes it out again, over the API. Each step says what it did.

Leaving, the webhooks go first, so that at no moment a namespace waits for somebody who is gone; then the agents, which
clear their nodes; then everything else that works; then what stands on Nodes; then our kinds with their objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kubeqos.client import Api, ApiError, PatchType
from kubeqos.client.resources import CONFIG_MAPS, NODES, Resource
from kubeqos.codec import decode_json
from kubeqos.errors import ConfigurationError
from kubeqos.stock import installation
from kubeqos.stock.cluster import DEVICE_SLICES, NODE_QOSES, PODS
from kubeqos.stock.control.offers import Offer, label_changes, status_changes
from kubeqos.stock.control.registration import MUTATING, NAME, VALIDATING
from kubeqos.stock.cores.devices import DRIVER
from kubeqos.stock.names import LEAVING, ROOM
from kubeqos.stock.validator import parse_settings

Raw = dict[str, Any]
MANAGER = "kubeqos-install"
AGENTS = "app.kubernetes.io/name=kubeqos-agent"
AGENTS_SECONDS, POLL_SECONDS = 90.0, 0.5
"""How long agents may take to end; a kubelet gives them 30 s, once it has heard of it."""
_NOTHING = Offer({}, {})


async def install(api: Api, image: str, settings: Mapping[str, str]) -> AsyncIterator[str]:
    """Apply everything; again after a change, or to a newer version, does the same."""
    for raw in installation.objects(image, settings):
        yield await _applied(api, raw)
    for raw in installation.first_settings():
        if raw["metadata"]["name"] not in settings and await _existing(api, CONFIG_MAPS, raw["metadata"]) is None:
            yield await _applied(api, raw)


async def _applied(api: Api, raw: Raw) -> str:
    resource, metadata = installation.resource_for(raw), raw["metadata"]
    place = metadata.get("namespace", "")
    await api.patch(resource, metadata["name"], raw, place, type=PatchType.APPLY, manager=MANAGER, force=True)
    return f"{_named(resource, metadata['name'])} applied"


async def uninstall(api: Api) -> AsyncIterator[str]:
    """Delete everything, and leave nothing on Nodes."""
    for resource in (VALIDATING, MUTATING):
        if await _deleted(api, resource, {"name": NAME}):
            yield f"{_named(resource, NAME)} deleted"
    await _send_off(api)
    waiting = await _needs_restart(api)
    definitions = []
    for resource, metadata in installation.removals():
        if resource.kind in ("CustomResourceDefinition", "Namespace"):
            definitions.append((resource, metadata))
        elif await _deleted(api, resource, metadata):
            yield f"{_named(resource, metadata['name'])} deleted"
            if resource.kind == "DaemonSet":
                async for said in _ended(api):
                    yield said
                if waiting:
                    yield waiting
    async for said in _clean_nodes(api):
        yield said
    async for said in _withdraw_cores(api):
        yield said
    for resource, metadata in definitions:
        if await _deleted(api, resource, metadata):
            yield f"{_named(resource, metadata['name'])} deleted"


async def _send_off(api: Api) -> None:
    """Tell every agent that it is not to come back."""
    try:
        found = [decode_json(raw) for raw in (await api.list(NODE_QOSES)).items]
    except ApiError as error:
        if not error.not_found:
            raise
        return
    for raw in found:
        await api.patch(NODE_QOSES, raw["metadata"]["name"], {"metadata": {"annotations": {LEAVING: "true"}}})


async def _needs_restart(api: Api) -> str:
    """What is left to do on nodes whose runtimes agents were let to change, and not to restart."""
    stored = await _existing(api, CONFIG_MAPS, {"name": installation.RUNTIME, "namespace": installation.NAMESPACE})
    text = ((stored or {}).get("data") or {}).get(installation.SETTINGS[installation.RUNTIME], "")
    try:
        settings = parse_settings(text, installation.RUNTIME)
    except ConfigurationError:
        return ""  # no agent could read it either
    if settings is None or settings.restart:
        return ""
    return "every node: restart the container runtime; until then pods that asked for something do not start there"


async def _ended(api: Api) -> AsyncIterator[str]:
    """Wait until the agents' pods have ended: they need their rights and their NodeQOS until then."""
    deadline = time.monotonic() + AGENTS_SECONDS
    while pods := (await api.list(PODS, installation.NAMESPACE, labels=AGENTS)).items:
        if time.monotonic() > deadline:
            for raw in pods:
                node = (decode_json(raw).get("spec") or {}).get("nodeName", "")
                yield f"node/{node}: its agent has not ended; look there for /var/lib/kubeqos"
            return
        await asyncio.sleep(POLL_SECONDS)


async def _clean_nodes(api: Api) -> AsyncIterator[str]:
    for raw in (await api.list(NODES)).items:
        node = decode_json(raw)
        name, changed = node["metadata"]["name"], False
        noted = {ROOM: None} if ROOM in (node["metadata"].get("annotations") or {}) else {}
        if (labels := label_changes(node, _NOTHING)) or noted:
            await api.patch(NODES, name, {"metadata": {"labels": labels, "annotations": noted}})
            changed = True
        if status := status_changes(node, _NOTHING):
            await api.patch(NODES, name, {"status": status}, subresource="status")
            changed = True
        if changed:
            yield f"node/{name} cleaned"


async def _withdraw_cores(api: Api) -> AsyncIterator[str]:
    """Delete what agents have published of their nodes' cores; a server without DRA has none of it."""
    try:
        found = [decode_json(raw) for raw in (await api.list(DEVICE_SLICES)).items]
    except ApiError as error:
        if not error.not_found:
            raise
        return
    for raw in found:
        if raw["spec"].get("driver") == DRIVER and await _deleted(api, DEVICE_SLICES, raw["metadata"]):
            yield f"{_named(DEVICE_SLICES, raw['metadata']['name'])} deleted"


async def _existing(api: Api, resource: Resource, metadata: Raw) -> Raw | None:
    try:
        return await api.get(resource, metadata["name"], metadata.get("namespace", ""))
    except ApiError as error:
        if error.not_found:
            return None
        raise


async def _deleted(api: Api, resource: Resource, metadata: Any) -> bool:
    try:
        await api.delete(resource, metadata["name"], metadata.get("namespace", ""), propagation="Background")
    except ApiError as error:
        if error.not_found:
            return False
        raise
    return True


def _named(resource: Resource, name: str) -> str:
    return f"{resource.kind.lower()}/{name}"
