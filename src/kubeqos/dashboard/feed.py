"""The objects that the dashboard shows, followed by list and watch, with an hour of their past.

One feed serves every session: as the server itself under `kubeqos up`, as the kubeconfig's user beside a cluster. What
a session may see of it is `sight`'s business. Whoever waits for changes is woken when one comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kubeqos.client import Api, Change, Informer, SharedInformers
from kubeqos.client.api import Followed
from kubeqos.client.resources import EVENTS, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from kubeqos.dashboard.history import History
from kubeqos.dashboard.objects import Objects, node_of
from kubeqos.dashboard.present.data import Happening
from kubeqos.dashboard.present.rows import happening

FOLLOWED = (NODES, PODS, RESOURCE_QUOTAS, EVENTS, NAMESPACES)
KEPT = (NODES, PODS, RESOURCE_QUOTAS)
"""Kinds whose past is kept; events tell their own times."""
_PAGE = 500


def following(api: Followed, resource: Resource, namespace: str = "") -> Informer:
    """A kind in all namespaces or in one."""
    return Informer(api, resource, namespace=namespace, page=_PAGE)


@dataclass
class Feed:
    """Follows the cluster while `run` runs."""

    api: Api
    namespace: str = ""
    """The only one that is followed, where the identity may not list over all of them."""
    clock: Callable[[], float] = time.time
    revision: int = 0
    """Grows with every change."""
    node_revision: dict[str, int] = field(default_factory=dict)
    """When something about a node, its object or one of its pods, last changed."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    informers: SharedInformers | None = None
    """Those of the process that it is a part of, run by whoever made them."""

    def __post_init__(self) -> None:
        self.history = History(self.clock())
        self._informers: dict[str, Informer] = {}
        self._by_node: dict[str, set[str]] = {}
        self._happenings: dict[str, Happening] = {}
        self._waiters: set[asyncio.Event] = set()

    async def run(self, readable: Iterable[Informer] | None = None) -> None:
        """Follow every kind, or what may be read."""
        shared = self.informers if readable is None else None
        if readable is None:
            readable = [following(self.api, one) if shared is None else shared.of(one) for one in FOLLOWED]
        async with asyncio.TaskGroup() as tasks:
            # Nothing readable is an answer, too: who may list nothing is told that, and waits for nothing.
            for informer in readable:
                kind = informer.resource.kind
                informer.on_change(lambda change, kind=kind: self._changed(kind, change))  # type: ignore[misc]
                self._informers[kind] = informer
                if shared is None:
                    tasks.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            self.history.began = self.clock()
            self.synced.set()

    def _changed(self, kind: str, change: Change) -> None:
        self.revision += 1
        if kind == EVENTS.kind:
            self._event(change)
        elif kind == NODES.kind:
            self.node_revision[change.key] = self.revision
        elif kind == PODS.kind:
            self._pod(change)
        if self.synced.is_set() and any(kind == kept.kind for kept in KEPT):
            self.history.note(self.clock(), (kind, change.key), change.old)
        for waiter in self._waiters:
            waiter.set()

    def _event(self, change: Change) -> None:
        if change.new is None:
            self._happenings.pop(change.key, None)
        else:
            self._happenings[change.key] = happening(change.object())

    def _pod(self, change: Change) -> None:
        for raw, add in ((change.old, False), (change.new, True)):
            if raw is not None:
                node = node_of(raw)
                here = self._by_node.setdefault(node, set())
                (here.add if add else here.discard)(change.key)
                self.node_revision[node] = self.revision

    def namespaces(self) -> set[str]:
        """All that are known."""
        return {key for key, _ in self._informers[NAMESPACES.kind]} if NAMESPACES.kind in self._informers else set()

    def now(self) -> Objects:
        """The present."""
        nodes, pods, quotas = (dict(self._informers.get(kind.kind, ())) for kind in KEPT)
        return Objects(nodes, pods, quotas, self._happenings, None, self._by_node)

    def then(self, at: float) -> Objects:
        """The past."""
        found = {kind.kind: dict(self._informers.get(kind.kind, ())) for kind in KEPT}
        for (kind, key), old in self.history.undone(at).items():
            if old is None:
                found[kind].pop(key, None)
            else:
                found[kind][key] = old
        events = {key: one for key, one in self._happenings.items() if one.time <= at}
        return Objects(found[NODES.kind], found[PODS.kind], found[RESOURCE_QUOTAS.kind], events, at)

    async def changed(self, since: int, seconds: float) -> bool:
        """Wait until something is newer than a revision; False when nothing was for so long."""
        if self.revision > since:
            return True
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True
