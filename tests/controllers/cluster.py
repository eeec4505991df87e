"""A cluster for the controllers: a real API server, the real controllers, the real kubectl, and nodes that only report.

`Agents` stands where node agents will: it says that pods run and are ready, and ends the ones that are to end. It
decides nothing that a controller under test decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeqos.client import ApiError, Change, Informer, PatchType, WorkQueue
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.controllers.controller import Settings
from kubeqos.controllers.manager import ControllerManager
from kubeqos.gates import FeatureGates
from kubeqos.model.timestamps import timestamp
from tests.apiserver.live import live_server
from tests.scenarios.cluster import ScenarioCluster, beside

QUICK = Settings(
    node_monitor_grace_seconds=1.0,
    node_startup_grace_seconds=1.0,
    node_monitor_period_seconds=0.2,
    orphan_quarantine_seconds=0.5,
    pod_sweep_period_seconds=0.5,
    quota_audit_period_seconds=0.5,
    quota_confirm_seconds=0.2,
    terminated_pod_threshold=3,
)
BROKEN = "broken"
"""A label: pods that have it never become ready."""


class Agents:
    """Every pod runs at once, wherever it is; one that is to end ends at once."""

    def __init__(self, api: HttpApi) -> None:
        self.ready = asyncio.Event()
        self._api = api
        self._pods = Informer(api, PODS)
        self._queue: WorkQueue[str] = WorkQueue()
        self._pods.on_change(self._changed)

    def _changed(self, change: Change) -> None:
        self._queue.add(change.key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            await self._pods.synced.wait()
            self.ready.set()
            await self._queue.work(self._tend, workers=8, failed=lambda key, error, delay: None)

    async def _tend(self, key: str) -> None:
        pod = self._pods.object(key)
        if pod is None:
            return
        metadata, status = pod["metadata"], pod.get("status") or {}
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            if metadata.get("deletionTimestamp"):
                if pod["spec"].get("nodeName") and not metadata.get("finalizers"):
                    await self._api.delete(PODS, name, namespace, grace_seconds=0, uid=metadata["uid"])
            elif status.get("phase") == "Pending" and BROKEN not in (metadata.get("labels") or {}):
                now = timestamp(time.time())
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                seen = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
                patch = {"metadata": seen, "status": {"phase": "Running", "conditions": [ready]}}
                await self._api.patch(PODS, name, patch, namespace, type=PatchType.STRATEGIC, subresource="status")
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise


class ControlledCluster(ScenarioCluster):
    """A scenario's cluster with the controllers at hand."""

    manager: ControllerManager


@contextmanager
def controlled_cluster(folder: Path, settings: Settings = QUICK) -> Iterator[ControlledCluster]:
    home = folder / "home"
    home.mkdir(parents=True)
    gates = FeatureGates.parse("AllAlpha=true,QOSResourcesStrictNames=false")
    with (
        live_server(folder / "data", gates) as live,
        beside(live, lambda api: ControllerManager(api, settings)) as manager,
        beside(live, Agents),
    ):
        cluster = ControlledCluster(live, home)
        cluster.manager = manager
        yield cluster
