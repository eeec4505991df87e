"""The agent lets a real containerd 2 require its plugin: by a file that it imports, gone when kubeqos leaves."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from kubeqos.apiserver.server import ApiServer
from kubeqos.apiserver.server import Settings as ServerSettings
from kubeqos.client.api import Api
from kubeqos.client.resources import NODES
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.stock.agent.agent import Settings, StockAgent
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.names import LEAVING, REQUIRED_PLUGINS
from kubeqos.stock.validator import is_on
from tests.cri.relay.processes import Pod, connect
from tests.qrm.harness import until
from tests.stock.containerd2 import PROGRAMS, Containerd2, configuration
from tests.stock.control.replicas import prepared
from tests.stock.needs import needs_stock

pytestmark = needs_stock(*PROGRAMS, root=True)
CLASSES = "resources:\n  cpu-class: {provider: cpu, classes: {high: {weight: 400}}}\n"
ASKING = {"qos.kubeqos.io/container.main": "cpu-class=high", REQUIRED_PLUGINS: '["kubeqos"]'}
REFUSED = r'required plugin "kubeqos" not present'


class Unchecked(Containerd2):
    """A containerd as it is installed: its validator is off."""

    def configured(self) -> str:
        text = configuration(self.folder, self.socket)
        head, _, _ = text.partition('  [plugins."io.containerd.nri.v1.nri".default_validator]')
        assert head != text
        return head


@pytest.fixture
def containerd2() -> Iterator[Unchecked]:
    runtime = Unchecked(Path(tempfile.mkdtemp(prefix="kq-")))
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.stop()


class World:
    """One node, whose agent may change the settings of its runtime."""

    def __init__(self, runtime: Unchecked, api: Api, folder: Path) -> None:
        self.runtime, self.api, self.folder = runtime, api, folder
        self.config = runtime.folder / "config.toml"
        (folder / "classes.yaml").write_text(CLASSES)

    @asynccontextmanager
    async def agent(self, restart: str = "") -> AsyncIterator[None]:
        (self.folder / "runtime.yaml").write_text(
            f"config: {self.config}\n" + (f"restart: {restart}\n" if restart else "")
        )
        machine = LocalMachine(Host(), self.folder / "resctrl")
        settings = Settings(
            "n1",
            self.folder / "classes.yaml",
            machine,
            self.runtime.nri,
            runtime_settings=self.folder / "runtime.yaml",
            host_root=Path("/"),
        )
        agent = await StockAgent.start(self.api, settings)
        task = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(60):
                await agent.ready.wait()
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def condition(self) -> str:
        status = (await self.api.get(NODE_QOSES, "n1")).get("status") or {}
        said = [one for one in status.get("conditions", ()) if one["type"] == "RequiredPluginsChecked"]
        return said[0]["reason"] if said else ""

    async def is_said(self, reason: str) -> bool:
        return await self.condition() == reason

    async def restart(self) -> None:
        await asyncio.to_thread(self.runtime.crash)
        await asyncio.to_thread(self.runtime.start_again)

    async def start(self, **annotations: str) -> None:
        """Run a pod with one container."""
        with connect(self.runtime.socket) as stub:
            pod = Pod(stub, self.runtime.cgroup_parent, annotations)
            try:
                await asyncio.to_thread(pod.run)
                await asyncio.to_thread(pod.start, await asyncio.to_thread(pod.create, "main"))
            finally:
                await asyncio.to_thread(pod.__exit__)

    async def leave(self) -> None:
        await self.api.patch(NODE_QOSES, "n1", {"metadata": {"annotations": {LEAVING: "true"}}})


@pytest.fixture
async def world(containerd2: Unchecked, tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer.start(ServerSettings(tmp_path / "data", port=0)) as server:
        api = server.local()
        await prepared(api)
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield World(containerd2, api, tmp_path)


async def test_who_asks_does_not_start_without_the_agent_from_install_to_uninstall(world: World) -> None:
    await world.start(**ASKING)  # nobody checks: it runs without its class
    before, files = world.config.read_text(), set(world.runtime.folder.iterdir())
    async with world.agent():
        await until("told", lambda: world.is_said("RestartNeeded"))
    assert is_on(world.config)
    await world.start(**ASKING)  # the runtime has not read it yet
    await world.restart()
    with pytest.raises(grpc.RpcError, match=REFUSED):
        await world.start(**ASKING)
    await world.start()  # who asks for nothing does not wait for anybody
    async with world.agent():
        await until("told", lambda: world.is_said("Validating"))
        await world.start(**ASKING)
    with pytest.raises(grpc.RpcError, match=REFUSED):
        await world.start(**ASKING)
    async with world.agent():
        await world.leave()
    assert world.config.read_text() == before
    assert set(world.runtime.folder.iterdir()) == files
    await world.restart()
    await world.start(**ASKING)


async def test_the_agent_restarts_the_runtime_where_it_is_let(world: World, tmp_path: Path) -> None:
    """The command is the administrator's; here it ends containerd, which the test starts again as systemd would."""
    asked = tmp_path / "restarts"
    script = tmp_path / "restart.sh"
    script.write_text(f"#!/bin/sh\necho restarted >> {shlex.quote(str(asked))}\nkill $1\n")
    script.chmod(0o755)

    async def kept(times: int) -> None:
        await until("asked to restart", lambda: _is(asked.exists() and asked.read_text().count("\n") == times))
        await asyncio.to_thread(world.runtime.wait)
        await asyncio.to_thread(world.runtime.start_again)

    async with world.agent(f"{script} {world.runtime.pid}"):
        await kept(1)
        await until("told", lambda: world.is_said("Validating"))
        await asyncio.sleep(1.0)
        assert asked.read_text() == "restarted\n", "once"
    with pytest.raises(grpc.RpcError, match=REFUSED):
        await world.start(**ASKING)
    async with world.agent(f"{script} {world.runtime.pid}"):
        await world.leave()
    await kept(2)
    await world.start(**ASKING)
    assert not os.path.exists(world.runtime.folder / "conf.d")


async def _is(value: bool) -> bool:
    return value
