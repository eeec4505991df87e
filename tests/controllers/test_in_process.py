"""The controllers inside the API server's process: exact counts, restarts in the middle, and rest when all is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Answer, Api, Call, Transport, TransportApi, Unreachable, WorkQueue
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from kubeqos.codec import decode_json, encode_json
from kubeqos.controllers.controller import Context, Controller
from kubeqos.controllers.manager import CONTROLLERS, ControllerManager
from kubeqos.controllers.quota import QuotaAudit
from kubeqos.controllers.services.endpointscontroller import EndpointsController
from kubeqos.controllers.services.mirrorcontroller import EndpointSliceMirroringController
from kubeqos.controllers.services.subsets import ENDPOINTS
from kubeqos.controllers.workloads.deployments import template_hash
from kubeqos.controllers.workloads.replicacontroller import DELETES_AT_ONCE, ReplicaSetController
from tests.client.test_informer import until
from tests.controllers.cluster import QUICK


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as made:
        yield made


@asynccontextmanager
async def managed(server: ApiServer, *only: Callable[[Context], Controller]) -> AsyncIterator[ControllerManager]:
    """Controllers, or only some, for as long as the block lasts; then they are cut off wherever they are."""
    manager = ControllerManager(server.local(), QUICK, controllers=only or CONTROLLERS)
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replica_set(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def objects(api: Api, resource: Any, namespace: str = "default") -> list[Any]:
    return [decode_json(raw) for raw in (await api.list(resource, namespace)).items]


@asynccontextmanager
async def counted_pods(server: ApiServer) -> AsyncIterator[list[str]]:
    """The key of every pod that is created while the block lasts, gone or not."""
    created: list[str] = []
    watch = server.store.watch("/registry/core/pods/", server.store.revision)

    async def count() -> None:
        async for events in watch:
            created.extend(event.key for event in events if event.type == "ADDED")

    task = asyncio.create_task(count())
    yield created
    task.cancel()


async def test_no_pod_is_made_twice(server: ApiServer) -> None:
    api = server.local()
    async with counted_pods(server) as created, managed(server):
        for name in ("a", "b", "c"):
            await api.create(REPLICA_SETS, replica_set(name, 40))
        await until(lambda: len(server.store.range("/registry/core/pods/").items) == 120)
        await asyncio.sleep(0.3)
    assert len(created) == len(set(created)) == 120


async def test_cut_off_anywhere_they_finish_what_was_begun(server: ApiServer) -> None:
    api = server.local()
    async with counted_pods(server) as created:
        await api.create(REPLICA_SETS, replica_set("a", 60))
        for number in (1, 4, 8, 20, 33, 59):
            async with managed(server):
                while len(created) < number:  # noqa: ASYNC110 - the moment is what matters
                    await asyncio.sleep(0)
            await asyncio.sleep(0.05)  # what the server had accepted is durable before others come to look
        async with managed(server):
            await until(lambda: len(server.store.range("/registry/core/pods/").items) >= 60)
            await asyncio.sleep(0.2)
    assert len(created) == 60


class Faltering:
    """A way to the server on which answers get lost: the request was carried out, the caller never hears of it."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.lost = 0

    async def send(self, call: Call) -> Answer:
        answer = await self.inner.send(call)
        if call.method == "POST" and call.path.endswith("/pods") and self.lost < 5 and answer.status == 201:
            self.lost += 1
            raise Unreachable("connection reset", where="test", applied=True)
        return answer

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """News comes late: whoever does not know its own writes acts on an old picture."""
        async with aclosing(self.inner.stream(call)) as chunks:
            async for chunk in chunks:
                await asyncio.sleep(0.2)
                yield chunk

    async def close(self) -> None:
        await self.inner.close()


async def test_a_create_whose_answer_was_lost_is_not_made_again(server: ApiServer) -> None:
    transport = Faltering(server.local().transport)
    manager = ControllerManager(TransportApi(transport), QUICK)
    async with counted_pods(server) as created:
        task = asyncio.create_task(manager.run())
        await server.local().create(REPLICA_SETS, replica_set("a", 20))
        await until(lambda: len(created) >= 20)
        await asyncio.sleep(0.8)
        assert transport.lost == 5
        assert len(created) == 20
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class WithoutClaims(Faltering):
    """A stock cluster: it has never heard of the claims of KEP-3675."""

    known = False

    async def send(self, call: Call) -> Answer:
        if "/resource.k8s.io/v1alpha1/" in call.path and not self.known:
            return Answer(404, b"404 page not found\n")
        return await self.inner.send(call)


