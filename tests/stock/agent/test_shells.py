"""One stream of events through both shells of the agent: the same classes, the same refusals, the same effects.

The relay is in front of the simulated runtime; the NRI plugin is told of the very same pods and containers.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.checkpoint import Checkpoint
from kubeqos.cri.classes.keeper import ClassRefused
from kubeqos.cri.classes.table import ClassTable
from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import Assignment, ClassHolders
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, ClassRefusal, Level, Place, Subject
from kubeqos.cri.relay.keeper import Keeper
from kubeqos.cri.relay.proxy import CallDenied
from kubeqos.cri.relay.service import ClassService
from kubeqos.cri.runtime import (
    CREATE_CONTAINER,
    REMOVE_CONTAINER,
    REMOVE_POD_SANDBOX,
    RUN_POD_SANDBOX,
    START_CONTAINER,
    STOP_CONTAINER,
    STOP_POD_SANDBOX,
    UPDATE_CONTAINER_RESOURCES,
    Method,
)
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.errors import RemoteError
from kubeqos.model.hardware.named import tiny2
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.agent.annotations import wishes
from kubeqos.stock.agent.hooks import ClassHooks
from tests.cri.pods import container, pod

OFFERS = {
    "rdt": Advertisement(
        "rdt", Level.CONTAINER, True, (ClassInfo("gold", 1), ClassInfo("silver", 2), ClassInfo("bronze")), "bronze"
    ),
    "ulimits": Advertisement("ulimits", Level.CONTAINER, False, (ClassInfo("few", 1), ClassInfo("many"))),
    "hot": Advertisement("hot", Level.CONTAINER, True, (ClassInfo("on"), ClassInfo("off"))),
    "net": Advertisement("net", Level.POD, True, (ClassInfo("fast", 1), ClassInfo("slow")), "slow"),
}
CAPACITY = {(name, one.name): one.capacity for name, offer in OFFERS.items() for one in offer.classes if one.capacity}
NAMES = ("main", "side")


class Group(ClassProvider):
    """A provider that knows who is in which class, and with which amounts; of `off` it is never sure."""

    def __init__(self) -> None:
        self.inside: dict[tuple[str, str], tuple[str, int, int]] = {}

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        return ClassRefusal("too small", "ask for more") if class_name == "off" and subject.cpu_shares < 500 else None

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        assert place.pid or subject.level is Level.POD
        self.inside[subject.id, resource] = class_name, subject.cpu_shares, subject.memory_limit_bytes

    async def withdraw(self, subject: Subject, resource: str, class_name: str) -> None:
        self.inside.pop((subject.id, resource), None)


@dataclass
class Shell:
    """One way to the keeper, and what came of it."""

    group: Group = field(default_factory=Group)
    broken: set[tuple[str, str]] = field(default_factory=set)

    def told(self, subject: Subject, reason: str) -> None:
        self.broken.add((subject.id, reason))

    @property
    def catalog(self) -> Catalog:
        return Catalog(OFFERS, dict.fromkeys(OFFERS, self.group))


class Both:
    """A node that has both shells. The relay's calls reach the runtime; what came of them NRI is told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, Host(folder, version=V2)
        self.runtime = SimulatedRuntime(tiny2(), logs=False)
        self.pods: dict[str, cri.PodSandboxConfig] = {}
        self.stopped: set[str] = set()
        self.notes: dict[str, dict[str, str]] = {}
        self.attempts = itertools.count(1)

    async def start(self) -> None:
        """Both come, or come back: the relay to its file, the plugin to what the runtime tells."""
        self.by_relay, self.by_nri = Shell(), Shell()
        checkpoint = Checkpoint(self.folder / "relay.json", format="kubeqos.relay", version=1, sync=False)
        table = ClassTable(OFFERS, ClassHolders.load(checkpoint.load().data or {}), wishes)
        relay = self.by_relay
        self.keeper = Keeper(relay.catalog, table, checkpoint, self.runtime, PodCgroups(self.host), relay.told)
        self.service = ClassService(self.keeper, self.host)
        await self.keeper.restore()
        self.hooks = ClassHooks(self.by_nri.catalog, self.host, self.by_nri.told, lambda: None)
        there = [one for one in await self.runtime.list_containers() if one.state != cri.CONTAINER_EXITED]
        pods = [self.nri_pod(id) for id in self.pods if id not in self.stopped]
        await self.hooks.synchronize(pods, [await self.nri_container(one.id) for one in there])

    # -- NRI's words

    def nri_pod(self, id: str) -> nri.PodSandbox:
        meta = self.pods[id].metadata
        annotations = dict(self.pods[id].annotations)
        return nri.PodSandbox(id=id, name=meta.name, uid=meta.uid, namespace=meta.namespace, annotations=annotations)

    async def nri_container(self, id: str) -> nri.Container:
        known = self.runtime.core.container(id)
        status = (await self.runtime.container_status(id)).status
        made = nri.Container(id=id, pod_sandbox_id=known.sandbox_id, name=status.metadata.name)
        runs = status.state == cri.CONTAINER_RUNNING
        made.state = nri.CONTAINER_RUNNING if runs else nri.CONTAINER_CREATED
        made.pid, made.created_at = known.pid if runs else 0, status.created_at
        made.annotations.update(self.notes.get(id, {}))
        made.linux.resources.cpu.shares.value = status.resources.linux.cpu_shares
        made.linux.resources.memory.limit.value = status.resources.linux.memory_limit_in_bytes
        return made

    # -- events, each through both

    async def forward(self, method: Method[Any, Any], data: bytes) -> bytes:
        return (await self.runtime.call(method, method.request.FromString(data))).SerializeToString()

    async def relayed(self, handler: Callable[..., Awaitable[bytes]], method: Method[Any, Any], request: Any) -> Any:
        answer = await handler(request.SerializeToString(), lambda data: self.forward(method, data))
        return method.response.FromString(answer)

    async def run(self, asks: dict[str, str]) -> str:
        """A pod, or two refusals in the same words."""
        config = pod(f"p{len(self.pods)}", uid=f"u{len(self.pods)}", annotations=asks, cgroup_parent="/pods")
        request = cri.RunPodSandboxRequest(config=config)
        try:
            made = await self.relayed(self.service.run_pod_sandbox, RUN_POD_SANDBOX, request)
        except CallDenied as denied:
            self.pods["refused"] = config
            asked = self.nri_pod("refused")
            del self.pods["refused"]
            await refused(self.hooks.run_pod_sandbox(nri.RunPodSandboxRequest(pod=asked)), denied)
            return ""
        self.pods[made.pod_sandbox_id] = config
        await self.hooks.run_pod_sandbox(nri.RunPodSandboxRequest(pod=self.nri_pod(made.pod_sandbox_id)))
        return str(made.pod_sandbox_id)

    async def create(self, sandbox: str, name: str, shares: int, begin: bool) -> None:
        config = container(name, cpu_shares=shares, memory_limit_in_bytes=shares << 20, attempt=next(self.attempts))
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=self.pods[sandbox])
        told = nri.Container(id="refused", pod_sandbox_id=sandbox, name=name)
        told.linux.resources.cpu.shares.value, told.linux.resources.memory.limit.value = shares, shares << 20
        asked = nri.CreateContainerRequest(pod=self.nri_pod(sandbox), container=told)
        try:
            made = await self.relayed(self.service.create_container, CREATE_CONTAINER, request)
        except CallDenied as denied:
            await refused(self.hooks.create_container(asked), denied)
            return
        asked.container.id = made.container_id
        answer = await self.hooks.create_container(asked)
        assert answer is not None
        self.notes[made.container_id] = dict(answer.adjust.annotations)
        if begin:
            await self.begin(made.container_id)

    async def begin(self, id: str) -> None:
        told = await self.nri_container(id)
        told.pid = 77
        await self.hooks.start_container(nri.StartContainerRequest(container=told))
        request = cri.StartContainerRequest(container_id=id)
        await self.relayed(self.service.starts.start_container, START_CONTAINER, request)

    async def resize(self, id: str, shares: int) -> None:
        linux = cri.LinuxContainerResources(cpu_shares=shares, memory_limit_in_bytes=shares << 20)
        request = cri.UpdateContainerResourcesRequest(container_id=id, linux=linux)
        told, asked = await self.nri_container(id), nri.LinuxResources()
        asked.cpu.shares.value, asked.memory.limit.value = shares, shares << 20
        update = nri.UpdateContainerRequest(container=told, linux_resources=asked)
        try:
            await self.relayed(self.service.update_container_resources, UPDATE_CONTAINER_RESOURCES, request)
        except CallDenied as denied:
            await refused(self.hooks.update_container(update), denied)
            return
        await self.hooks.update_container(update)
        await self.hooks.post_update_container(nri.PostUpdateContainerRequest(container=told))

    async def stop(self, id: str, by_itself: bool) -> None:
        request = cri.StopContainerRequest(container_id=id)
        if by_itself:  # no call tells of it
            await self.runtime.stop_container(id)
        else:
            await self.relayed(self.service.stop_container, STOP_CONTAINER, request)
        await self.hooks.stop_container(nri.StopContainerRequest(container=nri.Container(id=id)))

    async def remove(self, id: str) -> None:
        request = cri.RemoveContainerRequest(container_id=id)
        await self.relayed(self.service.remove_container, REMOVE_CONTAINER, request)
        await self.hooks.remove_container(nri.RemoveContainerRequest(container=nri.Container(id=id)))

    async def end(self, sandbox: str, remove: bool) -> None:
        for one in await self.containers(sandbox):
            await self.stop(one.id, by_itself=False)
            await self.remove(one.id)
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        await self.relayed(self.service.stop_pod_sandbox, STOP_POD_SANDBOX, request)
        await self.hooks.stop_pod_sandbox(nri.StopPodSandboxRequest(pod=nri.PodSandbox(id=sandbox)))
        self.stopped.add(sandbox)
        if remove:
            gone = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
            await self.relayed(self.service.remove_pod_sandbox, REMOVE_POD_SANDBOX, gone)
            await self.hooks.remove_pod_sandbox(nri.RemovePodSandboxRequest(pod=nri.PodSandbox(id=sandbox)))

    async def behind(self, asks: dict[str, str], shares: int, started: bool) -> None:
        """A pod that is made while nobody is asked."""
        config = pod(f"p{len(self.pods)}", uid=f"u{len(self.pods)}", annotations=asks, cgroup_parent="/pods")
        sandbox = await self.runtime.run_pod_sandbox(config)
        self.pods[sandbox] = config
        made = container("main", cpu_shares=shares, memory_limit_in_bytes=shares << 20)
        id = await self.runtime.create_container(sandbox, made, config)
        if started:
            await self.runtime.start_container(id)

    async def containers(self, sandbox: str = "") -> list[cri.Container]:
        return [one for one in await self.runtime.list_containers() if sandbox in ("", one.pod_sandbox_id)]

    # -- what is to be the same

    def rows(self, table: ClassTable, amounts: bool) -> dict[str, tuple[dict[str, Assignment], tuple[int, int]]]:
        return {
            key: (dict(one.classes), (one.subject.cpu_shares, one.subject.memory_limit_bytes) if amounts else (0, 0))
            for key, one in table.holders
            if one.alive
        }

    async def compare(self, amounts: bool = True) -> None:
        await self.keeper.resync()  # of ends of which no call tells
        ours, theirs = self.keeper.table, self.hooks.keeper.table
        assert ours.validate() == [] == theirs.validate()
        assert self.rows(ours, amounts) == self.rows(theirs, amounts)
        assert self.by_relay.broken == self.by_nri.broken
        for (resource, name), most in CAPACITY.items():
            assert ours.holders.used(resource, name) == theirs.holders.used(resource, name) <= most
        alive = self.rows(ours, amounts).keys()
        inside = [
            {key: one if amounts else one[0] for key, one in shell.group.inside.items() if key[0] in alive}
            for shell in (self.by_relay, self.by_nri)
        ]
        assert inside[0] == inside[1]


