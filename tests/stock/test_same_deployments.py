"""Deployments before our controllers and before an unmodified kube-controller-manager: both come to the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    LONG_AGO,
    MANAGER,
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
    is_open,
    many,
    named,
    played,
    status,
)

pytestmark = needs_stock(MANAGER)
PATH = "/apis/apps/v1/namespaces/default/deployments"
LABELS = {"story": "STORY"}


def template(image: str = "v1", **spec: Any) -> Raw:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


RECREATE = {"strategy": {"type": "Recreate"}}


def deployment(steps: list[Step], metadata: Raw | None = None, **spec: Any) -> Story:
    body = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    others, shown = {"replica sets": REPLICA_SETS}, recreated if spec.get("strategy") == RECREATE["strategy"] else begun
    return Story(PATH, "Deployment", body, steps, others, (("node", None),), metadata=metadata, shown=shown)


def begun(view: View) -> View:
    """Their manager makes a replica set, says so, and then counts its pods with an object that it has itself outdated:
    it must begin again. If the first pod is there by then, the count is what it was for the old replica set, no
    progress is seen, and it stays at "created"; else it counts 0, then 1, and tells of progress. Both are a rollout on
    its way.
    """
    return progressing(view, lambda one: one["reason"] in ("NewReplicaSetCreated", "ReplicaSetUpdated"))


def recreated(view: View) -> View:
    """Between the last old pod and the first new one a manager that looks sees no replica, and takes the deployment for
    one that had come to its end; one that does not look reports a new replica set. What `Progressing` says from there
    on is a matter of the moment, on both sides.
    """
    return progressing(view, lambda _: True)


def progressing(view: View, is_momentary: Callable[[Raw], bool]) -> View:
    """Without the reason of `Progressing` where that is a matter of the moment."""
    told = view.get("status") or {}
    kept = [{**one, "reason": "", "message": ""} if one["type"] == "Progressing" and is_momentary(one) else one
            for one in told.get("conditions") or ()]  # fmt: skip
    return {**view, "status": {**told, "conditions": sorted(kept, key=repr)}}


def rolling(surge: Any, unavailable: Any) -> Raw:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}


def ended(generation: int, replicas: int = 3) -> Reached:
    return status(observedGeneration=generation, replicas=replicas, availableReplicas=replicas,
                  updatedReplicas=replicas)  # fmt: skip


def complete(generation: int, replicas: int = 3) -> Reached:
    return also(ended(generation, replicas), condition("Progressing", "NewReplicaSetAvailable"))


BEGUN: list[Step] = [("", None, many(3)), ("ready", None, ended(1))]
UP: list[Step] = [("", None, many(3)), ("ready", None, complete(1))]
V2, V3 = {"template": template("v2")}, {"template": template("v3")}
STORIES: dict[str, Story] = {
    "made": deployment(UP),
    "scaled": deployment([*UP, ("patch", {"replicas": 5}, many(5)), ("ready", None, complete(2, 5)),
                          ("patch", {"replicas": 1}, complete(3, 1)), ("patch", {"replicas": 0}, complete(4, 0))]),
    "one more, none less": deployment(
        [*UP, ("patch", V2, also(many(3, image="v1"), many(1, image="v2"))),
         ("ready", None, also(many(2, image="v1"), many(2, image="v2"))),
         ("ready", None, also(many(1, image="v1"), many(3, image="v2"))), ("ready", None, complete(2))],
        **rolling(1, 0),
    ),
    "none more, one less": deployment(
        [*UP, ("patch", V2, also(many(2, image="v1"), many(1, image="v2"))),
         ("ready", None, also(many(1, image="v1"), many(2, image="v2"))),
         ("ready", None, many(3, image="v2")), ("ready", None, complete(2))],
        **rolling(0, 1),
    ),
    "a quarter": deployment(
        [("", None, many(8)), ("ready", None, complete(1, 8)),
         ("patch", V2, also(many(6, image="v1"), many(4, image="v2"))),
         ("ready", None, also(many(2, image="v1"), many(8, image="v2"))), ("ready", None, complete(2, 8))],
        replicas=8,
    ),
    "scaled in the middle": deployment(
        [("", None, many(8)), ("ready", None, complete(1, 8)),
         ("patch", V2, also(many(6, image="v1"), many(4, image="v2"))), ("patch", {"replicas": 16}, many(20)),
         ("patch", {"replicas": 4}, status(observedGeneration=4))],
        replicas=8,
    ),
    "recreated": deployment([*BEGUN, ("patch", V2, many(3, image="v2")), ("ready", None, ended(2))], **RECREATE),
    "recreated, pods that take their time": deployment(
        [*BEGUN, ("bind", None, ended(1)), ("patch", V2, going(3)), ("bury", None, many(3, image="v2")),
         ("ready", None, ended(2))],
        **RECREATE,
    ),
    "pods that take their time": deployment(
        [*UP, ("bind", None, complete(1)), ("patch", V2, also(going(1), many(2, image="v2"))),
         ("bury", None, also(going(0), many(2, image="v2"))), ("ready", None, many(3, image="v2"))],
        **rolling(1, 1),
    ),
    "taken back": deployment(
        [*UP, ("patch", V2, many(1, image="v2")), ("patch", {"template": template("v1")}, complete(3)),
         ("patch", V2, many(1, image="v2"))],
        **rolling(1, 0),
    ),
    "another one in the middle": deployment(
        [*UP, ("patch", V2, many(1, image="v2")), ("patch", V3, also(many(1, image="v3"), many(0, image="v2"))),
         ("ready", None, many(2, image="v3")), ("ready", None, many(3, image="v3")), ("ready", None, complete(3))],
        **rolling(1, 0),
    ),
    "history of one": deployment(
        [("", None, many(1)), ("ready", None, complete(1, 1)), ("patch", V2, many(2)), ("ready", None, complete(2, 1)),
         ("patch", V3, many(2)), ("ready", None, also(complete(3, 1), many(2, "replica sets")))],
        replicas=1, revisionHistoryLimit=1,
    ),
    "no history": deployment(
        [("", None, many(1)), ("ready", None, complete(1, 1)), ("patch", V2, many(2)),
         ("ready", None, also(complete(2, 1), many(1, "replica sets")))],
        replicas=1, revisionHistoryLimit=0,
    ),
    "paused and resumed": deployment(
        [*UP, ("patch", {"paused": True}, condition("Progressing", "DeploymentPaused", "Unknown")),
         ("patch", V2, status(observedGeneration=3)), ("patch", {"replicas": 4}, many(4, image="v1")),
         ("patch", {"paused": False}, many(1, image="v2")), ("ready", None, many(2, image="v2"))],
        **rolling(1, 0),
    ),
    "paused from the start": deployment(
        [("", None, condition("Progressing", "DeploymentPaused", "Unknown")), ("patch", {"paused": False}, many(3)),
         ("ready", None, complete(2))],
        paused=True,
    ),
    "too slow": deployment(
        [("", None, condition("Progressing", "ProgressDeadlineExceeded", "False")), ("ready", None, complete(1))],
        progressDeadlineSeconds=10,
    ),
    "no deadline": deployment(
        [("", None, many(3)), ("ready", None, status(availableReplicas=3))], progressDeadlineSeconds=2**31 - 1,
    ),
    "ready for a while first": deployment(
        [("", None, many(3)), ("ready now", None, status(readyReplicas=3, availableReplicas=0)),
         ("", None, complete(1))],
        minReadySeconds=15,
    ),
    "who is not ready": deployment(
        [*UP, ("sick", 2, condition("Available", value="False")), ("ready", None, complete(1))],
    ),
    "a pod that fails": deployment([*UP, ("end", 1, many(1, phase="Pending")), ("ready", None, complete(1))]),
    "described": deployment(
        UP, metadata={"annotations": {"why": "because"}, "labels": {"own": "label"}},
        template={**template(), "metadata": {"labels": {**LABELS, "more": "labels"}, "annotations": {"note": "this"}}},
    ),
    # Not with Recreate: between the last old pod and the first new one, which ReplicaSet `Progressing` names depends on
    # whether the manager looks in that moment; while it looks there is nobody to compare, and it does not look again.
    "taken back twice": deployment(
        [("", None, many(1)), ("ready", None, complete(1, 1)), ("patch", V2, many(2)), ("ready", None, complete(2, 1)),
         ("patch", {"template": template("v1")}, many(2)), ("ready", None, complete(3, 1)), ("patch", V2, many(2)),
         ("ready", None, complete(4, 1))],
        replicas=1, **rolling(1, 0),
    ),
    "annotated later": deployment([*UP, ("annotate", {"why": "because"}, complete(2))]),
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    pods = [pod for pod in side.pods(name) if is_open(pod)]
    match what:
        case "node":
            side.node(name, 0, {})
        case "patch":
            side.patch(f"{PATH}/{name}", {"spec": named(argument, name)})
        case "annotate":
            side.patch(f"{PATH}/{name}", {"metadata": {"annotations": argument}})
        case "bury":
            side.buried(name)
        case "bind":
            for pod in pods:
                side.bind(pod, f"{name}-n0")
        case "ready" | "ready now":
            for pod in pods:
                side.ready(pod, side.now() if what == "ready now" else LONG_AGO)
        case "sick":
            for pod in pods[:argument]:
                side.ready(pod, is_so=False)
        case "end":
            side.fare(pods[0], argument)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("deployments"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_a_deployment_comes_to_the_same(told: Played, story: str) -> None:
    told[story].result()
