"""CronJobs: what their controller decides, on objects that are values and in a time that stands still."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kubeqos.controllers.actions import Create, Delete, Patch, Tell
from kubeqos.controllers.batch import cronjobs
from kubeqos.model.timestamps import timestamp
from tests.controllers.world import NOW

Object = dict[str, Any]
MINUTE = 60.0
CREATED = NOW - NOW % 3600  # a full hour


def cron(schedule: str = "*/5 * * * *", last: float | None = None, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"of": "cron"}}, "spec": {"template": {"spec": {}}}}
    body = {"schedule": schedule, "concurrencyPolicy": "Allow", "jobTemplate": template, **spec}
    metadata = {"name": "c", "namespace": "ns", "uid": "uid-c", "creationTimestamp": timestamp(CREATED)}
    found: Object = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": body}
    if last is not None:
        found["status"] = {"lastScheduleTime": timestamp(last)}
    return found


def job(name: str, ended: str = "", at: float = CREATED) -> Object:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    status: Object = {"startTime": timestamp(at), "conditions": conditions}
    if ended == "Complete":
        status["completionTime"] = timestamp(at + 10)
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "annotations": {cronjobs.SCHEDULED_AT: timestamp(at)},
        },
        "status": status,
    }


def decide(
    found: Object, jobs: list[Object], minutes: float, zone: datetime.tzinfo = datetime.UTC
) -> cronjobs.CronJobPlan:
    return cronjobs.desired(found, jobs, zone, CREATED + minutes * MINUTE)


def created(plan: cronjobs.CronJobPlan) -> list[str]:
    return [one.body["metadata"]["name"] for one in plan.actions if isinstance(one, Create)]


def told(plan: cronjobs.CronJobPlan) -> list[str]:
    return [one.reason for one in plan.actions if isinstance(one, Tell)]


def deleted(plan: cronjobs.CronJobPlan) -> list[str]:
    return [one.name for one in plan.actions if isinstance(one, Delete)]


def test_a_job_is_made_when_it_is_due_and_named_after_its_minute() -> None:
    early = decide(cron(), [], 4.5)
    assert (early.actions, early.look_again) == ([], 30 + cronjobs.SLACK_SECONDS)
    plan = decide(cron(), [], 5.2)
    due = CREATED + 300
    assert created(plan) == [f"c-{int(due) // 60}"]
    [body] = [one.body for one in plan.actions if isinstance(one, Create)]
    assert body["metadata"]["labels"] == {"of": "cron"}
    assert body["metadata"]["annotations"] == {cronjobs.SCHEDULED_AT: timestamp(due)}
    assert body["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    [status] = [one.patch["status"] for one in plan.actions if isinstance(one, Patch)]
    assert status["lastScheduleTime"] == timestamp(due)
    assert created(decide(cron(last=due), [], 5.3)) == []


@pytest.mark.parametrize(
    ("policy", "made", "gone", "said"),
    [
        ("Allow", 1, [], ["SuccessfulCreate"]),
        ("Forbid", 0, [], ["JobAlreadyActive"]),
        ("Replace", 1, ["running"], ["SuccessfulDelete", "SuccessfulCreate"]),
    ],
)
def test_what_happens_to_the_one_that_still_runs(policy: str, made: int, gone: list[str], said: list[str]) -> None:
    plan = decide(cron(concurrencyPolicy=policy), [job("running")], 5.2)
    assert (len(created(plan)), deleted(plan), told(plan)) == (made, gone, said)


def test_of_many_that_were_missed_the_last_is_made() -> None:
    plan = decide(cron(), [], 32)
    assert created(plan) == [f"c-{int(CREATED + 1800) // 60}"]
    long_ago = decide(cron("* * * * *"), [], 60 * 24 * 300)
    assert created(long_ago) == [f"c-{int(CREATED) // 60 + 60 * 24 * 300}"]
    assert "TooManyMissedTimes" in told(long_ago)


def test_what_is_too_late_is_not_made() -> None:
    assert created(decide(cron(startingDeadlineSeconds=60), [], 7)) == []
    assert len(created(decide(cron(startingDeadlineSeconds=180), [], 7))) == 1


def test_a_suspended_one_makes_nothing_and_still_cleans_up() -> None:
    jobs = [job(f"done-{n}", "Complete", CREATED + n) for n in range(3)]
    plan = decide(cron(suspend=True, successfulJobsHistoryLimit=1), jobs, 5.2)
    assert (created(plan), deleted(plan)) == ([], ["done-0", "done-1"])


def test_so_much_of_the_past_stays() -> None:
    jobs = [job(f"good-{n}", "Complete", CREATED + n) for n in range(4)]
    jobs += [job(f"bad-{n}", "Failed", CREATED + n) for n in range(3)]
    plan = decide(cron(successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1), jobs, 1)
    assert deleted(plan) == ["good-0", "bad-0", "bad-1"]
    [status] = [one.patch["status"] for one in plan.actions if isinstance(one, Patch)]
    assert status["lastSuccessfulTime"] == timestamp(CREATED + 13)


def test_the_status_names_what_runs() -> None:
    plan = decide(cron(), [job("one"), job("two", "Complete")], 1)
    [status] = [one.patch["status"] for one in plan.actions if isinstance(one, Patch)]
    assert [one["name"] for one in status["active"]] == ["one"]


def active(plan: cronjobs.CronJobPlan) -> list[str] | None:
    [status] = [one.patch["status"] for one in plan.actions if isinstance(one, Patch)]
    return [one["name"] for one in status["active"] or ()] if "active" in status else None


def listing(found: Object, *jobs: Object) -> Object:
    listed = [{"name": one["metadata"]["name"], "uid": one["metadata"]["uid"], "resourceVersion": "0"} for one in jobs]
    return {**found, "status": {**(found.get("status") or {}), "active": listed}}


def test_a_job_by_hand_holds_nobody_up() -> None:
    by_hand = job("by-hand")
    del by_hand["metadata"]["annotations"]
    plan = decide(cron(concurrencyPolicy="Forbid"), [by_hand], 5.2)
    assert (len(created(plan)), told(plan), active(plan)) == (1, ["UnexpectedJob", "SuccessfulCreate"], None)


def test_who_is_listed_stays_as_it_was_written_and_who_ended_or_went_is_told() -> None:
    runs, ended, went = job("runs"), job("ended", "Failed"), job("went")
    assert decide(listing(cron(), runs), [runs], 1).actions == []
    plan = decide(listing(cron(), runs, ended, went), [runs, ended], 1)
    assert active(plan) == ["runs"]
    messages = [one.message for one in plan.actions if isinstance(one, Tell)]
    assert messages == ["Saw completed job: ended, condition: Failed", "Active job went missing: went"]


def test_a_name_that_another_job_has_is_left_to_it() -> None:
    due = CREATED + 300
    name = f"c-{int(due) // 60}"
    assert cronjobs.desired(cron(), [], datetime.UTC, due + 10, {name}).actions == []
    forgotten = decide(cron(), [job(name, "Complete")], 5.2)
    assert (created(forgotten), told(forgotten)) == ([], [])
    [status] = [one.patch["status"] for one in forgotten.actions if isinstance(one, Patch)]
    assert status["lastScheduleTime"] == timestamp(due)
    assert decide(listing(cron(), job(name)), [job(name)], 5.2).actions == []


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
def test_a_job_that_was_made_and_not_written_down_is_written_down(policy: str) -> None:
    due = CREATED + 300
    plan = decide(cron(concurrencyPolicy=policy), [job(f"c-{int(due) // 60}")], 5.2)
    [status] = [one.patch["status"] for one in plan.actions if isinstance(one, Patch)]
    assert (status["lastScheduleTime"], active(plan)) == (timestamp(due), [f"c-{int(due) // 60}"])
    assert (created(plan), deleted(plan)) == ([], [])


def test_who_is_replaced_is_listed_no_more() -> None:
    running = job("running")
    assert active(decide(listing(cron(concurrencyPolicy="Replace"), running), [running], 5.2)) == []


def test_a_zone_that_nobody_knows_keeps_the_past_in_order() -> None:
    jobs = [job(f"done-{n}", "Complete", CREATED + n) for n in range(3)]
    plan = cronjobs.desired(cron(timeZone="X/Y", successfulJobsHistoryLimit=1), jobs, None, CREATED + 400)
    assert (created(plan), deleted(plan)) == ([], ["done-0", "done-1"])
    assert told(plan) == ["SuccessfulDelete", "SuccessfulDelete", "UnknownTimeZone"]
