"""The second home's kinds and webhooks on the embedded API server: the same objects, the same answers, in a quick loop.

The server knows nothing of it: it has the definitions that are installed, and calls the webhooks that are registered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NAMESPACES, NODES, PODS
from kubeqos.stock.cluster import LIMIT_RANGES, NODE_QOSES, QUOTAS
from kubeqos.stock.control.registration import MUTATING
from kubeqos.stock.installer import install
from kubeqos.testing import api_server
from tests.qrm.harness import until
from tests.stock import limits
from tests.stock.control.replicas import replica
from tests.stock.kube_apiserver import acting_as
from tests.stock.rights import asking, is_described
from tests.stock.scheduling import stories

TEAM = "team"
SLOW = "qos.kubeqos.io/blockio.slow"


@asynccontextmanager
async def installed() -> AsyncIterator[HttpApi]:
    """A server with one node that offers blockio=slow twice, a quota of one, and a controller with its own rights."""
    with api_server() as server:
        admin = HttpApi.from_kubeconfig(server.kubeconfig)
        own = HttpApi.from_kubeconfig(acting_as(server.kubeconfig, "kubeqos-controller"))
        try:
            _ = [line async for line in install(admin, "kubeqos:test", {})]
            labels = {"qos.kubeqos.io/enforce": "true"}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": labels}}
            await admin.create(NAMESPACES, space)
            await admin.create(NODES, stories.node("n1"))
            report = stories.report("n1", slow=2, fast=0)
            await admin.create(NODE_QOSES, {**report, "spec": {}})
            await admin.patch(NODE_QOSES, "n1", {"status": report["status"]}, subresource="status")
            async with replica(own, "one"):
                await until("described", lambda: is_described(admin, "slow", counted=True))
                await until("registered", lambda: registered(admin))
                yield admin
        finally:
            await own.close()
            await admin.close()


async def registered(admin: HttpApi) -> bool:
    try:
        return bool((await admin.get(MUTATING, "kubeqos")).get("webhooks"))
    except ApiError:
        return False


async def put(admin: HttpApi, resource: Any, kind: str, spec: dict[str, Any]) -> None:
    raw = {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": "q"}, "spec": spec}
    await admin.create(resource, raw, TEAM)


async def check_defaults_and_schemas(admin: HttpApi) -> None:
    defaults = [{"type": "Container", "qosResources": [{"name": "blockio", "default": "fast"}]}]
    await put(admin, LIMIT_RANGES, "QOSClassLimits", {"limits": defaults})

    async def by_default() -> bool:
        raw = asking("plain", "slow")
        raw["metadata"] = {"generateName": "plain-"}
        stored = await admin.create(PODS, raw, TEAM)
        return "blockio=fast" in str(stored["metadata"].get("annotations"))

    await until("by default", by_default)
    with pytest.raises(ApiError, match="level"):
        wrong = {"classes": [{"resource": "blockio", "class": "slow", "level": "somewhere"}]}
        await admin.patch(NODE_QOSES, "n1", {"status": wrong}, subresource="status")


async def test_pods_are_judged_and_counted() -> None:
    async with installed() as admin:

        async def created(name: str, cls: str) -> dict[str, Any]:
            return await admin.create(PODS, asking(name, cls), TEAM)

        async def refused(name: str, cls: str) -> str:
            with pytest.raises(ApiError) as caught:
                await created(name, cls)
            return str(caught.value)

        # It knows the webhooks, and these the classes, a moment after they were made.
        async def judged() -> bool:
            return "there is no class blockio=none" in await refused("never", "none")

        await until("judged", judged)
        await check_defaults_and_schemas(admin)
        fast = await created("fast", "fast")
        terms = fast["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert "class.qos.kubeqos.io/blockio.fast" in str(terms), "an unlimited class is a label"
        slow = await created("slow", "slow")
        assert slow["spec"]["containers"][0]["resources"]["requests"][SLOW] == "1", "a limited one is counted"
        with pytest.raises(ApiError, match="cannot be changed"):
            await admin.patch(PODS, "slow", {"metadata": {"annotations": {"qos.kubeqos.io/container.c": ""}}}, TEAM)
        quota = {"container": [{"name": "blockio", "classes": [{"name": "slow", "capacity": 2}]}]}
        await put(admin, QUOTAS, "QOSClassQuota", {"qosResources": quota})

        async def counted() -> bool:
            return bool(((await admin.get(QUOTAS, "q", TEAM)).get("status") or {}).get("qosResourcesUsage"))

        await until("counted", counted)
        await created("second", "slow")
        assert "exceeded quota: q" in await refused("third", "slow")
        await admin.delete(PODS, "second", TEAM, grace_seconds=0)

        async def replenished() -> bool:
            try:
                await created("third", "slow")
            except ApiError:
                return False
            return True

        await until("replenished", replenished)


async def test_limits_of_a_pod_and_namespaces_of_a_class_hold() -> None:
    async with installed() as admin:
        await limits.hold(admin)
