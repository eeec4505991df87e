"""Jobs before our controllers and before an unmodified kube-controller-manager: both come to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    JOBS,
    MANAGER,
    PODS,
    Played,
    Raw,
    Reached,
    Side,
    Step,
    Story,
    also,
    gone,
    index,
    is_open,
    played,
    status,
)
from tests.stock.stories import condition as ended

pytestmark = needs_stock(MANAGER)
TEMPLATE = {
    "metadata": {"labels": {"story": "STORY"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app"}]},
}
ON_CODE_42 = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
DISRUPTED = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]


SELECTED_BY = ("controller-uid", "batch.kubernetes.io/controller-uid")


def active(count: int, **others: int) -> Reached:
    """So many pods are active, and the other counts are these."""
    return status(active=count, **others)


def let_go(count: int) -> Reached:
    """So many pods belong to nobody, and nobody holds them."""
    return lambda view: sum(not one["owners"] and not one["finalizers"] for one in view["pods"]) == count


JOBS_TOLD: dict[str, tuple[Raw, list[Step]]] = {
    "three, two at a time": (
        {"completions": 3, "parallelism": 2},
        [("", None, active(2)), ("end", ("", 0), active(2, succeeded=1)), ("ready", None, active(2, ready=2)),
         ("end", ("", 0), active(1, succeeded=2)), ("end", ("", 0), ended("Complete"))],
    ),
    "fails too often": (
        {"backoffLimit": 1},
        [("", None, active(1)), ("end", ("", 1), active(1, failed=1)),
         ("end", ("", 1), ended("Failed", "BackoffLimitExceeded"))],
    ),
    "never again": (
        {"backoffLimit": 0}, [("", None, active(1)), ("end", ("", 3), ended("Failed", "BackoffLimitExceeded"))],
    ),
    "indexes": (
        {"completions": 3, "parallelism": 3, "completionMode": "Indexed"},
        [("", None, active(3)), ("end", ("1", 0), active(2, succeeded=1)), ("end", ("0", 0), active(1, succeeded=2)),
         ("end", ("2", 0), ended("Complete"))],
    ),
    "an index that fails": (
        {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0},
        [("", None, active(2)), ("end", ("0", 1), active(1, failed=1)), ("end", ("1", 0), ended("Failed"))],
    ),
    "too many failed indexes": (
        {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
         "maxFailedIndexes": 0},
        [("", None, active(3)), ("end", ("0", 1), ended("FailureTarget")), ("bury", None, ended("Failed"))],
    ),
    "a code that ends the job": (
        {"podFailurePolicy": {"rules": ON_CODE_42}, "backoffLimit": 6, "parallelism": 2, "completions": 2},
        [("", None, active(2)), ("end", ("", 42), ended("FailureTarget")), ("bury", None, ended("Failed"))],
    ),
    "a disruption does not count": (
        {"podFailurePolicy": {"rules": DISRUPTED}, "backoffLimit": 0},
        [("", None, active(1)), ("disrupt", ("", 137), active(1, failed=0)), ("end", ("", 0), ended("Complete"))],
    ),
    "one index is enough": (
        {"completions": 3, "parallelism": 3, "completionMode": "Indexed",
         "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        [("", None, active(3)), ("end", ("0", 0), ended("SuccessCriteriaMet")), ("bury", None, ended("Complete"))],
    ),
    "suspended and resumed": (
        {"suspend": True},
        [("", None, ended("Suspended")), ("suspend", False, active(1)), ("suspend", True, ended("Suspended")),
         ("bury", None, ended("Suspended")), ("suspend", False, active(1)), ("end", ("", 0), ended("Complete"))],
    ),
    "too late": (
        {"activeDeadlineSeconds": 1},
        [("", None, ended("FailureTarget")), ("bury", None, ended("Failed", "DeadlineExceeded"))],
    ),
    "cleaned up": ({"ttlSecondsAfterFinished": 0}, [("", None, active(1)), ("end", ("", 0), gone)]),
    "nothing to do": ({"completions": 0}, [("", None, ended("Complete"))]),
    "a queue": (
        {"parallelism": 2, "completions": None},
        [("", None, active(2)), ("end", ("", 0), active(1, succeeded=1)), ("end", ("", 0), ended("Complete"))],
    ),
    "replaced when it has failed": (
        {"podReplacementPolicy": "Failed", "backoffLimit": 2},
        [("", None, active(1)), ("end", ("", 1), active(1, failed=1)), ("end", ("", 0), ended("Complete"))],
    ),
    "scaled while it runs": (
        {"completions": 4, "parallelism": 1},
        [("", None, active(1)), ("scale", 3, active(3)), ("scale", 0, active(0)), ("bury", None, active(0))],
    ),
    "not selected any more": (
        {"completions": 2, "parallelism": 2},
        [("", None, active(2)), ("stray", None, also(active(2), let_go(1))), ("end", ("", 0), active(1, succeeded=1))],
    ),
    "a stray that ended": (
        {"completions": 2, "parallelism": 1},
        [("", None, active(1)), ("end", ("", 0), active(1, succeeded=1)),
         ("all stray", None, also(let_go(2), active(1, succeeded=1)))],
    ),
    "a pod that somebody took away": (
        {"completions": 2, "parallelism": 2}, [("", None, active(2)), ("take", None, also(active(2), let_go(1)))],
    ),
    "gone without its pods": (
        {"completions": 2, "parallelism": 2}, [("", None, active(2)), ("orphan", None, also(gone, let_go(2)))],
    ),
}  # fmt: skip


STORIES = {
    name: Story(JOBS, "Job", {**spec, "template": TEMPLATE}, steps, {}) for name, (spec, steps) in JOBS_TOLD.items()
}


def act(side: Side, name: str, what: str, argument: Any) -> None:
    match what:
        case "end" | "disrupt":
            number, code = argument
            mine = (one for one in side.pods(name) if one["metadata"].get("ownerReferences"))
            pod = next(one for one in mine if is_open(one) and number in ("", index(one)))
            side.fare(pod, code, "DisruptionTarget" if what == "disrupt" else "")
        case "ready":
            for pod in filter(is_open, side.pods(name)):
                side.ready(pod)
        case "bury":
            side.buried(name)
        case "suspend" | "scale":
            field = {"suspend": "suspend", "scale": "parallelism"}[what]
            side.patch(f"{JOBS}/{name}", {"spec": {field: argument}})
        case "stray" | "all stray":
            for pod in side.pods(name)[: None if what == "all stray" else 1]:
                labels = dict.fromkeys(SELECTED_BY)
                side.patch(f"{PODS}/{pod['metadata']['name']}", {"metadata": {"labels": labels}})
        case "take":  # and the label, or it would be adopted again
            pod = side.pods(name)[0]["metadata"]["name"]
            labels = dict.fromkeys(SELECTED_BY)
            side.patch(f"{PODS}/{pod}", {"metadata": {"ownerReferences": None, "labels": labels}})
        case "orphan":
            side.call("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Orphan"})


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("jobs"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_a_job_comes_to_the_same(told: Played, story: str) -> None:
    told[story].result()
