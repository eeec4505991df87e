"""Components in the server's process use the same API without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, PatchType
from kubeqos.client.resources import Resource
from kubeqos.web.identity import Identity

PODS = Resource("", "v1", "pods", "Pod")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as found:
        yield found


def pod(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]}}


async def test_create_watch_patch_delete(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(PODS, "default")).resource_version
    await api.create(PODS, pod("a"), "default")
    await api.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "default", type=PatchType.STRATEGIC)
    await api.delete(PODS, "a", "default")
    events = [event async for event in api.watch(PODS, "default", since=start, seconds=1)]
    seen = [(event.type, event.metadata().name) for event in events if event.type != "BOOKMARK"]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_quota_holds_for_components_too(server: ApiServer) -> None:
    api = server.local()
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}, "default")
    await api.create(PODS, pod("a"), "default")
    with pytest.raises(ApiError, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
        await api.create(PODS, pod("b"), "default")
    await api.delete(PODS, "a", "default")
    assert (await api.get(QUOTAS, "q", "default"))["status"]["used"] == {"pods": "0"}


async def test_an_identity_without_rights_is_refused(server: ApiServer) -> None:
    api = server.local(Identity.authenticated("joe"))
    with pytest.raises(ApiError, match='User "joe" cannot list resource "pods"'):
        await api.list(PODS, "default")


async def test_a_node_registers_only_itself(server: ApiServer) -> None:
    nodes = Resource("", "v1", "nodes", "Node", namespaced=False)
    api = server.local(Identity.authenticated("system:node:n1", ["system:nodes"]))
    await api.create(nodes, {"metadata": {"name": "n1"}})
    with pytest.raises(ApiError, match='node "n1" is not allowed to create node "n2"'):
        await api.create(nodes, {"metadata": {"name": "n2"}})


async def test_a_node_may_ask_for_a_claim_before_its_controller_has_made_it(server: ApiServer) -> None:
    """A node that heard of its pod first is told that there is no claim yet, not that it may not know."""
    claims = Resource("resource.k8s.io", "v1alpha1", "resourceclaims", "ResourceClaim")
    bound = pod("hpc")
    spec = bound["spec"]
    assert isinstance(spec, dict)
    spec["nodeName"] = "n1"
    spec["resourceClaims"] = [{"name": "cores", "source": {"resourceClaimTemplateName": "four"}}]
    await server.local().create(PODS, bound, "default")
    node = server.local(Identity.authenticated("system:node:n1", ["system:nodes"]))
    with pytest.raises(ApiError, match='"hpc-cores" not found'):
        await node.get(claims, "hpc-cores", "default")
    with pytest.raises(ApiError, match="no relationship found"):
        await node.get(claims, "hpc-other", "default")
    other = server.local(Identity.authenticated("system:node:n2", ["system:nodes"]))
    with pytest.raises(ApiError, match="no relationship found"):
        await other.get(claims, "hpc-cores", "default")
