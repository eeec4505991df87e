"""KEP-3675's example claim through kubectl: a whole cluster, a driver process, cpusets read back from the runtime."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cluster.clusterfile import ClusterPlan, NodePlan
from kubeqos.cluster.embedded import Embedded, running
from kubeqos.codec import decode_json
from kubeqos.cri.simulated.state import State
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from tests.cci.world import overlaps
from tests.qrm.harness import until
from tests.scenarios.kubectl import BINARY

EXAMPLE = Path(__file__).parents[2] / "examples/cci/claim.yaml"
DRIVER = "reference.cci.kubeqos.io"

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(BINARY is None, reason="there is no kubectl on this machine"),
]


class Cluster:
    """The embedded cluster and kubectl beside it."""

    def __init__(self, embedded: Embedded, kubeconfig: Path, node: str = "cci") -> None:
        self.embedded = embedded
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
        self.runtime: Any = embedded.agents[node].runtime
        self.manager = embedded.agents[node].parts.plugins.cci

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

    async def refused(self, *words: str, stdin: str = "") -> str:
        """What kubectl says when it fails, as it must."""
        with pytest.raises(AssertionError) as failure:
            await self.kubectl(*words, stdin=stdin)
        return str(failure.value)

    def cpus(self, name: str) -> CpuSet:
        """The cpuset of a running container, as the runtime has it."""
        [one] = [
            each for each in self.runtime.core.containers.values() if each.name == name and each.state is State.RUNNING
        ]
        return CpuSet.parse(one.resources.cpuset_cpus)

    async def until(self, what: str, question: Callable[[], bool], seconds: float = 120) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not question():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
            assert overlaps(self.runtime) == []
            await asyncio.sleep(0.02)

    def runs(self, name: str) -> bool:
        return any(each.name == name and each.state is State.RUNNING for each in self.runtime.core.containers.values())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with cluster_of(NodePlan("cci", kep80(), "cci", reserved_cpus=CpuSet.parse("0-1"))) as made:
        yield made


@asynccontextmanager
async def cluster_of(node: NodePlan) -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="cci-") as folder:
        data = Path(folder) / "d"
        async with running(ClusterPlan((node,)), data, 0) as embedded:
            yield Cluster(embedded, embedded.server.kubeconfig, node.name)


@pytest.mark.proves("cci-claims")
async def test_the_example_claim_through_kubectl(cluster: Cluster) -> None:
    await cluster.kubectl("apply", "--validate=false", "-f", str(EXAMPLE))
    await cluster.until("both pods run", lambda: cluster.runs("solver") and cluster.runs("web"))
    machine, manager = kep80(), cluster.manager
    assert manager is not None
    [entry] = [one for one in manager.store.entries.values() if one.holdings]
    assert len(entry.whole) == 6 and entry.whole <= machine.numa_cpus[1]
    assert machine.whole_cores(entry.whole) == entry.whole
    assert len(cluster.cpus("solver")) == 25 and len(entry.whole & cluster.cpus("solver")) >= 5
    assert cluster.cpus("web") == machine.online - CpuSet.parse("0-1") - entry.whole
    node = decode_json((await cluster.kubectl("get", "node", "cci", "-o", "json")).encode())
    assert node["metadata"]["annotations"]["kubeqos.io/compute-drivers"] == DRIVER
    left = 78 - len(entry.whole - entry.cpus)  # idle siblings are for nobody

    async def told() -> bool:
        return await cluster.kubectl("get", "node", "cci", "-o", "jsonpath={.status.allocatable.cpu}") == str(left)

    await until("the Node tells what is left", told)
    await cluster.kubectl("delete", "pod", "hpc", "--grace-period=1")
    everything = machine.online - CpuSet.parse("0-1")
    await cluster.until("the other pod has all cores again", lambda: cluster.cpus("web") == everything)
    assert manager.validate() == [] and not manager.store.departures


async def test_a_claim_that_does_not_match_is_refused_at_once(cluster: Cluster) -> None:
    text = EXAMPLE.read_text().replace('cpu: "25"', 'cpu: "24"')
    said = await cluster.refused("apply", "--validate=false", "-f", "-", stdin=text)
    assert 'The Pod "hpc" is invalid' in said
    for kind in ("requests", "limits"):
        field = f"spec.containers[0].resources.{kind}[cpu]"
        assert f'{field}: Invalid value: "24": must be 25, the cores of the container\'s claims' in said


async def test_the_example_as_the_proposal_prints_it(cluster: Cluster) -> None:
    """Without its comma: the ConfigMap is a text like any other until a claim refers to it."""
    text = EXAMPLE.read_text().replace('],\n        "cpu attributes"', ']\n        "cpu attributes"')
    said = await cluster.refused("apply", "--validate=false", "-f", "-", stdin=text)
    assert 'The ResourceClaimTemplate "example-compute-claim-parameters-template" is invalid' in said
    assert (
        'ConfigMap "default/example-compute-claim-parameters": data[config.json]: '
        "line 10, column 6: expected ',' or '}' here, before '\"cpu attributes\"'"
    ) in said
    assert "   10 |     ]" in said


async def test_a_claims_parameters_cannot_be_broken_later(cluster: Cluster) -> None:
    await cluster.kubectl("apply", "--validate=false", "-f", str(EXAMPLE))
    broken = EXAMPLE.read_text().split("---")[1].replace("EXCLUSIVE", "EXCLUSIV")
    said = await cluster.refused("apply", "-f", "-", stdin=broken)
    assert 'cpu attributes[0][0]: unknown attribute "EXCLUSIV" (did you mean "EXCLUSIVE"?)' in said


@pytest.mark.proves("cci-claims")
async def test_a_sick_driver_keeps_only_its_own_pods_waiting(cluster: Cluster) -> None:
    """Figure 4 through kubectl: the pod is not sent there and says why it waits, and a standard pod runs."""
    manager = cluster.manager
    assert manager is not None
    driver = manager.drivers.table[DRIVER]
    object.__setattr__(manager.drivers, "probe", _never)
    manager.drivers._fell_ill(driver, "the test says so")
    told = "jsonpath={.metadata.annotations.kubeqos\\.io/topology}"
    for _ in range(100):
        if "the test says so" in await cluster.kubectl("get", "node", "cci", "-o", told):
            break
        await asyncio.sleep(0.1)
    await cluster.kubectl("apply", "--validate=false", "-f", str(EXAMPLE))
    await cluster.until("the standard pod runs", lambda: cluster.runs("web"))
    assert not cluster.runs("solver")
    for _ in range(100):
        events = await cluster.kubectl("get", "events", "-o", "jsonpath={.items[*].message}")
        if "is down: the test says so" in events:
            break
        await asyncio.sleep(0.1)
    assert f"node(s) whose compute driver {DRIVER} is down: the test says so" in events
    driver.sick = ""
    manager.drivers._tell(driver, True, "driver is healthy again")
    await cluster.until("the claim is served", lambda: cluster.runs("solver"), 60)


async def _never(_driver: object) -> None:
    """A probe that finds nothing out."""


async def test_a_claim_waits_for_a_node_that_runs_its_driver() -> None:
    """The scheduler counts CPUs as ever, and knows who has the driver."""
    async with cluster_of(NodePlan("plain", kep80())) as cluster:
        await cluster.kubectl("apply", "--validate=false", "-f", str(EXAMPLE))
        await cluster.until("the standard pod runs", lambda: cluster.runs("web"))
        path = 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}'
        for _ in range(100):
            said = await cluster.kubectl("get", "pod", "hpc", "-o", path)
            if said:
                break
            await asyncio.sleep(0.1)
        assert f"1 node(s) don't run compute driver {DRIVER}" in said
        assert not cluster.runs("solver")
