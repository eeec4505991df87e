"""The agent in front of a runtime without NRI (Debian's containerd 1.6): the same annotations, the same classes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from kubeqos.apiserver.server import ApiServer
from kubeqos.apiserver.server import Settings as ServerSettings
from kubeqos.client.api import Api
from kubeqos.client.resources import NODES, PODS
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.stock.agent.agent import Settings, StockAgent
from kubeqos.stock.agent.relaying import RelayAgent, start
from kubeqos.stock.cluster import NODE_QOSES
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.providers.trees import TreeKernel, plant
from tests.cri.relay.processes import Pod, connect
from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.qrm.harness import until
from tests.shared import cgroups
from tests.stock.agent.test_containerd import CLASSES, MAIN, is_gone
from tests.stock.control.replicas import Uids, prepared

pytestmark = [
    pytest.mark.containerd,
    pytest.mark.skipif(missing() is not None, reason=f"real containerd: {missing()}"),
    needs_disk,
]


class World:
    """One node: containerd 1.6, our API server with its Node, and the agent, which can come and go."""

    def __init__(self, runtime: Containerd, api: Api, uids: Uids, folder: Path) -> None:
        self.runtime, self.api, self.uids = runtime, api, uids
        self.resctrl = plant("full", folder / "resctrl")
        machine = LocalMachine(Host(), self.resctrl, TreeKernel(self.resctrl), mbps_mode=False)
        (folder / "classes.yaml").write_text(CLASSES)
        # Sockets have short paths; what is not there is the NRI socket.
        self.socket = runtime.folder / "relay.sock"
        self.settings = Settings(
            "n1",
            folder / "classes.yaml",
            machine,
            nri=folder / "nri.sock",
            relay=self.socket,
            runtime=runtime.socket,
            state=folder / "relay.json",
        )

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[RelayAgent]:
        agent = await start(self.api, self.settings)
        assert isinstance(agent, RelayAgent), "the runtime has no NRI"
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
    async def pod(self, asked: str = "", through: Path | None = None, **more: str) -> AsyncIterator[Pod]:
        annotations = {**({MAIN: asked} if asked else {}), **more}
        with connect(through or self.socket) as stub, connect(self.runtime.socket) as direct:
            pod = Pod(stub, self.runtime.cgroup_parent, annotations)
            await asyncio.to_thread(pod.run)
            try:
                yield pod
            finally:
                await asyncio.to_thread(pod.through(direct).__exit__)

    async def started(self, pod: Pod) -> str:
        made = await asyncio.to_thread(pod.create, "main")
        return await asyncio.to_thread(pod.start, made)

    def used(self, agent: RelayAgent, resource: str, name: str) -> int:
        return agent.relay.keeper.holders.used(resource, name)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Containerd]:
    with running_containerd(Path(tempfile.mkdtemp(prefix="kq-"))) as made:
        yield made


@pytest.fixture
async def world(runtime: Containerd, tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer.start(ServerSettings(tmp_path / "data", port=0)) as server:
        server.core.new_uid = uids = Uids()
        api = server.local()
        await prepared(api)
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield World(runtime, api, uids, tmp_path)


async def test_what_a_pod_asks_for_the_kernel_does_without_nri(world: World) -> None:
    async with world.agent(), world.pod("rdt=gold,blockio=slow,cpu-class=high,ulimits=few-files") as pod:
        one = await world.started(pod)
        value = world.runtime.cgroup_value
        assert value("io.read_bps", one) == f"{disk_number()} {1 << 20}"
        assert value("cpu.shares", one) == cgroups.scaled(512, 400)
        folder = cgroups.folders(f"{world.runtime.cgroup_parent}/{one}")[0]
        pid = (folder / "cgroup.procs").read_text().split()[0]
        assert pid in (world.resctrl / "kubeqos.gold" / "tasks").read_text().split()
        assert "Max open files            64                   128" in Path(f"/proc/{pid}/limits").read_text()

        async def told() -> bool:
            status = (await world.api.get(NODE_QOSES, "n1"))["status"]
            return sum(one["used"] for one in status["classes"] if one["resource"] == "blockio") == 1

        await until("told", told)
        async with world.pod("blockio=slow") as other:
            with pytest.raises(grpc.RpcError, match=r"insufficient class 'slow'.*capacity 1, in use 1"):
                await world.started(other)
            await asyncio.to_thread(pod.remove_now, one)
            await world.started(other)


async def test_defaults_nonsense_and_classes_of_whole_pods(world: World) -> None:
    async with world.agent() as agent, world.pod(**{"qos.kubeqos.io/pod": "network=fast,cpu-class=high"}) as pod:
        assert world.used(agent, "network", "fast") == 1, "of the sandbox, which NRI cannot change"
        one = await world.started(pod)
        assert world.runtime.cgroup_value("cpu.shares", one) == cgroups.scaled(512, 400), "the containers' default"
        async with world.pod() as plain:
            two = await world.started(plain)
            assert world.runtime.cgroup_value("cpu.shares", two) == cgroups.scaled(512, 50)
        async with world.pod("rdt=purple") as bad:
            with pytest.raises(grpc.RpcError, match="unavailable class 'purple'"):
                await world.started(bad)
        for asked, words in (("disk=fast", "unavailable pod QoS resource type 'disk'"), ("gold", "resource=class")):
            with pytest.raises(grpc.RpcError, match=words):
                async with world.pod(**{"qos.kubeqos.io/pod": asked}):
                    pass


async def test_an_agent_that_comes_back_knows_its_own_and_takes_in_who_was_there_before_it(world: World) -> None:
    async with world.pod("cpu-class=high,ulimits=few-files", world.runtime.socket) as before:
        one = await world.started(before)
        world.uids.next = before.config.metadata.uid
        spec = {"containers": [{"name": "main", "image": "a"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": before.config.metadata.name}, "spec": spec}
        await world.api.create(PODS, body, "default")
        assert int(world.runtime.cgroup_value("cpu.shares", one)) == 512
        async with world.agent() as agent:
            assert world.runtime.cgroup_value("cpu.shares", one) == cgroups.scaled(512, 400), "entered, late"
            assert world.used(agent, "ulimits", "few-files") == 0, "which nobody can enter later"
            await until("evicted", lambda: is_gone(world.api))
            async with world.pod("blockio=slow") as ours:
                await world.started(ours)
                assert world.used(agent, "blockio", "slow") == 1
        world.settings.state.unlink()  # what was given is noted on the containers, too
        async with world.agent() as again:
            assert world.used(again, "cpu-class", "high") == 1


async def test_a_runtime_with_nri_is_asked_through_it(world: World) -> None:
    world.settings.nri.touch()
    assert isinstance(await start(world.api, world.settings), StockAgent)
    assert not world.socket.exists()