async def refused(call: Awaitable[Any], like: CallDenied) -> None:
    with pytest.raises((ClassRefused, RemoteError)) as found:
        await call
    assert found.value.what == like.message


ASKS = st.fixed_dictionaries(
    {},
    optional={
        "qos.kubeqos.io/pod": st.sampled_from(
            ["net=fast", "rdt=silver", "hot=on,rdt=gold", "net=slow,hot=on", "disk=fast", "nonsense"]
        ),
        "qos.kubeqos.io/container.main": st.sampled_from(
            ["rdt=gold", "rdt=silver,ulimits=few", "ulimits=many", "hot=off", "rdt=purple", "ulimits=few,hot=on"]
        ),
        "qos.kubeqos.io/container.side": st.sampled_from(["rdt=gold,hot=off", "ulimits=few"]),
    },
)
SHARES = st.sampled_from([2, 512, 1024])
NUMBER = st.integers(0, 7)
EVENTS = st.one_of(
    st.tuples(st.just("run"), ASKS, st.sampled_from([*NAMES, ""]), SHARES),
    st.tuples(st.just("create"), NUMBER, st.sampled_from(NAMES), SHARES, st.booleans()),
    st.tuples(st.just("begin"), NUMBER),
    st.tuples(st.just("resize"), NUMBER, SHARES),
    st.tuples(st.just("stop"), NUMBER, st.booleans()),
    st.tuples(st.just("remove"), NUMBER),
    st.tuples(st.just("end"), NUMBER, st.booleans()),
    st.tuples(st.just("again"), st.booleans(), st.lists(st.tuples(ASKS, SHARES, st.booleans()), max_size=2)),
)


