"""Which cgroup driver a real containerd 2 uses: a node follows it, and says what to set where it is told otherwise."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kubeqos.cri.client import CriClient
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import assemble
from kubeqos.node.config.driver import driver_of
from kubeqos.node.config.settings import NodeSettings
from tests.stock.containerd2 import PROGRAMS, running_containerd2
from tests.stock.needs import needs_stock

pytestmark = needs_stock(*PROGRAMS, root=True)


async def test_a_driver_that_is_not_the_runtimes_is_told_with_what_to_set(tmp_path: Path) -> None:
    with running_containerd2(Path(tempfile.mkdtemp(prefix="kq-"))) as containerd2:
        async with CriClient(containerd2.endpoint) as client:
            assert await driver_of(client) == "cgroupfs"
            agent = NodeAgent(assemble(NodeSettings("n1", tmp_path, cgroup_driver="systemd"), client, laptop8()))
            await agent.refresh_runtime()
            assert "set cgroupDriver: cgroupfs, or change the runtime" in agent.node.runtime.problem
