"""The scheduler as a running part: informers feed the core, a loop performs what it decides.

Works against any API server through `client.Api`: in-process when embedded, over HTTP when run alone. Bindings go out
together for each turn of the loop, since they all wait for the server's disk; decisions do not wait for them, as long
as no more are on their way than the server keeps up with (`window`). Events go their own way (`client.events`): no
binding waits for one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from kubeqos.client.api import Api, PatchType, Refused, Submission
from kubeqos.client.decisions import DecisionRecorder
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.events import EventRecorder
from kubeqos.client.resources import PODS, resource_named
from kubeqos.client.shared import SharedInformers
from kubeqos.codec import JsonObject, encode_json
from kubeqos.logs import logger
from kubeqos.model.annotations.wellknown import PLACEMENT_ANNOTATION
from kubeqos.model.decisions import Placement, PodRef, Preempted, Preemption, Waiting
from kubeqos.model.messages import Binding, BindingMetadata
from kubeqos.model.timestamps import timestamp
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import UNSCHEDULABLE, Bind, BindVolumes, Evict, PodKey, Report
from kubeqos.scheduler.feed import Feed, Home
from kubeqos.scheduler.metrics import Metrics
from kubeqos.scheduler.reading.storage import CLAIMS, SELECTED_NODE, VOLUMES
from kubeqos.scheduler.window import Window
from kubeqos.web.garbage import freeze_loaded

_CALLS_AT_ONCE = 128
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_FLUSH_SECONDS = 30.0
_DECISIONS_PER_TURN = 64

log = logger("kubeqos.scheduler")


class SchedulerService:
    """Runs one scheduler until cancelled."""

    def __init__(
        self,
        api: Api,
        core: Scheduler,
        home: Home | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        informers: SharedInformers | None = None,
    ) -> None:
        """`informers` are those of the process, run by whoever made them; without, it has its own. `clock` measures
        pauses and is never set back, as `wall`, which stamps what is told, may be: a pod would be paused for that long.
        """
        home = home or Home()
        self.core = core
        self.events = EventRecorder(api, core.profiles[0])
        self.decisions = DecisionRecorder(
            api if home.keeps_decisions else None, core.profiles[0], clock=clock, wall=wall
        )
        self.window = Window()
        self.metrics = Metrics(core)
        self.metrics.watch(self.window, self.events)
        self._api = api
        self._clock, self._wall = clock, wall
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._slots = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._alarm: asyncio.TimerHandle | None = None
        self._informers = SharedInformers(api) if informers is None else informers
        self._follows_itself = informers is None
        self.feed = Feed(self._informers, core, self._wake.set, clock, home)
        self.ready = asyncio.Event()

    async def run(self, leads: asyncio.Event | None = None) -> None:
        """Follow the cluster and place pods, once `leads` is set if there is such a condition."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.events.run())
            tasks.create_task(self.decisions.run())
            if self._follows_itself:
                tasks.create_task(self._informers.run())
            await self.feed.start()
            tasks.create_task(self._flush())
            freeze_loaded()
            self.ready.set()
            if leads is not None:
                await leads.wait()
            await self._decide(tasks)

    def story(self, uid: str) -> list[str]:
        """What was decided about a pod, by the clock on the wall."""
        return self.core.story(uid, self._wall() - self._clock())

    # -- deciding and doing ------------------------------------------------------------------------------------------

    async def _decide(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.core.tick(self._clock())
            while self.core.queue.has_work:
                room = await self._room()
                self.core.storage_unreadable(self.feed.unread_storage())
                started = time.perf_counter()
                effects = list(self.core.step(self._clock(), min(room, _DECISIONS_PER_TURN)))
                self.metrics.decided(effects, time.perf_counter() - started)
                if not effects and not self.core.queue.has_work:
                    break
                if binds := [effect for effect in effects if isinstance(effect, Bind)]:
                    self.window.sent(len(binds))
                    tasks.create_task(self._bind(binds))
                for effect in effects:
                    if not isinstance(effect, Bind):
                        tasks.create_task(self._perform(effect))
                await asyncio.sleep(0)
            self._set_alarm()

    async def _room(self) -> int:
        """How many may be decided now: when bindings pile up, deciding faster only makes stale decisions."""
        async with self._slots:
            pass
        while not (room := self.window.room):
            self._has_room.clear()
            await self._has_room.wait()
        return room

    def _set_alarm(self) -> None:
        """Wake up when the core wants to be, though nothing happens."""
        due = self.core.next_wake
        if self._alarm is not None:
            self._alarm.cancel()
        delay = None if due is None else max(0.0, due - self._clock())
        self._alarm = None if delay is None else asyncio.get_running_loop().call_later(delay, self._wake.set)

    async def _perform(self, effect: Report | Evict | BindVolumes) -> None:
        async with self._slots:
            if isinstance(effect, Report):
                await self._report(effect)
            elif isinstance(effect, BindVolumes):
                await self._bind_volumes(effect)
            else:
                await self._evict(effect)

    async def _bind(self, binds: list[Bind]) -> None:
        asked = [Submission(binding_of(one), one.pod.namespace, one.pod.name, "binding") for one in binds]
        started = time.perf_counter()
        refused = await self._api.submit(PODS, asked)
        self.window.answered(len(binds), time.perf_counter() - started, pushed_back=any(map(_pushes_back, refused)))
        self._has_room.set()
        for bind, error in zip(binds, refused, strict=True):
            pod = bind.pod
            if error is None:
                message = f"Successfully assigned {pod.namespace}/{pod.name} to {bind.node}"
                self.events.record(_reference(pod), "Scheduled", message)
                if bind.best:  # in a burst nobody compares, and the pod's annotation says what there is to say
                    self.decisions.record(_pod(pod), Placement(node=bind.node, because=bind.because, best=bind.best))
            elif isinstance(error, ApiError) and error.not_found:
                self.core.pod_changed(None, pod.uid, self._clock())
            else:
                self.core.bind_failed(pod, str(error), self._clock())
                self.events.record(_reference(pod), "FailedScheduling", f"binding rejected: {error}", "Warning")
                self._wake.set()

    async def _bind_volumes(self, effect: BindVolumes) -> None:
        """Ask for volumes as kube-scheduler does; somebody else makes them, and completes the binding."""
        storage = self.core.storage
        try:
            for claim, volume in effect.plan.bindings:
                metadata = {"resourceVersion": storage.revision(volume), "annotations": {_BOUND_BY_CONTROLLER: "yes"}}
                await self._learn(
                    VOLUMES, volume, {"metadata": metadata, "spec": {"claimRef": storage.reference(claim)}}
                )
            for claim in effect.plan.provisions:
                uid = storage.reference(claim)["uid"]
                await self._learn(
                    CLAIMS, claim, {"metadata": {"uid": uid, "annotations": {SELECTED_NODE: effect.node}}}
                )
        except (ApiError, Unreachable) as error:
            self.core.volumes_failed(effect.pod, str(error), self._clock())
            self.events.record(_reference(effect.pod), "FailedScheduling", f"asking for volumes: {error}", "Warning")
        else:
            storage.give_back(effect.pod.uid)  # the answers say it now
        self._wake.set()

    async def _learn(self, kind: str, key: str, patch: JsonObject) -> None:
        """Change a claim or a volume; what is answered is known from then on."""
        namespace, _, name = key.rpartition("/")
        answer = await self._api.patch(resource_named(kind), name, patch, namespace)
        self.core.storage_changed(kind, key, encode_json(answer), self._clock())

    async def _report(self, report: Report) -> None:
        pod = report.pod
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": report.reason,
            "message": report.message,
            "lastTransitionTime": timestamp(self._wall()),
        }
        status: JsonObject = {"conditions": [condition]}
        if report.nominated:
            status["nominatedNodeName"] = report.nominated
        if report.reason == UNSCHEDULABLE:
            self.events.record(_reference(pod), "FailedScheduling", report.message, "Warning")
        else:
            self.events.record(_reference(pod), report.reason, report.message)
        told = report.waiting or Waiting(message=report.message)
        told = msgspec.structs.replace(told, message=report.message, nominated=report.nominated)
        self.decisions.record(_pod(pod), told)
        if report.victims:
            victims = tuple(map(_pod, report.victims))
            self.decisions.record(_pod(pod), Preemption(node=report.nominated, victims=victims))
        await self._patch_status(pod, status)

    async def _evict(self, evict: Evict) -> None:
        victim = evict.victim
        message = f"{evict.preemptor.namespace}/{evict.preemptor.name}: preempting to accommodate a higher priority pod"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
            "lastTransitionTime": timestamp(self._wall()),
        }
        self.events.record(
            _reference(victim),
            "Preempted",
            f"Preempted by pod {evict.preemptor.namespace}/{evict.preemptor.name} on node {evict.node}",
        )
        self.decisions.record(
            _pod(victim), Preempted(node=evict.node, preemptor=_pod(evict.preemptor), because=evict.because)
        )
        what = f"Preempting pod {victim.namespace}/{victim.name} on node {evict.node}, which has a lower priority"
        self.events.record(_reference(evict.preemptor), "Preempting", what)
        await self._patch_status(victim, {"conditions": [condition]})
        try:
            await self._api.delete(PODS, victim.name, victim.namespace, uid=victim.uid)
        except (ApiError, Unreachable) as error:  # the preemptor is decided again, and sees who is still there
            if not (isinstance(error, ApiError) and error.not_found):
                log.warning("cannot evict", pod=f"{victim.namespace}/{victim.name}", error=str(error))

    async def _patch_status(self, pod: PodKey, status: JsonObject) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._api.patch(PODS, pod.name, patch, pod.namespace, type=PatchType.STRATEGIC, subresource="status")
        except (ApiError, Unreachable) as error:
            if not (isinstance(error, ApiError) and (error.not_found or error.conflict)):
                log.warning("cannot write status", pod=f"{pod.namespace}/{pod.name}", error=str(error))

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.core.queue.flush(self._clock())
            self._wake.set()


def _pushes_back(error: Refused) -> bool:
    """The server is too busy for so many, or not there."""
    return isinstance(error, Unreachable) or (error is not None and error.status in (429, 503, 504))


def binding_of(bind: Bind) -> Binding:
    """What the API is asked for."""
    pod = bind.pod
    metadata = BindingMetadata(pod.name, pod.namespace, pod.uid, {PLACEMENT_ANNOTATION: bind.because})
    return Binding.to_node(bind.node, metadata)


def _reference(pod: PodKey) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _pod(pod: PodKey) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
