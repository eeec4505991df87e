"""The loop around `replicas`: keeps the number of pods of ReplicaSets and ReplicationControllers.

Pods are made in slow-start batches (1, 2, 4, …), so that a quota that refuses one is not asked five hundred times.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from kubeqos.client import ApiError, Change, Resource, Unreachable
from kubeqos.client.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.actions import Create, Delete, namespace_ends
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.podstate import controller_of, is_active
from kubeqos.controllers.workloads.ownership import anybody, claimed, ownership, selector_of
from kubeqos.controllers.workloads.replicas import Failure, desired, standing

DELETES_AT_ONCE = 32


class ReplicaController(Controller):
    """One controller for both kinds; they differ in name and in how they write a selector."""

    resource: ClassVar[Resource]
    finalizer: ClassVar[str] = ""
    """By which it holds pods that it manages."""

    def watch(self) -> None:
        self.owners = self.follow(self.resource, itself)
        self.pods = self.follow(PODS, self._concerned)
        self.follow(RESOURCE_QUOTAS, self._quota_changed)
        self._refused: set[str] = set()  # whose pods the server refused: a quota that moves may let them in
        self._unsure: set[str] = set()  # whose creates got no answer: they may have been carried out

    def _concerned(self, seen: Change) -> Iterable[Any]:
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
        await self._claim_owned(owner, is_active)  # who has finished is neither adopted nor let go of
        pods = claimed(owner, self._mine(owner))
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
            failure = Failure("FailedDelete", f"unable to delete pods: {refused.message}")
            if plan.create:
                failure = Failure("FailedCreate", refused.message)
        current = self.owners.get(key, owner["metadata"]["uid"])
        if current is None:  # gone meanwhile, or another of the same name
            return None
        if plan.create or plan.delete:
            pods = claimed(current, self._mine(current))
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

    def _belongs(self, owner: JsonObject, pod: JsonObject) -> bool:
        """What a pod must be to be adopted, beside selected."""
        return anybody(owner, pod)

    def _mine(self, owner: JsonObject) -> list[JsonObject]:
        return self.pods.managed_by(owner["metadata"]["uid"])

    def _related(self, owner: JsonObject) -> Iterator[JsonObject]:
        """The pods that the ReplicaSets of its manager select, whoever has them: those of the whole deployment."""
        manager = controller_of(owner)
        if manager is None or self.resource is not REPLICA_SETS:
            return
        selectors = defaultdict(list)
        for sibling in self.owners.managed_by(manager["uid"]):
            if (selector := selector_of(sibling)) is not None:
                selectors[sibling["metadata"]["namespace"]].append(selector)
        for namespace, chosen in selectors.items():
            for key in self.pods.keys_in(namespace):
                labels = meta_of(self.pods.raw(key)).labels
                if any(selector.matches(labels) for selector in chosen) and (pod := self.pods.get(key)) is not None:
                    yield pod

    async def _claim_owned(
        self, owner: JsonObject, claimable: Callable[[JsonObject], bool] = lambda pod: True
    ) -> list[JsonObject]:
        """Take and let go of pods; the pods that it manages then."""
        metadata = owner["metadata"]
        candidates = filter(claimable, [*self._mine(owner), *self.pods.unmanaged(metadata["namespace"])])
        found = ownership(owner, PODS, candidates, self._belongs, self.finalizer)
        if found.adopt:
            await self.context.may_adopt(self.resource, owner)
        await self.context.perform([*found.release, *found.adopt])
        return self._mine(owner) if found.release or found.adopt else found.mine

    async def _create(self, owner: JsonObject, wanted: Sequence[Create]) -> None:
        """Until one is refused: those that would follow are not asked for. What was made stays made."""
        batch, done = 1, 0
        while done < len(wanted):
            part = wanted[done : done + batch]
            answers = await asyncio.gather(*map(self.context.do, part), return_exceptions=True)
            for refused in self._told(owner, answers, "Create"):
                raise refused
            if any(map(namespace_ends, answers)):
                return  # every other would be refused as well, and its owner goes with the namespace
            done, batch = done + len(part), batch * 2

    async def _delete(self, owner: JsonObject, surplus: Sequence[Delete]) -> None:
        """All of them; one that is refused does not keep the others."""
        refusals: list[ApiError] = []
        for start in range(0, len(surplus), DELETES_AT_ONCE):
            part = surplus[start : start + DELETES_AT_ONCE]
            answers = await asyncio.gather(*map(self.context.do, part), return_exceptions=True)
            refusals += self._told(owner, answers, "Delete")
        for refused in refusals:
            raise refused

    def _told(
        self, owner: JsonObject, answers: Sequence[JsonObject | BaseException | None], verb: str
    ) -> list[ApiError]:
        """Record what happened; the refusals. An answer that did not come is raised: it may have been carried out."""
        refusals = [one for one in answers if isinstance(one, ApiError) and not namespace_ends(one)]
        for refused in refusals:
            message = f"Error {verb.lower()[:-1]}ing: {refused.message}"
            self.context.events.record(owner, f"Failed{verb}", message, "Warning")
        for answer in answers:
            if isinstance(answer, dict):
                self.context.events.record(owner, f"Successful{verb}", f"{verb}d pod: {answer['metadata']['name']}")
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ApiError):
                raise answer
        return refusals


class ReplicaSetController(ReplicaController):
    name = "replicaset"
    resource = REPLICA_SETS


class ReplicationControllerController(ReplicaController):
    name = "replicationcontroller"
    resource = REPLICATION_CONTROLLERS
