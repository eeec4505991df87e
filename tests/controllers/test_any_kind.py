"""Kinds that are in no table of ours: their owners are followed, and a namespace goes with all that is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Answer, Api, ApiError, Call, Resource, TransportApi
from kubeqos.client.discovery import beyond, discovered
from kubeqos.client.resources import CONFIG_MAPS, NAMESPACES, PODS, resource_named, stored_resources
from kubeqos.controllers import collector
from kubeqos.controllers import manager as manager_module
from kubeqos.controllers.manager import ControllerManager
from kubeqos.web.health import application
from tests.client.test_informer import until
from tests.controllers.cluster import QUICK
from tests.controllers.test_in_process import managed

CRDS = resource_named("CustomResourceDefinition", "apiextensions.k8s.io")
SHELVES = Resource("example.com", "v1", "shelves", "Shelf", namespaced=True)
CLAIMS = next(one for one in stored_resources() if (one.kind, one.version) == ("ResourceClaim", "v1"))
"""Those of devices; another version of the same name has nothing in common with them."""
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shelves.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "shelves", "singular": "shelf", "kind": "Shelf", "listKind": "ShelfList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as made:
        yield made


async def shelf(api: Api, namespace: str, name: str = "top", owner: Any = None) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return await api.create(SHELVES, {"apiVersion": "example.com/v1", "kind": "Shelf", "metadata": metadata}, namespace)


async def defined(api: Api) -> None:
    await api.create(CRDS, CRD)

    async def served() -> bool:
        return SHELVES in await discovered(api)

    async with asyncio.timeout(30):
        while not await served():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def gone(api: Api, resource: Resource, name: str, namespace: str = "") -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await api.get(resource, name, namespace)
            except ApiError as error:
                assert error.not_found
                return
            await asyncio.sleep(0.05)


async def test_discovery_tells_of_every_collection(server: ApiServer) -> None:
    api = server.local()
    found = await discovered(api)
    assert {PODS, NAMESPACES, CONFIG_MAPS} <= set(found)
    assert not [one for one in found if one.kind == "TokenReview"]
    assert beyond(stored_resources(), found) == []
    await defined(api)
    assert beyond(stored_resources(), await discovered(api)) == [SHELVES]


async def test_a_namespace_goes_with_objects_of_kinds_that_came_later(server: ApiServer) -> None:
    api = server.local()
    await defined(api)
    async with managed(server):
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await shelf(api, "team")
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
        claim = {"metadata": {"name": "gpu", "namespace": "team"}, "spec": {"devices": devices}}
        await api.create(CLAIMS, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim}, "team")
        await api.delete(NAMESPACES, "team")
        await gone(api, NAMESPACES, "team")
        for resource, name in ((SHELVES, "top"), (CLAIMS, "gpu")):
            with pytest.raises(ApiError, match="not found"):
                await api.get(resource, name, "team")


async def test_owners_and_dependents_of_kinds_that_came_later(server: ApiServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(collector, "DISCOVERY_SECONDS", 3600.0)  # definitions that change are heard of at once
    api = server.local()
    async with managed(server) as manager:
        await manager.ready.wait()
        await defined(api)
        owner = await shelf(api, "default")
        reference = {
            "apiVersion": "example.com/v1beta1",
            "kind": "Shelf",
            "name": "top",
            "uid": owner["metadata"]["uid"],
        }
        book = {"name": "book", "namespace": "default", "ownerReferences": [reference]}
        await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": book}, "default")
        await shelf(api, "default", "lower", {**reference, "apiVersion": "example.com/v1"})
        await until(lambda: SHELVES in manager.context.caches and len(manager.context.caches[SHELVES].informer) == 2)
        await api.delete(SHELVES, "top", "default")
        await gone(api, CONFIG_MAPS, "book", "default")
        await gone(api, SHELVES, "lower", "default")


class Forbidding(TransportApi):
    """A server that does not let us read claims of volumes."""

    def __init__(self, api: TransportApi) -> None:
        super().__init__(api.transport)

    async def _answer(self, call: Call) -> Answer:
        if "persistentvolumeclaims" in call.path:
            raise ApiError(403, "Forbidden", "persistentvolumeclaims is forbidden", {})
        return await super()._answer(call)


async def test_a_controller_that_cannot_read_says_which_and_why(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert manager_module.COMPLAINT_SECONDS == 60.0
    monkeypatch.setattr(manager_module, "COMPLAINT_SECONDS", 0.05)
    local = server.local()
    assert isinstance(local, TransportApi)
    manager = ControllerManager(Forbidding(local), QUICK)
    running = asyncio.create_task(manager.run())
    await until(lambda: any("forbidden" in text for text in manager.lagging()))
    await until(lambda: manager.controller("replicaset").followed[0].informer.synced.is_set())
    told = "\n".join(manager.lagging())
    assert "pvcprotection waits for persistentvolumeclaims: " in told and "is forbidden" in told
    assert "replicaset waits" not in told and not manager.ready.is_set()
    tells = application(manager.ready, manager.metrics.registry, lagging=manager.lagging)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(tells), base_url="http://controllers") as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 500
    assert "pvcprotection waits for persistentvolumeclaims: " in answer.text

    def complained() -> int:
        return sum("a controller cannot work" in line and "pvcprotection" in line for line in caplog.text.splitlines())

    await until(lambda: complained() > 1)  # again and again, for as long as it is so
    assert "replicaset waits" not in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
