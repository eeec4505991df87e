"""The loop around `cronjobs`: wakes when a schedule is due, and when a Job of one has ended."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import CRON_JOBS, JOBS
from kubeqos.codec import JsonObject
from kubeqos.controllers.batch.cronjobs import desired
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.podstate import controller_of


class CronJobController(Controller):
    name = "cronjob"
    workers = 2

    def watch(self) -> None:
        self.crons = self.follow(CRON_JOBS, itself)
        self.jobs = self.follow(JOBS, self._concerned)

    def _concerned(self, seen: Change) -> Iterable[str]:
        meta = meta_of(seen.new if seen.new is not None else seen.old)
        if meta.manager is not None and meta.manager.kind == "CronJob":
            yield f"{meta.namespace}/{meta.manager.name}"

    async def reconcile(self, key: str) -> float | None:
        cron = self.crons.get(key)
        if cron is None:
            return None
        uid, namespace = cron["metadata"]["uid"], cron["metadata"]["namespace"]
        jobs = [job for job in self.jobs.owned_by(uid) if (controller_of(job) or {}).get("uid") == uid]
        taken = {split(other)[1] for other in self.jobs.keys_in(namespace)} - {job["metadata"]["name"] for job in jobs}
        plan = desired(cron, jobs, _zone(cron), self.context.clock(), taken)
        await self.context.perform(plan.actions)
        return plan.look_again


def _zone(cron: JsonObject) -> datetime.tzinfo | None:
    """The zone of a schedule: UTC where none is named; None for a name that nobody knows."""
    name = cron["spec"].get("timeZone")
    try:
        return zoneinfo.ZoneInfo(name) if name else datetime.UTC
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None
