"""Asking a CRI runtime what it runs and which classes it offers, for `kubeqos runtime ps`, `inspect` and `classes`.

Apart from the commands because gRPC takes a tenth of a second to load, and their help does not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import class_of
from kubeqos.errors import InputError

T = TypeVar("T")


def ask(endpoint: str, question: Callable[[CriClient], Awaitable[T]]) -> T:
    """The answer of the runtime at an endpoint."""

    async def answer() -> T:
        async with CriClient(endpoint) as client:
            return await question(client)

    return asyncio.run(answer())


async def containers(client: CriClient, everything: bool) -> list[dict[str, Any]]:
    """Containers with their pods and classes; unless everything is wanted, those that run."""
    running = cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
    sandboxes = {sandbox.id: sandbox for sandbox in await client.list_pod_sandboxes()}
    rows = []
    for container in await client.list_containers(None if everything else running):
        sandbox = sandboxes.get(container.pod_sandbox_id, cri.PodSandbox())
        found = await _container_classes(client, container.id)
        rows.append(
            {
                "id": container.id,
                "name": container.metadata.name,
                "pod": sandbox.metadata.name,
                "namespace": sandbox.metadata.namespace,
                "state": cri.ContainerState.Name(container.state).removeprefix("CONTAINER_").capitalize(),
                "attempt": container.metadata.attempt,
                "classes": ", ".join(f"{resource}={cls}" for resource, cls in found),
            }
        )
    return rows


async def inspected(client: CriClient, identity: str) -> dict[str, Any]:
    """The container or sandbox whose id begins so."""
    found = await client.list_containers(cri.ContainerFilter(id=identity))
    if len(found) == 1:
        return _plain(await client.container_status(found[0].id, verbose=True))
    sandboxes = await client.list_pod_sandboxes(cri.PodSandboxFilter(id=identity))
    if len(sandboxes) == 1:
        return _plain(await client.pod_sandbox_status(sandboxes[0].id, verbose=True))
    raise InputError(
        f"no container or sandbox {identity!r}, or more than one",
        where=client.endpoint,
        remedy="`kubeqos runtime ps --all` lists them",
    )


def _plain(message: Message) -> dict[str, Any]:
    """A status as plain data, with the runtime's own information unpacked from its JSON text."""
    out: dict[str, Any] = json_format.MessageToDict(message)
    for key, text in out.get("info", {}).items():
        if text.startswith(("{", "[")):
            out["info"][key] = decode_json(text)
    return out


async def classes(client: CriClient) -> list[dict[str, Any]]:
    """The QoS-class resources on offer, with how many pods or containers have each class."""
    info = (await client.status()).status.resources
    assigned = await _assigned(client) if info.ByteSize() else Counter()
    return [
        {
            "resource": resource.name,
            "level": level,
            "class": cls.name,
            "capacity": cls.capacity or "unlimited",
            "assigned": assigned[resource.name, cls.name],
            "mutable": resource.mutable,
        }
        for level, resources in (("pod", info.pod_qos_resources), ("container", info.container_qos_resources))
        for resource in resources
        for cls in resource.classes
    ]


async def _assigned(client: CriClient) -> Counter[tuple[str, str]]:
    """How many live sandboxes and containers have each class, implicit defaults included."""
    counts: Counter[tuple[str, str]] = Counter()
    ready = cri.PodSandboxFilter(state=cri.PodSandboxStateValue(state=cri.SANDBOX_READY))
    for sandbox in await client.list_pod_sandboxes(ready):
        counts.update(await _sandbox_classes(client, sandbox.id))
    for container in await client.list_containers():
        if container.state != cri.CONTAINER_EXITED:
            counts.update(await _container_classes(client, container.id))
    return counts


async def _sandbox_classes(client: CriClient, sandbox_id: str) -> list[tuple[str, str]]:
    with _may_be_gone():
        status = (await client.pod_sandbox_status(sandbox_id)).status
        return [(resource.name, class_of(resource)) for resource in status.qos_resources]
    return []


async def _container_classes(client: CriClient, container_id: str) -> list[tuple[str, str]]:
    with _may_be_gone():
        status = (await client.container_status(container_id)).status
        return [(resource.name, class_of(resource)) for resource in status.resources.qos_resources]
    return []


@contextlib.contextmanager
def _may_be_gone() -> Iterator[None]:
    """Between a list and a look at its items some of them end."""
    try:
        yield
    except CallError as error:
        if error.code is not Code.NOT_FOUND:
            raise
