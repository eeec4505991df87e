"""Cron jobs before our controllers and before an unmodified kube-controller-manager: both come to the same.

Nobody waits for a clock: a schedule names one minute of the last hours, and the story says that the last Job was made
before it. Only one story waits for the next minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.model.timestamps import timestamp
from tests.stock.needs import needs_stock
from tests.stock.stories import (
    JOBS,
    MANAGER,
    Played,
    Raw,
    Reached,
    Side,
    Step,
    Story,
    View,
    also,
    is_open,
    many,
    named,
    played,
    status,
)

pytestmark = needs_stock(MANAGER)
CRONS = "/apis/batch/v1/namespaces/default/cronjobs"
LABELS = {"story": "STORY"}
NOW = time.time() // 60 * 60
POD = {
    "metadata": {"labels": LABELS},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app"}]},
}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"template": POD, "backoffLimit": 0}}


def minute(ago: int) -> str:
    """The schedule that was due so many minutes ago, and will be in a year."""
    then = time.gmtime(NOW - 60 * ago)
    return f"{then.tm_min} {then.tm_hour} {then.tm_mday} {then.tm_mon} *"


def active(count: int) -> Reached:
    """So many Jobs are listed as active."""
    return lambda view: len((view.get("status") or {}).get("active") or ()) == count


def jobs(count: int, **ended: int) -> Reached:
    """There are so many Jobs, and so many of them have ended so."""

    def is_so(view: View) -> bool:
        kinds = [kind["type"] for one in view["jobs"] for kind in one["status"].get("conditions") or ()
                 if kind["status"] == "True"]  # fmt: skip
        return len(view["jobs"]) == count and all(kinds.count(kind) == number for kind, number in ended.items())

    return is_so


def cron(steps: list[Step], before: tuple[tuple[str, Any], ...] = (), **spec: Any) -> Story:
    # A year away: what happens before the first step is told is nobody's business.
    body = {"schedule": minute(-3 * 24 * 60), "jobTemplate": TEMPLATE, **spec}
    return Story(CRONS, "CronJob", body, steps, {"jobs": JOBS}, before)


ONE: Step = ("due", 90, also(jobs(1), active(1), many(1)))
DONE: Step = ("end", 0, also(jobs(1, Complete=1), active(0)))
STORIES: dict[str, Story] = {
    "made, done, made again": cron([ONE, DONE, ("due", 60, also(jobs(2), active(1)))]),
    "one that fails": cron([ONE, ("end", 3, also(jobs(1, Failed=1), active(0))), ("due", 60, active(1)),
                            ("end", 3, also(jobs(1, Failed=1), active(0)))]),
    "several at once": cron([ONE, ("due", 60, also(jobs(2), active(2))), ("end", 0, active(1)), ("end", 0, active(0))]),
    "no two at once": cron(
        [ONE, ("due", 60, also(jobs(1), active(1))), ("end", 0, also(jobs(2, Complete=1), active(1)))],
        concurrencyPolicy="Forbid",
    ),
    "the new in place of the old": cron(
        [ONE, ("due", 60, also(jobs(1), active(1), many(1))), ("end", 0, also(jobs(1, Complete=1), active(0)))],
        concurrencyPolicy="Replace",
    ),
    "suspended and resumed": cron(
        [("due", 90, status(active=0)), ("patch", {"suspend": False}, also(jobs(1), active(1))),
         ("patch", {"suspend": True}, active(1)), DONE, ("due", 60, active(0))],
        suspend=True,
    ),
    "too late": cron([("due", 90, also(jobs(0), active(0))), ("due", 5, also(jobs(1), active(1)))],
                     startingDeadlineSeconds=1800),
    "just in time": cron([ONE], startingDeadlineSeconds=7200),
    "many missed": cron([("every minute since", 300, also(jobs(1), active(1)))], concurrencyPolicy="Forbid"),
    "in a time zone": cron([("zone", 90, also(jobs(1), active(1))), DONE], timeZone="Asia/Kathmandu"),
    "history of three": cron(
        [ONE, DONE, ("due", 80, active(1)), ("end", 0, jobs(2, Complete=2)), ("due", 70, active(1)),
         ("end", 0, jobs(3, Complete=3)), ("due", 60, active(1)), ("end", 0, also(jobs(3, Complete=3), active(0)))],
    ),
    "no history": cron(
        [ONE, ("end", 0, also(jobs(0), active(0))), ("due", 60, active(1)), ("end", 3, also(jobs(0), active(0)))],
        successfulJobsHistoryLimit=0, failedJobsHistoryLimit=0,
    ),
    "less history than there was": cron(
        [ONE, DONE, ("due", 80, active(1)), ("end", 0, jobs(2, Complete=2)),
         ("patch", {"successfulJobsHistoryLimit": 1}, jobs(1))],
    ),
    "a job that is deleted": cron([ONE, ("delete", None, also(jobs(0), active(0), many(0)))]),
    "a job by hand": cron(
        [("by hand", None, also(jobs(1), many(1), active(0))), ("due", 90, also(jobs(2), active(1))),
         ("end", 0, also(jobs(2), status())), ("end", 0, also(jobs(2, Complete=2), active(0)))],
        concurrencyPolicy="Forbid",
    ),
    "a name that is taken": cron([("due", 90, also(jobs(1), active(0)))], before=(("take", 90),)),
    "the same minute again": cron([ONE, ("due", 90, active(1)), DONE, ("due", 90, also(jobs(1), active(0)))]),
    "described": cron(
        [ONE], jobTemplate={**TEMPLATE, "metadata": {"labels": {**LABELS, "a": "b"}, "annotations": {"c": "d"}}},
    ),
    "the next minute": cron(
        [("", None, also(jobs(1), active(1))), ("patch", {"suspend": True}, active(1)), DONE],
        before=(("early in a minute", None),), schedule="* * * * *",
    ),
    "deleted with its jobs": cron([ONE, ("remove", None, lambda view: view.get("gone") and not view["jobs"])]),
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    at = f"{CRONS}/{name}"
    match what:
        case "due" | "zone":
            # Nepal is 5:45 ahead: the same minute is called another one there. A kube-controller-manager looks at a new
            # schedule when it is due next, or when anything else changes; ours looks at once, as nothing says that a
            # Job which is due should wait for an accident. So something else changes here.
            side.patch(f"{at}/status", {"status": {"lastScheduleTime": timestamp(NOW - 60 * argument - 60)}})
            side.patch(at, {"spec": {"schedule": minute(argument - (345 if what == "zone" else 0))}})
            side.patch(at, {"metadata": {"annotations": {"touched": str(argument)}}})
        case "every minute since":
            side.patch(f"{at}/status", {"status": {"lastScheduleTime": timestamp(NOW - 60 * argument)}})
            side.patch(at, {"spec": {"schedule": "* * * * *"}})
            side.patch(at, {"metadata": {"annotations": {"touched": str(argument)}}})
        case "patch":
            side.patch(at, {"spec": named(argument, name)})
        case "remove":
            side.call("DELETE", at, {"propagationPolicy": "Background"})
        case "delete":
            for job in side.of(JOBS, name):
                side.call("DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"})
        case "end":
            side.fare(next(filter(is_open, side.pods(name))), argument)
        case "early in a minute":
            time.sleep(max(0.0, 3 - time.time() % 60) if time.time() % 60 < 30 else 63 - time.time() % 60)
        case "take":
            _job(side, name, f"{name}-{int(NOW) // 60 - argument}", {})
        case "by hand":
            cron = side.call("GET", at)
            owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": cron["metadata"]["uid"],
                     "controller": True}  # fmt: skip
            annotations = {"cronjob.kubernetes.io/instantiate": "manual"}
            _job(side, name, f"{name}-by-hand", {"ownerReferences": [owner], "annotations": annotations})


def _job(side: Side, story: str, name: str, metadata: Raw) -> None:
    made = {"metadata": {"name": name, "labels": LABELS, **metadata}, "spec": TEMPLATE["spec"]}
    side.call("POST", JOBS, named(made, story))


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("cronjobs"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_a_cron_job_comes_to_the_same(told: Played, story: str) -> None:
    told[story].result()
