"""KEP-3675's example claim through kubectl: a whole cluster, a driver process, cpusets read back from the runtime."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cli.clusterfile import ClusterPlan, NodePlan
from kubeqos.cli.embedded import Embedded, running
from kubeqos.codec import decode_json
from kubeqos.cri.simulated.state import State
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machines import kep80
from tests.cci.world import overlaps
from tests.scenarios.kubectl import BINARY

EXAMPLE = Path(__file__).parents[2] / "examples/cci/claim.yaml"
DRIVER = "reference.cci.kubeqos.io"

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(BINARY is None, reason="there is no kubectl on this machine"),
]


class Cluster:
    """The embedded cluster and kubectl beside it."""

    def __init__(self, embedded: Embedded, kubeconfig: Path) -> None:
        self.embedded = embedded
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
        self.runtime: Any = embedded.agents["cci"].runtime
        self.manager = embedded.beside["cci"].cci

    async def kubectl(self, *words: str, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            BINARY or "kubectl",
            *words,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = decode_json((await self.kubectl("get", "pod", name, "-o", "json")).encode())
        return found

    def cpus(self, name: str) -> CpuSet:
        """The cpuset of a running container, as the runtime has it."""
        [one] = [
            each for each in self.runtime.core.containers.values() if each.name == name and each.state is State.RUNNING
        ]
        return CpuSet.parse(one.resources.cpuset_cpus)

    async def until(self, what: str, question: Callable[[], bool], seconds: float = 30) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not question():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
            assert overlaps(self.runtime) == []
            await asyncio.sleep(0.02)

    def runs(self, name: str) -> bool:
        return any(each.name == name and each.state is State.RUNNING for each in self.runtime.core.containers.values())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    plan = ClusterPlan((NodePlan("cci", kep80(), "cci", reserved_cpus=CpuSet.parse("0-1")),))
    with tempfile.TemporaryDirectory(prefix="cci-") as folder:
        data = Path(folder) / "d"
        async with running(plan, data, 0) as embedded:
            yield Cluster(embedded, embedded.server.kubeconfig)


async def test_the_example_claim_through_kubectl(cluster: Cluster) -> None:
    await cluster.kubectl("apply", "--validate=false", "-f", str(EXAMPLE))
    await cluster.until("both pods run", lambda: cluster.runs("solver") and cluster.runs("web"))
    machine, manager = kep80(), cluster.manager
    assert manager is not None
    [entry] = [one for one in manager.store.entries.values() if one.holdings]
    assert len(entry.whole) == 5 and entry.whole <= machine.numa_cpus[1]
    assert len(machine.whole_cores(entry.whole)) == 4
    assert len(cluster.cpus("solver")) == 25 and entry.whole <= cluster.cpus("solver")
    assert cluster.cpus("web") == machine.online - CpuSet.parse("0-1") - entry.whole
    node = decode_json((await cluster.kubectl("get", "node", "cci", "-o", "json")).encode())
    assert node["metadata"]["annotations"]["kubeqos.io/compute-drivers"] == DRIVER
    assert node["status"]["allocatable"]["cpu"] == "78"
    await cluster.kubectl("delete", "pod", "hpc", "--grace-period=1")
    everything = machine.online - CpuSet.parse("0-1")
    await cluster.until("the other pod has all cores again", lambda: cluster.cpus("web") == everything)
    assert manager.validate() == [] and not manager.store.departures


async def test_a_claim_that_does_not_match_is_explained(cluster: Cluster) -> None:
    text = EXAMPLE.read_text().replace('cpu: "25"', 'cpu: "24"')
    await cluster.kubectl("apply", "--validate=false", "-f", "-", stdin=text)
    for _ in range(200):
        status = (await cluster.pod("hpc")).get("status") or {}
        if status.get("phase") == "Failed":
            break
        await asyncio.sleep(0.1)
    assert status["reason"] == "CCIClaimInvalid"
    assert "must be 25, the cores of the container's claims" in status["message"]
