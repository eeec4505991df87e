"""Stateful sets before our controllers and before an unmodified kube-controller-manager: both come to the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    CLAIMS,
    MANAGER,
    PODS,
    REVISIONS,
    Played,
    Raw,
    Reached,
    Side,
    Step,
    Story,
    also,
    going,
    gone,
    is_open,
    many,
    named,
    played,
    status,
)

pytestmark = needs_stock(MANAGER)
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
LABELS = {"story": "STORY"}
CHOSEN = {**LABELS, "role": "set"}
DATA = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""},
}


def template(image: str = "v1", **spec: Any) -> Raw:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def rolling(**how: Any) -> Raw:
    return {"type": "RollingUpdate", "rollingUpdate": how}


def retained(deleted: str, scaled: str) -> Raw:
    return {
        "volumeClaimTemplates": [DATA],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
    }


def named_pods(*ordinals: int) -> Reached:
    """These pods are there, and nobody deletes them."""
    wanted = {f"-{number}" for number in ordinals}
    return lambda view: {re.sub(r".*(-\d+)$", r"\1", one["name"]) for one in view["pods"] if not one["deleted"]
                         if one["owners"]} == wanted  # fmt: skip


def has_strays(count: int) -> Reached:
    """So many pods belong to nobody."""
    return lambda view: sum(not one["owners"] for one in view["pods"]) == count


def sets(steps: list[Step], *, before: tuple[tuple[str, Any], ...] = (), metadata: Raw | None = None,
         **spec: Any) -> Story:  # fmt: skip
    body = {"replicas": 2, "selector": {"matchLabels": LABELS}, "serviceName": "svc", "template": template(), **spec}
    others = {"revisions": REVISIONS, "claims": CLAIMS}
    return Story(SETS, "StatefulSet", body, steps, others, (("node", None), *before), metadata=metadata)


PARALLEL: Raw = {"podManagementPolicy": "Parallel"}
V2, V3 = {"template": template("v2")}, {"template": template("v3")}
ALL = status(replicas=2, readyReplicas=2, availableReplicas=2)
UP: list[Step] = [("", None, named_pods(0)), ("ready", None, named_pods(0, 1)), ("ready", None, ALL)]
UP3: list[Step] = [*UP[:2], ("ready", None, named_pods(0, 1, 2)), ("ready", None, status(readyReplicas=3))]
AT_ONCE3: list[Step] = [("", None, named_pods(0, 1, 2)), ("ready", None, status(readyReplicas=3))]
STORIES: dict[str, Story] = {
    "one after the other": sets(
        [*UP3, ("patch", {"replicas": 1}, also(named_pods(0), status(replicas=1))),
         ("patch", {"replicas": 0}, also(named_pods(), status(replicas=0)))],
        replicas=3,
    ),
    "all at once": sets(
        [*AT_ONCE3, ("patch", {"replicas": 5}, named_pods(0, 1, 2, 3, 4)), ("patch", {"replicas": 0}, named_pods())],
        replicas=3, **PARALLEL,
    ),
    "who is not ready holds others up": sets(
        [*UP, ("sick", 0, status(readyReplicas=1)), ("patch", {"replicas": 3}, named_pods(0, 1)),
         ("patch", {"replicas": 1}, named_pods(0, 1)), ("ready", None, named_pods(0))],
    ),
    "a sick one beyond the replicas": sets(
        [*UP3, ("sick", 1, status(readyReplicas=2)), ("patch", {"replicas": 1}, named_pods(0))],
        replicas=3,
    ),
    "numbers from elsewhere": sets(
        [("", None, named_pods(5)), ("ready", None, named_pods(5, 6)), ("ready", None, ALL),
         ("patch", {"ordinals": {"start": 6}}, named_pods(5, 6, 7)),
         ("ready", None, named_pods(6, 7))],
        ordinals={"start": 5},
    ),
    "a new template": sets(
        [*UP3, ("patch", V2, many(1, image="v2")), ("ready", None, many(2, image="v2")),
         ("ready", None, many(3, image="v2")), ("ready", None, status(currentReplicas=3, updatedReplicas=3))],
        replicas=3,
    ),
    "a new template, pods that take their time": sets(
        [*UP, ("bind", None, ALL), ("patch", V2, going(1)), ("bury", None, many(1, image="v2")),
         ("ready", None, going(1)), ("bury", None, many(2, image="v2")),
         ("ready", None, status(currentReplicas=2, updatedReplicas=2))],
    ),
    "a new template down to a partition": sets(
        [*UP3, ("patch", V2, many(1, image="v2")), ("ready", None, status(readyReplicas=3, updatedReplicas=1)),
         ("delete", 0, also(named_pods(0, 1, 2), many(2, image="v1"))), ("ready", None, status(readyReplicas=3)),
         ("patch", {"updateStrategy": rolling(partition=0)}, many(2, image="v2")),
         ("ready", None, many(3, image="v2")), ("ready", None, status(currentReplicas=3))],
        replicas=3, updateStrategy=rolling(partition=2),
    ),
    "a partition beyond the replicas": sets(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("patch", {"replicas": 3}, named_pods(0, 1, 2)),
         ("ready", None, status(readyReplicas=3))],
        updateStrategy=rolling(partition=9),
    ),
    "a new template, two at a time": sets(
        [*UP3, ("bind", None, status(readyReplicas=3)), ("patch", V2, going(2)), ("bury", None, many(1, image="v2")),
         ("ready", None, many(2, image="v2")), ("ready", None, going(1)), ("bury", None, many(3, image="v2"))],
        replicas=3, updateStrategy=rolling(maxUnavailable=2),
    ),
    "a new template, a share at a time": sets(
        [*AT_ONCE3, ("bind", None, status(readyReplicas=3)), ("patch", V2, going(1)),
         ("bury", None, many(1, image="v2")), ("ready", None, going(1))],
        replicas=3, updateStrategy=rolling(maxUnavailable="60%"), **PARALLEL,
    ),
    "a new template and one that serves nobody": sets(
        [*AT_ONCE3, ("bind", None, status(readyReplicas=3)), ("sick", 0, status(readyReplicas=2)),
         ("patch", V2, going(1)), ("bury", None, many(1, image="v2")), ("ready", None, going(1))],
        replicas=3, **PARALLEL,
    ),
    "a template that breaks and is taken back": sets(
        [*UP, ("patch", V2, many(1, image="v2")), ("patch", {"template": template("v1")}, status(observedGeneration=3)),
         ("delete", 1, many(2, image="v1")), ("ready", None, status(readyReplicas=2, currentReplicas=2))],
    ),
    "when they are deleted": sets(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("delete", 0, many(1, image="v2")),
         ("ready", None, status(readyReplicas=2, updatedReplicas=1)), ("delete", 1, many(2, image="v2")),
         ("ready", None, status(readyReplicas=2, updatedReplicas=2))],
        updateStrategy={"type": "OnDelete"},
    ),
    "a pod that fails": sets(
        [*UP, ("end", (0, 1), many(1, phase="Pending")), ("ready", None, ALL),
         ("end", (1, 0), many(1, phase="Pending")), ("ready", None, ALL)],
    ),
    "a pod that fails and is held": sets(
        [*UP, ("end", (1, 1), going(1))],
        template={**template(), "metadata": {"labels": LABELS, "finalizers": ["example.com/held"]}},
    ),
    "ready for a while first": sets(
        [("", None, named_pods(0)), ("ready now", None, status(readyReplicas=1, availableReplicas=0)),
         ("", None, also(named_pods(0, 1), status(availableReplicas=1))),
         ("ready now", None, status(readyReplicas=2, availableReplicas=1)), ("", None, ALL)],
        minReadySeconds=15,
    ),
    "claims that stay": sets(
        [*UP, ("patch", {"replicas": 1}, named_pods(0)), ("patch", {"replicas": 2}, named_pods(0, 1)),
         ("ready", None, ALL), ("remove", None, also(gone, named_pods(), many(2, "claims")))],
        volumeClaimTemplates=[DATA],
    ),
    "claims that go with the set": sets(
        [*UP, ("patch", {"replicas": 1}, named_pods(0)), ("remove", None, also(gone, named_pods()))],
        **retained("Delete", "Retain"),
    ),
    "claims that go with their pods": sets(
        [*UP, ("patch", {"replicas": 1}, also(named_pods(0), many(1, "claims")))],
        **retained("Retain", "Delete"),
    ),
    "claims that go with both": sets(
        [*UP, ("bind", None, ALL), ("patch", {"replicas": 1}, going(1)), ("bury", None, many(1, "claims"))],
        **retained("Delete", "Delete"),
    ),
    "claims whose policy changes": sets(
        [*UP, ("patch", {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}},
               status(observedGeneration=2)),
         ("patch", {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}},
          status(observedGeneration=3))],
        volumeClaimTemplates=[DATA],
    ),
    "claims with labels of their own, and a volume in their place": sets(
        [*UP],
        volumeClaimTemplates=[{**DATA, "metadata": {"name": "data", "labels": {"a": "b"}, "annotations": {"c": "d"}}}],
        template=template(volumes=[{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}]),
    ),
    "history up to a limit": sets(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("patch", V3, status(observedGeneration=3)),
         ("patch", {"template": template("v4")}, also(status(observedGeneration=4), many(3, "revisions")))],
        updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1,
    ),
    "no history": sets(
        [*UP, ("patch", V2, many(1, image="v2")), ("ready", None, many(2, image="v2")),
         ("ready", None, also(status(currentReplicas=2, updatedReplicas=2), many(1, "revisions")))],
        revisionHistoryLimit=0,
    ),
    "described": sets(
        [*UP], metadata={"annotations": {"why": "because"}, "labels": {"own": "label"}}, serviceName="",
        template={**template(hostname="other", subdomain="other"),
                  "metadata": {"labels": {**LABELS, "more": "labels"}, "annotations": {"note": "this"}}},
    ),
    "a pod without its name": sets([*UP, ("unname", 1, ALL)]),
    "pods that were there before": sets(
        [("", None, named_pods(0, 1)), ("ready", None, many(2, phase="Pending")), ("ready", None, ALL)],
        before=(("pod", "1"), ("pod", "stray")),
    ),
    "not selected any more, on its way out": sets(
        [*UP, ("bind", None, ALL), ("delete", 1, going(1)), ("stray", 1, has_strays(1)),
         ("bury", None, also(named_pods(0, 1), has_strays(0)))],
        selector={"matchLabels": CHOSEN}, template={**template(), "metadata": {"labels": CHOSEN}},
    ),
    "none at all": sets([("", None, status(observedGeneration=1)), ("patch", V2, status(observedGeneration=2))],
                        replicas=0),
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    match what:
        case "node":
            side.node(name, 0, {})
        case "bury":
            side.buried(name)
        case "patch":
            side.patch(f"{SETS}/{name}", {"spec": named(argument, name)})
        case "remove":
            side.call("DELETE", f"{SETS}/{name}", {"propagationPolicy": "Background"})
        case "pod":
            pod = {**template(), "metadata": {"name": f"STORY-{argument}", "labels": LABELS}}
            side.call("POST", PODS, named(pod, name))
        case _:
            _to_pods(side, name, what, argument)


def _to_pods(side: Side, name: str, what: str, argument: Any) -> None:
    pods = [pod for pod in side.pods(name) if is_open(pod)]
    at = f"{PODS}/{name}-{argument}"
    match what:
        case "ready":
            for pod in pods:
                if pod["metadata"].get("ownerReferences"):
                    side.ready(pod)
        case "ready now":
            for pod in pods:
                if pod["status"].get("phase") != "Running":
                    side.ready(pod, side.now())
        case "bind":
            for pod in pods:
                side.bind(pod, f"{name}-n0")
        case "sick":
            side.ready(next(pod for pod in pods if pod["metadata"]["name"] == f"{name}-{argument}"), is_so=False)
        case "end":
            side.fare(next(pod for pod in pods if pod["metadata"]["name"] == f"{name}-{argument[0]}"), argument[1])
        case "delete":
            side.call("DELETE", at)
        case "stray":
            side.patch(at, {"metadata": {"labels": {"role": None}}})
        case "unname":
            side.patch(at, {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}})


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("statefulsets"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_a_stateful_set_comes_to_the_same(told: Played, story: str) -> None:
    told[story].result()