async def test_kinds_that_the_server_does_not_have_are_not_waited_for(server: ApiServer) -> None:
    transport = WithoutClaims(server.local().transport)
    manager = ControllerManager(TransportApi(transport), QUICK)
    task = asyncio.create_task(manager.run())
    async with asyncio.timeout(60):
        await manager.ready.wait()
    await server.local().create(REPLICA_SETS, replica_set("a", 2))
    await until(lambda: len(server.store.range("/registry/core/pods/").items) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_name_that_another_replica_set_has_is_avoided(server: ApiServer) -> None:
    api = server.local()
    made = await api.create(DEPLOYMENTS, {**replica_set("web", 1), "kind": "Deployment"})
    taken = f"web-{template_hash(made['spec']['template'], 0)}"
    await api.create(REPLICA_SETS, {**replica_set("other", 0), "metadata": {"name": taken, "namespace": "default"}})
    async with managed(server):
        await until(lambda: len(server.store.range("/registry/core/pods/").items) == 1)
        found = await api.get(DEPLOYMENTS, "web", "default")
        assert found["status"]["collisionCount"] == 1
        names = [each["metadata"]["name"] for each in await objects(api, REPLICA_SETS)]
        assert sorted(names) == sorted([taken, f"web-{template_hash(made['spec']['template'], 1)}"])


async def test_a_quota_that_gives_room_is_used_at_once(server: ApiServer) -> None:
    api = server.local()
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
    await api.create(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    async with managed(server) as manager:
        sets = manager.controller("replicaset")
        sets.queue = WorkQueue(first_delay=1000.0)  # nothing is tried again just because time passes
        await api.create(REPLICA_SETS, replica_set("a", 3))
        await until(lambda: "default/a" in sets.queue._timers)
        await asyncio.sleep(0.3)  # its own status, which says why, makes it look once more
        before = server.store.revision
        await asyncio.sleep(0.3)
        assert sets.queue.idle
        assert server.store.revision == before, "then it rests"
        await api.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "3"}}}, "default")
        await until(lambda: len(server.store.range("/registry/core/pods/").items) == 3)


class Guarded(Faltering):
    """Somebody on the way does not let one pod go."""

    kept = ""

    async def send(self, call: Call) -> Answer:
        if call.method == "DELETE" and "/pods/" in call.path:
            self.kept = self.kept or call.path
            if call.path == self.kept:
                status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "it stays"}
                return Answer(403, encode_json(status))
        return await self.inner.send(call)


