"""The client against the real API server, by its kubeconfig, over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeqos.apiserver.auth import write_kubeconfig
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, Change, EventRecorder, Informer, PatchType
from kubeqos.client.api import metadata_of
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS
from kubeqos.codec import JsonObject, decode_json
from tests.client.test_informer import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        yield server


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[HttpApi]:
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    yield api
    await api.close()


def config(name: str, **data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_the_verbs(api: HttpApi) -> None:
    created = await api.create(CONFIG_MAPS, config("a", x="1"))
    assert await api.get(CONFIG_MAPS, "a", "default") == created
    with pytest.raises(ApiError) as twice:
        await api.create(CONFIG_MAPS, config("a"))
    assert twice.value.already_exists
    assert twice.value.message == 'configmaps "a" already exists'
    updated = await api.update(CONFIG_MAPS, {**created, "data": {"x": "2"}})
    with pytest.raises(ApiError) as stale:
        await api.update(CONFIG_MAPS, created)
    assert stale.value.conflict
    patched = await api.patch(CONFIG_MAPS, "a", [{"op": "remove", "path": "/data/x"}], "default", type=PatchType.JSON)
    assert not patched.get("data")
    with pytest.raises(ApiError) as other:
        await api.delete(CONFIG_MAPS, "a", "default", uid="another")
    assert other.value.conflict
    await api.delete(CONFIG_MAPS, "a", "default", uid=updated["metadata"]["uid"])
    with pytest.raises(ApiError) as gone:
        await api.get(CONFIG_MAPS, "a", "default")
    assert gone.value.not_found


@pytest.mark.parametrize("page", [0, 4])
async def test_lists_and_selectors(api: HttpApi, page: int) -> None:
    for number in range(10):
        body = config(f"c{number}")
        body["metadata"]["labels"] = {"odd": str(number % 2)}
        await api.create(CONFIG_MAPS, body)
    found = await api.list(CONFIG_MAPS, "default", labels="odd=1", page=page)
    assert [metadata_of(raw).name for raw in found.items] == ["c1", "c3", "c5", "c7", "c9"]
    found = await api.list(CONFIG_MAPS, fields="metadata.name=c4", page=page)
    assert [metadata_of(raw).key for raw in found.items] == ["default/c4"]


async def test_an_informer_follows_and_survives_compaction(api: HttpApi, server: ApiServer) -> None:
    await api.create(CONFIG_MAPS, config("a"))
    followed, changes = Informer(api, CONFIG_MAPS, namespace="default", page=2), list[Change]()
    followed.on_change(changes.append)
    task = asyncio.create_task(followed.run())
    await followed.synced.wait()
    for number in range(20):
        await api.create(CONFIG_MAPS, config(f"c{number}"))
        if number % 5 == 0:
            server.store.compact(server.store.revision)
    await api.delete(CONFIG_MAPS, "a", "default")
    await until(lambda: len(followed) == 20 and followed.get("default/a") is None)
    assert len(changes) == 22
    assert changes[-1].object()["metadata"]["name"] == "a"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_events_are_recorded_and_counted(api: HttpApi) -> None:
    recorder = EventRecorder(api, "tester")
    task = asyncio.create_task(recorder.run())
    subject = await api.create(CONFIG_MAPS, config("a"))
    for _ in range(3):
        recorder.record(subject, "Tested", "it works")
        await recorder.flushed()
    assert recorder.result.because == ""
    [event] = [decode_json(raw) for raw in (await api.list(EVENTS, "default")).items]
    assert (event["count"], event["involvedObject"]["name"], event["type"]) == (3, "a", "Normal")
    task.cancel()


async def test_a_node_writes_its_own_status_and_no_other(server: ApiServer, api: HttpApi, tmp_path: Path) -> None:
    identity = server.pki.issue_client("system:node:n1", ["system:nodes"])
    url, path = f"https://{server.application.address}", tmp_path / "node.kubeconfig"
    write_kubeconfig(path, server=url, authority=server.pki.ca_pem, client=identity, user="n1")
    node = HttpApi.from_kubeconfig(path)
    n1 = await node.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    n1["status"] = {**n1.get("status", {}), "phase": "Running"}
    assert (await node.update(NODES, n1, subresource="status"))["status"]["phase"] == "Running"
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}})
    for refused in (
        lambda: node.patch(NODES, "n2", {"status": {"phase": "Pending"}}, subresource="status"),
        lambda: node.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}),
        lambda: node.delete(PODS, "anything", "default"),
    ):
        with pytest.raises(ApiError) as error:
            await refused()
        assert (error.value.status, error.value.reason) == (403, "Forbidden")
    await node.close()


async def test_nobody_gets_401(server: ApiServer) -> None:
    stranger = HttpApi.to(f"https://{server.application.address}", token="wrong", verify=False)
    with pytest.raises(ApiError) as error:
        await stranger.list(PODS)
    assert (error.value.status, error.value.message) == (401, "Unauthorized")
    await stranger.close()