async def happen(both: Both, what: str, *more: Any) -> bool:
    """Whether amounts can still be compared: those of an update are in the relay's file alone."""
    match what, more:
        case "run", (asks, name, shares):
            if (sandbox := await both.run(asks)) and name:
                await both.create(sandbox, name, shares, begin=True)
        case "create", (number, name, shares, begin):
            if pods := [id for id in both.pods if id not in both.stopped]:
                await both.create(pods[number % len(pods)], name, shares, begin)
        case "end", (number, remove):
            if pods := [id for id in both.pods if id not in both.stopped]:
                await both.end(pods[number % len(pods)], remove)
        case "again", (lost, others):
            return await come_again(both, lost, others)
        case _, (number, *rest):
            wanted = {
                "begin": (cri.CONTAINER_CREATED,),
                "resize": (cri.CONTAINER_RUNNING,),
                "stop": (cri.CONTAINER_RUNNING,),
                "remove": (cri.CONTAINER_CREATED, cri.CONTAINER_EXITED),
            }[what]
            if there := [one.id for one in await both.containers() if one.state in wanted]:
                await getattr(both, what)(there[number % len(there)], *rest)
    return True


async def come_again(both: Both, lost: bool, others: list[tuple[dict[str, str], int, bool]]) -> bool:
    """Both go and come back; meanwhile the relay's file may be lost, and others may be made."""
    await both.keeper.save()
    missed = {id for id, _ in both.by_nri.broken}  # these are looked at anew
    rows = both.rows(both.keeper.table, amounts=not lost)
    before = {key: row for key, row in rows.items() if key not in missed}
    if lost:
        (both.folder / "relay.json").unlink(missing_ok=True)
        (both.folder / "relay.json.previous").unlink(missing_ok=True)
    for one in others:
        await both.behind(*one)
    await both.start()
    for keeper in (both.keeper, both.hooks.keeper):
        after = both.rows(keeper.table, amounts=not lost)
        assert {key: after.get(key) for key in before} == before, "who had a class has it"
    return not lost


async def story(events: list[tuple[Any, ...]], folder: Path) -> None:
    both = Both(folder)
    await both.start()
    amounts = True
    for event in events:
        amounts = await happen(both, *event) and amounts
        await both.compare(amounts)
    await both.runtime.close()


@settings(max_examples=120)
@given(st.lists(EVENTS, min_size=6, max_size=24))
def test_both_shells_come_to_the_same(events: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(events, Path(folder)))
