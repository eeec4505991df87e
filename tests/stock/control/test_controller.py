"""The controller on our own API server: replicas, certificates, quotas that are given back, offers on Nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer
from kubeqos.apiserver.server import Settings as ServerSettings
from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import NODES
from kubeqos.codec import decode_json
from kubeqos.stock.cluster import CLASSES, LIMIT_RANGES, NODE_QOSES, PODS, QUOTAS, RESOURCES
from kubeqos.stock.control.registration import MUTATING, published
from tests.qrm.harness import until
from tests.stock.control.replicas import Uids, admitted, asked, prepared, replica
from tests.stock.control.rotation import Client, Rotation

SLOW = {"resource": "blockio", "class": "slow", "level": "container", "capacity": 1}
GOLD = {"resource": "rdt", "class": "gold", "level": "container"}


@pytest.fixture
def uids() -> Uids:
    return Uids()


@pytest.fixture
async def api(tmp_path: Path, uids: Uids) -> AsyncIterator[Api]:
    async with ApiServer.start(ServerSettings(tmp_path / "data", port=0)) as server:
        server.core.new_uid = uids
        api = server.local()
        await prepared(api, "team")
        yield api


def own(kind: str, name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


def pod(name: str, **classes: str) -> dict[str, Any]:
    asking = {"qos.kubeqos.io/container.main": ",".join(f"{resource}={cls}" for resource, cls in classes.items())}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "annotations": asking if classes else {}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }


async def offering(api: Api, name: str, *classes: dict[str, Any]) -> None:
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await api.create(NODE_QOSES, own("NodeQOS", name, {}))
    await api.patch(NODE_QOSES, name, {"status": {"classes": list(classes)}}, subresource="status")


async def bundle_of(api: Api) -> bytes:
    return published(await api.get(MUTATING, "kubeqos"))


async def test_offers_of_a_node_reach_its_node_object_and_stay(api: Api) -> None:
    await offering(api, "n1", SLOW, GOLD)
    async with replica(api, "a"):

        async def capacity() -> Any:
            return ((await api.get(NODES, "n1")).get("status") or {}).get("capacity", {})

        async def is_there() -> bool:
            return (await capacity()).get("qos.kubeqos.io/blockio.slow") == "1"

        await until("counted", is_there)
        node = await api.get(NODES, "n1")
        assert node["status"]["allocatable"]["qos.kubeqos.io/blockio.slow"] == "1"
        assert "class.qos.kubeqos.io/rdt.gold" in node["metadata"]["labels"]
        # a kubelet that registers anew resets what it does not know
        await api.patch(
            NODES, "n1", {"status": {"capacity": {"qos.kubeqos.io/blockio.slow": "0"}}}, subresource="status"
        )
        await until("put right", is_there)
        described = await api.get(CLASSES, "blockio.slow")
        assert described["spec"]["counted"] is True
        await until("told", lambda: _status_is(api, "blockio.slow", {"nodes": 1, "capacity": 1, "used": 0}))
        await api.delete(NODE_QOSES, "n1")

        async def is_gone() -> bool:
            labels = (await api.get(NODES, "n1"))["metadata"].get("labels") or {}
            return not any("kubeqos" in name for name in (*labels, *(await capacity())))

        await until("nothing of ours is left", is_gone)


async def _status_is(api: Api, name: str, status: dict[str, Any]) -> bool:
    return bool((await api.get(CLASSES, name)).get("status") == status)


async def test_a_pod_is_judged_and_a_quota_is_given_back(api: Api, uids: Uids) -> None:
    await offering(api, "n1", SLOW, GOLD)
    allowed = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]}]}
    await api.create(QUOTAS, own("QOSClassQuota", "q", {"qosResources": allowed}), "team")
    async with replica(api, "a") as controller:

        async def create(name: str) -> str:
            return await admitted(api, uids, controller.port, await bundle_of(api), pod(name, rdt="gold"))

        async def first() -> bool:  # the class and the quota are known a moment after the replica is ready
            return await create("first") == ""

        await until("created", first)
        stored = await api.get(PODS, "first", "team")
        terms = stored["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert terms["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] == "class.qos.kubeqos.io/rdt.gold"
        assert "exceeded quota: q" in await create("second")
        await api.delete(PODS, "first", "team", grace_seconds=0)

        async def again() -> bool:
            return await create("third") == ""

        await until("given back", again)
        assert "there is no class rdt=purple" in await admitted(
            api, uids, controller.port, await bundle_of(api), pod("bad", rdt="purple")
        )


async def test_who_is_seen_stored_is_noted_no_longer_and_who_came_past_the_webhooks_is_counted(
    api: Api, uids: Uids
) -> None:
    await offering(api, "n1", SLOW, GOLD)
    allowed = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 5}]}]}
    await api.create(QUOTAS, own("QOSClassQuota", "q", {"qosResources": allowed}), "team")
    async with replica(api, "a") as controller:

        async def is_created() -> bool:
            asking = pod("first", rdt="gold")
            return await admitted(api, uids, controller.port, await bundle_of(api), asking) == ""

        async def told() -> tuple[int, int]:
            status = (await api.get(QUOTAS, "q", "team"))["status"]
            [usage] = status["qosResourcesUsage"]["container"]
            return usage["classes"][0].get("capacity", 0), len(status["reserved"])

        async def says(*expected: int) -> bool:
            return await told() == expected

        await until("created", is_created)
        assert (await told())[0] == 1, "counted from the moment that it was let in"
        await until("noted no longer", lambda: says(1, 0))
        await api.create(PODS, pod("past", rdt="gold"), "team")
        await until("counted", lambda: says(2, 0))


async def test_a_namespace_default_is_given(api: Api, uids: Uids) -> None:
    await offering(api, "n1", SLOW)
    limits = [{"type": "Container", "qosResources": [{"name": "blockio", "default": "slow"}]}]
    await api.create(LIMIT_RANGES, own("QOSClassLimits", "l", {"limits": limits}), "team")
    async with replica(api, "a") as controller:

        async def counted() -> bool:
            name = f"p{asyncio.get_running_loop().time():.6f}".replace(".", "-")
            assert await admitted(api, uids, controller.port, await bundle_of(api), pod(name)) == ""
            stored = await api.get(PODS, name, "team")
            requests = (stored["spec"]["containers"][0].get("resources") or {}).get("requests") or {}
            return bool(requests.get("qos.kubeqos.io/blockio.slow") == "1")

        await until("given and counted", counted)


async def test_certificates_change_while_webhooks_answer(api: Api) -> None:
    rotation = Rotation(api)
    await rotation.begin()
    async with replica(api, "a", now=rotation.now) as one, replica(api, "b", now=rotation.now) as other:
        await until("registered", lambda: is_registered(api))
        client = Client(rotation, one.port, other.port)
        asking = asyncio.create_task(client.run())
        try:
            await until("both answer", lambda: len(client.shown) == 2)
            await rotation.pass_by(client.sees)
            before = client.handshakes
            await until("asked afterwards", lambda: client.handshakes > before + 4 or asking.done())
        finally:
            asking.cancel()
            [ended] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended
        assert client.failed == []


async def is_registered(api: Api) -> bool:
    try:
        return bool(await bundle_of(api))
    except ApiError:
        return False


async def test_another_replica_takes_over_and_all_answer(api: Api) -> None:
    await offering(api, "n1", GOLD)
    request = {"operation": "CREATE", "namespace": "team", "object": pod("p")}
    async with replica(api, "b") as second:
        async with replica(api, "a") as first:
            await until("one leads", lambda: first.leadership.leads or second.leadership.leads)
            for each in (first, second):
                bundle = await bundle_of(api)
                assert (await asked(each.port, "/validate", bundle, request))["allowed"]
        await until("the other leads", lambda: second.leadership.leads)


async def test_resources_are_told_of_their_classes_and_strict_names_describe_only_what_is_known(
    api: Api, uids: Uids
) -> None:
    turbo = {"resource": "turbo", "class": "high", "level": "container", "capacity": 2, "used": 1}
    await offering(api, "n1", GOLD, {**GOLD, "resource": "k8s.io/rdt"}, turbo)
    await api.create(RESOURCES, own("QOSResource", "turbo", {"resource": "turbo", "level": "container"}))
    async with replica(api, "a", strict_names=True) as controller:

        async def is_told() -> bool:
            told = (await api.get(RESOURCES, "turbo")).get("status")
            return told == {"nodes": 1, "used": 1, "classes": ["high"]}

        async def are_described() -> bool:
            listed = [decode_json(raw)["spec"] for raw in (await api.list(CLASSES)).items]
            return {one["resource"] for one in listed} == {"k8s.io/rdt", "turbo"}

        await until("the resource is told", is_told)
        await until("what is known is described", are_described)

        async def refused(name: str, **asks: str) -> str:
            return await admitted(api, uids, controller.port, await bundle_of(api), pod(name, **asks))

        assert await refused("known", turbo="high") == ""
        assert "rdt is no resource that this cluster knows" in await refused("unknown", rdt="gold")
