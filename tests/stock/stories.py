"""Stories told to our controllers and to an unmodified kube-controller-manager: objects must come to the same.

Each has an API server of ours to itself. Nobody runs the pods: the story says how each of them fares, to both. Stories
of one family are played side by side, each with objects that carry its name as the label `story`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from kubeqos.controllers.workloads.daemonsets import target
from kubeqos.model.timestamps import timestamp
from tests.apiserver.live import LiveServer, live_server
from tests.stock.kube_apiserver import process
from tests.stock.pair import differences

MANAGER = "kube-controller-manager"
SECONDS = 90
AT_ONCE = 8
PAUSE = 0.4
Raw = dict[str, Any]
View = Raw
Reached = Callable[[View], Any]
Step = tuple[str, Any, Reached]
CORE = "/api/v1"
IN_DEFAULT = "/namespaces/default"
PODS = f"{CORE}{IN_DEFAULT}/pods"
CLAIMS = f"{CORE}{IN_DEFAULT}/persistentvolumeclaims"
REVISIONS = f"/apis/apps/v1{IN_DEFAULT}/controllerrevisions"
REPLICA_SETS = f"/apis/apps/v1{IN_DEFAULT}/replicasets"
JOBS = f"/apis/batch/v1{IN_DEFAULT}/jobs"
NODES = f"{CORE}/nodes"
INDEX = "batch.kubernetes.io/job-completion-index"
HASH = re.compile(r"\b[bcdfghjklmnpqrstvwxz2456789]{8,10}\b")
MERGE = {"Content-Type": "application/merge-patch+json"}
LONG_AGO = "2026-01-01T00:00:00Z"


class Side:
    """One of the two: an API server and who controls its objects."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        answer = self.live.call(method, path, body, headers)
        assert answer.code < 300 or answer.code == 404, (method, path, answer.body)
        return answer.body if answer.code < 300 else None

    def patch(self, path: str, body: Raw) -> None:
        self.call("PATCH", path, body, MERGE)

    def of(self, path: str, name: str) -> list[Raw]:
        """The objects of a story, those with an index first, by when they were made."""
        found: list[Raw] = self.call("GET", f"{path}?labelSelector=story%3D{name}")["items"]
        return sorted(
            found, key=lambda one: (index(one), one["metadata"]["creationTimestamp"], one["metadata"]["name"])
        )

    def pods(self, name: str) -> list[Raw]:
        return self.of(PODS, name)

    def node(self, name: str, number: int, spec: Raw) -> None:
        """A node of a story, which is ready."""
        node, labels = f"{name}-n{number}", {"story": name, "number": str(number)}
        self.call("POST", NODES, {"metadata": {"name": node, "labels": labels}, "spec": spec})
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO, "lastHeartbeatTime": LONG_AGO}
        self.patch(f"{NODES}/{node}/status", {"status": {"conditions": [{**ready, "reason": "x", "message": "x"}]}})

    def fare(self, pod: Raw, code: int, reason: str = "") -> None:
        """A pod ends with this code."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        status: Raw = {"phase": "Failed" if code else "Succeeded", "conditions": []}
        status["containerStatuses"] = [{"name": "c", "image": "app", "imageID": "app", "state": {"terminated": ended},
                                        "ready": False, "restartCount": 0}]  # fmt: skip
        if reason:
            status["conditions"] = [{"type": reason, "status": "True", "lastTransitionTime": LONG_AGO}]
        self.report(pod, status)

    def ready(self, pod: Raw, since: str = LONG_AGO, is_so: bool = True) -> None:
        """A pod runs, on the node that it is meant for if there is one, and is ready or not."""
        self.bind(pod, target(pod))
        ready = {"type": "Ready", "status": "True" if is_so else "False", "lastTransitionTime": since}
        self.report(pod, {"phase": "Running", "conditions": [ready]})

    def bind(self, pod: Raw, node: str) -> None:
        if node and not pod["spec"].get("nodeName"):
            bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]},
                     "target": {"kind": "Node", "name": node}}  # fmt: skip
            self.call("POST", f"{PODS}/{pod['metadata']['name']}/binding", bound)

    def now(self) -> str:
        return timestamp(time.time())

    def report(self, pod: Raw, status: Raw) -> None:
        self.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})

    def buried(self, name: str) -> None:
        """What a kubelet does: pods that are being deleted go."""
        for pod in self.pods(name):
            if pod["metadata"].get("deletionTimestamp"):
                self.call("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def view(self, story: Story, name: str) -> View:
        """What both must come to: the status, and the objects as others see them. No times, no drawn names."""
        found = self.call("GET", f"{story.path}/{name}")
        seen: Raw = {"pods": [pod_view(one) for one in self.pods(name)]}
        seen |= {kind: [object_view(one) for one in self.of(path, name)] for kind, path in story.others.items()}
        seen |= {"gone": True} if found is None else {"status": found.get("status")}
        seen["annotations"] = found and found["metadata"].get("annotations")
        text = json.dumps(seen)
        for path in {REVISIONS, REPLICA_SETS} & set(story.others.values()):
            for one in self.of(path, name):
                text = text.replace(one["metadata"]["name"].removeprefix(f"{name}-"), f"revision{_number(one)}")
        text = _SCHEDULED.sub(r"\1 at ", text)
        if story.any_node:
            text = re.sub(rf"\b{name}-n\d\b", "<node>", text)
        found = plain(json.loads(text))
        return story.shown(found) if story.shown else found  # type: ignore[no-any-return]


def _number(revision: Raw) -> Any:
    annotations = revision["metadata"].get("annotations") or {}
    return revision.get("revision") or annotations.get("deployment.kubernetes.io/revision")


def index(pod: Raw) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))


def is_open(pod: Raw) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def pod_view(pod: Raw) -> Raw:
    spec = pod["spec"]
    return {
        **object_view({"metadata": pod["metadata"]}),
        "phase": pod["status"].get("phase"),
        "env": spec["containers"][0].get("env"),
        "image": spec["containers"][0]["image"],
        "node": spec.get("nodeName"),
        "hostname": spec.get("hostname"),
        "subdomain": spec.get("subdomain"),
        "affinity": spec.get("affinity"),
        "volumes": [one for one in spec.get("volumes") or () if "projected" not in one],
        "tolerations": sorted((one.get("key", ""), one.get("effect", "")) for one in spec.get("tolerations") or ()),
    }


def object_view(raw: Raw) -> Raw:
    """Everything of an object but what servers keep for themselves."""
    metadata = raw["metadata"]
    owners = [(one["kind"], one["name"], one.get("controller"), one.get("blockOwnerDeletion"))
              for one in metadata.get("ownerReferences") or ()]  # fmt: skip
    body = {key: value for key, value in raw.items() if key not in ("metadata", "apiVersion", "kind")}
    if "observedGeneration" in (body.get("status") or {}):
        # In how many steps it came here depends on which pod was seen first.
        seen = body["status"]["observedGeneration"] == metadata["generation"]
        body["status"] = {**body["status"], "observedGeneration": seen}
    return {
        "name": metadata["name"],
        "generated": metadata.get("generateName"),
        "deleted": "deletionTimestamp" in metadata,
        "finalizers": metadata.get("finalizers"),
        "annotations": metadata.get("annotations"),
        "labels": metadata.get("labels"),
        "owners": owners,
        **body,
    }


# When a Job was due follows from the story, and so is no time of anybody's own.
_SCHEDULED = re.compile(r'("(?:lastScheduleTime|batch.kubernetes.io/cronjob-scheduled-timestamp)": "[-\d]+)T')
_OWN = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\b([a-z0-9]+(?:-\d+)?)-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), r"\1-<drawn>"),
    (HASH, "<hash>"),
)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in sorted(value.items()) if key != "resourceVersion"}
    if isinstance(value, list):
        return sorted((plain(one) for one in value), key=repr)
    if isinstance(value, str):
        for pattern, shown in _OWN:
            value = pattern.sub(shown, value)
    return value


@dataclass(frozen=True)
class Story:
    """An object, what happens to it, and how far both must have come after each step."""

    path: str
    kind: str
    spec: Raw
    steps: list[Step]
    others: Mapping[str, str]
    """More objects of the story that are compared, by what they are called."""
    before: tuple[tuple[str, Any], ...] = ()
    """What there is before the object."""
    any_node: bool = False
    """Which node comes first is nobody's promise."""
    metadata: Raw | None = None
    shown: Callable[[View], View] | None = None
    """What of a view is compared, where the rest is nobody's promise."""

    def made(self, name: str) -> Raw:
        metadata = {"name": name, **(self.metadata or {})}
        version = self.path.partition("/namespaces")[0].removeprefix("/apis/").removeprefix("/api/")
        return named({"apiVersion": version, "kind": self.kind, "metadata": metadata, "spec": self.spec}, name)


