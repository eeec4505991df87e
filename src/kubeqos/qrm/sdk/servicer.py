"""The plugin's end of the protocol: every call of `ResourcePlugin`, answered from an author's object.

State is saved before an answer leaves, so whatever a manager was told survives the plugin's death.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import msgspec
from prometheus_client import CollectorRegistry, Histogram

from kubeqos.checkpoint import Checkpoint
from kubeqos.codec import encode_json
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.qrm.messages import (
    METHODS,
    WHOLE_POD,
    Allocation,
    NumaHint,
    allocations_to_wire,
    division_to_wire,
    hints_to_wire,
)
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk.values import Capacity, Request, pod_request_from_wire, request_from_wire

log = logger("kubeqos.plugin")
Book = dict[str, dict[str, dict[str, Allocation]]]  # pod uid → container, or WHOLE_POD → resource
OPTIONAL = {"GetPodTopologyHints": "pod_hints", "AllocateForPod": "allocate_pod"}
"""Calls that a plugin answers only when its author wrote the method: managers do without."""


class Servicer:
    """Serves one plugin. Its methods are entered one at a time, so an author needs no locks."""

    def __init__(self, plugin: Any, checkpoint: Checkpoint | None = None, registry: CollectorRegistry | None = None):
        self.plugin = plugin
        self.resource: str = plugin.resource
        self._checkpoint = checkpoint
        self._book: Book = {}
        self._own_book = not hasattr(plugin, "allocations")
        self._saved: bytes | None = None
        self._lock = asyncio.Lock()
        self._calls = Histogram(
            "kubeqos_plugin_call_seconds", "Calls served.", ("method", "code"), registry=registry or CollectorRegistry()
        )

    # ---- State

    def restore(self) -> tuple[str, ...]:
        """Take over the state file; returns the names of damaged files that were set aside."""
        if self._checkpoint is None:
            return ()
        loaded = self._checkpoint.load()
        if loaded.data is not None:
            if hasattr(self.plugin, "save"):
                self.plugin.restore(loaded.data)
            elif self._own_book:
                self._book = msgspec.convert(loaded.data.get("pod_entries", {}), Book, strict=False)
                if hasattr(self.plugin, "restore"):
                    self.plugin.restore(self._book)
            self._saved = encode_json(loaded.data)
        return loaded.set_aside

    def save(self) -> None:
        """Write the state file, if there is something new to write."""
        if self._checkpoint is None:
            return
        if hasattr(self.plugin, "save"):
            state = self.plugin.save()
        else:
            state = {"pod_entries": msgspec.to_builtins(self._book, str_keys=True)}
        # By value: a plugin may return the very dictionary that it goes on changing.
        text = encode_json(state)
        if text != self._saved:
            self._checkpoint.save(state)
            self._saved = text

    # ---- Calls

    def handlers(self) -> Any:
        """Every method of the service, each through the one funnel that measures and turns errors into statuses."""
        return {
            name: grpc.unary_unary_rpc_method_handler(
                self._funnel(name, self._method(name)),
                request_deserializer=asked.FromString,
                response_serializer=answer.SerializeToString,
            )
            for name, (asked, answer, _) in METHODS.items()
        }

    def _method(self, name: str) -> Callable[[Any], Awaitable[Any]] | None:
        """What answers a call; nothing when it is an optional one that the author left out."""
        needed = OPTIONAL.get(name)
        return None if needed and not hasattr(self.plugin, needed) else getattr(self, f"_{_snake(name)}", None)

    def _funnel(self, name: str, method: Callable[[Any], Awaitable[Any]] | None) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            started, code = time.perf_counter(), grpc.StatusCode.OK
            try:
                if method is None:
                    code = grpc.StatusCode.UNIMPLEMENTED
                    await context.abort(code, f"{self.resource}: {name} is not implemented")
                if name == "GetResourcePluginOptions":
                    return await method(request)  # type: ignore[misc]  # a probe must not wait behind slow calls
                async with self._lock:
                    return await method(request)  # type: ignore[misc]
            except KubeqosError as error:
                code = grpc.StatusCode.FAILED_PRECONDITION
                await context.abort(code, " ".join(line.strip() for line in error.lines()))
            except (grpc.RpcError, grpc.aio.AbortError):
                raise
            except Exception as error:
                # An author's bug must not look like a broken connection.
                code = grpc.StatusCode.INTERNAL
                log.exception("the plugin failed", method=name)
                await context.abort(code, f"{type(error).__name__}: {error}")
            finally:
                self._calls.labels(name, code.name).observe(time.perf_counter() - started)

        return handle

    async def _get_resource_plugin_options(self, request: pb.Empty) -> pb.ResourcePluginOptions:
        plugin = self.plugin
        implicit = getattr(plugin, "implicit", False)
        return pb.ResourcePluginOptions(
            pre_start_required=hasattr(plugin, "pre_start"),
            with_topology_alignment=hasattr(plugin, "hints"),
            need_reconcile=True,
            extra_resources=list(getattr(plugin, "extra_resources", ())),
            implicit=bool(implicit),
            implicit_roles=[] if isinstance(implicit, bool) else sorted(implicit),
        )

    async def _get_topology_hints(self, sent: pb.ResourceRequest) -> pb.ResourceHintsResponse:
        hints: Mapping[str, Any] | Any = None
        if hasattr(self.plugin, "hints"):
            hints = await _now(self.plugin.hints(request_from_wire(sent)))
        table = hints if isinstance(hints, Mapping) else {sent.resource_name: hints}
        return pb.ResourceHintsResponse(resource_hints=hints_to_wire(table), **_echo(sent))

    async def _allocate(self, sent: pb.ResourceRequest) -> pb.ResourceAllocationResponse:
        request = request_from_wire(sent)
        given = self._entered(request, await _now(self.plugin.allocate(request)))
        return pb.ResourceAllocationResponse(allocation_result=allocations_to_wire(given), **_echo(sent))

    async def _get_pod_topology_hints(self, sent: pb.PodResourceRequest) -> pb.PodResourceHintsResponse:
        hints = await _now(self.plugin.pod_hints(pod_request_from_wire(sent)))
        table = hints if isinstance(hints, Mapping) else {sent.resource_name: hints}
        return pb.PodResourceHintsResponse(resource_hints=hints_to_wire(table), **_echo(sent, POD_ECHOED))

    async def _allocate_for_pod(self, sent: pb.PodResourceRequest) -> pb.PodResourceAllocationResponse:
        request = pod_request_from_wire(sent)
        given = self._entered(request, await _now(self.plugin.allocate_pod(request)))
        return pb.PodResourceAllocationResponse(allocation_result=allocations_to_wire(given), **_echo(sent, POD_ECHOED))

    def _entered(self, request: Request, answer: Any) -> dict[str, Allocation]:
        """What the author gave, remembered and saved."""
        given = _by_name(answer, request)
        if self._own_book:
            self._book.setdefault(request.pod_uid, {}).setdefault(request.container, {}).update(given)
        self.save()
        return given

    async def _remove_pod(self, sent: pb.RemovePodRequest) -> pb.RemovePodResponse:
        if hasattr(self.plugin, "release"):
            await _now(self.plugin.release(sent.pod_uid))
        self._book.pop(sent.pod_uid, None)
        self.save()
        return pb.RemovePodResponse()

    async def _get_resources_allocation(self, _: Any) -> pb.GetResourcesAllocationResponse:
        return pb.GetResourcesAllocationResponse(
            pod_resources={
                uid: pb.ContainerResources(
                    container_resources={name: allocations_to_wire(given) for name, given in containers.items()}
                )
                for uid, containers in (await self._allocations()).items()
            }
        )

    async def _get_topology_aware_resources(
        self, sent: pb.GetTopologyAwareResourcesRequest
    ) -> pb.GetTopologyAwareResourcesResponse:
        held = (await self._allocations()).get(sent.pod_uid, {})
        given = held.get(sent.container_name) or held.get(WHOLE_POD, {})
        resources = {name: _topology_aware(one) for name, one in given.items()}
        return pb.GetTopologyAwareResourcesResponse(
            pod_uid=sent.pod_uid,
            container_topology_aware_resources=pb.ContainerTopologyAwareResources(
                container_name=sent.container_name, allocated_resources=resources
            ),
        )

    async def _get_topology_aware_allocatable_resources(
        self, _: Any
    ) -> pb.GetTopologyAwareAllocatableResourcesResponse:
        table: Mapping[str, Capacity] = {}
        if hasattr(self.plugin, "capacity"):
            found = await _now(self.plugin.capacity())
            table = found if isinstance(found, Mapping) else {self.resource: found}
        return pb.GetTopologyAwareAllocatableResourcesResponse(
            allocatable_resources={name: _capacity_to_wire(one) for name, one in table.items()}
        )

    async def _pre_start_container(self, sent: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        if hasattr(self.plugin, "pre_start"):
            await _now(self.plugin.pre_start(sent.pod_uid, sent.container_name))
        return pb.PreStartContainerResponse()

    async def _update_allocatable_associated_devices(self, _: Any) -> pb.UpdateAllocatableAssociatedDevicesResponse:
        return pb.UpdateAllocatableAssociatedDevicesResponse()

    async def _allocations(self) -> Book:
        if self._own_book:
            return self._book
        book: Book = await _now(self.plugin.allocations())
        return book


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


async def _now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _by_name(given: Any, request: Request) -> dict[str, Allocation]:
    """An author may give one allocation, several by name, or nothing. The hint it was made under goes with it."""
    table = {} if given is None else {request.resource: given} if isinstance(given, Allocation) else dict(given)
    own = table.get(request.resource)
    if own is not None and not own.hints and request.hint.numa is not None:
        table[request.resource] = msgspec.structs.replace(own, hints=(NumaHint.of(request.hint),))
    return table


POD_ECHOED = (
    *("pod_uid", "pod_namespace", "pod_name", "pod_role", "pod_type"),
    *("resource_name", "labels", "annotations"),
)
ECHOED = (*POD_ECHOED, "container_name", "container_type", "container_index", "native_qos_class")


def _echo(sent: Any, names: Sequence[str] = ECHOED) -> dict[str, Any]:
    """The part of a request that an answer repeats."""
    return {name: getattr(sent, name) for name in names}


def _by_node(amounts: Mapping[int, float]) -> list[pb.TopologyAwareQuantity]:
    return [pb.TopologyAwareQuantity(resource_value=amount, node=numa) for numa, amount in amounts.items()]


def _topology_aware(one: Allocation) -> pb.TopologyAwareResource:
    spread = _by_node(one.assignments)
    return pb.TopologyAwareResource(
        is_node_resource=one.node,
        is_scalar_resource=one.scalar,
        aggregated_quantity=one.quantity,
        original_aggregated_quantity=one.quantity,
        topology_aware_quantity_list=spread,
        original_topology_aware_quantity_list=spread,
    )


def _capacity_to_wire(one: Capacity) -> pb.AllocatableTopologyAwareResource:
    return pb.AllocatableTopologyAwareResource(
        is_node_resource=one.node,
        is_scalar_resource=True,
        aggregated_allocatable_quantity=one.total if one.allocatable is None else one.allocatable,
        topology_aware_allocatable_quantity_list=_by_node(one.by_numa),
        aggregated_capacity_quantity=one.total,
        topology_aware_capacity_quantity_list=_by_node(one.spread()),
        division=division_to_wire(one.division, one.requested) if one.division else None,
    )
