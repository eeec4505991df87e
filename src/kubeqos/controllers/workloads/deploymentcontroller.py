"""The loop around `deployments`: ReplicaSets follow the template and the strategy of their deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeqos.client import ApiError, Change
from kubeqos.client.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, Tell
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself
from kubeqos.controllers.podstate import controller_of
from kubeqos.controllers.workloads.deployments import collided, desired, sort_sets
from kubeqos.controllers.workloads.deploymentstatus import status
from kubeqos.controllers.workloads.ownership import ownership, selector_of

MAX_STEPS = 16


class DeploymentController(Controller):
    name = "deployment"

    def watch(self) -> None:
        self.deployments = self.follow(DEPLOYMENTS, itself)
        self.replica_sets = self.follow(REPLICA_SETS, self._concerned)
        self.pods = self.follow(PODS, self._pod_ended)

    def _concerned(self, seen: Change) -> Iterable[str]:
        for raw in (seen.old, seen.new):
            if raw is None:
                continue
            meta = meta_of(raw)
            if meta.manager is not None:
                if meta.manager.kind == "Deployment":
                    yield f"{meta.namespace}/{meta.manager.name}"
            elif raw is seen.new:
                for owner in self.deployments.in_namespace(meta.namespace):
                    selector = selector_of(owner)
                    if selector is not None and selector.matches(meta.labels):
                        yield f"{meta.namespace}/{owner['metadata']['name']}"

    def _pod_ended(self, seen: Change) -> Iterable[str]:
        """A pod that is gone may be what a deployment that recreates waits for; counts come through ReplicaSets."""
        if seen.new is not None:
            return
        meta = meta_of(seen.old)
        if meta.manager is not None and meta.manager.kind == "ReplicaSet":
            replica_set = self.replica_sets.get(f"{meta.namespace}/{meta.manager.name}")
            manager = controller_of(replica_set) if replica_set else None
            if manager is not None:
                yield f"{meta.namespace}/{manager['name']}"

    async def reconcile(self, key: str) -> float | None:
        for _ in range(MAX_STEPS):
            deployment = self.deployments.get(key)
            if deployment is None:
                return None
            mine = await self._claim_owned(deployment)
            actions = desired(deployment, sort_sets(deployment, mine), self._pods(mine))
            for action in actions:
                answer = await self.context.do(action)
                if isinstance(action, Create):
                    await self._created(deployment, action, answer)
            if not actions:
                break
        return await self._write_status(key)

    async def _write_status(self, key: str) -> float | None:
        deployment = self.deployments.get(key)
        if deployment is None:
            return None
        uid = deployment["metadata"]["uid"]
        mine = [each for each in self.replica_sets.owned_by(uid) if (controller_of(each) or {}).get("uid") == uid]
        stands = status(deployment, sort_sets(deployment, mine), self.context.clock())
        if stands.write is not None:
            await self.context.do(stands.write)
        return stands.look_again

    def _pods(self, replica_sets: Iterable[JsonObject]) -> Iterator[JsonObject]:
        for each in replica_sets:
            yield from self.pods.owned_by(each["metadata"]["uid"])

    async def _claim_owned(self, deployment: JsonObject) -> list[JsonObject]:
        metadata = deployment["metadata"]
        candidates = [
            *self.replica_sets.owned_by(metadata["uid"]),
            *self.replica_sets.unmanaged(metadata["namespace"]),
        ]
        found = ownership(deployment, REPLICA_SETS, candidates)
        if found.adopt:
            await self.context.may_adopt(DEPLOYMENTS, deployment)
        await self.context.perform([*found.release, *found.adopt])
        return self.replica_sets.managed_by(metadata["uid"]) if found.adopt else found.mine

    async def _created(self, deployment: JsonObject, action: Create, answer: JsonObject | None) -> None:
        name, namespace = action.body["metadata"]["name"], action.namespace
        if answer is not None:
            size = action.body["spec"]["replicas"]
            if size:
                message = f"Scaled up replica set {name} from 0 to {size}"
                await self.context.do(Tell(deployment, "ScalingReplicaSet", message))
            return
        there = await self.context.live(REPLICA_SETS, name, namespace)
        if there is None:
            raise ApiError(409, "Conflict", f"replicaset {name} came and went")
        ours = (controller_of(there) or {}).get("uid") == deployment["metadata"]["uid"]
        if ours and sort_sets(deployment, [there]).new is not None:
            self.context.learn(REPLICA_SETS, there)
            return
        await self.context.do(collided(deployment))
