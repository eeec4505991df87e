"""Replica sets, and replication controllers, before our controllers and before an unmodified kube-controller-manager.

Which pods go first is told by the label `role` that a story gives them: their names are drawn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    CORE,
    IN_DEFAULT,
    LONG_AGO,
    MANAGER,
    PODS,
    REPLICA_SETS,
    Played,
    Raw,
    Reached,
    Side,
    Step,
    Story,
    View,
    also,
    condition,
    going,
    gone,
    is_open,
    many,
    named,
    plain,
    played,
    status,
)

pytestmark = needs_stock(MANAGER)
REPLICATION_CONTROLLERS = f"{CORE}{IN_DEFAULT}/replicationcontrollers"
CONFIG_MAPS = f"{CORE}{IN_DEFAULT}/configmaps"
QUOTAS = f"{CORE}{IN_DEFAULT}/resourcequotas"
EVENTS = f"{CORE}{IN_DEFAULT}/events"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TOLD_SECONDS = 30
AGAIN_AND_AGAIN = 0
LABELS = {"story": "STORY", "app": "a"}
HELD = {"finalizers": ["example.com/held"]}


def template(labels: Raw | None = None, **spec: Any) -> Raw:
    made = {"containers": [{"name": "c", "image": "v1"}], **spec}
    return {"metadata": {"labels": {**LABELS, **(labels or {})}}, "spec": made}


def replicas(
    steps: list[Step], *, before: tuple[tuple[str, Any], ...] = (), metadata: Raw | None = None, **spec: Any
) -> Story:
    body = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    nodes = (("node", 0), ("node", 1))
    return Story(REPLICA_SETS, "ReplicaSet", body, steps, {}, (*nodes, *before), metadata=metadata)


def replication(steps: list[Step], *, before: tuple[tuple[str, Any], ...] = (), **spec: Any) -> Story:
    body = {"replicas": 2, "selector": LABELS, "template": template(), **spec}
    nodes = (("node", 0), ("node", 1))
    return Story(REPLICATION_CONTROLLERS, "ReplicationController", body, steps, {}, (*nodes, *before))


def counts(size: int, ready: int = 0, going: int = 0, **others: Any) -> Reached:
    return status(replicas=size, readyReplicas=ready, terminatingReplicas=going, **others)


def roles(*left: str) -> Reached:
    """The pods with these roles are there, and nobody deletes them."""
    return lambda view: {r for one in view["pods"] if not one["deleted"] if (r := _role(one))} == set(left)


def _role(pod: Raw) -> str:
    return str((pod["labels"] or {}).get("role", ""))


def owned(count: int) -> Reached:
    """So many pods are managed, in whatever state they are."""
    return lambda view: sum(bool(one["owners"]) for one in view["pods"]) == count


def content(view: View) -> bool:
    """Nothing failed."""
    return not (view.get("status") or {}).get("conditions")


def shape(role: str, node: int | None = None, phase: str = "Running", **more: Any) -> Raw:
    """How a pod fares: `ready` since when, `restarts`, `sidecar` restarts, `cost`."""
    return {"role": role, "node": node, "phase": phase, **more}


def down(size: int, *left: str) -> Step:
    return ("patch", {"replicas": size}, roles(*left))


UP: list[Step] = [("", None, many(2)), ("ready", None, counts(2, 2, availableReplicas=2))]
BOUND: list[Step] = [*UP, ("bind", None, counts(2, 2))]
CLASS = {"metadata": {"name": "STORY-class", "labels": {"story": "STORY"}}, "value": 1}
QUOTA = {
    "metadata": {"name": "STORY"},
    "spec": {
        "hard": {"pods": "2"},
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["STORY-class"]}]
        },
    },
}
SIDECAR = {"name": "s", "image": "v1", "restartPolicy": "Always"}
TWIN = {"metadata": {"name": "STORY-twin"}, "spec": {"replicas": 1, "selector": {"matchLabels": LABELS},
                                                     "template": template({"role": "twin"})}}  # fmt: skip
BACKGROUND, FOREGROUND, ORPHAN = "Background", "Foreground", "Orphan"
CROWDED = [shape("a", 0, ready=LONG_AGO), shape("b", 0, ready=LONG_AGO), shape("c", 1, ready=LONG_AGO, restarts=5)]
STORIES: dict[str, Story] = {
    "scaled": replicas(
        [*UP, ("patch", {"replicas": 5}, many(5)), ("ready", None, counts(5, 5)),
         ("patch", {"replicas": 1}, counts(1, 1)), ("patch", {"replicas": 0}, counts(0))],
    ),
    "pods that take their time": replicas(
        [*BOUND, ("patch", {"replicas": 0}, counts(0, going=2)), ("patch", {"replicas": 1}, counts(1, going=2)),
         ("bury", None, counts(1))],
    ),
    "who ended is replaced": replicas(
        [*UP, ("end", 1, counts(2, 1)), ("ready", None, counts(2, 2)), ("end", 0, counts(2, 1)),
         ("delete", 0, counts(2))],
    ),
    "ready for a while first": replicas(
        [("", None, many(2)), ("ready now", None, counts(2, 2, availableReplicas=0)),
         ("", None, counts(2, 2, availableReplicas=2)), ("sick", 1, counts(2, 1, availableReplicas=1))],
        minReadySeconds=12,
    ),
    "another template": replicas(
        [*UP, ("patch", {"template": template({"more": "labels"})}, counts(2, 2, observedGeneration=2)),
         ("delete", 0, counts(2, 1, fullyLabeledReplicas=1)),
         ("label", (0, {"more": None}), counts(2, 1, observedGeneration=2))],
    ),
    "selected by expressions": replicas(
        [*UP, ("label", (0, {"app": "b"}), counts(2, 2)), ("label", (0, {"app": "c"}), counts(2, 1))],
        selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]},
                                       {"key": "story", "operator": "In", "values": ["STORY"]}]},
    ),
    # -- whose pods they are
    "orphans": replicas([("", None, also(owned(2), counts(2)))], before=(("orphan", "one"),)),
    "more orphans than replicas": replicas(
        [("", None, also(roles("one", "two"), counts(2, 2)))],
        before=(("orphan", "one"), ("orphan", "two"), ("bind", None), ("ready", None), ("orphan", "three")),
    ),
    "orphans that have ended": replicas(
        [("", None, also(owned(2), counts(2)))],
        before=(("orphan", "one"), ("end", 0), ("orphan", "two"), ("end", 1)),
    ),
    "an orphan that is going": replicas(
        [("", None, also(owned(2), counts(2, going=0)))],
        before=(("orphan", "one"), ("bind", None), ("delete", 0)),
    ),
    "an orphan that comes later": replicas(
        [*BOUND, ("orphan", "one", roles()), ("ended orphan", "two", also(roles("two"), owned(2), counts(2, 2)))],
    ),
    "somebody else's pod": replicas(
        [("", None, also(owned(3), counts(2)))],
        before=(("create", (CONFIG_MAPS, {"metadata": {"name": "STORY-manager"}})), ("orphan", "one"),
                ("manage pod", 0)),
    ),
    "let go of, and taken back": replicas(
        [*BOUND, ("label", (0, {"app": "z"}), also(many(3), owned(2), counts(2, 1))),
         ("relabel", ({"app": "z"}, {"app": "a"}), also(owned(2), counts(2, 2)))],
    ),
    "who ended is not let go of": replicas(
        [*UP, ("end", 1, counts(2, 1)), ("relabel", ({}, {"app": "z"}), also(many(5), owned(3), counts(2)))],
    ),
    "who is going is not let go of": replicas(
        [*BOUND, ("delete", 0, counts(2, 1, going=1)), ("label going", {"app": "z"}, also(owned(3), counts(2, 1, 0))),
         ("bury", None, going(0))],
    ),
    "two that select the same": replicas(
        [("", None, also(many(3), counts(2))), ("patch", {"replicas": 1}, also(many(2), counts(1))),
         ("delete", 0, also(many(2), counts(1)))],
        before=(("create", (REPLICA_SETS, TWIN)), ("wait", 1)),
    ),
    # -- the end
    "deleted": replicas([*BOUND, ("remove", BACKGROUND, also(gone, going(2)))]),
    "deleted in the foreground": replicas(
        [*BOUND, ("remove", FOREGROUND, also(going(2), counts(0, going=2))), ("bury", None, gone)],
    ),
    "left alone, and made anew": replicas(
        [*BOUND, ("remove", ORPHAN, also(gone, owned(0))), ("make", None, also(owned(2), counts(2, 2)))],
    ),
    "held at the end": replicas(
        [*BOUND, ("remove", BACKGROUND, counts(2, 2)), ("delete", 0, counts(1, 1, going=1)),
         ("orphan", "late", roles("late")), ("relabel", ({"app": "a"}, {"app": "z"}), counts(0)),
         ("let go", None, gone)],
        metadata=HELD,
    ),
    # -- who goes first
    "nobody runs it": replicas(
        [("", None, many(4)),
         ("shape", [shape("ready", 0, ready=LONG_AGO), shape("running", 0), shape("pending", 0, "Pending"),
                    shape("nowhere", None, "Pending")], counts(4, 1)),
         down(3, "ready", "running", "pending"), down(2, "ready", "running"), down(1, "ready")],
        replicas=4,
    ),
    "what they cost": replicas(
        [("", None, many(4)),
         ("shape", [shape("cheap", 0, ready=LONG_AGO, cost="-10"), shape("free", 0, ready=LONG_AGO),
                    shape("dear", 0, ready=LONG_AGO, restarts=3, cost="7"), shape("sick", 0, cost="100")],
          counts(4, 3)),
         down(3, "cheap", "free", "dear"), down(2, "free", "dear"), down(1, "dear")],
        replicas=4,
    ),
    "how long they are ready, how often they restarted": replicas(
        [("", None, many(5)),
         ("shape", [shape("old", 0, ready=LONG_AGO), shape("restarted", 0, ready=LONG_AGO, restarts=2),
                    shape("beside", 0, ready=LONG_AGO, sidecar=9), shape("both", 0, ready=LONG_AGO, restarts=2,
                    sidecar=1), shape("fresh", 0, ready="now")], counts(5, 5)),
         down(4, "old", "restarted", "beside", "both"), down(3, "old", "restarted", "beside"), down(2, "old", "beside"),
         down(1, "old")],
        replicas=5, template=template(initContainers=[SIDECAR]),
    ),
    "ready, and nobody says since when": replicas(
        [("", None, many(2)),
         ("shape", [shape("old", 0, ready=LONG_AGO, restarts=9), shape("untold", 0, ready=None)],
          counts(2, 2, availableReplicas=1)), down(1, "old")],
        minReadySeconds=1,
    ),
    "a crowded node, for itself": replicas(
        [("", None, many(3)), ("shape", CROWDED, counts(3, 3)), down(2, "a", "b")], replicas=3,
    ),
    "a crowded node, under a manager": replicas(
        [("", None, many(3)), ("manage", None, many(3)),
         ("shape", [*CROWDED[:1], {**CROWDED[1], "restarts": 1}, CROWDED[2]], counts(3, 3)), down(2, "a", "c"),
         down(1, "a")],
        replicas=3, before=(("create", (CONFIG_MAPS, {"metadata": {"name": "STORY-manager"}})),),
    ),
    # -- what is refused
    "refused, and let in": replicas(
        [("", None, condition("ReplicaFailure", "FailedCreate")),
         ("create", (PRIORITIES, CLASS), also(many(2), content))],
        template=template(priorityClassName="STORY-class"),
    ),
    "a quota": replicas(
        [("", None, also(many(2), condition("ReplicaFailure", "FailedCreate"))),
         ("patch", {"replicas": 1}, also(many(1), content)),
         ("patch", {"replicas": 3}, also(many(2), condition("ReplicaFailure", "FailedCreate"))),
         ("room", 4, also(many(3), content))],
        before=(("create", (PRIORITIES, CLASS)), ("create", (QUOTAS, QUOTA))), replicas=4,
        template=template(priorityClassName="STORY-class"),
    ),
    # -- what is told
    "told": replicas(
        [("told", {"Normal SuccessfulCreate: Created pod: <pod>": 2}, many(2)),
         ("patch", {"replicas": 0}, many(0)),
         ("told", {"Normal SuccessfulCreate: Created pod: <pod>": 2, "Normal SuccessfulDelete: Deleted pod: <pod>": 2},
          counts(0))],
    ),
    "told of a refusal": replicas(
        [("told", {"Warning FailedCreate: Error creating: pods \"<pod>\" is forbidden: no PriorityClass with name "
                   "STORY-class was found": AGAIN_AND_AGAIN}, condition("ReplicaFailure"))],
        template=template(priorityClassName="STORY-class"), replicas=1,
    ),
    # -- replication controllers
    "a replication controller": replication(
        [*UP, ("patch", {"replicas": 4}, many(4)), ("ready", None, status(readyReplicas=4)), ("end", 0, many(5)),
         ("patch", {"replicas": 1}, status(replicas=1)), ("remove", BACKGROUND, gone)],
    ),
    "a replication controller and orphans": replication(
        [("", None, also(owned(2), status(replicas=2))), ("bind", None, owned(2)),
         ("delete", 0, status(replicas=2)), ("label", (0, {"app": "z"}), also(owned(3), many(4)))],
        before=(("orphan", "one"), ("orphan", "two"), ("end", 0)),
    ),
    "a replication controller on a crowded node, under a manager": replication(
        [("", None, many(3)), ("manage", None, many(3)), ("shape", CROWDED, status(readyReplicas=3)),
         down(2, "a", "b")],
        replicas=3, before=(("create", (CONFIG_MAPS, {"metadata": {"name": "STORY-manager"}})),),
    ),
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    story = next(told for number, told in enumerate(STORIES.values()) if f"r{number}" == name)
    pods = [pod for pod in side.pods(name) if is_open(pod)]
    match what:
        case "node":
            side.node(name, argument, {})
        case "patch":
            side.patch(f"{story.path}/{name}", {"spec": named(argument, name)})
        case "make":
            side.call("POST", story.path, story.made(name))
        case "remove":
            side.call("DELETE", f"{story.path}/{name}", {"propagationPolicy": argument})
        case "let go":
            side.patch(f"{story.path}/{name}", {"metadata": {"finalizers": None}})
        case "create":
            path, body = argument
            side.call("POST", path, named(body, name))
        case "room":
            side.patch(f"{QUOTAS}/{name}", {"spec": {"hard": {"pods": str(argument)}}})
        case "manage":
            _managed(side, name, f"{story.path}/{name}")
        case "told":
            _told(side, name, named(argument, name))
        case "wait":
            _until(lambda: len(side.pods(name)) == argument)
        case _:
            _fare(side, name, what, argument, pods)


def _fare(side: Side, name: str, what: str, argument: Any, pods: list[Raw]) -> None:
    """What happens to pods."""
    match what:
        case "orphan":
            _orphan(side, name, {"role": argument})
        case "ended orphan":
            made = _orphan(side, name, {"role": argument, "app": "nobody"})
            side.fare(made, 0)
            side.patch(_path(made), {"metadata": {"labels": {"app": LABELS["app"]}}})
        case "manage pod":
            _managed(side, name, _path(pods[argument]))
        case "bind":
            for pod in pods:
                side.bind(pod, f"{name}-n0")
        case "bury":
            side.buried(name)
        case "delete":
            side.call("DELETE", _path(pods[argument]))
        case "ready" | "ready now":
            for pod in pods:
                side.ready(pod, side.now() if what == "ready now" else LONG_AGO)
        case "sick":
            for pod in pods[:argument]:
                side.ready(pod, is_so=False)
        case "end":
            side.fare(pods[0], argument)
        case "shape":
            for pod, shaped in zip(pods, argument, strict=True):
                _shape(side, name, pod, shaped)
        case "label":
            number, labels = argument
            side.patch(_path(pods[number]), {"metadata": {"labels": labels}})
        case "relabel":
            found, labels = argument
            for pod in side.pods(name):
                if found.items() <= pod["metadata"]["labels"].items():
                    side.patch(_path(pod), {"metadata": {"labels": labels}})
        case "label going":
            for pod in side.pods(name):
                if pod["metadata"].get("deletionTimestamp"):
                    side.patch(_path(pod), {"metadata": {"labels": argument}})


def _orphan(side: Side, name: str, labels: Raw) -> Raw:
    made = named(template(labels), name)
    made["metadata"]["name"] = f"{name}-{labels['role']}"
    side.call("POST", PODS, made)
    return made


def _path(pod: Raw) -> str:
    return f"{PODS}/{pod['metadata']['name']}"


def _managed(side: Side, name: str, path: str) -> None:
    """An object belongs to the ConfigMap of the story: whoever its manager is does not matter."""
    uid = side.call("GET", f"{CONFIG_MAPS}/{name}-manager")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-manager", "uid": uid, "controller": True}
    side.patch(path, {"metadata": {"ownerReferences": [owner]}})


def _shape(side: Side, name: str, pod: Raw, shaped: Raw) -> None:
    cost = {"controller.kubernetes.io/pod-deletion-cost": shaped["cost"]} if "cost" in shaped else {}
    side.patch(_path(pod), {"metadata": {"labels": {"role": shaped["role"]}, "annotations": cost}})
    if shaped["node"] is not None:
        side.bind(pod, f"{name}-n{shaped['node']}")
    status: Raw = {"phase": shaped["phase"], "conditions": []}
    if "ready" in shaped:
        since = side.now() if shaped["ready"] == "now" else shaped["ready"]
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    if shaped["phase"] == "Running":
        status["containerStatuses"] = [_container("c", shaped.get("restarts", 0))]
        if "sidecar" in shaped:
            status["initContainerStatuses"] = [_container("s", shaped["sidecar"])]
    side.report(pod, status)


def _container(name: str, restarts: int) -> Raw:
    return {"name": name, "image": "app", "imageID": "app", "state": {"running": {"startedAt": LONG_AGO}},
            "ready": True, "restartCount": restarts}  # fmt: skip


def _told(side: Side, name: str, expected: dict[str, int]) -> None:
    """These events were recorded, so often, and no others."""

    def heard() -> dict[str, int]:
        found = side.call("GET", f"{EVENTS}?fieldSelector=involvedObject.name%3D{name}")["items"]
        words = (f"{one['type']} {one['reason']}: {plain(one['message'])}" for one in found)
        counted = Counter(text.replace(f"{name}-<drawn>", "<pod>") for text in words)
        return {text: count if expected.get(text) != AGAIN_AND_AGAIN else 0 for text, count in counted.items()}

    _until(lambda: heard() == expected)
    assert heard() == expected


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TOLD_SECONDS
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("replicasets"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_replicas_come_to_the_same(told: Played, story: str) -> None:
    told[story].result()