async def test_a_delete_that_is_refused_does_not_keep_the_others(server: ApiServer) -> None:
    api, transport = server.local(), Guarded(server.local().transport)
    manager = ControllerManager(TransportApi(transport), QUICK, controllers=(ReplicaSetController,))
    task = asyncio.create_task(manager.run())
    many = DELETES_AT_ONCE + 8
    await api.create(REPLICA_SETS, replica_set("a", many))
    await until(lambda: len(server.store.range("/registry/core/pods/").items) == many)
    await api.patch(REPLICA_SETS, "a", {"spec": {"replicas": 0}}, "default")
    await until(lambda: len(server.store.range("/registry/core/pods/").items) == 1)
    for _ in range(50):
        status = (await api.get(REPLICA_SETS, "a", "default"))["status"]
        if status["replicas"] == 1:
            break
        await asyncio.sleep(0.1)
    [told] = status["conditions"]
    assert (told["reason"], told["message"]) == ("FailedDelete", "unable to delete pods: it stays")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_namespace_that_goes_is_not_asked_for_more_pods(server: ApiServer) -> None:
    api = server.local()
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})
    manager = ControllerManager(api, QUICK, controllers=(ReplicaSetController,))  # nobody empties the namespace
    task = asyncio.create_task(manager.run())
    body = replica_set("a", 1)
    body["metadata"]["namespace"] = "going"
    await api.create(REPLICA_SETS, body, "going")
    await until(lambda: len(server.store.range("/registry/core/pods/").items) == 1)
    await api.delete(NAMESPACES, "going")
    await api.patch(REPLICA_SETS, "a", {"spec": {"replicas": 9}}, "going")
    for _ in range(50):
        status = (await api.get(REPLICA_SETS, "a", "going")).get("status") or {}
        if status.get("observedGeneration") == 2:
            break
        await asyncio.sleep(0.1)
    assert (status["observedGeneration"], status["replicas"], status.get("conditions")) == (2, 1, None)
    assert not manager.controller("replicaset").queue._timers, "and nothing is tried again"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_when_all_is_done_nothing_is_written(server: ApiServer) -> None:
    api = server.local()
    body = replica_set("web", 3)
    await api.create(DEPLOYMENTS, {**body, "kind": "Deployment"})
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "10"}}}
    await api.create(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    async with managed(server) as manager:
        await manager.ready.wait()
        await until(lambda: len(server.store.range("/registry/core/pods/").items) == 3)
        await asyncio.sleep(0.5)
        before = server.store.revision
        manager.controller("deployment").queue.add("default/web")
        for found in await objects(api, REPLICA_SETS):
            manager.controller("replicaset").queue.add(f"default/{found['metadata']['name']}")
        await asyncio.sleep(0.8)
        assert manager.idle
        assert server.store.revision == before
        assert manager.metrics.audits._value.get() > 0


async def test_the_audit_reports_drift_and_only_drift(server: ApiServer) -> None:
    api = server.local()
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}})
    quota = {"metadata": {"name": "q", "namespace": "t"}, "spec": {"hard": {"pods": "50"}}}
    await api.create(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    async with managed(server) as manager:
        audit = manager.controller("resourcequota")
        assert isinstance(audit, QuotaAudit)
        for number in range(30):
            pod = {
                "metadata": {"name": f"p{number}", "namespace": "t"},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
            if number % 3 == 0:
                await api.delete(PODS, f"p{number}", "t")
            audit.queue.add("t")
        await until(lambda: manager.metrics.audits._value.get() > 0)
        assert audit.drifts == {}
        known = server.chain.ledger.quota("t", "q")
        assert known is not None
        known.used["pods"].nanos += 7_000_000_000  # what must never happen
        known.used["pods"].parts = dict.fromkeys(known.used["pods"].parts, known.used["pods"].nanos)
        await api.delete(PODS, "p1", "t")
        await until(lambda: bool(audit.drifts))
        [drift] = audit.drifts["t"]
        assert (drift.quota, drift.resource, str(drift.recorded), str(drift.actual)) == ("q", "pods", "26", "19")
        await manager.context.events.flushed()
        events = server.store.range("/registry/core/events/t/").items
        assert any(b"26 is recorded as used, the objects use 19" in event.value for event in events)
        assert manager.metrics.drift._value.get() == 1


async def test_server_and_audit_agree_on_pods_that_outlive_their_grace_period(server: ApiServer) -> None:
    api = server.local()
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "5"}}}
    await api.create(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}})
    spec = {"nodeName": "silent", "containers": [{"name": "c", "image": "i"}]}
    async with managed(server) as manager:
        audit = manager.controller("resourcequota")
        assert isinstance(audit, QuotaAudit)
        for name in ("a", "b"):
            body = {
                "metadata": {"name": name, "namespace": "default", "finalizers": ["example.com/held"]},
                "spec": spec,
            }
            await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body})
        await api.delete(PODS, "a", "default", grace_seconds=1)
        async with asyncio.timeout(60):
            while (await api.get(RESOURCE_QUOTAS, "q", "default"))["status"]["used"] != {"pods": "1"}:
                audit.queue.add("default")
                await asyncio.sleep(0.05)
        audited = manager.metrics.audits._value.get()
        await until(lambda: manager.metrics.audits._value.get() > audited + 2)
        assert audit.drifts == {}


