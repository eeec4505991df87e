"""The loop around `jobs`: gives Jobs their pods, counts them, and ends Jobs when they are done or too old."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeqos.client import ApiError, Change, Unreachable
from kubeqos.client.resources import JOBS, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.batch.jobpods import FINALIZER, is_tracked
from kubeqos.controllers.batch.jobs import JobPlan, desired, released
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import split
from kubeqos.controllers.podstate import controller_of
from kubeqos.controllers.workloads.replicacontroller import ReplicaController


class Unmanaged(NamedTuple):
    """A pod that waits to be counted, and that somebody took away from its job: nobody would ever let it go."""

    pod: str


class JobController(ReplicaController):
    """Pods are watched, adopted and made as those of a ReplicaSet; which and how many is another question."""

    name = "job"
    resource = JOBS
    finalizer = FINALIZER

    def _concerned(self, seen: Change) -> Iterable[str | Unmanaged]:
        yield from super()._concerned(seen)
        meta = meta_of(seen.new) if seen.new is not None else None
        if meta is not None and meta.manager is None and FINALIZER in (meta.finalizers or ()):
            yield Unmanaged(seen.key)

    async def reconcile(self, key: str | Unmanaged) -> float | None:
        if isinstance(key, Unmanaged):
            pod = self.pods.get(key.pod)
            if pod is not None and controller_of(pod) is None and is_tracked(pod):
                await self.context.do(released(pod, "nobody manages it"))
            return None
        job = self.owners.get(key)
        await self._let_go(key, job)
        if job is None:
            self._refused.discard(key)
            return None
        await self._make_sure(key)
        pods = await self._claim_owned(job)
        plan = desired(job, pods, self.context.clock())
        await self._counted(plan)
        self._refused.discard(key)
        try:
            await self._delete(job, [one for one in plan.delete if one.resource is PODS])
            await self._create(job, plan.create)
        except Unreachable:
            self._unsure.add(key)
            raise
        except ApiError:
            self._refused.add(key)
            raise
        await self.context.perform([one for one in plan.delete if one.resource is JOBS])
        return plan.look_again

    async def _counted(self, plan: JobPlan) -> None:
        """A finished pod is written down before it is let go of: nothing is counted twice or never."""
        if plan.status is not None:
            await self.context.do(plan.status)
        await self.context.perform([*plan.tell, *plan.release])

    async def _let_go(self, key: str, job: JsonObject | None) -> None:
        """Pods of a job that is gone wait for nobody."""
        if job is not None:
            return
        namespace, name = split(key)
        for pod in self.pods.in_namespace(namespace):
            manager = controller_of(pod) or {}
            if (manager.get("kind"), manager.get("name")) == ("Job", name) and is_tracked(pod):
                await self.context.do(released(pod, "its job is gone"))
