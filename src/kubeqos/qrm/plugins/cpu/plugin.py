"""The CPU plugin as a process: the state behind the SDK's calls, the pools API, and the advisor's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from kubeqos.errors import InputError
from kubeqos.logs import logger
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.sockets import services
from kubeqos.qrm.messages import Allocation
from kubeqos.qrm.plugins.cpu.advisor import PoolFacts, advise
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.dividing import division, requested
from kubeqos.qrm.plugins.cpu.moving import Moved, moved
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.cpu.statefile import from_json, to_json
from kubeqos.qrm.plugins.cpu.usage import UsageReader
from kubeqos.qrm.plugins.knobs import knob_allocations
from kubeqos.qrm.plugins.roles import role_for
from kubeqos.qrm.proto import cpupools_pb2 as pb
from kubeqos.qrm.sdk.values import Capacity, Refuse, Request
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.answers import Unsatisfiable

log = logger("kubeqos.plugin.cpu")
POOLS_SERVICE = "kubeqos.qrm.cpupools.v1.CpuPools"
POOLS_METHODS = (
    ("GetPools", pb.GetPoolsRequest, pb.PoolsResponse),
    ("SetPools", pb.SetPoolsRequest, pb.PoolsResponse),
    ("MoveOwners", pb.MoveOwnersRequest, pb.PoolsResponse),
)


class CpuPlugin:
    """Hands out `cpuset.cpus`. It is asked for every container, so that none runs where it must not."""

    resource = "cpu"
    implicit = True

    def __init__(self, machine: Machine, config: CpuConfig, usage: UsageReader | None = None) -> None:
        self.state = CpuState.of(machine, config)
        self.usage = usage or UsageReader()
        self._on_change: list[Callable[[], None]] = []
        self._shrinking: Mapping[str, int] = {}

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when the state changed without a call of the manager: pools and owners are moved by people, too."""
        self._on_change.append(callback)

    def hints(self, request: Request) -> tuple[Hint, ...] | None:
        return self.state.hints(request)

    def allocate(self, request: Request) -> dict[str, Allocation] | None:
        after = self.state.allocate(request)
        if isinstance(after, Unsatisfiable):
            raise Refuse(str(after))
        self.state = after
        given = after.allocation((request.pod_uid, request.container))
        _, role = role_for(request, after.config.roles, after.config.default)
        return {"cpu": given, **knob_allocations("cpu-knobs", role.knobs)} if given else None

    pod_hints, allocate_pod = hints, allocate  # a pod as a whole is one tenant, with what its containers need together

    def release(self, pod_uid: str) -> None:
        self.state = self.state.release(pod_uid)

    def allocations(self) -> dict[str, dict[str, dict[str, Allocation]]]:
        book = self.state.allocations()
        for (uid, container), entry in self.state.entries.items():
            role = self.state.config.roles.get(entry.pod_role)
            if role and role.knobs and container in book.get(uid, {}):
                book[uid][container] |= knob_allocations("cpu-knobs", role.knobs)
        return book

    def capacity(self) -> dict[str, Capacity]:
        machine, reserved = self.state.machine, self.state.pools.reserved
        online = {numa: cpus & machine.online for numa, cpus in machine.numa_cpus.items()}
        whole = {numa: float(len(cpus)) for numa, cpus in online.items()}
        by_numa = {numa: float(len(cpus - reserved)) for numa, cpus in online.items()}
        total, allocatable = sum(whole.values()), sum(by_numa.values())
        told, asked = division(self.state), requested(self.state)
        return {"cpu": Capacity(total, allocatable, by_numa, division=told, requested=asked, total_by_numa=whole)}

    def save(self) -> Any:
        return to_json(self.state)

    def restore(self, data: Any) -> None:
        self.state, repaired = from_json(self.state.machine, self.state.config, data)
        for what in repaired:
            log.warning("not restored", what=what)

    # ---- Pools

    def resize(self, wanted: Mapping[str, CpuSet | int]) -> CpuState | Unsatisfiable:
        """Change pools, all or nothing; the manager learns of it at its next look."""
        after = self._taken_over(self.state.resize(wanted))
        if not isinstance(after, Unsatisfiable):
            log.info("pools changed", pools={name: str(cpus) for name, cpus in after.pools.named.items()})
        return after

    def move(self, wanted: Mapping[str, Moved]) -> CpuState | Unsatisfiable:
        """Give owners other CPUs, all or nothing; the manager learns of it at its next look."""
        after = self._taken_over(moved(self.state, wanted))
        if not isinstance(after, Unsatisfiable):
            log.info("owners moved", owners={name: str(one.after) for name, one in wanted.items()})
        return after

    def _taken_over(self, after: CpuState | Unsatisfiable) -> CpuState | Unsatisfiable:
        if not isinstance(after, Unsatisfiable):
            self.state = after
            for tell in self._on_change:
                tell()
        return after

    async def run(self) -> None:
        """Follow the advisor."""
        config = self.state.config.advisor
        while True:
            await asyncio.sleep(config.period_seconds)
            if self.state.config.moves:
                self.follow_advice()

    def follow_advice(self) -> None:
        pools = self.facts()
        total = sum(facts.size for facts in pools.values())
        advice = advise(self.state.config.advisor, pools, total, self._shrinking)
        self._shrinking = advice.shrinking if advice else {}
        if advice and any(pools[name].size != size for name, size in advice.sizes.items()):
            outcome = self.resize(advice.sizes)
            if isinstance(outcome, Unsatisfiable):
                log.warning("advice cannot be followed", advice=dict(advice.sizes), reason=str(outcome))

    def facts(self) -> dict[str, PoolFacts]:
        """What the advisor looks at, for each named pool."""
        state = self.state
        loads = self.usage.loads({uid for uid, _ in state.entries})
        pods: dict[str, set[str]] = {name: set() for name in state.pools.named}
        for (uid, _), entry in state.entries.items():
            pods.get(entry.owner_pool_name, set()).add(uid)
        return {
            name: PoolFacts(
                len(cpus),
                state.config.pools[name].floor,
                state.requested(name),
                sum(loads[uid].used for uid in pods[name] if uid in loads),
                max((loads[uid].pressure for uid in pods[name] if uid in loads), default=0.0),
            )
            for name, cpus in state.pools.named.items()
        }

    def install(self, server: grpc.aio.Server) -> None:
        """Serve the pools API on the plugin's socket."""
        server.add_generic_rpc_handlers((services(POOLS_SERVICE, _PoolsServicer(self), POOLS_METHODS),))


