"""The Pod Resources API of a node whose resources come from plugins (KEP-3461, Pod Resources Server)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubeqos.cli.inspect.podresources import as_text
from kubeqos.codec import decode_json
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.run import NodeServices, serve_node
from kubeqos.node.server.podresources import SERVICE
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.memory import MemoryConfig, MemoryPlugin
from kubeqos.qrm.plugins.roles import Numa, Role
from kubeqos.qrm.sdk import Capacity, Options, running
from kubeqos.topology.alignment.hints import Scope
from tests.qrm.harness import QrmNode, container, pod, pod_of, qrm_node, short_folder
from tests.qrm.live import Scripted, cpus


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


async def test_what_plugins_gave_is_listed_beside_kubernetes_own_fields(folder: Path) -> None:
    plugin = Scripted("cpu", cpus("0-3", 4), capacity=lambda: Capacity(80, 76, {0: 38.0, 1: 38.0}))
    socket = folder / "pr.sock"
    services = ServiceSettings(pod_resources_socket=socket)
    async with (
        qrm_node(folder, kep80()) as node,
        serve_node(node.agent, services),
        running(plugin, Options(folder / "r")),
        dial(socket) as channel,
    ):
        await node.plugins("cpu")
        await node.run(pod("web", cpu="4"))
        path, wanted = f"/{SERVICE}/List", pb.ListPodResourcesRequest()
        listed = await call(channel, path, wanted, pb.ListPodResourcesResponse, seconds=5)
        ((found,),) = [one.containers for one in listed.pod_resources]
        assert not found.cpu_ids  # only the built-in manager's exclusive CPUs stand there
        (given,) = found.resources
        assert (given.resource_name, given.aggregated_quantity, given.is_scalar_resource) == ("cpu", 4.0, True)
        path, asked = f"/{SERVICE}/GetAllocatableResources", pb.AllocatableResourcesRequest()
        node_wide = await call(channel, path, asked, pb.AllocatableResourcesResponse, seconds=5)
        (able,) = node_wide.resources
        assert (able.resource_name, able.aggregated_allocatable_quantity) == ("cpu", 76.0)
        assert [one.node for one in able.topology_aware_allocatable_quantity_list] == [0, 1]
        assert not able.topology_aware_capacity_quantity_list  # which parts make 80 the plugin does not say


BOUND = Role(dedicated=True, numa=Numa.BIND)


def total(parts: Iterable[pb.TopologyAwareQuantity]) -> float:
    return sum(one.resource_value for one in parts)


async def built_in(folder: Path, stack: AsyncExitStack, scope: Scope = Scope.CONTAINER) -> tuple[QrmNode, NodeServices]:
    """A node with the CPU and memory plugins, and what it answers."""
    machine, options = kep80(), Options(folder / "r")
    node = await stack.enter_async_context(qrm_node(folder, machine, scope=scope))
    services = await stack.enter_async_context(serve_node(node.agent, ServiceSettings()))
    config = CpuConfig(reserved="0-1,40-41", roles={"storage-service": BOUND})
    memory = MemoryConfig(system_reserved=1 << 30, roles={"storage-service": Role(numa=Numa.BIND)})
    await stack.enter_async_context(running(CpuPlugin(machine, config), options))
    await stack.enter_async_context(running(MemoryPlugin(machine, memory), options))
    await node.plugins("cpu", "memory")
    return node, services


async def test_cores_and_memory_that_plugins_gave_stand_in_kubernetes_own_fields(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        node, services = await built_in(folder, stack)
        await node.run(pod("storage", role="storage-service", cpu="10", memory="40Gi"))
        await node.run(pod("web", cpu="2", memory="1Gi"))
        listed = await services.pod_resources.listed()
        held = {one.name: one.containers[0] for one in listed.pod_resources}
        assert len(held["storage"].cpu_ids) == 10 and not held["web"].cpu_ids  # a shared pool is nobody's own
        assert CpuSet.from_ids(held["storage"].cpu_ids) <= kep80().numa_cpus[0]
        shown = {
            name: [(one.memory_type, one.size, [numa.ID for numa in one.topology.nodes]) for one in given.memory]
            for name, given in held.items()
        }
        assert shown == {"storage": [("memory", 40 << 30, [0])], "web": [("memory", 1 << 30, [1])]}
        bound = next(one for one in held["storage"].resources if one.resource_name == "memory")
        assert total(bound.topology_aware_quantity_list) == bound.aggregated_quantity == 40 << 30


async def test_what_numa_nodes_have_adds_up_to_what_the_node_has(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        _, services = await built_in(folder, stack)
        able = await services.pod_resources.allocatable()
        for one in able.resources:
            assert total(one.topology_aware_allocatable_quantity_list) == one.aggregated_allocatable_quantity
            assert total(one.topology_aware_capacity_quantity_list) == one.aggregated_capacity_quantity
        cpu, memory = sorted(able.resources, key=lambda one: one.resource_name)
        assert (cpu.aggregated_allocatable_quantity, cpu.aggregated_capacity_quantity) == (76, 80)
        assert sum(one.size for one in able.memory) == memory.aggregated_allocatable_quantity


async def test_in_scope_pod_what_is_given_to_the_pod_is_told_of_the_pod(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        node, services = await built_in(folder, stack, Scope.POD)
        both = [container("container0", cpu="4", memory="1Gi"), container("b", cpu="4", memory="1Gi")]
        await node.run(pod_of("storage", both, role="storage-service"))
        (found,) = (await services.pod_resources.listed()).pod_resources
        assert len(found.cpu_ids) == 8 and sum(one.size for one in found.memory) == 2 << 30
        assert not any(one.cpu_ids or one.memory for one in found.containers)


async def test_the_command_prints_what_the_endpoint_answers(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        node, services = await built_in(folder, stack)
        await node.run(pod("storage", role="storage-service", cpu="10", memory="40Gi"))
        answer = await services.server.get("podresources", {})
        text = as_text(decode_json(answer.body))
    assert "default/storage   container0   2-11       40Gi of NUMA 0   " in text
    assert "cpu=10 (NUMA 0: 10), memory=40Gi (NUMA 0: 40Gi)" in text
    assert "cpu        80" in text and "0: 38, 1: 38" in text
