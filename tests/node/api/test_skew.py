"""Version skew (KEP-3008, "Version Skew Strategy"): any of control plane, node and runtime may not know classes yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server
from tests.cri.relay.processes import shown
from tests.node.admission.test_admission import OFFERS, classed
from tests.node.pods import container
from tests.node.test_live import bound, get_or_none, running_agent, until

ON, OFF = FeatureGates.parse("QOSResources=true"), FeatureGates.parse("QOSResources=false")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A control plane with the proposal's fields."""
    with live_server(tmp_path_factory.mktemp("new"), ON) as live:
        yield live


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One without them."""
    with live_server(tmp_path_factory.mktemp("old"), OFF) as live:
        yield live


async def node_status(api: HttpApi) -> dict[str, Any]:
    async def registered() -> Any:
        node = await get_or_none(api, "n1", NODES)
        status = (node or {}).get("status") or {}
        return status if status.get("allocatable") else None

    found: dict[str, Any] = await until("the node registers", registered)
    return found


async def phase(api: HttpApi, name: str, *wanted: str) -> dict[str, Any]:
    async def reached() -> Any:
        status = (await get_or_none(api, name) or {}).get("status") or {}
        return status if status.get("phase") in wanted else None

    found: dict[str, Any] = await until(f"{name} is {' or '.join(wanted)}", reached)
    return found


async def leave(api: HttpApi, *names: str) -> None:
    for name in names:
        await api.delete(PODS, name, "default", grace_seconds=0)
    await api.delete(NODES, "n1")


@pytest.mark.parametrize(
    ("gates", "offers"),
    [
        pytest.param(ON, (), id="runtime without classes"),
        pytest.param(OFF, OFFERS, id="node without the gate"),
    ],
)
async def test_a_node_that_cannot_has_no_classes(
    new: LiveServer, tmp_path: Path, gates: FeatureGates, offers: tuple[Advertisement, ...]
) -> None:
    """Such nodes are simply seen as having none. A pod that is bound there all the same is refused."""
    async with running_agent(new, tmp_path, offers, gates=gates) as (_, api):
        assert "qosResources" not in await node_status(api)
        await api.create(PODS, bound("plain"))
        plain = await phase(api, "plain", "Running")
        assert "qosResources" not in plain and "qosResources" not in plain["containerStatuses"][0]
        await api.create(PODS, bound("asking", classed(rdt="gold")))
        asking = await phase(api, "asking", "Running", "Failed")
        assert (asking["phase"], asking["reason"]) == ("Failed", "QOSResourcesUnavailable")
        await leave(api, "plain", "asking")


async def test_a_control_plane_without_the_fields_costs_only_what_it_would_show(
    old: LiveServer, tmp_path: Path
) -> None:
    """The node cannot advertise, users do not see implicit defaults; all else works, and nothing is tried in vain."""
    async with running_agent(old, tmp_path, OFFERS, gates=ON, status_seconds=0.2) as (agent, api):
        status = await node_status(api)
        assert "qosResources" not in status and status["allocatable"]["cpu"] == "8"
        await api.create(PODS, bound("web", container()))
        web = await phase(api, "web", "Running")
        assert web["containerStatuses"][0]["ready"] and "qosResources" not in web["containerStatuses"][0]
        (made,) = await agent.runtime.list_containers()
        told = (await agent.runtime.container_status(made.id)).status.resources.qos_resources
        assert shown(told) == {"rdt": "silver", "blockio": "slow"}  # the runtime's defaults hold all the same
        writer: Any = agent._sink
        written = writer.written

        async def settled() -> bool:
            return bool(writer.idle)

        await until("the status is written", settled)
        version = (await api.get(NODES, "n1"))["metadata"]["resourceVersion"]
        await phase(api, "web", "Running")
        assert (await api.get(NODES, "n1"))["metadata"]["resourceVersion"] == version
        assert writer.failed == 0 and writer.written <= written + 1
        await leave(api, "web")
