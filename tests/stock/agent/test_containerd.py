"""The agent and a real containerd 2: pods ask by annotation, and the kernel does what their classes say."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeqos.apiserver.server import ApiServer
from kubeqos.apiserver.server import Settings as ServerSettings
from kubeqos.client.api import Api
from kubeqos.client.resources import NODES, PODS
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.stock.agent.agent import Settings, StockAgent
from kubeqos.stock.cluster import NODE_QOSES
from tests.cri.providers.trees import TreeKernel, plant
from tests.cri.relay.processes import Pod, connect
from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.qrm.harness import until
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS, Containerd2, running_containerd2
from tests.stock.control.replicas import Uids, prepared
from tests.stock.needs import needs_stock

pytestmark = [*needs_stock(*PROGRAMS, root=True), needs_disk]
CLASSES = """
resources:
  rdt:
    provider: rdt
    config: {partitions: {all: {l3Allocation: "100%", classes: {gold: {}, silver: {l3Allocation: "50%"}}}}}
  blockio:
    provider: blockio
    capacity: {slow: 1}
    config: {Classes: {slow: [{Devices: [/dev/vda], ThrottleReadBps: 1Mi}]}}
  cpu-class: {provider: cpu, default: normal, classes: {high: {weight: 400}, normal: {weight: 50}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
  network: {provider: network, classes: {fast: {priority: 9}}}
"""
MAIN = "qos.kubeqos.io/container.main"


class World:
    """One node: containerd 2, our API server with its Node, and the agent, which can come and go."""

    def __init__(self, runtime: Containerd2, api: Api, uids: Uids, folder: Path) -> None:
        self.runtime, self.api, self._uids = runtime, api, uids
        self.resctrl = plant("full", folder / "resctrl")
        machine = LocalMachine(Host(), self.resctrl, TreeKernel(self.resctrl), mbps_mode=False)
        (folder / "classes.yaml").write_text(CLASSES)
        self._settings = Settings("n1", folder / "classes.yaml", machine, runtime.nri)

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[StockAgent]:
        agent = await StockAgent.start(self.api, self._settings)
        task = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(60):
                await agent.ready.wait()
            yield agent
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def pod(self, asked: str = "", **more: str) -> AsyncIterator[Pod]:
        annotations = {**({MAIN: asked} if asked else {}), **more}
        with connect(self.runtime.socket) as stub:
            pod = Pod(stub, self.runtime.cgroup_parent, annotations)
            await asyncio.to_thread(pod.run)
            try:
                yield pod
            finally:
                await asyncio.to_thread(pod.__exit__)

    async def started(self, pod: Pod) -> str:
        made = await asyncio.to_thread(pod.create, "main")
        return await asyncio.to_thread(pod.start, made)

    async def store(self, pod: Pod) -> None:
        """The pod as the API server has it."""
        name, self._uids.next = pod.config.metadata.name, pod.config.metadata.uid
        spec = {"containers": [{"name": "main", "image": "a"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        assert (await self.api.create(PODS, body, "default"))["metadata"]["uid"] == pod.config.metadata.uid

    async def used(self, resource: str) -> int:
        status = (await self.api.get(NODE_QOSES, "n1"))["status"]
        return sum(one["used"] for one in status["classes"] if one["resource"] == resource)

    def pid_of(self, container_id: str) -> str:
        folder = cgroups.folders(f"{self.runtime.cgroup_parent}/{container_id}")[0]
        return (folder / "cgroup.procs").read_text().split()[0]


@pytest.fixture(scope="module")
def containerd2() -> Iterator[Containerd2]:
    with running_containerd2(Path(tempfile.mkdtemp(prefix="kq-"))) as runtime:
        yield runtime


@pytest.fixture
async def world(containerd2: Containerd2, tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer.start(ServerSettings(tmp_path / "data", port=0)) as server:
        server.core.new_uid = uids = Uids()
        api = server.local()
        await prepared(api)
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield World(containerd2, api, uids, tmp_path)


async def test_what_a_pod_asks_for_the_kernel_does(world: World) -> None:
    async with world.agent(), world.pod("rdt=gold,blockio=slow,cpu-class=high,ulimits=few-files") as pod:
        one = await world.started(pod)
        value = world.runtime.cgroup_value
        assert value("io.read_bps", one) == f"{disk_number()} {1 << 20}"
        assert value("cpu.shares", one) == cgroups.scaled(512, 400)
        pid = world.pid_of(one)
        assert pid in (world.resctrl / "kubeqos.gold" / "tasks").read_text().split()
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert "Max open files            64                   128" in limits
        await until("told", lambda: _is(world.used("blockio"), 1))
        async with world.pod("blockio=slow") as other:
            with pytest.raises(grpc.RpcError, match=r"insufficient class 'slow'.*capacity 1, in use 1"):
                await world.started(other)
            await asyncio.to_thread(pod.remove_now, one)
            await world.started(other)


async def test_who_asks_for_nothing_gets_defaults_and_who_asks_for_nonsense_nothing(world: World) -> None:
    async with world.agent(), world.pod() as pod:
        one = await world.started(pod)
        assert world.runtime.cgroup_value("cpu.shares", one) == cgroups.scaled(512, 50)
        async with world.pod("rdt=purple") as bad:
            with pytest.raises(grpc.RpcError, match="unavailable class 'purple'"):
                await world.started(bad)
        with pytest.raises(grpc.RpcError, match="unavailable pod QoS resource type 'disk'"):
            async with world.pod(**{"qos.kubeqos.io/pod": "disk=fast"}):
                pass


async def test_the_node_tells_what_it_offers(world: World) -> None:
    async with world.agent():
        told = await world.api.get(NODE_QOSES, "n1")
        offered = {(one["resource"], one["class"]): one.get("capacity") for one in told["status"]["classes"]}
        assert offered["blockio", "slow"] == 1
        assert offered["rdt", "gold"] is None
        assert not any(resource == "network" for resource, _ in offered), "NRI cannot change a pod's sandbox"
        [condition] = told["status"]["conditions"]
        assert "only the relay can do" in condition["message"]
        assert told["metadata"]["ownerReferences"][0]["name"] == "n1"


async def test_an_agent_that_comes_back_knows_its_own_and_finds_who_started_without_it(world: World) -> None:
    async with world.pod("ulimits=few-files,blockio=slow") as ours, world.pod("ulimits=few-files") as missed:
        async with world.agent():
            one = await world.started(ours)
        await world.store(missed)
        late = await world.started(missed)
        async with world.pod("cpu-class=high") as entered:
            other = await world.started(entered)
            assert int(world.runtime.cgroup_value("cpu.shares", other)) == 512
            async with world.agent() as agent:
                assert world.runtime.cgroup_value("cpu.shares", other) == cgroups.scaled(512, 400), "entered, late"
                assert agent.hooks.holders.get(one) is not None
                assert agent.hooks.holders.used("blockio", "slow") == 1
                assert agent.hooks.holders.get(late) is None
                await until("evicted", lambda: is_gone(world.api))


async def test_no_container_that_asks_starts_while_the_agent_is_away(world: World) -> None:
    """The webhook writes the annotation; the runtime's own validator reads it."""
    required = {"required-plugins.noderesource.dev/pod": '["kubeqos"]'}
    async with world.pod("blockio=slow", **required) as pod, world.pod() as plain:
        await world.started(plain)
        with pytest.raises(grpc.RpcError, match=r'required plugin "kubeqos" not present'):
            await world.started(pod)
        async with world.agent():
            one = await world.started(pod)
            assert world.runtime.cgroup_value("io.read_bps", one) == f"{disk_number()} {1 << 20}"


async def _is(value: Any, wanted: Any) -> bool:
    return bool(await value == wanted)


async def is_gone(api: Api) -> bool:
    return not (await api.list(PODS)).items
