"""Daemon sets before our controllers and before an unmodified kube-controller-manager: both come to the same.

Nodes are made by the stories, and each daemon set selects those of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.controllers.workloads.daemonsets import target
from tests.stock.needs import needs_stock
from tests.stock.stories import (
    MANAGER,
    NODES,
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
    is_open,
    many,
    named,
    played,
    status,
)

pytestmark = needs_stock(MANAGER)
SETS = "/apis/apps/v1/namespaces/default/daemonsets"
DEDICATED = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
CHOSEN = {"story": "STORY", "role": "daemon"}
EVERYTHING = [{"operator": "Exists"}]


def template(image: str = "v1", labels: Raw | None = None, **spec: Any) -> Raw:
    pod = {"nodeSelector": {"story": "STORY"}, "containers": [{"name": "c", "image": image}], **spec}
    return {"metadata": {"labels": {"story": "STORY", **(labels or {})}}, "spec": pod}


def held(made: Raw) -> Raw:
    return {**made, "metadata": {**made["metadata"], "finalizers": ["example.com/held"]}}


def rolling(**limits: Any) -> Raw:
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def nodes(count: int) -> tuple[tuple[str, Any], ...]:
    return tuple(("node", (number, {})) for number in range(count))


def counts(desired: int, current: int, ready: int, **others: int) -> Reached:
    return status(desiredNumberScheduled=desired, currentNumberScheduled=current, numberReady=ready, **others)


def has_strays(count: int) -> Reached:
    """So many pods belong to nobody."""
    return lambda view: sum(not one["owners"] for one in view["pods"]) == count


def daemons(
    steps: list[Step], *, before: tuple[tuple[str, Any], ...] = nodes(2), any_node: bool = False,
    metadata: Raw | None = None, **spec: Any,
) -> Story:  # fmt: skip
    body = {"selector": {"matchLabels": {"story": "STORY"}}, "template": template(), **spec}
    return Story(SETS, "DaemonSet", body, steps, {"revisions": REVISIONS}, before, any_node, metadata)


UP = [("", None, many(2)), ("ready", None, counts(2, 2, 2, numberAvailable=2))]
UP3 = [("", None, many(3)), ("ready", None, counts(3, 3, 3, numberAvailable=3))]
V2, V3 = {"template": template("v2")}, {"template": template("v3")}
STORIES: dict[str, Story] = {
    "nodes come and go": daemons(
        [*UP, ("node", (2, {}), also(many(3), counts(3, 3, 2))), ("ready", None, counts(3, 3, 3)),
         ("node", (3, {}), also(many(4), counts(4, 4, 3))),
         ("all", [("remove node", 3), ("patch", {"revisionHistoryLimit": 5})], also(many(3), counts(3, 3, 3)))],
    ),
    "selected nodes alone": daemons(
        [("", None, many(0)), ("label", (0, {"gpu": "yes"}), also(many(1), counts(1, 1, 0))),
         ("ready", None, counts(1, 1, 1)), ("label", (1, {"gpu": "yes"}), many(2)),
         ("label", (0, {"gpu": None}), also(many(1), counts(1, 1, 0, numberMisscheduled=1))),
         ("bury", None, counts(1, 1, 0, numberMisscheduled=0))],
        template=template(nodeSelector={"story": "STORY", "gpu": "yes"}),
    ),
    "a node by affinity": daemons(
        [("", None, also(many(1), counts(1, 1, 0))), ("ready", None, counts(1, 1, 1))],
        template=template(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "number", "operator": "In", "values": ["1"]}]}]}}}),
    ),
    "a node by name": daemons(
        [("", None, also(many(1), counts(1, 1, 0))), ("ready", None, counts(1, 1, 1))],
        template=template(nodeName="STORY-n1"),
    ),
    "a taint that keeps new pods away": daemons(
        [*UP, ("all", [("taint", (0, [DEDICATED])), ("patch", V2)],
               also(going(2), counts(1, 1, 1, numberMisscheduled=1))),
         ("bury", None, also(many(1), going(0))), ("taint", (0, []), many(2)),
         ("ready", None, counts(2, 2, 2, updatedNumberScheduled=2, numberAvailable=2))],
        updateStrategy=rolling(maxUnavailable=2),
    ),
    "a taint that sends pods away": daemons(
        [*UP, ("taint", (0, [{**DEDICATED, "effect": "NoExecute"}]), going(1)), ("bury", None, many(1)),
         ("taint", (0, []), many(2))],
    ),
    "taints that are tolerated": daemons(
        [*UP, ("taint", (0, [DEDICATED]), counts(2, 2, 2)),
         ("taint", (1, [{**DEDICATED, "effect": "NoExecute"}]), going(1)),
         ("bury", None, many(1))],
        template=template(tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]),
    ),
    "whatever comes": daemons(
        [*UP, ("taint", (0, [{**DEDICATED, "effect": "NoExecute"}]), counts(2, 2, 2))],
        template=template(tolerations=EVERYTHING, hostNetwork=True),
    ),
    "a cordoned node": daemons(
        [*UP, ("cordon", 0, counts(2, 2, 2)), ("delete", 0, going(1)), ("bury", None, also(many(2), counts(2, 2, 1))),
         ("ready", None, counts(2, 2, 2))],
    ),
    "one after the other": daemons(
        [*UP3, ("patch", V2, also(going(1), status(observedGeneration=2))),
         ("bury", None, also(going(0), many(1, image="v2"))), ("ready", None, going(1)),
         ("bury", None, also(going(0), many(2, image="v2"))), ("ready", None, going(1)),
         ("bury", None, also(going(0), many(3, image="v2"))),
         ("ready", None, counts(3, 3, 3, updatedNumberScheduled=3))],
        before=nodes(3), any_node=True,
    ),
    "two at a time": daemons(
        [*UP3, ("patch", V2, going(2)), ("bury", None, many(2, image="v2")), ("ready", None, going(1)),
         ("bury", None, many(3, image="v2")), ("ready", None, counts(3, 3, 3, updatedNumberScheduled=3))],
        before=nodes(3), any_node=True, updateStrategy=rolling(maxUnavailable="50%"),
    ),
    "who serves nobody goes first": daemons(
        [*UP3, ("sick", 1, counts(3, 3, 2)), ("patch", V2, going(1)), ("bury", None, many(1, image="v2")),
         ("ready", None, going(1))],
        before=nodes(3), any_node=True,
    ),
    "a new one beside the old one": daemons(
        [*UP, ("patch", V2, also(many(3), many(1, image="v2"))), ("ready", None, also(going(1), many(2, image="v2"))),
         ("bury", None, many(3)), ("ready", None, going(1)),
         ("bury", None, counts(2, 2, 2, updatedNumberScheduled=2, numberAvailable=2))],
        any_node=True, updateStrategy=rolling(maxSurge=1, maxUnavailable=0),
    ),
    "beside an old one that serves nobody": daemons(
        [*UP3, ("sick", 1, counts(3, 3, 2)), ("patch", V2, also(many(2, image="v2"), going(1))),
         ("bury", None, many(2, image="v2"))],
        before=nodes(3), any_node=True, updateStrategy=rolling(maxSurge=1, maxUnavailable=0),
    ),
    "surge where pods are on their way out": daemons(
        [*UP, ("delete", 0, also(going(1), many(2))), ("bury", None, many(2))],
        updateStrategy=rolling(maxSurge="100%", maxUnavailable=0),
    ),
    "surge and a node that is no longer meant": daemons(
        [*UP, ("all", [("taint", (0, [DEDICATED])), ("patch", V2)], also(going(1), many(1, image="v2"))),
         ("ready", None, going(2)),
         ("bury", None, also(going(0), many(1)))],
        updateStrategy=rolling(maxSurge=1, maxUnavailable=0),
    ),
    "when they are deleted": daemons(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("delete", 0, going(1)),
         ("bury", None, also(many(1, image="v1"), many(1, image="v2"))),
         ("ready", None, counts(2, 2, 2, updatedNumberScheduled=1))],
        updateStrategy={"type": "OnDelete"},
    ),
    "a pod that fails": daemons(
        [*UP, ("end", (0, 1), also(many(1, phase="Pending"), counts(2, 2, 1))),
         ("end", (0, 1), also(many(1, phase="Pending"), counts(2, 2, 1))), ("ready", None, counts(2, 2, 2))],
    ),
    "a pod that fails and is held": daemons(
        [*UP, ("end", (0, 1), also(going(1), many(2), counts(2, 2, 1))), ("ready", None, counts(2, 2, 2))],
        template=held(template()),
    ),
    "a pod that ends well": daemons(
        [*UP, *[("end", (0, 0), also(many(1, phase="Pending"), counts(2, 2, 1)))] * 3],
    ),
    "ready for a while first": daemons(
        [("", None, many(2)), ("ready now", None, counts(2, 2, 2, numberAvailable=0)),
         ("", None, counts(2, 2, 2, numberAvailable=2)), ("patch", V2, going(1)), ("bury", None, many(1, image="v2")),
         ("ready now", None, counts(2, 2, 2, numberAvailable=1)), ("", None, going(1))],
        any_node=True, minReadySeconds=15,
    ),
    "a template that comes back": daemons(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("patch", V3, status(observedGeneration=3)),
         ("patch", {"template": template("v1")}, status(observedGeneration=4, updatedNumberScheduled=2))],
        updateStrategy={"type": "OnDelete"},
    ),
    "history up to a limit": daemons(
        [*UP, ("patch", V2, status(observedGeneration=2)), ("patch", V3, status(observedGeneration=3)),
         ("patch", {"template": template("v4")}, also(status(observedGeneration=4), many(2, "revisions")))],
        updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1,
    ),
    "no history": daemons(
        [*UP, ("patch", V2, going(1)), ("bury", None, many(1, image="v2")), ("ready", None, going(1)),
         ("bury", None, many(2, image="v2")),
         ("ready", None, also(counts(2, 2, 2, updatedNumberScheduled=2), many(1, "revisions")))],
        revisionHistoryLimit=0, any_node=True,
    ),
    "described": daemons(
        [*UP], metadata={"annotations": {"why": "because"}, "labels": {"own": "label"}},
        template={**template(labels={"more": "labels"}),
                  "metadata": {"labels": {"story": "STORY", "more": "labels"}, "annotations": {"note": "this"}}},
    ),
    "a pod that lost its label": daemons(
        [*UP, ("unlabel", 0, many(1, phase="Pending"))],
    ),
    "not selected any more, on its way out": daemons(
        [*UP, ("delete", 0, many(1)), ("stray", 0, also(many(2), has_strays(1)))],
        selector={"matchLabels": CHOSEN}, template=template(labels=CHOSEN),
    ),
}  # fmt: skip


def act(side: Side, name: str, what: str, argument: Any) -> None:
    match what:
        case "all":  # they do not look for each of these; what comes last they do see
            for one in argument:
                act(side, name, *one)
        case "node":
            side.node(name, *argument)
        case "remove node":
            side.call("DELETE", f"{NODES}/{name}-n{argument}")
        case "label":
            side.patch(f"{NODES}/{name}-n{argument[0]}", {"metadata": {"labels": argument[1]}})
        case "taint":
            side.patch(f"{NODES}/{name}-n{argument[0]}", {"spec": {"taints": argument[1]}})
        case "cordon":
            side.patch(f"{NODES}/{name}-n{argument}", {"spec": {"unschedulable": True}})
        case "bury":
            side.buried(name)
        case "patch":
            side.patch(f"{SETS}/{name}", {"spec": named(argument, name)})
        case "stray":
            gone = next(pod for pod in side.pods(name) if not is_open(pod) and target(pod) == f"{name}-n{argument}")
            side.patch(f"{PODS}/{gone['metadata']['name']}", {"metadata": {"labels": {"role": None}}})
        case _:
            _to_pods(side, name, what, argument)


def _to_pods(side: Side, name: str, what: str, argument: Any) -> None:
    on = {target(pod): pod for pod in side.pods(name) if is_open(pod)}
    match what:
        case "ready" | "ready now":
            for pod in on.values():
                if what == "ready":
                    side.ready(pod)
                elif pod["status"].get("phase") != "Running":
                    side.ready(pod, side.now())
        case "sick":
            side.ready(on[f"{name}-n{argument}"], is_so=False)
        case "end":
            side.fare(on[f"{name}-n{argument[0]}"], argument[1])
        case "delete":
            side.call("DELETE", f"{PODS}/{on[f'{name}-n{argument}']['metadata']['name']}")
        case "unlabel":
            side.patch(f"{PODS}/{on[f'{name}-n{argument}']['metadata']['name']}", {"metadata": {"labels": None}})


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("daemonsets"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_a_daemon_set_comes_to_the_same(told: Played, story: str) -> None:
    told[story].result()
