"""What a node tells the cluster, on our API server: its report, whatever becomes of evictions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Api, ApiError
from kubeqos.client.resources import EVENTS, NODES, POD_DISRUPTION_BUDGETS, PODS
from kubeqos.codec import decode_json
from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.stock.agent.evictions import Evictions
from kubeqos.stock.agent.report import Reporter
from tests.qrm.harness import until
from tests.stock.control.replicas import prepared
from tests.stock.rights import running

Raw = dict[str, Any]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        made = server.local()
        await prepared(made)
        await made.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield made


async def runs(api: Api, name: str) -> Subject:
    """A pod that runs on the node, and its container."""
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "a"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "labels": {"app": name}}
    stored = await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "default")
    await api.patch(PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")
    return Subject(Level.CONTAINER, f"c-{name}", "s", stored["metadata"]["uid"], "default", name, "main")


async def budget(api: Api, name: str, allowed: int) -> None:
    """A budget of a pod that lets it go, or not."""
    status = {"status": {"disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1}}
    status["status"] |= {"expectedPods": 1, "observedGeneration": 1}
    await api.patch(POD_DISRUPTION_BUDGETS, name, status, "default", subresource="status")


async def is_gone(api: Api, name: str) -> bool:
    try:
        await api.get(PODS, name, "default")
    except ApiError as error:
        return error.not_found
    return False


async def said(api: Api, name: str) -> list[tuple[str, int]]:
    """What events say of a pod, and how often."""
    found: list[Raw] = [decode_json(raw) for raw in (await api.list(EVENTS, "default")).items]
    return [(one["message"], one.get("count") or 1) for one in found if one["involvedObject"]["name"] == name]


async def test_an_eviction_that_a_budget_refuses_keeps_neither_others_nor_readiness(api: Api) -> None:
    guarded, free = await runs(api, "guarded"), await runs(api, "free")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}, "spec": spec}
    await api.create(POD_DISRUPTION_BUDGETS, made, "default")
    await budget(api, "kept", 0)
    reporter = Reporter(api, "n1", lambda before, now: {"classes": [], "classCount": 0})
    reporter.evictions = Evictions(api, reporter.events, again_seconds=0.1)
    for one in (guarded, free):
        reporter.broken(one, "it started without its class")
    async with running(reporter.run()):
        await until("ready", reporter.published.is_set)
        await until("the other one goes", lambda: is_gone(api, "free"))
        await until("told", lambda: said(api, "guarded"))
        await reporter.events.flushed()
        [(message, count)] = await said(api, "guarded")
        assert "disruption budget" in message and "tried again" in message and count == 1, "once, not at each try"
        assert not await is_gone(api, "guarded")
        await budget(api, "kept", 1)
        await until("it goes, too", lambda: is_gone(api, "guarded"))
        await until("nobody waits", lambda: not reporter.evictions.waiting)
        assert [message for message, _ in await said(api, "free")] == ["evicted: it started without its class"]
