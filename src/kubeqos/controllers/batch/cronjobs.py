"""When a CronJob makes its next Job, which Jobs of its past stay, and what its status says. Pure.

The zone of the schedule comes from the loop, `cronjobcontroller`. A Job is named after the minute it was due, so that
it is never made twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Sequence
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


def desired(
    cron: JsonObject,
    jobs: Iterable[JsonObject],
    zone: datetime.tzinfo | None,
    now: float,
    taken: Container[str] = (),
) -> CronJobPlan:
    """Everything that a CronJob needs now. `taken` are the names of other Jobs; no zone is one that nobody knows."""
    jobs = list(jobs)
    active, told = _active(cron, jobs)
    actions: list[Action] = [*_history(cron, jobs), *told]
    schedule = None if is_going(cron) else _schedule(cron, zone, actions)
    if schedule is None or zone is None:
        return CronJobPlan([*actions, *_status(cron, jobs, active)])
    following = schedule.after(now, zone)
    look_again = None if following is None else following - now + SLACK_SECONDS
    due = _due(cron, schedule, zone, now)
    if due.many:
        message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        actions.append(Tell(cron, "TooManyMissedTimes", message, "Warning"))
    made = Made()
    listed = {one["name"] for one in (cron.get("status") or {}).get("active") or ()}
    if due.at is not None and job_name(cron, due.at) not in listed:
        made = _made(cron, jobs, active, due.at, zone, now, taken)
    active = [one for one in active if one["uid"] not in made.replaced]
    return CronJobPlan([*actions, *made.actions, *_status(cron, jobs, active, made.at)], look_again)


def _schedule(cron: JsonObject, zone: datetime.tzinfo | None, actions: list[Action]) -> CronSchedule | None:
    """The schedule; None, and an event among the actions, where there is nothing to go by."""
    spec = cron["spec"]
    if zone is None:
        message = f'invalid timeZone: "{spec["timeZone"]}": unknown time zone {spec["timeZone"]}'
        actions.append(Tell(cron, "UnknownTimeZone", message, "Warning"))
        return None
    if spec.get("suspend"):
        return None
    try:
        return CronSchedule.parse(spec.get("schedule", ""))
    except InputError as error:
        message = f'unparseable schedule: "{spec.get("schedule", "")}" : {error.what}'
        actions.append(Tell(cron, "UnparseableSchedule", message, "Warning"))
        return None


def _active(cron: JsonObject, jobs: list[JsonObject]) -> tuple[list[JsonObject], list[Tell]]:
    """References to the Jobs that run, as they were first written down, and what became of others.

    A Job that somebody made by hand belongs to the CronJob, but is none of its schedule: it holds nobody up.
    """
    listed = {one["uid"]: one for one in (cron.get("status") or {}).get("active") or ()}
    active: list[JsonObject] = []
    told: list[Tell] = []
    for job in jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        before = listed.pop(uid, None)
        if not is_finished(job):
            if before is not None or SCHEDULED_AT in (job["metadata"].get("annotations") or {}):
                active.append(before or _reference(job))
            else:
                message = f"Saw a job that the controller did not create or forgot: {name}"
                told.append(Tell(cron, "UnexpectedJob", message, "Warning"))
        elif before is not None:
            ended = "Complete" if (condition(job, "Complete") or {}).get("status") == "True" else "Failed"
            told.append(Tell(cron, "SawCompletedJob", f"Saw completed job: {name}, condition: {ended}"))
    told += [Tell(cron, "MissingJob", f"Active job went missing: {one['name']}") for one in listed.values()]
    return active, told


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


@dataclass(frozen=True, slots=True)
class Made:
    """What is done about a Job that is due: for which time, if one is there then, and whose place it takes."""

    actions: Sequence[Action] = ()
    at: float | None = None
    replaced: frozenset[str] = frozenset()


def _made(
    cron: JsonObject,
    jobs: list[JsonObject],
    active: list[JsonObject],
    due: float,
    zone: datetime.tzinfo,
    now: float,
    taken: Container[str],
) -> Made:
    """The Job that is due, or why there is none."""
    spec, policy = cron["spec"], cron["spec"].get("concurrencyPolicy", "Allow")
    deadline, name = spec.get("startingDeadlineSeconds"), job_name(cron, due)
    if deadline is not None and due + deadline < now:
        missed = datetime.datetime.fromtimestamp(due, datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        return Made([Tell(cron, "MissSchedule", f"Missed scheduled time to start a job: {missed}", "Warning")])
    others = [one for one in active if one["name"] != name]  # it may have been made, and not been written down
    if policy == "Forbid" and others:
        return Made([Tell(cron, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")])  # fmt: skip  # noqa: E501
    actions: list[Action] = []
    replaced = frozenset(one["uid"] for one in others if policy == "Replace")
    for job in jobs:
        if job["metadata"]["uid"] in replaced:
            actions += _deleted(cron, job, "the next one takes its place")
    if name in taken:
        return Made(actions, None, replaced)  # whoever made it answers for it
    if any(job["metadata"]["name"] == name for job in jobs):
        return Made(actions, due, replaced)  # it was made, and then forgotten
    told = Tell(cron, "SuccessfulCreate", f"Created job {name}")
    return Made([*actions, Create(JOBS, job_of(cron, due, zone), f"due at {timestamp(due)}"), told], due, replaced)


def _deleted(cron: JsonObject, job: JsonObject, because: str) -> list[Action]:
    told = Tell(cron, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
    return [deletion(JOBS, job, because, propagation="Background"), told]


def job_name(cron: JsonObject, due: float) -> str:
    return f"{cron['metadata']['name']}-{int(due) // 60}"


def job_of(cron: JsonObject, due: float, zone: datetime.tzinfo) -> JsonObject:
    """The Job of one moment."""
    metadata, template = cron["metadata"], cron["spec"].get("jobTemplate") or {}
    described = template.get("metadata") or {}
    moment = datetime.datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(cron, due),
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
        ended.sort(key=_began)
        for job in ended[: max(0, len(ended) - limit)]:
            found += _deleted(cron, job, f"more than {limit} of the past")
    return found


def _began(job: JsonObject) -> tuple[bool, str, str]:
    """Orders Jobs by when they began, those that never did last."""
    began = (job.get("status") or {}).get("startTime") or ""
    return not began, began, job["metadata"]["name"]


def _status(
    cron: JsonObject, jobs: list[JsonObject], active: list[JsonObject], scheduled: float | None = None
) -> list[Action]:
    before = cron.get("status") or {}
    after: JsonObject = {"active": active or None}
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
