"""What a NodeQOS says of cores, as it is written and read again: free cores, pools, and how compute drivers are."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.sdk import running as driving
from kubeqos.client import Api
from kubeqos.client.resources import NODES
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import ClassHolders
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.agent.report import Reporter, cores_told, status_of
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.cores.devices import free_cores
from kubeqos.stock.cores.keeper import CoreKeeper
from tests.cci.world import QUICK
from tests.qrm.harness import until
from tests.stock.control.replicas import prepared
from tests.stock.cores.test_keeper import CCI_INSTEAD, CONFIG, Node
from tests.stock.rights import running

LAPTOP = load_machine("laptop8")
Raw = dict[str, Any]


class Told(Node):
    """A node that reports, and what is stored of that."""

    def __init__(self, folder: Path, api: Api) -> None:
        super().__init__(folder)
        self.api = api
        # A socket's path is short, a test's folder is not.
        self.registry = Path(tempfile.mkdtemp(prefix="kq-"))

    def use_drivers(self) -> None:
        text = CONFIG.format(folder=self.folder).replace(*CCI_INSTEAD)
        (self.folder / "node.yaml").write_text(f"{text}pluginRegistrationDir: {self.registry}\n")

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[CoreKeeper]:
        async with self.agent() as keeper:
            nothing, nobody = Catalog({}, {}), ClassHolders()
            reporter = Reporter(
                self.api, "n1", lambda before, now: status_of(nothing, nobody, before, now, cores_told(keeper))
            )
            keeper._changed = reporter.changed
            async with running(reporter.run()):
                await reporter.published.wait()
                yield keeper

    async def says(self, wanted: Callable[[Raw], object]) -> bool:
        return bool(wanted((await self.api.get(NODE_QOSES, "n1")).get("status") or {}))

    async def drivers(self) -> list[tuple[str, bool, str]]:
        found = (await self.api.get(NODE_QOSES, "n1"))["status"]["plugins"]
        return [(one["kind"], one["healthy"], one.get("message", "")) for one in found]

    async def has_drivers(self, *wanted: tuple[str, bool, str]) -> bool:
        return await self.drivers() == list(wanted)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Told]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = server.local()
        await prepared(api)
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield Told(tmp_path, api)


async def test_free_cores_and_pools_are_written(node: Told) -> None:
    async with node.reporting():
        free = LAPTOP.online - CpuSet.parse("0")
        await until("cores", lambda: node.says(lambda status: status["freeCores"] == free_cores(LAPTOP, free)))
        await until("pools", lambda: node.says(lambda status: status["pools"]["shared"]))
        own = CpuSet.parse(await node.run("db", "2"))
        left = free_cores(LAPTOP, free - own)
        assert left != free_cores(LAPTOP, free)
        await until("fewer cores", lambda: node.says(lambda status: status["freeCores"] == left))

        def is_less(status: Raw) -> bool:
            return status["freeCPUs"] == str(free - own) and not CpuSet.parse(status["pools"]["shared"]) & own

        await until("a smaller pool", lambda: node.says(is_less))


async def test_a_driver_that_is_ill_or_gone_is_told_with_its_reason(node: Told) -> None:
    node.use_drivers()
    kind = "ComputeDriver"
    driver = Reference(LAPTOP)
    ill = ""
    driver.health = lambda: ill  # type: ignore[method-assign]
    async with node.reporting() as keeper, AsyncExitStack() as stack:
        assert keeper.parts.plugins.cci is not None
        keeper.parts.plugins.cci.drivers.deadlines = QUICK
        assert await node.drivers() == []
        await stack.enter_async_context(driving(driver, node.registry))
        await until("it is well", lambda: node.has_drivers((kind, True, "")))
        ill = "the board is too hot"
        await until("it is ill", lambda: node.says(lambda status: not status["plugins"][0]["healthy"]))
        [(_, _, message)] = await node.drivers()
        assert "the board is too hot" in message
        ill = ""
        await until("it is well again", lambda: node.has_drivers((kind, True, "")))
        await stack.aclose()
        await until("it is gone", lambda: node.has_drivers((kind, False, "driver is gone")))
        await stack.enter_async_context(driving(driver, node.registry))
        await until("it is back", lambda: node.has_drivers((kind, True, "")))
