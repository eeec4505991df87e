"""Our NRI library and a real containerd 2: what a plugin says, the kernel does; what it refuses does not start."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from kubeqos.errors import InputError
from kubeqos.nri.plugin import Plugin, serve
from kubeqos.nri.proto import nri_pb2 as nri
from tests.cri.relay.processes import Pod, connect
from tests.qrm.harness import until
from tests.stock.containerd2 import PROGRAMS, Containerd2, running_containerd2
from tests.stock.needs import needs_stock

pytestmark = needs_stock(*PROGRAMS, root=True)


@pytest.fixture(scope="module")
def containerd2() -> Iterator[Containerd2]:
    with running_containerd2(Path(tempfile.mkdtemp(prefix="kq-"))) as runtime:
        yield runtime


class Pinning(Plugin):
    """Puts every container on CPU 1, gives it a long environment, and refuses those called `bad`."""

    def __init__(self) -> None:
        super().__init__("pinning", "10")
        self.known: list[set[str]] = []
        self.told: list[str] = []

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> Sequence[nri.ContainerUpdate]:
        self.known.append({container.id for container in containers})
        return [on_cpu(container.id, "1") for container in containers]

    async def create_container(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse:
        if request.container.name == "bad":
            raise InputError("no class is called purple")
        response = nri.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "1"
        response.adjust.env.add(key="LONG", value="x" * 9000)
        return response

    async def post_start_container(self, request: nri.PostStartContainerRequest) -> None:
        self.told.append(f"started {request.container.id}")

    async def remove_container(self, request: nri.RemoveContainerRequest) -> None:
        self.told.append(f"removed {request.container.id}")


def on_cpu(container_id: str, cpus: str) -> nri.ContainerUpdate:
    update = nri.ContainerUpdate(container_id=container_id)
    update.linux.resources.cpu.cpus = cpus
    return update


@asynccontextmanager
async def serving(plugin: Plugin, runtime: Containerd2) -> AsyncIterator[None]:
    task = asyncio.create_task(serve(plugin, runtime.nri))
    try:
        async with asyncio.timeout(60):
            await plugin.synchronized.wait()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_a_plugin_says_the_kernel_does(containerd2: Containerd2) -> None:
    plugin = Pinning()
    with connect(containerd2.socket) as stub:
        async with serving(plugin, containerd2):
            pod = Pod(stub, containerd2.cgroup_parent)
            await asyncio.to_thread(pod.run)
            try:
                one = await asyncio.to_thread(pod.create, "main")
                await asyncio.to_thread(pod.start, one)
                assert kernel_cpus(containerd2, one) == "1"
                assert list(await plugin.update([on_cpu(one, "0-1")])) == []
                assert kernel_cpus(containerd2, one) == "0-1"
                with pytest.raises(grpc.RpcError, match="no class is called purple"):
                    await asyncio.to_thread(pod.create, "bad")
                await asyncio.to_thread(pod.remove_now, one)
                assert plugin.told[0] == f"started {one}"
                assert plugin.told[-1] == f"removed {one}"
                assert len(plugin.told) == 3, "and the remains of the refused one were removed"
            finally:
                await asyncio.to_thread(pod.__exit__)


async def test_what_started_while_the_plugin_was_away_is_pinned_when_it_comes(containerd2: Containerd2) -> None:
    plugin = Pinning()
    with connect(containerd2.socket) as stub, Pod(stub, containerd2.cgroup_parent) as pod:
        one = pod.start(pod.create("main"))
        assert kernel_cpus(containerd2, one) == "0", "as the caller of the runtime asked"
        async with serving(plugin, containerd2):
            assert one in plugin.known[-1]
            await until("pinned", lambda: kernel_cpus(containerd2, one) == "1")


async def test_the_plugin_comes_back_to_a_runtime_that_was_killed(containerd2: Containerd2) -> None:
    plugin = Pinning()
    async with serving(plugin, containerd2):
        await asyncio.to_thread(containerd2.crash)
        await asyncio.to_thread(containerd2.start_again)
        await until("back", lambda: len(plugin.known) == 2)


def kernel_cpus(runtime: Containerd2, container_id: str) -> str:
    return runtime.cgroup_value("cpuset.cpus", container_id)
