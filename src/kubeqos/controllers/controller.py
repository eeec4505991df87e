"""The thin loop that every controller shares: changes become keys, keys are reconciled one at a time.

A controller names what it looks at, says which keys a change concerns, and reconciles a key from the caches. Failures
come back later and later; what cannot work (a bug) is logged with its trace and tried again like everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from kubeqos.client import Api, ApiError, Change, EventRecorder, Resource, SharedInformers, Unreachable, WorkQueue
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Performer
from kubeqos.controllers.cache import Cache, Listener
from kubeqos.controllers.metrics import Metrics
from kubeqos.controllers.podstate import is_going
from kubeqos.logs import logger

log = logger("kubeqos.controllers")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator can choose; the defaults are Kubernetes'."""

    node_monitor_grace_seconds: float = 40.0
    node_startup_grace_seconds: float = 60.0
    node_monitor_period_seconds: float = 5.0
    terminated_pod_threshold: int = 12500
    orphan_quarantine_seconds: float = 40.0
    pod_sweep_period_seconds: float = 20.0
    quota_audit_period_seconds: float = 60.0
    quota_confirm_seconds: float = 3.0


class Context:
    """What controllers share: the API, the caches, the events, a clock."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        *,
        clock: Clock = time.time,
        component: str,
        informers: SharedInformers | None = None,
    ) -> None:
        self.api = api
        self.informers = SharedInformers(api) if informers is None else informers
        self.settings = settings
        self.clock = clock
        self.metrics = Metrics()
        self.events = EventRecorder(api, component)
        self.caches: dict[Resource, Cache] = {}
        self._performer = Performer(api, self.events, self.learn)

    def cache(self, resource: Resource) -> Cache:
        """The one copy of a collection; it follows the server while the informers run."""
        if resource not in self.caches:
            self.caches[resource] = Cache(self.informers.of(resource))
        return self.caches[resource]

    def learn(self, resource: Resource, obj: JsonObject) -> None:
        if resource in self.caches:
            self.caches[resource].learn(obj)

    async def perform(self, actions: Iterable[Action]) -> None:
        await self._performer.perform(actions)

    async def do(self, action: Action) -> JsonObject | None:
        return await self._performer.do(action)

    async def live(self, resource: Resource, name: str, namespace: str = "") -> JsonObject | None:
        """An object as the server has it now; asked before something that cannot be taken back."""
        try:
            return await self.api.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found and not error.not_served:
                return None
            raise

    async def may_adopt(self, resource: Resource, owner: JsonObject) -> None:
        """Asked before anything is adopted: the cache may be behind, and an owner that goes must not collect more."""
        metadata = owner["metadata"]
        live = await self.live(resource, metadata["name"], metadata["namespace"])
        if live is None or live["metadata"]["uid"] != metadata["uid"] or is_going(live):
            raise ApiError(409, "Conflict", f"{resource.kind} {metadata['name']} is on its way out and adopts nothing")


class Controller:
    """One controller: a queue of keys and what is done about each."""

    name: ClassVar[str] = ""
    workers: ClassVar[int] = 4

    def __init__(self, context: Context) -> None:
        self.context = context
        self.queue: WorkQueue[Any] = WorkQueue(longest_delay=60.0)
        self.followed: list[Cache] = []
        self._listeners: list[tuple[Cache, Listener]] | None = []
        self.watch()

    def watch(self) -> None:
        """Subscribe to what this controller looks at."""
        raise NotImplementedError

    async def reconcile(self, key: Any) -> float | None:
        """Bring one thing closer to what it should be; seconds after which to look again, if any."""
        raise NotImplementedError

    def follow(self, resource: Resource, keys: Callable[[Change], Iterable[Hashable]]) -> Cache:
        """Put the keys that a change of a resource concerns into the queue."""
        cache = self.context.cache(resource)

        def changed(seen: Change) -> None:
            for key in keys(seen):
                self.queue.add(key)

        self.followed.append(cache)
        if self._listeners is None:
            cache.on_change(changed)
        else:
            self._listeners.append((cache, changed))
        return cache

    def listen(self) -> None:
        """Hear of changes from now on, and of what is known already: not before everything it looks at is there."""
        listeners, self._listeners = self._listeners or [], None
        for cache, changed in listeners:
            cache.on_change(changed)

    async def run(self) -> None:
        """Work until cancelled, from the moment that everything it looks at is known."""
        for cache in self.followed:
            await cache.informer.synced.wait()
        await self.queue.work(self._timed, workers=self.workers, failed=self._failed)

    async def _timed(self, key: Any) -> float | None:
        started = time.perf_counter()
        try:
            return await self.reconcile(key)
        finally:
            self.context.metrics.worked(self.name, time.perf_counter() - started)

    def _failed(self, key: Any, error: Exception, delay: float) -> None:
        self.context.metrics.retried(self.name)
        if isinstance(error, ApiError) and error.conflict:
            return  # somebody else changed the object: looking again is the whole cure
        if isinstance(error, ApiError | Unreachable):
            log.warning("trying again", controller=self.name, key=str(key), error=str(error), seconds=delay)
        else:
            log.error("a bug; trying again", controller=self.name, key=str(key), exc_info=error, seconds=delay)


def itself(seen: Change) -> Iterable[str]:
    """The changed object's own key."""
    return (seen.key,)


def split(key: str) -> tuple[str, str]:
    """Namespace and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
