"""The loop around `replicas`: keeps the number of pods of ReplicaSets and ReplicationControllers.

Pods are made in slow-start batches (1, 2, 4, …), so that a quota that refuses one is not asked five hundred times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from kubeqos.client import ApiError, Change, Resource, Unreachable
from kubeqos.client.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.actions import Create, Delete
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.podstate import controller_of
from kubeqos.controllers.workloads.ownership import ownership, selector_of
from kubeqos.controllers.workloads.replicas import Failure, desired, standing

DELETES_AT_ONCE = 32


class ReplicaController(Controller):
    """One controller for both kinds; they differ in name and in how they write a selector."""

    resource: ClassVar[Resource]

    def watch(self) -> None:
        self.owners = self.follow(self.resource, itself)
        self.pods = self.follow(PODS, self._concerned)
        self.follow(RESOURCE_QUOTAS, self._quota_changed)
        self._refused: set[str] = set()  # whose pods the server refused: a quota that moves may let them in
        self._unsure: set[str] = set()  # whose creates got no answer: they may have been carried out

    def _concerned(self, seen: Change) -> Iterable[str]:
        """A managed pod concerns its manager, before and after; an unmanaged one everybody who selects it."""
        for raw in (seen.old, seen.new):
            if raw is None:
                continue
            meta = meta_of(raw)
            if meta.manager is not None:
                if meta.manager.kind == self.resource.kind:
                    yield f"{meta.namespace}/{meta.manager.name}"
            elif raw is seen.new and meta.labels:
                for owner in self.owners.in_namespace(meta.namespace):
                    selector = selector_of(owner)
                    if selector is not None and selector.matches(meta.labels):
                        yield f"{meta.namespace}/{owner['metadata']['name']}"

    def _quota_changed(self, seen: Change) -> Iterable[str]:
        namespace = split(seen.key)[0]
        return [key for key in self._refused if split(key)[0] == namespace]

    async def reconcile(self, key: str) -> float | None:
        owner = self.owners.get(key)
        if owner is None:
            self._refused.discard(key)
            return None
        await self._make_sure(key)
        pods = await self._claim_owned(owner)
        plan = desired(owner, pods, self._related(owner), self.context.clock())
        failure, error = None, None
        self._refused.discard(key)
        try:
            await self._create(owner, plan.create)
            await self._delete(owner, plan.delete)
        except Unreachable:
            self._unsure.add(key)  # it may have happened all the same
            raise
        except ApiError as refused:
            # The status tells of it first; raised at the end, it makes the queue wait longer and longer.
            error = refused
            self._refused.add(key)
            failure = Failure("FailedCreate" if plan.create else "FailedDelete", refused.message)
        current = self.owners.get(key, owner["metadata"]["uid"])
        if current is None:  # gone meanwhile, or another of the same name
            return None
        if plan.create or plan.delete:
            pods = self._mine(current)
        stands = standing(current, self.resource, pods, failure, self.context.clock())
        if stands.write is not None:
            await self.context.do(stands.write)
        if error is not None:
            raise error
        return stands.look_again

    async def _make_sure(self, key: str) -> None:
        """After a create without an answer the server is asked what there is, or a pod might be made twice."""
        if key in self._unsure:
            for raw in (await self.context.api.list(PODS, split(key)[0])).items:
                self.pods.learn(decode_json(raw))
            self._unsure.discard(key)

    def _mine(self, owner: JsonObject) -> list[JsonObject]:
        uid = owner["metadata"]["uid"]
        return [p for p in self.pods.owned_by(uid) if (controller_of(p) or {}).get("uid") == uid]

    def _related(self, owner: JsonObject) -> Iterator[JsonObject]:
        """The pods of every controller that has the same manager: of the whole deployment."""
        manager = controller_of(owner)
        for sibling in self.owners.owned_by(manager["uid"]) if manager else [owner]:
            yield from self._mine(sibling)

    async def _claim_owned(self, owner: JsonObject) -> list[JsonObject]:
        """Take and let go of pods; the pods that it manages then."""
        metadata = owner["metadata"]
        candidates = [*self._mine(owner), *self.pods.unmanaged(metadata["namespace"])]
        found = ownership(owner, PODS, candidates)
        if found.adopt:
            live = await self.context.live(self.resource, metadata["name"], metadata["namespace"])
            if live is None or live["metadata"]["uid"] != metadata["uid"] or live["metadata"].get("deletionTimestamp"):
                found.adopt.clear()  # the cache is behind: it is on its way out and must not collect new pods
        await self.context.perform([*found.release, *found.adopt])
        return self._mine(owner) if found.release or found.adopt else found.mine

    async def _create(self, owner: JsonObject, wanted: Sequence[Create]) -> None:
        batch, done = 1, 0
        while done < len(wanted):
            part = wanted[done : done + batch]
            answers = await asyncio.gather(*map(self.context.do, part), return_exceptions=True)
            self._tell(owner, answers, "Create")
            done, batch = done + len(part), batch * 2

    async def _delete(self, owner: JsonObject, surplus: Sequence[Delete]) -> None:
        for start in range(0, len(surplus), DELETES_AT_ONCE):
            part = surplus[start : start + DELETES_AT_ONCE]
            answers = await asyncio.gather(*map(self.context.do, part), return_exceptions=True)
            self._tell(owner, answers, "Delete")

    def _tell(self, owner: JsonObject, answers: Iterable[JsonObject | BaseException | None], verb: str) -> None:
        """Record what happened. A refusal ends the batches that would follow; what was done before it stays done."""
        for answer in sorted(answers, key=lambda found: isinstance(found, BaseException)):
            if isinstance(answer, BaseException):
                if isinstance(answer, ApiError) and "NamespaceTerminating" not in str(answer.details):
                    message = f"Error {verb.lower()[:-1]}ing: {answer.message}"
                    self.context.events.record(owner, f"Failed{verb}", message, "Warning")
                raise answer
            if answer is not None:
                self.context.events.record(owner, f"Successful{verb}", f"{verb}d pod: {answer['metadata']['name']}")


class ReplicaSetController(ReplicaController):
    name = "replicaset"
    resource = REPLICA_SETS


class ReplicationControllerController(ReplicaController):
    name = "replicationcontroller"
    resource = REPLICATION_CONTROLLERS