class _PoolsServicer:
    def __init__(self, plugin: CpuPlugin) -> None:
        self.plugin = plugin

    async def GetPools(self, request: pb.GetPoolsRequest, context: Any) -> pb.PoolsResponse:
        return _pools_message(self.plugin.state)

    async def SetPools(self, request: pb.SetPoolsRequest, context: Any) -> pb.PoolsResponse:
        try:
            wanted = {name: _size(name, size) for name, size in request.pools.items()}
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.what)
            raise
        return await _answered(self.plugin.resize(wanted), context)

    async def MoveOwners(self, request: pb.MoveOwnersRequest, context: Any) -> pb.PoolsResponse:
        try:
            wanted = {
                name: Moved(CpuSet.parse(one.before), CpuSet.parse(one.after)) for name, one in request.owners.items()
            }
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.what)
            raise
        return await _answered(self.plugin.move(wanted), context)


async def _answered(outcome: CpuState | Unsatisfiable, context: Any) -> pb.PoolsResponse:
    if isinstance(outcome, Unsatisfiable):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(outcome))
        raise AssertionError("abort does not return")
    return _pools_message(outcome)


def _size(name: str, size: pb.Size) -> CpuSet | int:
    kind = size.WhichOneof("wanted")
    if kind is None:
        raise InputError(f"pool {name}: say which CPUs or how many")
    return CpuSet.parse(size.cpus) if kind == "cpus" else size.count


def _pools_message(state: CpuState) -> pb.PoolsResponse:
    members: dict[str, list[str]] = {}
    for container, pool in state.pools.members.items():
        members.setdefault(pool, []).append(container)
    return pb.PoolsResponse(
        pools=[
            pb.Pool(
                name=name,
                cpus=str(cpus),
                count=len(cpus),
                requested=state.requested(name),
                containers=sorted(members.get(name, ())),
            )
            for name, cpus in state.pools.partition.items()
        ]
    )
