"""The contract of a runtime (tests/cri/test_contract.py) holds behind the relay as it does without: same suite."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.relay.server import Relay, Settings
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import tiny2
from tests.cri import test_contract as contract

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Classes on offer that nobody in the contract asks for: every hook is in the way, and must not be felt.
CLASSES = """
resources:
  ulimits: {provider: ulimits, classes: {few: {nofile: 64}}}
  cpu-class: {provider: cpu, classes: {gold: {weight: 400}}}
  network: {provider: network, classes: {fast: {priority: 1}}}
"""


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["simulated", pytest.param("containerd", marks=pytest.mark.containerd)]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[contract.World]:
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        folder = Path(name)
        if request.param == "containerd":
            real = request.getfixturevalue("containerd")
            host = Host()
            async with relayed(folder, real.socket, host) as client:
                yield contract.World(
                    client,
                    real.folder,
                    real.cgroup_parent,
                    lambda container, setting: real.cgroup_value(contract.MEANINGS[setting], container),
                )
            return
        runtime = SimulatedRuntime(tiny2(), cgroup_root=folder / "cgroup")
        async with (
            serving(runtime, f"unix://{folder}/runtime.sock"),
            relayed(folder, folder / "runtime.sock", Host(folder / "cgroup")) as client,
        ):
            yield contract.World(client, folder, "/kubepods/pod1", contract.simulated_reader(folder / "cgroup"))
        await runtime.close()


class relayed:
    """A relay in this process, and a client of it, for the duration of a block."""

    def __init__(self, folder: Path, runtime: Path, host: Host) -> None:
        config = folder / "classes.yaml"
        config.write_text(CLASSES)
        self.settings = Settings(folder / "cri.sock", runtime, config, folder / "relay.json", LocalMachine(host))

    async def __aenter__(self) -> CriClient:
        self.relay = await Relay.start(self.settings)
        self.client = CriClient(f"unix://{self.settings.listen}", relist_seconds=0.05)
        return self.client

    async def __aexit__(self, *_: object) -> None:
        assert self.relay.keeper.table.validate() == []
        await self.client.close()
        await self.relay.close()


globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
