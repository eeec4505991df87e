"""The loop around `jobs`: gives Jobs their pods, counts them, and ends Jobs when they are done or too old."""

from __future__ import annotations

from kubeqos.client import ApiError, Unreachable
from kubeqos.client.resources import JOBS, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.batch.jobpods import is_tracked
from kubeqos.controllers.batch.jobs import JobPlan, desired, released
from kubeqos.controllers.controller import split
from kubeqos.controllers.podstate import controller_of
from kubeqos.controllers.workloads.replicacontroller import ReplicaController


class JobController(ReplicaController):
    """Pods are watched, adopted and made as those of a ReplicaSet; which and how many is another question."""

    name = "job"
    resource = JOBS

    async def reconcile(self, key: str) -> float | None:
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
