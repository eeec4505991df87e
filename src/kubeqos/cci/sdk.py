"""The driver factory (KEP-3675): write a class with `admit`, `add` and `remove`, and `serve` it.

    class First(Driver):
        name = "first.example.com"

        def admit(self, ask):
            free = sorted(ask.available)
            if len(free) < ask.least:
                raise Refuse(f"{ask.least} cores wanted, {len(free)} free")
            return [set(free.pop(0) for _ in range(group.least)) for group in ask.groups]

    serve(First())

Sets of CPU numbers go in and come out; sockets, registration, versions, health and reading the state back after a
restart happen here. The methods may be `async`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeqos import logs
from kubeqos.cci.answers import said
from kubeqos.cci.drivers import METHODS, PLUGIN_TYPE, SERVICE, VERSIONS, WAY_KEY
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.stateservice import SOCKET_NAME, read_state
from kubeqos.errors import InputError, RemoteError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins import DEFAULT_REGISTRY
from kubeqos.plugins.health import health_service
from kubeqos.plugins.registration import Introduction, keep_registered
from kubeqos.plugins.sockets import services
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.choosing import BY_ATTRIBUTES, by_attributes
from kubeqos.topology.claims.document import Problem
from kubeqos.topology.claims.parameters import CPU, DEVICE, MEMORY, Parameters, parse_handle

REGISTRY = DEFAULT_REGISTRY
RESTORE_SECONDS = 5.0

log = logs.logger("kubeqos.cci.driver")


class Refuse(Exception):
    """Raised by a driver to say no; its text reaches the pod's status as it is."""


@dataclass(frozen=True, slots=True)
class Cores:
    """One group of cores that a claim asks for: from `least` to `most` CPUs, and the claim's attributes for them."""

    least: int
    most: int
    exclusive: bool
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A container that asks to be admitted. `parameters` is the parsed claim for those who want its types."""

    namespace: str
    claim_uid: str
    claim_name: str
    pod: str
    container: str
    available: frozenset[int]
    groups: tuple[Cores, ...]
    policy: str
    device_numa: frozenset[int]
    parameters: Parameters

    @property
    def least(self) -> int:
        return sum(group.least for group in self.groups)


@dataclass(frozen=True, slots=True)
class Start:
    """An admitted container that was created and is about to start."""

    pod: str
    container: str
    container_id: str
    cgroup: str


@dataclass(frozen=True, slots=True)
class End:
    """A container that is gone; without id it was admitted and never created."""

    namespace: str
    claim_uid: str
    claim_name: str
    container_id: str


@dataclass(frozen=True, slots=True)
class Held:
    """What a container holds, as the manager remembers it."""

    namespace: str
    claim_uid: str
    claim_name: str
    pod: str
    container: str
    container_id: str
    sets: tuple[frozenset[int], ...]
    exclusive: tuple[bool, ...]


class Driver:
    """What to derive from. Only `name` and `admit` are needed."""

    name: str = ""
    way: str = BY_ATTRIBUTES
    """How it chooses, if in one of the `WAYS` that the scheduler knows: pods are then sent only where it says yes."""

    def admit(self, ask: Ask) -> Any:
        """One set of CPU numbers per group, in order; `Refuse` to say no. An `AdmitResponse` is sent as it is."""
        raise NotImplementedError

    def add(self, start: Start) -> Any:
        """The container is about to start; raise `Refuse` to keep it from starting."""

    def remove(self, end: End) -> Any:
        """The container is gone. May come twice."""

    def restore(self, held: Sequence[Held]) -> Any:
        """Called on every registration with what the manager remembers; forget everything else."""

    def health(self) -> str:
        """Why the driver cannot work at the moment; empty when it can."""
        return ""


def serve(driver: Driver, registry: Path = REGISTRY, manager: Path | None = None) -> None:
    """Run a driver until SIGTERM or SIGINT."""
    import uvloop

    logs.to_stream(sys.stdout)
    uvloop.run(_until_told(keep_serving(driver, registry, manager)))


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def keep_serving(driver: Driver, registry: Path = REGISTRY, manager: Path | None = None) -> None:
    """Serve, register and stay registered until cancelled. `manager` is the socket of the node's CCI manager."""
    servicer = Servicer(driver, manager or registry.parent / SOCKET_NAME)
    introduction = Introduction(PLUGIN_TYPE, driver.name, VERSIONS)
    socket = registry / f"{driver.name}.sock"

    def install(server: grpc.aio.Server) -> None:
        servicer.install(server)
        log.info("waiting to be registered by the node", driver=driver.name, socket=str(socket))

    await keep_registered(socket, introduction, install, servicer.registered)


@contextlib.asynccontextmanager
async def running(driver: Driver, registry: Path, manager: Path | None = None) -> AsyncIterator[Driver]:
    """A driver that serves for the duration of a block; for tests and embedding."""
    task = asyncio.create_task(keep_serving(driver, registry, manager), name=f"driver {driver.name}")
    try:
        yield driver
    finally:
        task.cancel()
        await asyncio.wait([task])


