"""Cores before a runtime without NRI (Debian's containerd 1.6): the same keeper, plugins and drivers, the same CPUs.

The machine has two CPUs at least. Pods are those of an API server; what a kubelet would ask the test asks.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeqos.client import ApiError
from kubeqos.client.resources import PODS
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.stock.agent.relaycores import RelayCores
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.names import LEAVING
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.relay.processes import Pod, connect
from tests.qrm.harness import until
from tests.stock.agent.test_relaying import World
from tests.stock.agent.test_relaying import world as world
from tests.stock.kube_apiserver import process

pytestmark = [
    pytest.mark.containerd,
    pytest.mark.skipif(missing() is not None, reason=f"real containerd: {missing()}"),
]
CONFIG = "apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\nstateDir: {state}\n"
WEB = {"kubernetes.io/pod-role": "web"}
EXCLUSIVE = {"cci.resources.alpha.kubernetes.io/container.main": "cci-exclusive"}
ONE = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
EVERYTHING = read_machine(Path("/sys"), name="n1").online


@pytest.fixture(scope="module")
def runtime() -> Iterator[Containerd]:
    with running_containerd(Path(tempfile.mkdtemp(prefix="kq-"))) as made:
        yield made


class Cores:
    """A node whose agent stands before the runtime and hands out cores."""

    def __init__(self, world: World, folder: Path, config: str) -> None:
        self.world = world
        self.state = Path(tempfile.mkdtemp(prefix="kq-", dir=world.runtime.folder))  # sockets have short paths
        self.registry = self.state / "plugins_registry"
        self.registry.mkdir(parents=True)
        (folder / "classes.yaml").write_text("resources: {}\n")
        (folder / "node.yaml").write_text(CONFIG.format(state=self.state) + config)
        world.settings = replace(world.settings, cores=folder / "node.yaml", kubelet=world.runtime.folder / "k")

    @asynccontextmanager
    async def agent(self, plugins: int = 1) -> AsyncIterator[RelayCores]:
        async with self.world.agent() as agent:
            assert agent.cores is not None
            parts = agent.cores.keeper.parts.plugins
            there = (
                parts.drivers if parts.cci is not None else lambda: parts.qrm.endpoints if parts.qrm is not None else ()
            )
            await until("plugins", lambda: len(list(there())) == plugins)
            yield agent.cores
            assert agent.cores.keeper.validate() == []

    @asynccontextmanager
    async def pod(
        self, name: str, annotations: dict[str, str] | None = None, resources: Any = None, *, direct: bool = False
    ) -> AsyncIterator[Pod]:
        """A pod that is bound to the node, and the sandbox that a kubelet would make for it."""
        annotations, socket = annotations or {}, self.world.runtime.socket if direct else None
        async with self.world.pod(through=socket, **annotations) as made:
            made.config.metadata.name = name
            self.world.uids.next = made.config.metadata.uid
            spec = {"containers": [{"name": "main", "image": "a", "resources": resources or {}}], "nodeName": "n1"}
            metadata = {"name": name, "annotations": annotations}
            await self.world.api.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "default"
            )
            try:
                yield made
            finally:
                await self.gone(name)

    async def gone(self, name: str) -> None:
        try:
            await self.world.api.delete(PODS, name, "default", grace_seconds=0)
        except ApiError as error:
            assert error.not_found, error

    async def started(self, pod: Pod) -> str:
        """As a kubelet does: what is refused is tried again."""
        said = ""
        for _ in range(40):
            try:
                return await self.world.started(pod)
            except grpc.RpcError as error:
                said = str(error)
                await asyncio.sleep(0.5)
        raise AssertionError(said)

    def cpus(self, container_id: str) -> str:
        return self.world.runtime.cgroup_value("cpuset.cpus", container_id)

    async def at(self, container_id: str, cpus: str) -> None:
        await until(f"at {cpus}", lambda: self.cpus(container_id) == cpus)


def ours(*words: str) -> list[str]:
    return [sys.executable, "-m", "kubeqos.cli.main", *words]


async def test_pools_act_before_a_runtime_without_nri(world: World, tmp_path: Path) -> None:
    cores = Cores(world, tmp_path, "profile: qrm\nqosResourcePlugins: [cpu]\nqosResourceManagerReconcilePeriod: 1s\n")
    (tmp_path / "cpu.json").write_text(
        json.dumps({"pools": {"online": {"cpus": "0"}}, "roles": {"web": {"pool": "online"}}})
    )
    words = ours("plugin", "cpu", "--registry", str(cores.registry), "--config", str(tmp_path / "cpu.json"))
    rest = str(EVERYTHING - CpuSet.parse("0"))
    half = {"requests": {"cpu": "500m"}}
    with process([*words, "--state", str(tmp_path / "cpu-state.json")], tmp_path, "plugin"):
        async with cores.agent(), cores.pod("web", WEB, half) as web, cores.pod("other", {}, half) as other:
            one, two = await cores.started(web), await cores.started(other)
            assert (cores.cpus(one), cores.cpus(two)) == ("0", rest), "from the first moment on"
            socket = cores.registry / "cpu.sock"
            moving = ours("plugin", "cpu", "set-pool", "--socket", str(socket), "online=1-1")
            await asyncio.to_thread(subprocess.run, moving, check=True, capture_output=True, timeout=60)
            await cores.at(one, "1")
            await cores.at(two, str(EVERYTHING - CpuSet.parse("1")))
            status = (await world.api.get(NODE_QOSES, "n1"))["status"]
            assert [one["name"] for one in status["plugins"]] == ["cpu"]


async def test_who_owns_a_core_has_it_alone_through_restarts(world: World, tmp_path: Path) -> None:
    cores = Cores(world, tmp_path, "profile: cci\n")
    words = ours("driver", "reference", "--registry", str(cores.registry))
    with ExitStack() as stack:
        stack.enter_context(process(words, tmp_path, "driver"))
        async with cores.pod("plain", direct=True) as plain, cores.pod("solver", EXCLUSIVE, ONE, direct=True) as solver:
            async with cores.agent() as agent:
                socket = world.socket
                one = await cores.started(_through(plain, socket, stack))
                assert cores.cpus(one) == str(EVERYTHING)
                two = await cores.started(_through(solver, socket, stack))
                own = cores.cpus(two)
                left = str(EVERYTHING - CpuSet.parse(own))
                assert len(CpuSet.parse(own)) < len(EVERYTHING) and cores.cpus(one) == left, "moved off before"
                assert str(agent.keeper.shared.owned()) == own
            assert (cores.cpus(one), cores.cpus(two)) == (left, own), "an agent that goes for a while changes nothing"
            async with cores.pod("late", direct=True) as late:
                three = await cores.started(late)  # nobody was asked
                async with cores.agent() as agent:
                    await cores.at(three, left)
                    assert (cores.cpus(one), cores.cpus(two)) == (left, own)
                    assert str(agent.keeper.shared.owned()) == own
                    await asyncio.to_thread(solver.remove_now, two)
                    await cores.gone("solver")
                    await cores.at(one, str(EVERYTHING))
                    await cores.at(three, str(EVERYTHING))


@pytest.mark.parametrize("by_us", [True, False])
async def test_who_was_created_before_a_core_was_owned_starts_off_it(world: World, tmp_path: Path, by_us: bool) -> None:
    """The agent that knew of it goes, if there was one; the next one gives a core of it away before it starts."""
    cores = Cores(world, tmp_path, "profile: cci\n")
    words = ours("driver", "reference", "--registry", str(cores.registry))
    with ExitStack() as stack:
        stack.enter_context(process(words, tmp_path, "driver"))
        async with cores.pod("plain", direct=True) as plain, cores.pod("solver", EXCLUSIVE, ONE, direct=True) as solver:
            if by_us:
                async with cores.agent():
                    made = await asyncio.to_thread(_through(plain, world.socket, stack).create, "main")
            else:
                made = await asyncio.to_thread(plain.create, "main")
            async with cores.agent():
                own = cores.cpus(await cores.started(_through(solver, world.socket, stack)))
                one = await asyncio.to_thread(_through(plain, world.socket, stack).start, made)
                assert cores.cpus(one) == str(EVERYTHING - CpuSet.parse(own)), "from its first moment on"


async def test_a_resize_gives_an_owner_no_quota(world: World, tmp_path: Path) -> None:
    cores = Cores(world, tmp_path, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    async with cores.agent(plugins=0), cores.pod("own", {}, ONE) as own, cores.pod("plain") as plain:
        for pod, quota in ((own, "-1"), (plain, "50000")):
            one = await cores.started(pod)
            linux = cri.LinuxContainerResources(cpu_quota=50_000, cpu_period=100_000)
            request = cri.UpdateContainerResourcesRequest(container_id=one, linux=linux)
            await asyncio.to_thread(pod.stub.UpdateContainerResources, request, timeout=30)
            assert world.runtime.cgroup_value("cpu.quota", one) == quota


async def test_who_asks_and_is_not_known_does_not_start_and_nothing_is_left_after_kubeqos(
    world: World, tmp_path: Path
) -> None:
    cores = Cores(world, tmp_path, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    async with cores.agent(plugins=0), world.pod(**EXCLUSIVE) as stranger, cores.pod("own", {}, ONE) as own:
        with pytest.raises(grpc.RpcError, match="the API server has not told of the pod yet"):
            await world.started(stranger)
        async with cores.pod("plain") as plain:
            two = await cores.started(plain)
            one = await cores.started(own)
            assert CpuSet.parse(cores.cpus(one)) & CpuSet.parse(cores.cpus(two)) == CpuSet.parse("")
            assert world.runtime.cgroup_value("cpu.quota", one) == "-1"
            await world.api.patch(NODE_QOSES, "n1", {"metadata": {"annotations": {LEAVING: "true"}}})
    assert not cores.state.exists() and not world.settings.state.exists()


def _through(pod: Pod, socket: Path, stack: ExitStack) -> Pod:
    return pod.through(stack.enter_context(connect(socket)))