def named(raw: Raw, name: str) -> Raw:
    """An object of a story, which is called STORY where it is told."""
    return json.loads(json.dumps(raw).replace("STORY", name))  # type: ignore[no-any-return]


Act = Callable[[Side, str, str, Any], None]


def _acted(act: Act, name: str, what: str, argument: Any, side: Side) -> None:
    act(side, name, what, argument)


class Both:
    """The two sides, told the same."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours, self.theirs = ours, theirs

    def each(self, act: Callable[[Side], Any]) -> None:
        for side in (self.ours, self.theirs):
            act(side)

    def play(self, story: Story, name: str, act: Act) -> None:
        for what, argument in story.before:
            self.each(partial(_acted, act, name, what, argument))
        self.each(lambda side: side.call("POST", story.path, story.made(name)))
        for number, (what, argument, reached) in enumerate(story.steps):
            self.each(partial(_acted, act, name, what, argument))
            self.same(story, name, reached, f"step {number} ({what} {argument})")

    def same(self, story: Story, name: str, reached: Reached, step: str) -> None:
        """Theirs comes to where the story is, ours to the same, and both stay there for a moment."""
        deadline, agreed = time.monotonic() + SECONDS, None
        while True:
            ours, theirs = (side.view(story, name) for side in (self.ours, self.theirs))
            if reached(theirs) and ours == theirs:
                if agreed == theirs:
                    return
                agreed = theirs
            elif time.monotonic() > deadline:
                so_far = {key: theirs.get(key) for key in ("status", "gone", "pods")}
                assert reached(theirs), f"{step}: they never came so far: {json.dumps(so_far)}"
                pytest.fail(f"{step}: " + "\n".join(differences(theirs, ours)))
            else:
                agreed = None
            time.sleep(PAUSE)


@contextmanager
def both_managers(folder: Path) -> Iterator[Both]:
    """Nodes that nobody runs are not missed: how they are is for the stories to say."""
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    with live_server(folder / "ours") as ours, live_server(folder / "theirs") as theirs, ExitStack() as stack:
        program = find(MANAGER)
        assert program is not None, "see needs_stock"
        words = [str(program[0]), "--kubeconfig", str(theirs.kubeconfig), "--leader-elect=false", "--secure-port=0"]
        words += ["--service-account-private-key-file", str(key), "--node-monitor-grace-period=1h"]
        words += ["--kube-api-qps=200", "--kube-api-burst=400"]  # many stories are told at once
        stack.enter_context(process(words, folder, MANAGER))
        own = [sys.executable, "-m", "kubeqos.cli.main", "controllers", "--kubeconfig", str(ours.kubeconfig)]
        own += ["--port", "0", "--node-monitor-grace-period", "3600"]
        stack.enter_context(process(own, folder, "controllers"))
        yield Both(Side(ours), Side(theirs))


Played = Mapping[str, "Future[None]"]


@contextmanager
def played(request: pytest.FixtureRequest, folder: Path, stories: Mapping[str, Story], act: Act) -> Iterator[Played]:
    """The stories of a module that were asked for, side by side: each test waits for the end of its own."""
    items = [one for one in request.session.items if one.nodeid.partition("::")[0] == request.node.nodeid]
    asked = {one.callspec.params["story"] for one in items if isinstance(one, pytest.Function)}
    letter = next(iter(stories.values())).kind[0].lower()
    with both_managers(folder) as both, ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            story: pool.submit(both.play, told, f"{letter}{number}", act)
            for number, (story, told) in enumerate(stories.items())
            if story in asked
        }


# -- how far a story has come ----------------------------------------------------------------------------------------


def status(**wanted: Any) -> Reached:
    """These fields of the status are so; what is not there is 0."""
    return lambda view: all((view.get("status") or {}).get(name, 0) == value for name, value in wanted.items())


def condition(kind: str, reason: str = "", value: str = "True") -> Reached:
    """A condition is so, for this reason."""

    def is_so(view: View) -> bool:
        found = (view.get("status") or {}).get("conditions") or ()
        return any((one["type"], one["status"]) == (kind, value) and reason in one.get("reason", "") for one in found)

    return is_so


def many(count: int, what: str = "pods", **fields: Any) -> Reached:
    """There are so many of these that nobody deletes."""

    def is_so(view: View) -> bool:
        living = [one for one in view[what] if not one["deleted"]]
        return sum(all(one.get(key) == value for key, value in fields.items()) for one in living) == count

    return is_so


def going(count: int) -> Reached:
    """So many pods are being deleted."""
    return lambda view: sum(one["deleted"] for one in view["pods"]) == count


def also(*all_of: Reached) -> Reached:
    return lambda view: all(one(view) for one in all_of)


def gone(view: View) -> bool:
    return bool(view.get("gone"))
