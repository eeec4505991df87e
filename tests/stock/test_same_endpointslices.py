"""Stories of services before our controllers and before an unmodified kube-controller-manager: the same slices.

Left out, since ours has none: hints by annotation (`topology-mode: Auto`), which `trafficDistribution` replaces. The
older Endpoints themselves are for `test_same_endpoints`, and slices that mirror them for `test_same_mirroring`. Two
families of addresses are for `tests/controllers/test_endpoints.py`: services of our server have one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    IN_DEFAULT,
    LONG_AGO,
    MANAGER,
    NODES,
    PODS,
    Played,
    Raw,
    Reached,
    Side,
    Step,
    Story,
    View,
    also,
    gone,
    many,
    named,
    played,
)

pytestmark = needs_stock(MANAGER)
PATH = "/api/v1/namespaces/default/services"
SLICES = f"/apis/discovery.k8s.io/v1{IN_DEFAULT}/endpointslices"
LABELS = {"story": "STORY"}
SELECTED = {"behind": "STORY"}
HTTP = [{"name": "http", "port": 80, "targetPort": "http"}]
Pod = tuple[int, Raw]


def service(
    steps: list[Step], before: tuple[tuple[str, Any], ...] = (), metadata: Raw | None = None, **spec: Any
) -> Story:
    body = {"selector": SELECTED, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    about = {"labels": LABELS, **(metadata or {})}
    before = (("node", 0), *before)
    return Story(PATH, "Service", body, steps, {"slices": SLICES}, before, metadata=about)


def pod(number: int, ready: bool = True, **more: Any) -> Pod:
    """A pod with an address; `labels`, `ips` and fields of its spec."""
    return number, {"ready": ready, **more}


def with_port(name: str, number: int) -> Raw:
    return {"containers": [{"name": "c", "image": "app", "ports": [{"name": name, "containerPort": number}]}]}


def behind(count: int, slices: int = 1, **conditions: bool) -> Reached:
    """So many endpoints like this in so many slices."""

    def is_so(view: View) -> bool:
        found = [one for each in view["slices"] for one in each.get("endpoints") or ()]
        right = [one for one in found if conditions.items() <= one["conditions"].items()]
        return len(right) == count and len(view["slices"]) == slices

    return is_so


def numbers(*wanted: int) -> Reached:
    """The ports of all slices."""
    return lambda view: sorted(one["port"] for each in view["slices"] for one in each.get("ports") or ()) == [*wanted]


def hinted(count: int, kind: str = "forZones") -> Reached:
    def is_so(view: View) -> bool:
        found = [one for each in view["slices"] for one in each.get("endpoints") or ()]
        return sum(kind in (one.get("hints") or {}) for one in found) == count

    return is_so


def labelled(**wanted: str) -> Reached:
    names = {"story", *wanted}
    return lambda view: all(names == {key for key in one["labels"] if "/" not in key} for one in view["slices"])


def sizes(*wanted: int) -> Reached:
    return lambda view: view["slices"] == [*wanted]


def only_sizes(view: View) -> View:
    """Who stands in which slice is nobody's promise: how many do, and that every pod does."""
    every = {one["targetRef"]["name"] for each in view["slices"] for one in each.get("endpoints") or ()}
    rest = [{key: value for key, value in each.items() if key != "endpoints"} for each in view["slices"]]
    full = sorted(len(each.get("endpoints") or ()) for each in view["slices"])
    return {"slices": full, "rest": rest, "all": every == {one["name"] for one in view["pods"]}}


TWO = ("pods", [pod(0), pod(1)])
ZONES = (("zone", (0, "here")), ("node", 1), ("zone", (1, "there")), ("node", 2),
         ("pods", [pod(0), pod(1, node=1), pod(2, node=2), pod(3, ready=False)]))  # fmt: skip
