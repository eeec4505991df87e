"""Runs all controllers against one API server, over HTTP or in-process, on shared copies of what they look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kubeqos.client import Api, SharedInformers
from kubeqos.controllers.batch.cronjobcontroller import CronJobController
from kubeqos.controllers.batch.jobcontroller import JobController
from kubeqos.controllers.claims import ClaimController
from kubeqos.controllers.claimstatus import ClaimStatusController
from kubeqos.controllers.collector import GarbageCollector
from kubeqos.controllers.controller import Clock, Context, Controller, Settings
from kubeqos.controllers.metrics import Metrics
from kubeqos.controllers.namespaces import NamespaceController, ServiceAccountController
from kubeqos.controllers.nodes.controller import NodeLifecycle, TaintEviction
from kubeqos.controllers.nodes.podsweep import ClaimProtection, PodSweeper
from kubeqos.controllers.quota import QuotaAudit
from kubeqos.controllers.services.endpointscontroller import EndpointsController
from kubeqos.controllers.services.mirrorcontroller import EndpointSliceMirroringController
from kubeqos.controllers.services.slicecontroller import EndpointSliceController
from kubeqos.controllers.volumes.controller import VolumeBinder
from kubeqos.controllers.volumes.ephemeral import EphemeralVolumes
from kubeqos.controllers.workloads.daemoncontroller import DaemonSetController
from kubeqos.controllers.workloads.deploymentcontroller import DeploymentController
from kubeqos.controllers.workloads.disruption import DisruptionController
from kubeqos.controllers.workloads.replicacontroller import ReplicaSetController, ReplicationControllerController
from kubeqos.controllers.workloads.statefulcontroller import StatefulSetController
from kubeqos.logs import logger

CONTROLLERS: tuple[Callable[[Context], Controller], ...] = (
    ReplicaSetController,
    ReplicationControllerController,
    DeploymentController,
    DaemonSetController,
    StatefulSetController,
    JobController,
    CronJobController,
    DisruptionController,
    EndpointSliceController,
    EndpointsController,
    EndpointSliceMirroringController,
    ClaimController,
    ClaimStatusController,
    GarbageCollector,
    PodSweeper,
    ClaimProtection,
    VolumeBinder,
    EphemeralVolumes,
    NodeLifecycle,
    TaintEviction,
    NamespaceController,
    ServiceAccountController,
    QuotaAudit,
)
_DEFAULTS = Settings()
_DEPTH_SECONDS = 5.0
COMPLAINT_SECONDS = 60.0
log = logger("kubeqos.controllers")


class ControllerManager:
    """All controllers of a cluster. `run` it in a task; `ready` is set when every one of them works."""

    def __init__(
        self,
        api: Api,
        settings: Settings = _DEFAULTS,
        *,
        clock: Clock = time.time,
        controllers: Sequence[Callable[[Context], Controller]] = CONTROLLERS,
        component: str = "kubeqos-controllers",
        informers: SharedInformers | None = None,
    ) -> None:
        """`informers` are those of the process, run by whoever made them; without, they have their own."""
        self.context = Context(api, settings, clock=clock, component=component, informers=informers)
        self._follows_itself = informers is None
        self.controllers = [make(self.context) for make in controllers]
        for controller in self.controllers:
            controller.listen()
        self.ready = asyncio.Event()

    @property
    def metrics(self) -> Metrics:
        return self.context.metrics

    @property
    def idle(self) -> bool:
        """Nothing waits to be looked at; keys that are to be looked at later do not count."""
        return all(controller.queue.idle for controller in self.controllers)

    def controller(self, name: str) -> Controller:
        return next(found for found in self.controllers if found.name == name)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.context.events.run())
            caches = list(self.context.caches.values())
            if self._follows_itself:
                tasks.create_task(self.context.informers.run())
            for controller in self.controllers:
                tasks.create_task(controller.run())
            tasks.create_task(self._measure())
            tasks.create_task(self._complain())
            for cache in caches:
                await cache.informer.synced.wait()
            self.ready.set()

    def lagging(self) -> list[str]:
        """Which controllers cannot work, and what they cannot read and why."""
        found = []
        for controller in self.controllers:
            missing = [each.informer for each in controller.followed if not each.informer.synced.is_set()]
            if missing:
                why = "; ".join(f"{one.resource.plural}: {one.problem or 'not listed yet'}" for one in missing)
                found.append(f"{controller.name} waits for {why}")
        return found

    async def _complain(self) -> None:
        """Once a minute, as long as a controller cannot work: nobody else would notice."""
        while True:
            await asyncio.sleep(COMPLAINT_SECONDS)
            for text in self.lagging():
                log.warning("a controller cannot work", reason=text)

    async def _measure(self) -> None:
        while True:
            for controller in self.controllers:
                self.metrics.waiting(controller.name, len(controller.queue))
            await asyncio.sleep(_DEPTH_SECONDS)
