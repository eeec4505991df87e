"""A node's cores at a real API server: what it makes of slices is what we take for said, with the agent's rights."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES
from kubeqos.codec import decode_json
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.cluster import DEVICE_SLICES
from kubeqos.stock.cores.publishing import PublishedCores
from kubeqos.stock.installer import install
from tests.qrm.harness import until
from tests.stock.kube_apiserver import acting_as, kube_apiserver
from tests.stock.needs import needs_stock
from tests.stock.rights import running

pytestmark = needs_stock("kube-apiserver", "etcd")
Raw = dict[str, Any]


async def slices(api: HttpApi) -> dict[str, tuple[int, int, str]]:
    """Generation of the pool, how many devices, and which version of the object, by name."""
    found: list[Raw] = [decode_json(raw) for raw in (await api.list(DEVICE_SLICES)).items]
    return {
        one["metadata"]["name"]: (
            one["spec"]["pool"]["generation"],
            len(one["spec"]["devices"]),
            one["metadata"]["resourceVersion"],
        )
        for one in found
    }


@pytest.mark.timeout(600)
async def test_a_real_server_is_told_once_and_again_when_something_changes() -> None:
    large, laptop = load_machine("big384"), load_machine("laptop8")
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as kubeconfig:
        admin = HttpApi.from_kubeconfig(kubeconfig)
        agent = HttpApi.from_kubeconfig(acting_as(kubeconfig, "kubeqos-agent", "n1"))
        try:
            _ = [line async for line in install(admin, "kubeqos:test", {})]
            await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})

            async def has(*wanted: tuple[int, int]) -> bool:
                return [one[:2] for one in (await slices(admin)).values()] == list(wanted)

            async with running(PublishedCores(agent, "n1", large, NO_CPUS).run()):
                await until("published", lambda: has((1, 128), (1, 64)))
                first, second = await slices(admin)
                await admin.delete(DEVICE_SLICES, second)
                await until("again", lambda: has((1, 128), (1, 64)))
            before = await slices(admin)
            await PublishedCores(agent, "n1", large, NO_CPUS).look()
            assert await slices(admin) == before, "what is said already is not written again"
            await PublishedCores(agent, "n1", laptop, NO_CPUS).look()
            assert {name: one[:2] for name, one in (await slices(admin)).items()} == {first: (2, len(laptop.cores))}
        finally:
            await admin.close()
            await agent.close()
