"""A manager and plugins in one event loop, over real sockets: for tests that script what a plugin says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeqos.model.hardware.named import kep80
from kubeqos.model.machine import Machine
from kubeqos.plugins.managers import AdmittedPod, Grant, Refusal
from kubeqos.plugins.registration import Introduction, serve_registration
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.messages import METHODS, PLUGIN_TYPE, SERVICE, VERSION
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.registry import registering
from kubeqos.qrm.sdk import Allocation, Options, Request, running
from kubeqos.qrm.settings import Event, QrmSettings
from kubeqos.topology.alignment.hints import Hint, Policy
from kubeqos.topology.alignment.merge import merge
from tests.node.updates.told import Told
from tests.qrm.harness import admitted, refs, until

QUICK = QrmSettings(reconcile_seconds=0.05, capacity_seconds=0, stranger_seconds=0)


class Scripted:
    """A plugin that says what the test wants, and writes down what it was asked."""

    def __init__(self, resource: str, given: Any = None, **traits: Any) -> None:
        self.resource = resource
        self.given = given
        self.asked: list[Request] = []
        self.released: list[str] = []
        self.book: dict[str, dict[str, dict[str, Allocation]]] = {}
        for name, value in traits.items():
            setattr(self, name, value)

    async def allocate(self, request: Request) -> Any:
        self.asked.append(request)
        given = self.given(request) if callable(self.given) else self.given
        given = await given if asyncio.iscoroutine(given) else given
        table = {self.resource: given} if isinstance(given, Allocation) else dict(given or {})
        if table:
            self.book.setdefault(request.pod_uid, {}).setdefault(request.container, {}).update(table)
        return table

    def allocations(self) -> Any:
        return self.book

    def release(self, pod_uid: str) -> None:
        self.released.append(pod_uid)
        self.book.pop(pod_uid, None)


def cpus(text: str, quantity: float = 100.0, *, exclusive: bool = False, **more: Any) -> Allocation:
    return Allocation(property="CpusetCpus", result=text, quantity=quantity, scalar=True, exclusive=exclusive, **more)


class Bench:
    """One manager, its events, and admission as the agent does it."""

    def __init__(self, manager: QosResourceManager, folder: Path, events: list[Event]) -> None:
        self.manager = manager
        self.folder = folder
        self.events = events
        self.containers = Told((manager.machine or kep80()).online)

    async def usable(self, *names: str) -> None:
        for name in names:
            await until(f"plugin {name}", lambda name=name: (e := self.manager.endpoints.get(name)) and e.usable)

    async def gone(self, name: str) -> None:
        await until(f"{name} is gone", lambda: (e := self.manager.endpoints.get(name)) and not e.live)

    async def admit(self, raw: Mapping[str, Any], policy: Policy = Policy.RESTRICTED) -> list[Grant] | Refusal:
        """Offers, merge, allocation of every container; everything is given back after a refusal."""
        known = admitted(dict(raw))
        grants = []
        for ref in refs(known):
            offers = await self.manager.offers(known, ref)
            merged = merge(offers, (self.manager.machine or kep80()).numa, policy)
            outcome = (
                await self.manager.allocate(known, ref, merged.hint)
                if merged.admitted
                else Refusal("TopologyAffinityError", merged.because)
            )
            if isinstance(outcome, Refusal):
                await self.manager.release(known.uid)
                return outcome
            grants.append(outcome)
        for ref, grant in zip(refs(known), grants, strict=True):
            self.containers.created((known.uid, ref.name), grant)
        return grants

    async def restore(self, saved: Any, pods: Mapping[str, AdmittedPod], before: Bench) -> list[str]:
        """An agent starts where the containers of the one before run."""
        repaired = await self.manager.restore(saved, pods)
        self.containers.found(before.containers.has, self.manager.grants())
        return repaired

    async def told(self) -> list[tuple[str, str]]:
        """One period: whom it would tell which CPUs, in order."""
        await self.manager.reconcile()
        updates = self.containers.updates(self.manager.grants())
        return [(one.key[0], str(one.grant.properties.get("cpuset_cpus"))) for one in updates]

    @contextlib.asynccontextmanager
    async def plugin(self, plugin: Any, *, name: str = "", state: Path | None = None) -> AsyncIterator[Any]:
        """Run a plugin until the end of the block, registered."""
        async with running(plugin, Options(self.folder / "r", name, state)):
            await self.usable(plugin.resource)
            yield plugin


@contextlib.asynccontextmanager
async def bench(
    folder: Path,
    settings: QrmSettings = QUICK,
    machine: Machine | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Bench]:
    events: list[Event] = []
    extra = {"clock": clock} if clock else {}
    manager = QosResourceManager(settings, machine or kep80(), emit=events.append, **extra)  # type: ignore[arg-type]
    async with registering(manager, watched=folder / "r", folder=folder / "legacy", scan_seconds=0.02):
        yield Bench(manager, folder, events)
    await manager.close()


def raw_plugin(answers: Mapping[str, Callable[[Any], Any]]) -> Callable[[grpc.aio.Server], None]:
    """A plugin below the SDK: methods that answer with whatever bytes or messages the test gives."""

    def handler(method: str, answer: Callable[[Any], Any]) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            try:
                found = answer(request)
            except NotImplementedError as error:  # as a Go server tells an error that is no status
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            return await found if asyncio.iscoroutine(found) else found

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=METHODS[method][0].FromString,
            response_serializer=lambda said: said if isinstance(said, bytes) else said.SerializeToString(),
        )

    def install(server: grpc.aio.Server) -> None:
        table = {
            "GetResourcePluginOptions": lambda _: pb.ResourcePluginOptions(
                with_topology_alignment=True, need_reconcile=True
            ),
            **answers,
        }
        handlers = {method: handler(method, answer) for method, answer in table.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    return install


@contextlib.asynccontextmanager
async def serving_raw(folder: Path, resource: str, answers: Mapping[str, Callable[[Any], Any]]) -> AsyncIterator[None]:
    said = Introduction(PLUGIN_TYPE, resource, (VERSION,))
    async with serve_registration(folder / "r" / f"{resource}.sock", said, raw_plugin(answers)):
        yield


NUMA_0, NUMA_1 = (Hint(type(kep80().numa).of(n), True) for n in (0, 1))
