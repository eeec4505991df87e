"""The loop around `garbage`: follows every kind that the server has, because anything may own anything.

Those of our own table from the beginning, others (CRDs' and aggregated servers') as soon as discovery tells of them. It
is asked when definitions change, and now and then for what aggregated servers bring by themselves.

A cache may be behind, so that an owner seems to be missing that was just created: before anything is deleted, every
owner that the caches do not show is asked for by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from kubeqos.client import ApiError, Change, Resource, Unreachable
from kubeqos.client.discovery import beyond, discovered
from kubeqos.client.resources import stored_resources
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Delete
from kubeqos.controllers.cache import Meta, Owner, meta_of
from kubeqos.controllers.controller import Controller
from kubeqos.controllers.garbage import FOREGROUND, ORPHAN, Dependent, OwnerState, desired, state_of
from kubeqos.controllers.podstate import is_going
from kubeqos.logs import logger

Key = tuple[Resource, str]
DISCOVERY_SECONDS = 30.0  # as in Kubernetes
DEFINING = frozenset({"CustomResourceDefinition", "APIService"})
log = logger("kubeqos.controllers")


class GarbageCollector(Controller):
    name = "garbagecollector"
    workers = 8

    def watch(self) -> None:
        # Events tell of objects and own nothing; they outnumber everything else.
        self.resources = [resource for resource in stored_resources() if resource.kind != "Event"]
        self._by_kind = {(resource.api_version, resource.kind): resource for resource in self.resources}
        self._redefined = asyncio.Event()
        for resource in self.resources:
            self.follow(resource, self._concerned(resource))

    async def run(self) -> None:
        """Work until cancelled, and follow kinds that come while we do."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            while True:
                self._redefined.clear()
                try:
                    for resource in beyond(self.resources, await discovered(self.context.api)):
                        if resource.kind != "Event":
                            self._meet(resource)
                except (ApiError, Unreachable) as error:
                    log.warning("cannot ask which kinds there are", controller=self.name, error=str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(DISCOVERY_SECONDS):
                        await self._redefined.wait()

    def _meet(self, resource: Resource) -> None:
        self.resources.append(resource)
        self._by_kind[resource.api_version, resource.kind] = resource
        self.follow(resource, self._concerned(resource))

    def _of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource that a reference means; it may name another version than the one that is followed."""
        found = self._by_kind.get((api_version, kind))
        if found is not None:
            return found
        group = api_version.rpartition("/")[0]
        return next((one for one in self.resources if (one.group, one.kind) == (group, kind)), None)

    def _concerned(self, resource: Resource) -> Callable[[Change], Iterable[Key]]:
        def concerned(seen: Change) -> Iterable[Key]:
            if resource.kind in DEFINING:
                self._redefined.set()
            old, new = meta_of(seen.old), meta_of(seen.new)
            if seen.new is None:
                yield from self._dependents_of(old.uid)
                yield from self._owners_of(old)
            elif seen.old is None or _matters(old) != _matters(new):
                if new.owners or _held(new):
                    yield resource, seen.key
                if new.deletion_timestamp:
                    yield from self._dependents_of(new.uid)
                yield from self._owners_of(old)

        return concerned

    def _dependents_of(self, uid: str) -> Iterable[Key]:
        for resource in self.resources:
            for key in self.context.cache(resource).keys_owned_by(uid):
                yield resource, key

    def _owners_of(self, meta: Meta) -> Iterable[Key]:
        """Owners that may have waited for this object."""
        for owner in meta.owners:
            resource = self._of_kind(owner.api_version, owner.kind)
            if resource is not None:
                yield resource, _owner_key(resource, owner, meta.namespace)

    async def reconcile(self, key: Key) -> float | None:
        resource, name = key
        obj = self.context.cache(resource).get(name)
        if obj is None:
            return None
        metadata = obj["metadata"]
        owners = {}
        for reference in metadata.get("ownerReferences") or ():
            owners[reference["uid"]] = await self._owner_state(reference, metadata.get("namespace", ""))
        # Only who goes, or waits for an owner that goes, has to know who depends on it: that may be thousands.
        asked = is_going(obj) or OwnerState.WAITING in owners.values()
        dependents = list(self._dependents(metadata["uid"])) if asked else []
        for action in desired(resource, obj, owners, dependents):
            await self.context.do(action)
            if isinstance(action, Delete):
                self.context.metrics.collected.inc()
        return None

    def _dependents(self, uid: str) -> Iterator[Dependent]:
        for resource in self.resources:
            for found in self.context.cache(resource).owned_by(uid):
                yield Dependent(resource, found)

    async def _owner_state(self, reference: JsonObject, namespace: str) -> OwnerState:
        resource = self._of_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None or not self.context.cache(resource).informer.served:
            return OwnerState.SOLID  # a kind that we or the server do not know: never delete on a guess
        owner = Owner(name=reference["name"])
        known = self.context.cache(resource).get(_owner_key(resource, owner, namespace), reference["uid"])
        if known is not None:
            return state_of(known)
        live = await self.context.live(resource, reference["name"], namespace if resource.namespaced else "")
        return state_of(live if live is not None and live["metadata"]["uid"] == reference["uid"] else None)


def _owner_key(resource: Resource, owner: Owner, namespace: str) -> str:
    return f"{namespace}/{owner.name}" if resource.namespaced else owner.name


def _matters(meta: Meta) -> tuple[object, ...]:
    return meta.deletion_timestamp, meta.owners, _held(meta)


def _held(meta: Meta) -> bool:
    finalizers = meta.finalizers or ()
    return bool(meta.deletion_timestamp) and (FOREGROUND in finalizers or ORPHAN in finalizers)
