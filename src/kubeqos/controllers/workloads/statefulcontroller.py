"""The loop around `statefulsets`: pods and claims follow their set one step after the other."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import ApiError, Change
from kubeqos.client.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Delete, Tell
from kubeqos.controllers.controller import split
from kubeqos.controllers.workloads.replicacontroller import ReplicaController
from kubeqos.controllers.workloads.revisionkeeper import RevisionKeeper
from kubeqos.controllers.workloads.revisions import surplus
from kubeqos.controllers.workloads.statefulsets import (
    desired,
    is_member,
    members,
    revision_name,
    sets_of_claim,
    standing,
)


class StatefulSetController(ReplicaController):
    """Pods are watched and adopted as those of a ReplicaSet; which comes next is another question."""

    name = "statefulset"
    resource = STATEFUL_SETS

    def watch(self) -> None:
        super().watch()
        self.claims = self.follow(PERSISTENT_VOLUME_CLAIMS, self._claim_changed)
        self.follow(CONTROLLER_REVISIONS, _nobody)
        self.revisions = RevisionKeeper(self.context, self.resource)

    def _belongs(self, owner: JsonObject, pod: JsonObject) -> bool:
        return is_member(owner, pod)

    def _claim_changed(self, seen: Change) -> Iterable[str]:
        """Who waits until a claim is gone goes on then."""
        if seen.new is None:
            namespace, name = split(seen.key)
            for owner in sets_of_claim(self.owners.in_namespace(namespace), name):
                yield f"{namespace}/{owner['metadata']['name']}"

    async def reconcile(self, key: str) -> float | None:
        owner = self.owners.get(key)
        if owner is None:
            self._refused.discard(key)
            return None
        history = await self.revisions.current(owner)
        if history is None or history.update is None:
            return None  # it is going, or another name was asked for: the change of its status comes back here
        pods = await self._claim_owned(owner)
        now, namespace = self.context.clock(), owner["metadata"]["namespace"]
        claims = {each["metadata"]["name"]: each for each in self.claims.in_namespace(namespace)}
        self._refused.discard(key)
        error = None
        try:
            for action in desired(owner, members(owner, pods), history, claims, now):
                await self._step(owner, action)
        except ApiError as refused:
            error = refused
            self._refused.add(key)
        current = self.owners.get(key, owner["metadata"]["uid"])
        if current is None:
            return None
        mine = self._mine(current)
        stands = standing(current, members(current, mine), history, now)
        if stands.write is not None:
            await self.context.do(stands.write)
        status = current.get("status") or {}
        followed = {*map(revision_name, mine), str(status.get("currentRevision") or "")}
        await self.context.perform(surplus(current, history, followed))
        if error is not None:
            raise error
        return stands.look_again

    async def _step(self, owner: JsonObject, action: Action) -> None:
        """One action, told as Kubernetes tells it."""
        if not isinstance(action, Create | Delete):
            await self.context.do(action)
            return
        name = action.body["metadata"]["name"] if isinstance(action, Create) else action.name
        verb, done = "Create" if isinstance(action, Create) else "Delete", "successful"
        about = f"{verb} Pod {name} in StatefulSet {owner['metadata']['name']}"
        if action.resource is not PODS:
            pod, done = f"{owner['metadata']['name']}-{name.rpartition('-')[2]}", "success"
            about = f"{verb} Claim {name} Pod {pod} in StatefulSet {owner['metadata']['name']}"
        try:
            answer = await self.context.do(action)
        except ApiError as error:
            await self.context.do(Tell(owner, f"Failed{verb}", f"{about} failed error: {error}", "Warning"))
            raise
        if answer is not None:
            await self.context.do(Tell(owner, f"Successful{verb}", f"{about} {done}"))
        elif isinstance(action, Create) and action.resource is PODS:
            # Its name is taken by a pod that is not the set's: nobody says when that goes, so it is tried again.
            raise ApiError(409, "AlreadyExists", f'pods "{name}" already exists')


def _nobody(seen: Change) -> Iterable[str]:
    return ()
