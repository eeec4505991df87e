"""What plugins say about containers and about the node, merged for the pod-resources server (KEP-3461, Pod Resources
Server). A plugin that fails is named beside the answers of the others and hides nothing of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.qrm.answers import Nonsense
from kubeqos.qrm.edge.messages import read_capacity, read_container_resources
from kubeqos.qrm.endpoint import CAPACITY, Endpoint, WrongAnswer
from kubeqos.qrm.endpoints import Endpoints
from kubeqos.qrm.proto import resourceplugin_pb2 as pb

PATIENCE_SECONDS = 1.0
"""How long the answers of the others wait for a plugin."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Answers by resource name, and what went wrong."""

    resources: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


async def container_resources(endpoints: Endpoints, pod_uid: str, container: str) -> Merged:
    """Everything that plugins gave one container, as `TopologyAwareResource`s."""
    request = pb.GetTopologyAwareResourcesRequest(pod_uid=pod_uid, container_name=container)
    method = "GetTopologyAwareResources"

    def read(answer: Any) -> Mapping[str, Any] | Nonsense:
        return read_container_resources(answer, pod_uid, container, endpoints.machine)

    answers = await _ask_all(endpoints, method, request)
    return _merge([(name, _believed(endpoints, name, method, answer, read)) for name, answer in answers])


async def allocatable_resources(endpoints: Endpoints) -> Merged:
    """What the node has and may hand out, as `AllocatableTopologyAwareResource`s."""
    request = pb.GetTopologyAwareAllocatableResourcesRequest()

    def read(answer: Any) -> Mapping[str, Any] | Nonsense:
        wrong = read_capacity(answer, endpoints.machine)
        return wrong if isinstance(wrong, Nonsense) else answer.allocatable_resources

    answers = await _ask_all(endpoints, CAPACITY, request)
    return _merge([(name, _believed(endpoints, name, CAPACITY, answer, read)) for name, answer in answers])


def _believed(
    endpoints: Endpoints, plugin: str, method: str, answer: Any, read: Callable[[Any], Mapping[str, Any] | Nonsense]
) -> Mapping[str, Any] | str:
    """What an answer says, or why there is none that can be used."""
    if isinstance(answer, str):
        return answer
    found = read(answer)
    if isinstance(found, Nonsense):
        endpoints.refused.refuse(plugin, method, str(found))
        return WrongAnswer(plugin, found).what
    endpoints.refused.accept(plugin, method)
    return found


async def _ask_all(endpoints: Endpoints, method: str, request: Any) -> list[tuple[str, Any]]:
    async def ask(endpoint: Endpoint) -> tuple[str, Any]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return endpoint.name, await endpoint.call(method, request)
        except RemoteError as error:
            return endpoint.name, error.what
        except TimeoutError:
            return endpoint.name, f"plugin {endpoint.name} does not answer {method}"

    return await asyncio.gather(*map(ask, endpoints))


def _merge(answers: Iterable[tuple[str, Mapping[str, Any] | str]]) -> Merged:
    resources: dict[str, Any] = {}
    owners: dict[str, str] = {}
    errors = []
    for plugin, answer in answers:
        if isinstance(answer, str):
            errors.append(answer)
            continue
        for name, one in answer.items():
            if name in owners:
                errors.append(f"plugins {owners[name]} and {plugin} both report {name}")
            else:
                owners[name], resources[name] = plugin, one
    return Merged(resources, tuple(errors))
