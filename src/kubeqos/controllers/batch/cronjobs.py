"""When a CronJob makes its next Job, which Jobs of its past stay, and what its status says. Pure.

The zone of the schedule comes from the loop, `cronjobcontroller`. A Job is named after the minute it was due, so that
it is never made twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeqos.client.resources import CRON_JOBS, JOBS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Tell, change, deletion
from kubeqos.controllers.batch.jobs import is_finished
from kubeqos.controllers.podstate import condition, is_going, owner_reference
from kubeqos.errors import InputError
from kubeqos.model.text.cronschedule import CronSchedule
from kubeqos.model.timestamps import seconds_of, timestamp

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED = 100
SLACK_SECONDS = 0.1  # a timer may fire a moment early


@dataclass(frozen=True, slots=True)
class CronJobPlan:
    """What to do, in this order, and when the next Job is due."""

    actions: Sequence[Action] = ()
    look_again: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """The last time that was missed, and whether there were many."""

    at: float | None = None
    many: bool = False


def desired(cron: JsonObject, jobs: Iterable[JsonObject], zone: datetime.tzinfo, now: float) -> CronJobPlan:
    """Everything that a CronJob needs now."""
    jobs = list(jobs)
    if is_going(cron):
        return CronJobPlan()
    actions: list[Action] = [*_history(cron, jobs)]
    active = [job for job in jobs if not is_finished(job)]
    try:
        schedule = CronSchedule.parse(cron["spec"].get("schedule", ""))
    except InputError as error:
        wrong = Tell(cron, "UnparseableSchedule", f"unparseable schedule: {error.what}", "Warning")
        return CronJobPlan([*actions, wrong, *_status(cron, jobs, active)])
    following = schedule.after(now, zone)
    look_again = None if following is None else following - now + SLACK_SECONDS
    if cron["spec"].get("suspend"):
        return CronJobPlan([*actions, *_status(cron, jobs, active)])
    due = _due(cron, schedule, zone, now)
    if due.many:
        message = f"too many missed start times: > {MANY_MISSED}. Set or decrease .spec.startingDeadlineSeconds"
        actions.append(Tell(cron, "TooManyMissedTimes", f"{message} or check clock skew", "Warning"))
    made = _made(cron, active, due.at, zone, now) if due.at is not None else []
    scheduled = due.at if any(isinstance(one, Create) for one in made) else None
    return CronJobPlan([*actions, *made, *_status(cron, jobs, active, scheduled)], look_again)


def _due(cron: JsonObject, schedule: CronSchedule, zone: datetime.tzinfo, now: float) -> Due:
    """The most recent time that the schedule names and no Job was made for."""
    metadata, deadline = cron["metadata"], cron["spec"].get("startingDeadlineSeconds")
    last = (cron.get("status") or {}).get("lastScheduleTime") or metadata.get("creationTimestamp") or ""
    earliest = seconds_of(last) or now
    if deadline is not None:
        earliest = max(earliest, now - deadline)
    first = schedule.after(earliest, zone)
    if first is None or first > now:
        return Due()
    second = schedule.after(first, zone)
    if second is None or second > now:
        return Due(first)
    # Not one by one from long ago: jump to shortly before now, by the distance of the first two.
    step = max(1.0, second - first)
    missed = int((now - first) // step) + 1
    found = first + max(0, missed - 3) * step - 1
    latest = first
    for _ in range(2 * MANY_MISSED):
        following = schedule.after(found, zone)
        if following is None or following > now:
            break
        latest = found = following
    return Due(latest, missed > MANY_MISSED)


def _made(cron: JsonObject, active: list[JsonObject], due: float, zone: datetime.tzinfo, now: float) -> list[Action]:
    """The Job that is due, or why there is none."""
    spec, policy = cron["spec"], cron["spec"].get("concurrencyPolicy", "Allow")
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and due + deadline < now:
        missed = datetime.datetime.fromtimestamp(due, datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        return [Tell(cron, "MissSchedule", f"Missed scheduled time to start a job: {missed}", "Warning")]
    if policy == "Forbid" and active:
        return [Tell(cron, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")]  # fmt: skip  # noqa: E501
    actions: list[Action] = []
    for job in active if policy == "Replace" else ():
        actions.append(deletion(JOBS, job, "the next one takes its place", propagation="Background"))
        actions.append(Tell(cron, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}"))
    body = job_of(cron, due, zone)
    told = Tell(cron, "SuccessfulCreate", f"Created job {body['metadata']['name']}")
    return [*actions, Create(JOBS, body, f"due at {timestamp(due)}"), told]


def job_of(cron: JsonObject, due: float, zone: datetime.tzinfo) -> JsonObject:
    """The Job of one moment."""
    metadata, template = cron["metadata"], cron["spec"].get("jobTemplate") or {}
    described = template.get("metadata") or {}
    moment = datetime.datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{metadata['name']}-{int(due) // 60}",
            "namespace": metadata["namespace"],
            "labels": dict(described.get("labels") or {}),
            "annotations": {**(described.get("annotations") or {}), SCHEDULED_AT: moment},
            "ownerReferences": [owner_reference(cron)],
        },
        "spec": template.get("spec") or {},
    }


def _history(cron: JsonObject, jobs: list[JsonObject]) -> list[Action]:
    """Finished Jobs beyond the limits go, the oldest first."""
    found: list[Action] = []
    for type, limit in (
        ("Complete", cron["spec"].get("successfulJobsHistoryLimit", 3)),
        ("Failed", cron["spec"].get("failedJobsHistoryLimit", 1)),
    ):
        ended = [job for job in jobs if (condition(job, type) or {}).get("status") == "True" and not is_going(job)]
        ended.sort(key=lambda job: ((job.get("status") or {}).get("startTime") or "", job["metadata"]["name"]))
        old = ended[: max(0, len(ended) - limit)]
        found += [deletion(JOBS, job, f"more than {limit} of the past", propagation="Background") for job in old]
    return found


def _status(
    cron: JsonObject, jobs: list[JsonObject], active: list[JsonObject], scheduled: float | None = None
) -> list[Action]:
    before = cron.get("status") or {}
    after: JsonObject = {"active": [_reference(job) for job in active] or None}
    if scheduled is not None:
        after["lastScheduleTime"] = timestamp(scheduled)
    times = [(job.get("status") or {}).get("completionTime") for job in jobs]
    successes = [time for time in (*times, before.get("lastSuccessfulTime")) if time]
    if successes:
        after["lastSuccessfulTime"] = max(successes)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if not changed:
        return []
    return [change(CRON_JOBS, cron, {"status": changed}, f"{len(active)} active", subresource="status")]


def _reference(job: JsonObject) -> JsonObject:
    metadata = job["metadata"]
    return {
        "kind": "Job",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