STORIES: dict[str, Story] = {
    "pods come and go": service(
        [("", None, behind(0)), ("pods", [pod(0)], behind(1, ready=True)), ("pods", [pod(1, False)], behind(2)),
         ("ready", {1: True}, behind(2, ready=True)), ("ready", {0: False}, behind(1, serving=False)),
         ("delete", 1, behind(1, terminating=True, serving=True, ready=False)),
         ("ready", {1: False}, behind(1, terminating=True, serving=False)), ("bury", None, behind(1)),
         ("ready", {0: True}, behind(1, ready=True)), ("end", 0, behind(0))],
    ),
    "pods before the service": service([("", None, behind(2, ready=True))], (TWO,)),
    "published although not ready": service(
        [("", None, behind(2, ready=True)), ("delete", 0, behind(1, ready=True, terminating=True)),
         ("patch", {"publishNotReadyAddresses": False}, behind(0, ready=True))],
        (("pods", [pod(0), pod(1, False)]),), publishNotReadyAddresses=True,
    ),
    "ports by name": service(
        [("", None, also(behind(4, 3), numbers(8080, 9090))), ("patch", {"ports": [{"port": 80}]}, numbers(80)),
         ("patch", {"ports": HTTP}, behind(4, 3)), ("remove", 0, behind(3, 3)), ("remove", 2, behind(2, 2))],
        (("pods", [pod(0, spec=with_port("http", 8080)), pod(1, spec=with_port("http", 8080)),
                   pod(2, spec=with_port("http", 9090)), pod(3)]),), ports=HTTP,
    ),
    "several ports": service(
        [("", None, numbers(53, 53, 8080)),
         ("patch", {"ports": [{"name": "b", "port": 80, "targetPort": 8080},
                              {"name": "a", "port": 53, "protocol": "UDP"}]}, numbers(53, 8080)),
         ("patch", {"ports": [{"name": "a", "port": 53, "protocol": "UDP"},
                              {"name": "b", "port": 80, "targetPort": 8080}]}, numbers(53, 8080))],
        (TWO,), ports=[{"name": "a", "port": 53, "protocol": "UDP"}, {"name": "t", "port": 53},
                       {"name": "b", "port": 80, "targetPort": 8080, "appProtocol": "kubernetes.io/h2c"}],
    ),
    "headless": service(
        [("", None, behind(3)), ("remove", 0, behind(2))],
        (("pods", [pod(0, spec={"hostname": "a", "subdomain": "STORY"}),
                   pod(1, spec={"hostname": "b", "subdomain": "other"}), pod(2)]),), clusterIP="None",
    ),
    "headless without ports": service([("", None, behind(2))], (TWO,), clusterIP="None", ports=None),
    "no selector": service(
        [("pods", [pod(0)], many(0, "slices")), ("patch", {"selector": SELECTED}, behind(1)),
         ("patch", {"selector": None}, behind(2, 2)), ("pods", [pod(1)], behind(2, 2)),
         ("remove", 0, behind(2, 2))],
        selector=None,
    ),
    "another selector": service(
        [("", None, behind(2)), ("patch", {"selector": {"colour": "STORY-blue"}}, behind(1)),
         ("patch", {"selector": {"colour": "STORY-red"}}, behind(0)),
         ("label", (0, {"colour": "STORY-red"}), behind(1)), ("label", (0, {"colour": None}), behind(0))],
        (("pods", [pod(0), pod(1, labels={"colour": "STORY-blue"})]),),
    ),
    "a name elsewhere": service(
        [("", None, behind(1)),
         ("patch", {"type": "ExternalName", "externalName": "example.com", "clusterIP": None, "clusterIPs": None},
          behind(1)),
         ("remove", 0, behind(1))],
        (("pods", [pod(0)]),),
    ),
    "deleted": service([("", None, behind(2)), ("drop", None, also(gone, many(0, "slices")))], (TWO,)),
    "deleted, with somebody who holds it": service(
        [("", None, behind(2)), ("drop", None, behind(2)), ("remove", 0, behind(1)), ("remove", 1, behind(0)),
         ("let go", None, also(gone, many(0, "slices")))],
        (TWO,), {"finalizers": ["example.com/holds"]},
    ),
    "hosts, families, addresses": service(
        [("", None, behind(2)), ("address", (0, ["10.9.9.9"]), behind(2)), ("address", (2, ["10.8.8.8"]), behind(3))],
        (("pods", [pod(0, spec={"hostNetwork": True}), pod(1, ips=["10.7.7.7", "fd00::7"]), pod(2, ips=["fd00::8"])]),),
    ),
    "zones": service([("", None, behind(4)), ("ready", {3: True}, behind(4, ready=True))], ZONES),
    "close by": service(
        [("", None, hinted(2)), ("ready", {3: True}, hinted(3)), ("ready", {0: False}, hinted(2)),
         ("patch", {"trafficDistribution": "PreferSameNode"}, hinted(3, "forNodes")),
         ("patch", {"trafficDistribution": "PreferSameZone"}, hinted(0, "forNodes")),
         ("patch", {"trafficDistribution": None}, hinted(0))],
        ZONES, trafficDistribution="PreferClose",
    ),
    "nodes that nobody knows": service(
        [("pods", [pod(0), pod(1, node=7), pod(2, node=None)], behind(1)), ("node", 7, behind(2)),
         ("patch", {"publishNotReadyAddresses": True}, behind(3))],
    ),
    "described": service(
        [("", None, labelled(team="x")), ("about", {"labels": {"team": None, "tier": "y"}}, labelled(tier="y")),
         ("about", {"labels": {"tier": "z"}, "annotations": {"why": "because"}}, labelled(tier="z"))],
        (TWO,), {"labels": {**LABELS, "team": "x", "kubernetes.io/service-name": "other",
                            "service.kubernetes.io/headless": "yes"}},
    ),
    "touched by hand": service(
        [("", None, behind(2)), ("slice", {"endpoints": []}, behind(2)),
         ("slice", {"metadata": {"labels": {"own": "label"}}}, labelled()), ("unslice", None, behind(2)),
         ("stranger", None, behind(2))],
        (TWO,),
    ),
    "nobody behind it": service(
        [("", None, behind(0)), ("pods", [pod(0)], behind(1)), ("remove", 0, behind(0)), ("pods", [pod(1)], behind(1))],
    ),
}  # fmt: skip
MANY = service(
    [("", None, sizes(30, 100, 100)), ("shrink", (10, 25, 40), sizes(10, 25, 40)),
     ("pods", [pod(number) for number in range(300, 315)], sizes(10, 25, 55)), ("shrink", (0, 0, 50), sizes(50))],
    (("pods", [pod(number) for number in range(230)]),),
)  # fmt: skip
STORIES["hundreds"] = replace(MANY, shown=only_sizes)


