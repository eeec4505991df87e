"""The Pod Resources API over its socket: who is listed, with what, and how often one may ask."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.node.server.podresources import (
    ContainerHolding,
    MemoryBlock,
    NodeHolding,
    PodResourcesServicer,
    serving,
    topology_aware,
)
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.node.server.proto.podresources_pb2_grpc import PodResourcesListerStub
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.plugins.sockets import dial
from kubeqos.qrm.proto import resourceplugin_pb2 as qrm
from kubeqos.ratelimit import RateLimit
from tests.node.pods import container, pod


def admitted(raw: dict[str, Any]) -> AdmittedPod:
    return AdmittedPod.of(raw)


class Ledger:
    """Grants by container."""

    def __init__(self, pods: Iterable[AdmittedPod], held: dict[str, ContainerHolding]) -> None:
        self.pods = list(pods)
        self.held = held

    def active_pods(self) -> Iterable[AdmittedPod]:
        return self.pods

    async def of_container(self, pod_uid: str, container: str) -> ContainerHolding:
        return self.held.get(container, ContainerHolding(NO_CPUS))

    def of_pod(self, pod_uid: str) -> ContainerHolding:
        return self.held.get("", ContainerHolding(NO_CPUS))

    async def of_node(self) -> NodeHolding:
        return NodeHolding(CpuSet.parse("2-7"), [MemoryBlock("memory", 1 << 30, NumaSet.of(0))])


def plugin_report() -> pb.TopologyAwareResource:
    sent = qrm.TopologyAwareResource(is_scalar_resource=True, aggregated_quantity=4)
    sent.topology_aware_quantity_list.add(resource_value=4, node=1)
    return topology_aware("cpu", sent)


@pytest.fixture
def ledger() -> Ledger:
    raw = pod(
        "web",
        container("main"),
        container("helper"),
        initContainers=[container("setup"), container("mesh", restartPolicy="Always")],
        annotations={"kubernetes.io/pod-role": "online"},
    )
    held = {
        "main": ContainerHolding(
            CpuSet.parse("2,4-5"), [MemoryBlock("hugepages-2Mi", 4 << 20, NumaSet.of(0, 1))], [plugin_report()]
        ),
        "setup": ContainerHolding(CpuSet.parse("6")),
    }
    return Ledger([admitted(raw)], held)


async def ask(ledger: Ledger, folder: Path, question: Any, limit: RateLimit | None = None) -> Any:
    servicer = PodResourcesServicer(ledger, lambda: 0.0, limit)
    path = folder / "kubelet.sock"
    async with serving(servicer, path), dial(path) as channel:
        return await question(PodResourcesListerStub(channel))


async def test_list_tells_exclusive_cpus_memory_and_what_plugins_gave(ledger: Ledger, tmp_path: Path) -> None:
    answer = await ask(ledger, tmp_path, lambda stub: stub.List(pb.ListPodResourcesRequest()))
    (found,) = answer.pod_resources
    assert (found.name, found.namespace, found.pod_role) == ("web", "default", "online")
    assert [one.name for one in found.containers] == ["mesh", "main", "helper"]  # no ordinary init container
    main = found.containers[1]
    assert list(main.cpu_ids) == [2, 4, 5] and not found.containers[2].cpu_ids
    assert (main.memory[0].memory_type, main.memory[0].size) == ("hugepages-2Mi", 4 << 20)
    assert [node.ID for node in main.memory[0].topology.nodes] == [0, 1]
    assert (main.resources[0].resource_name, main.resources[0].aggregated_quantity) == ("cpu", 4.0)
    assert main.resources[0].topology_aware_quantity_list[0].node == 1


async def test_what_a_pod_has_as_a_whole_is_told_once(ledger: Ledger, tmp_path: Path) -> None:
    ledger.held[""] = ContainerHolding(CpuSet.parse("6-7"), [MemoryBlock("memory", 1 << 20, NumaSet.of(1))])
    answer = await ask(ledger, tmp_path, lambda stub: stub.List(pb.ListPodResourcesRequest()))
    (found,) = answer.pod_resources
    assert (list(found.cpu_ids), [one.size for one in found.memory]) == ([6, 7], [1 << 20])
    assert [list(one.cpu_ids) for one in found.containers] == [[], [2, 4, 5], []]


async def test_get_finds_one_pod_or_says_which_is_missing(ledger: Ledger, tmp_path: Path) -> None:
    request = pb.GetPodResourcesRequest(pod_name="web", pod_namespace="default")
    assert (await ask(ledger, tmp_path, lambda stub: stub.Get(request))).pod_resources.name == "web"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(ledger, tmp_path, lambda stub: stub.Get(pb.GetPodResourcesRequest(pod_name="x", pod_namespace="y")))
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details() == "pod x in namespace y not found"


async def test_allocatable_is_what_an_empty_node_has(ledger: Ledger, tmp_path: Path) -> None:
    request = pb.AllocatableResourcesRequest()
    answer = await ask(ledger, tmp_path, lambda stub: stub.GetAllocatableResources(request))
    assert list(answer.cpu_ids) == [2, 3, 4, 5, 6, 7] and answer.memory[0].size == 1 << 30


async def test_too_many_calls_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    async def twice(stub: Any) -> None:
        await stub.List(pb.ListPodResourcesRequest())
        await stub.List(pb.ListPodResourcesRequest())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(ledger, tmp_path, twice, RateLimit(1.0, burst=1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 0.5), max_size=60), st.integers(1, 12), st.floats(1, 200))
def test_the_rate_never_exceeds_burst_plus_rate(gaps: list[float], burst: int, rate: float) -> None:
    limit, now, passed = RateLimit(rate, burst), 0.0, 0
    for gap in gaps:
        now += gap
        passed += limit.allows(now)
    assert passed <= burst + rate * now + 1e-6
    assert limit.allows(now + burst / rate + 1)
