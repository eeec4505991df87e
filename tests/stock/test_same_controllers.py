"""The same stories before our controllers and before an unmodified kube-controller-manager: objects come to the same.

Each has an API server of ours to itself. Nobody runs the pods: the story says how each of them fares, to both.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from tests.apiserver.live import LiveServer, live_server
from tests.stock.kube_apiserver import process
from tests.stock.needs import needs_stock

pytestmark = needs_stock("kube-controller-manager")
MANAGER = "kube-controller-manager"
SECONDS = 120
Raw = dict[str, Any]
View = Raw
INDEX = "batch.kubernetes.io/job-completion-index"
MERGE = {"Content-Type": "application/merge-patch+json"}


class Side:
    """One of the two: an API server and who controls its objects."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        answer = self.live.call(method, path, body, headers)
        assert answer.code < 300 or answer.code == 404, (method, path, answer.body)
        return answer.body if answer.code < 300 else None

    def pods(self, name: str) -> list[Raw]:
        """The pods of an object, those with an index first, by when they were made."""
        everyone = self.call("GET", "/api/v1/namespaces/default/pods")["items"]
        mine = [one for one in everyone if one["metadata"]["name"].startswith(f"{name}-")]
        return sorted(
            mine, key=lambda one: (_index(one), one["metadata"]["creationTimestamp"], one["metadata"]["name"])
        )

    def fare(self, name: str, index: str, code: int, reason: str = "") -> None:
        """The first pod that has not ended, of this index where one is given, ends with this code."""
        pod = next(one for one in self.pods(name) if _open(one) and index in ("", _index(one)))
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        status: Raw = {"phase": "Failed" if code else "Succeeded", "conditions": []}
        status["containerStatuses"] = [{"name": "c", "image": "app", "imageID": "app", "state": {"terminated": ended},
                                        "ready": False, "restartCount": 0}]  # fmt: skip
        if reason:
            status["conditions"] = [{"type": reason, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        self.report(pod, status)

    def ready(self, name: str) -> None:
        """Every pod that has not ended runs and is ready."""
        for pod in self.pods(name):
            if _open(pod):
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                self.report(pod, {"phase": "Running", "conditions": [ready]})

    def report(self, pod: Raw, status: Raw) -> None:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        self.call("PATCH", path, {"status": status}, MERGE)

    def buried(self, name: str) -> None:
        """What a kubelet does: pods that are being deleted go."""
        for pod in self.pods(name):
            if pod["metadata"].get("deletionTimestamp"):
                path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
                self.call("DELETE", path, {"gracePeriodSeconds": 0})

    def view(self, path: str, name: str) -> View:
        """What both must come to: the status, and the pods as others see them. No times, no drawn names."""
        found = self.call("GET", f"{path}/{name}")
        pods = sorted((_pod(one) for one in self.pods(name)), key=repr)
        return {"gone": True, "pods": pods} if found is None else {"status": _plain(found.get("status")), "pods": pods}


def _index(pod: Raw) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))


def _open(pod: Raw) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def _pod(pod: Raw) -> Raw:
    metadata, spec = pod["metadata"], pod["spec"]
    return {
        "phase": pod["status"].get("phase"),
        "deleted": "deletionTimestamp" in metadata,
        "finalizers": metadata.get("finalizers"),
        "annotations": metadata.get("annotations"),
        "labels": {key: _plain(value) for key, value in sorted((metadata.get("labels") or {}).items())},
        "owners": [(one["kind"], one.get("controller"), one.get("blockOwnerDeletion"))
                   for one in metadata["ownerReferences"]],
        "env": spec["containers"][0].get("env"),
        "hostname": spec.get("hostname"),
        "affinity": spec.get("affinity"),
        "tolerations": sorted((one["key"], one["effect"]) for one in spec.get("tolerations") or ()),
    }  # fmt: skip


_OWN = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\b([a-z0-9]+(?:-\d+)?)-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1-<drawn>"),
    (re.compile(r"\b[bcdfghjklmnpqrstvwxz2456789]{8,10}\b"), "<hash>"),
)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in sorted(value.items()) if key not in ("observedGeneration",)}
    if isinstance(value, list):
        return sorted((_plain(one) for one in value), key=repr)
    if isinstance(value, str):
        for pattern, shown in _OWN:
            value = pattern.sub(shown, value)
    return value


class Both:
    """The two sides, told the same."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours, self.theirs = ours, theirs

    def each(self, act: Callable[[Side], Any]) -> None:
        for side in (self.ours, self.theirs):
            act(side)

    def same(self, path: str, name: str, reached: Callable[[View], Any]) -> View:
        """Theirs comes to where the story is, and ours to the same."""
        deadline = time.monotonic() + SECONDS
        while True:
            ours, theirs = (side.view(path, name) for side in (self.ours, self.theirs))
            if reached(theirs) and ours == theirs:
                return theirs
            if time.monotonic() > deadline:
                assert reached(theirs), f"they never came so far: {theirs}"
                assert ours == theirs
            time.sleep(0.2)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder: Path = tmp_path_factory.mktemp("controllers")
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    with live_server(folder / "ours") as ours, live_server(folder / "theirs") as theirs, ExitStack() as stack:
        program = str((find(MANAGER) or [""])[0])
        words = [program, "--kubeconfig", str(theirs.kubeconfig), "--leader-elect=false", "--secure-port=0"]
        stack.enter_context(process([*words, "--service-account-private-key-file", str(key)], folder, MANAGER))
        own = [
            sys.executable,
            "-m",
            "kubeqos.cli.main",
            "controllers",
            "--kubeconfig",
            str(ours.kubeconfig),
            "--port",
            "0",
        ]
        stack.enter_context(process(own, folder, "controllers"))
        yield Both(Side(ours), Side(theirs))


JOBS = "/apis/batch/v1/namespaces/default/jobs"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app"}]}}
ON_CODE_42 = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
DISRUPTED = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]


def active(count: int, **others: int) -> Callable[[View], bool]:
    """So many pods are active, and the other counts are these."""
    wanted = {"active": count, **others}
    return lambda view: all((view.get("status") or {}).get(name, 0) == number for name, number in wanted.items())


def ended(kind: str, reason: str = "") -> Callable[[View], bool]:
    """A condition is true, for this reason."""

    def is_so(view: View) -> bool:
        found = (view.get("status") or {}).get("conditions") or ()
        return any((one["type"], one["status"]) == (kind, "True") and reason in one.get("reason", "") for one in found)

    return is_so


def gone(view: View) -> bool:
    return bool(view.get("gone"))


Step = tuple[str, Any, Callable[[View], Any]]
STORIES: dict[str, tuple[Raw, list[Step]]] = {
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
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    match what:
        case "end":
            side.fare(name, *argument)
        case "disrupt":
            side.fare(name, *argument, "DisruptionTarget")
        case "ready":
            side.ready(name)
        case "bury":
            side.buried(name)
        case "suspend" | "scale":
            field = {"suspend": "suspend", "scale": "parallelism"}[what]
            side.call("PATCH", f"{JOBS}/{name}", {"spec": {field: argument}}, MERGE)


@pytest.mark.parametrize("story", STORIES)
def test_a_job_comes_to_the_same(both: Both, story: str) -> None:
    spec, steps = STORIES[story]
    name = f"j{list(STORIES).index(story)}"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, "template": TEMPLATE}}
    both.each(lambda side: side.call("POST", JOBS, job))
    for what, argument, reached in steps:
        both.each(lambda side, what=what, argument=argument: act(side, name, what, argument))
        both.same(JOBS, name, reached)