class WithoutReplicaSets:
    """A server that does not know one of the kinds that controllers look at."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    async def send(self, call: Call) -> Answer:
        return Answer(404, b"404 page not found") if "/replicasets" in call.path else await self.inner.send(call)

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.inner.stream(call)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        await self.inner.close()


async def test_what_an_unserved_kind_owns_is_not_garbage(server: ApiServer) -> None:
    api = server.local()
    lost = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "lost", "uid": "u1"}
    for name, owner in (("kept", lost), ("garbage", {**lost, "apiVersion": "v1", "kind": "ReplicationController"})):
        spec = replica_set(name, 1)["spec"]["template"]["spec"]
        await api.create(
            PODS, {"metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]}, "spec": spec}
        )
    manager = ControllerManager(TransportApi(WithoutReplicaSets(server.local().transport)), QUICK)
    task = asyncio.create_task(manager.run())
    await asyncio.wait_for(manager.ready.wait(), 10)
    await until(lambda: len(server.store.range("/registry/core/pods/").items) == 1)
    await until(lambda: manager.idle)
    assert [each["metadata"]["name"] for each in await objects(api, PODS)] == ["kept"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_claim_in_use_is_not_deleted_under_its_pod(server: ApiServer) -> None:
    """As DRA's claims: who deletes it waits until the last pod that uses it has gone."""
    claim = {"metadata": {"name": "cores", "namespace": "default"}, "spec": {"resourceClassName": "c"}}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    spec["resourceClaims"] = [{"name": "mine", "resourceClaimName": "cores"}]
    api = server.local()

    async def look() -> dict[str, Any] | None:
        try:
            return await api.get(RESOURCE_CLAIMS, "cores", "default")
        except ApiError as error:
            assert error.not_found
            return None

    async def is_so(question: Any) -> None:
        for _ in range(600):
            if question(await look()):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(await look())

    async with managed(server):
        await api.create(RESOURCE_CLAIMS, claim)
        await api.create(PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
        await is_so(lambda found: found and (found.get("status") or {}).get("reservedFor"))
        await api.delete(RESOURCE_CLAIMS, "cores", "default")
        await is_so(lambda found: found and found["metadata"].get("deletionTimestamp"))
        await asyncio.sleep(0.3)
        found = await look()
        assert found is not None and found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        await api.delete(PODS, "p", "default", grace_seconds=0)
        await is_so(lambda found: found is None)


async def test_what_a_service_left_behind_goes_when_they_start_and_locks_stay(server: ApiServer) -> None:
    api = server.local()
    lock = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    for name, about in (("left", {}), ("lock", lock), ("by-hand", {})):
        metadata = {"name": name, "namespace": "default", "annotations": about}
        await api.create(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}, "default")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "by-hand", "namespace": "default"}}
    await api.create(SERVICES, {**service, "spec": {"ports": [{"port": 80}]}}, "default")

    def names() -> set[str]:
        found = server.store.range("/registry/core/endpoints/default/").items
        return {one.key.rpartition("/")[2] for one in found} - {"kubernetes"}

    async with managed(server, EndpointsController):
        await until(lambda: names() == {"lock", "by-hand"})
        metadata = {"name": "later", "namespace": "default"}
        await api.create(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}, "default")
        await asyncio.sleep(0.3)
        assert names() == {"lock", "by-hand", "later"}, "its service may be yet to come"


async def written_by_hand(api: Api, namespace: str) -> None:
    """A service that selects nobody, and where it leads."""
    metadata = {"name": "by-hand", "namespace": namespace}
    await api.create(SERVICES, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}}, namespace)
    subsets = [{"addresses": [{"ip": "10.2.0.1"}], "ports": [{"port": 80}]}]
    await api.create(ENDPOINTS, {"metadata": metadata, "subsets": subsets}, namespace)


async def test_mirrored_slices_come_back_and_go_with_their_endpoints(server: ApiServer) -> None:
    api = server.local()
    await written_by_hand(api, "default")

    def slices() -> list[str]:
        found = server.store.range("/registry/discovery.k8s.io/endpointslices/default/").items
        return [name for one in found if (name := one.key.rpartition("/")[2]) != "kubernetes"]

    async with managed(server, EndpointSliceMirroringController) as manager:
        await until(lambda: len(slices()) == 1)
        [first] = slices()
        await api.patch(ENDPOINT_SLICES, first, {"metadata": {"annotations": {"own": "note"}}}, "default")
        await asyncio.sleep(0.2)
        found = await api.get(ENDPOINT_SLICES, first, "default")
        assert found["metadata"]["annotations"] == {"own": "note"}, "it stays until there is something to write"
        await api.delete(ENDPOINT_SLICES, first, "default")
        await until(lambda: len(slices()) == 1 and slices() != [first])
        await api.delete(ENDPOINTS, "by-hand", "default")
        await until(lambda: not slices() and manager.idle)


async def test_a_namespace_that_ends_is_not_asked_for_slices_again(server: ApiServer) -> None:
    api = server.local()
    await api.create(NAMESPACES, {"metadata": {"name": "ends"}})
    await written_by_hand(api, "ends")
    await api.delete(NAMESPACES, "ends")
    async with managed(server, EndpointSliceMirroringController) as manager:
        told = manager.metrics.registry.get_sample_value
        name = {"name": "endpointslicemirroring"}
        await until(lambda: bool(told("workqueue_work_duration_seconds_count", name)) and manager.idle)
        assert told("workqueue_retries_total", name) is None
        assert await objects(api, ENDPOINT_SLICES, "ends") == []