def make(side: Side, name: str, number: int, told: Raw) -> None:
    node = told.get("node", 0)
    labels = {"story": name, "behind": name, **(told.get("labels") or {})}
    spec = {"containers": [{"name": "c", "image": "app"}], **(told.get("spec") or {})}
    if node is not None:
        spec["nodeName"] = f"{name}-n{node}"
    side.call("POST", PODS, named({"metadata": {"name": f"{name}-p{number}", "labels": labels}, "spec": spec}, name))
    addresses = told.get("ips") or [f"10.1.{number // 256}.{number % 256}"]
    reported(side, name, number, told["ready"], podIP=addresses[0], podIPs=[{"ip": one} for one in addresses])


def reported(side: Side, name: str, number: int, is_ready: bool, **status: Any) -> None:
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": LONG_AGO}
    side.patch(f"{PODS}/{name}-p{number}/status", {"status": {"phase": "Running", "conditions": [ready], **status}})


def shrunk(side: Side, name: str, wanted: tuple[int, ...]) -> None:
    """Pods go, so that slices are left with so many."""
    slices = sorted(side.of(SLICES, name), key=lambda one: len(one["endpoints"]))
    for each, left in zip(slices, wanted, strict=True):
        for one in each["endpoints"][left:]:
            side.call("DELETE", f"{PODS}/{one['targetRef']['name']}", {"gracePeriodSeconds": 0})


def stranger(side: Side, name: str, keeper: str = "endpointslice") -> None:
    """A slice that says that it is the manager's, and is nobody's."""
    labels = {"story": name, "kubernetes.io/service-name": name,
              "endpointslice.kubernetes.io/managed-by": f"{keeper}-controller.k8s.io"}  # fmt: skip
    metadata = {"name": f"{name}-stranger", "labels": labels}
    side.call("POST", SLICES, {"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": []})


def act(side: Side, name: str, what: str, argument: Any) -> None:
    mine = f"{PATH}/{name}"
    match what:
        case "node":
            side.node(name, argument, {})
        case "zone":
            number, zone = argument
            side.patch(f"{NODES}/{name}-n{number}", {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
            time.sleep(1)  # the manager does not look again when it hears of zones after pods
        case "pods":
            for number, told in argument:
                make(side, name, number, told)
        case "ready":
            for number, is_so in argument.items():
                reported(side, name, number, is_so)
        case "address":
            number, addresses = argument
            reported(side, name, number, True, podIP=addresses[0], podIPs=[{"ip": one} for one in addresses])
        case "label":
            side.patch(f"{PODS}/{name}-p{argument[0]}", named({"metadata": {"labels": argument[1]}}, name))
        case "end":
            reported(side, name, argument, False, phase="Succeeded")
        case "delete" | "remove":
            grace = {"gracePeriodSeconds": 0} if what == "remove" else None
            side.call("DELETE", f"{PODS}/{name}-p{argument}", grace)
        case "bury":
            side.buried(name)
        case "patch":
            side.patch(mine, {"spec": named(argument, name)})
        case "about":
            side.patch(mine, {"metadata": argument})
        case "drop":
            side.call("DELETE", mine)
        case "let go":
            side.patch(mine, {"metadata": {"finalizers": None}})
        case "slice" | "unslice":
            [one] = side.of(SLICES, name)
            path = f"{SLICES}/{one['metadata']['name']}"
            side.call("DELETE", path) if what == "unslice" else side.patch(path, argument)
        case "stranger":
            stranger(side, name)
        case "shrink":
            shrunk(side, name, argument)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("services"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_slices_of_a_service_come_to_the_same(told: Played, story: str) -> None:
    told[story].result()