def choose(machine: Machine, ask: Ask) -> list[CpuSet]:
    """CPUs for every group of a claim by all of its attributes, as the reference driver chooses them; or a refusal."""
    answers = by_attributes(machine, CpuSet.from_ids(ask.available), ask.parameters)
    if isinstance(answers, Unsatisfiable):
        raise Refuse(str(answers))
    return [each.cpus for each in answers]


class Servicer:
    """Messages to plain values and back."""

    def __init__(self, driver: Driver, manager: Path) -> None:
        self.driver = driver
        self.manager = manager
        self._restored = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def install(self, server: grpc.aio.Server) -> None:
        health = health_service(self.driver.health, {WAY_KEY: self.driver.way} if self.driver.way else {})
        server.add_generic_rpc_handlers((services(SERVICE, self, METHODS), health))

    def registered(self, accepted: bool, error: str) -> None:
        """The node has told the outcome; a new registration means state to read."""
        if not accepted:
            log.error("the node refuses this driver", driver=self.driver.name, reason=error)
            return
        log.info("registered", driver=self.driver.name)
        self._restored.clear()
        self._task = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        try:
            answer = await read_state(self.manager, self.driver.name)
            held = [
                Held(
                    each.namespace,
                    each.claim_uid,
                    each.claim_name,
                    each.pod,
                    each.container,
                    each.container_id,
                    tuple(frozenset(CpuSet.parse(group.cpuset)) for group in each.groups),
                    tuple(group.exclusive for group in each.groups),
                )
                for each in answer.holdings
            ]
            await _result(self.driver.restore(held))
        except RemoteError as error:
            log.info("the manager keeps no state for drivers", socket=str(self.manager), reason=error.what)
        except InputError as error:
            log.error("the manager's state cannot be read", socket=str(self.manager), reason=error.what)
        finally:
            self._restored.set()

    async def _ready(self) -> None:
        """Admit nothing while the state is being read; before the first registration there is nothing to read."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event is set.
                async with asyncio.timeout(RESTORE_SECONDS):
                    await self._restored.wait()

    async def CCIAdmit(self, request: pb.AdmitRequest, context: Any) -> pb.AdmitResponse:
        await self._ready()
        parameters = parse_handle(request.resource_handle)
        if isinstance(parameters, Problem):
            return pb.AdmitResponse(err=said(f"resource_handle: {parameters}"))
        try:
            ask = _ask(request, parameters)
        except InputError as error:
            return pb.AdmitResponse(err=said(f"availableCpus: {error.what}"))
        try:
            answer = await _result(self.driver.admit(ask))
            if isinstance(answer, pb.AdmitResponse):
                return answer
            return _answer(ask, answer)
        except Refuse as refusal:
            return pb.AdmitResponse(err=said(str(refusal)))

    async def CCIAddContainerResource(self, request: pb.AddResourceRequest, context: Any) -> pb.AddResourceResponse:
        start = Start(request.pod, request.container, request.container_id, request.cgroup)
        try:
            await _result(self.driver.add(start))
        except Refuse as refusal:
            return pb.AddResourceResponse(err=str(refusal))
        return pb.AddResourceResponse()

    async def CCIRemoveContainerResource(
        self, request: pb.RemoveResourceRequest, context: Any
    ) -> pb.RemoveResourceResponse:
        end = End(request.namespace, request.claim_uid, request.claim_name, request.container_id)
        try:
            await _result(self.driver.remove(end))
        except Refuse as refusal:
            return pb.RemoveResourceResponse(err=str(refusal))
        return pb.RemoveResourceResponse()


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _ask(request: pb.AdmitRequest, parameters: Parameters) -> Ask:
    groups = tuple(
        Cores(
            group.least,
            group.most,
            group.exclusive,
            tuple(name for key in (CPU, MEMORY, DEVICE) for name in group.attributes(key)),
        )
        for group in parameters.groups
    )
    return Ask(
        request.namespace,
        request.claim_uid,
        request.claim_name,
        request.pod,
        request.container,
        frozenset(CpuSet.parse(request.availableCpus)),
        groups,
        parameters.policy,
        frozenset(parameters.device_numa),
        parameters,
    )


def _answer(ask: Ask, sets: Iterable[Iterable[int]]) -> pb.AdmitResponse:
    """Sets of numbers as a response: `rSet` is their union, and exclusive if any of them is."""
    chosen = [CpuSet.from_ids(cpus) for cpus in sets]
    union = CpuSet()
    for cpus in chosen:
        union |= cpus
    exclusive = any(group.exclusive for group in ask.groups)
    response = pb.AdmitResponse(rSet=pb.ResourceSet(cpuset=str(union), exclusive=exclusive))
    if len(ask.groups) > 1:
        for cpus, group in zip(chosen, ask.groups, strict=True):
            response.sets.add(cpuset=str(cpus), exclusive=group.exclusive)
    return response
