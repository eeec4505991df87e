"""The Pod Resources API of a node whose resources come from plugins (KEP-3461, Pod Resources Server)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.model.hardware.named import kep80
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.run import serve_node
from kubeqos.node.server.podresources import SERVICE
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm.sdk import Capacity, Options, running
from tests.qrm.harness import pod, qrm_node, short_folder
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
        assert [one.node for one in able.topology_aware_capacity_quantity_list] == [0, 1]
