"""Endpoints of services before our controllers and before an unmodified kube-controller-manager: the same addresses.

What stands in slices is for `test_same_endpointslices`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    IN_DEFAULT,
    MANAGER,
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
    played,
)
from tests.stock.test_same_endpointslices import HTTP, LABELS, PATH, SELECTED, TWO, pod, with_port
from tests.stock.test_same_endpointslices import act as served

pytestmark = needs_stock(MANAGER)
ENDPOINTS = f"/api/v1{IN_DEFAULT}/endpoints"
CUT = "endpoints.kubernetes.io/over-capacity"
PORTS, PODS_OF_PORTS = 30, 40


def service(
    steps: list[Step], before: tuple[tuple[str, Any], ...] = (), metadata: Raw | None = None, **spec: Any
) -> Story:
    body = {"selector": SELECTED, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    about = {"labels": LABELS, **(metadata or {})}
    return Story(PATH, "Service", body, steps, {"endpoints": ENDPOINTS}, (("node", 0), *before), metadata=about)


def addresses(ready: int, others: int = 0, subsets: int = 1) -> Reached:
    """One object with so many addresses, ready and not, in so many subsets."""

    def is_so(view: View) -> bool:
        found = [one for each in view["endpoints"] for one in each.get("subsets") or ()]
        counted = [sum(len(one.get(kind) or ()) for one in found) for kind in ("addresses", "notReadyAddresses")]
        return len(view["endpoints"]) == 1 and counted == [ready, others] and len(found) == subsets

    return is_so


NOBODY = addresses(0, 0, 0)


def marked(label: str, value: str) -> Reached:
    return lambda view: [(one["labels"] or {}).get(label) for one in view["endpoints"]] == [value]


def totals(view: View) -> View:
    """Who is left out, and where, is nobody's promise: subsets are cut in the order of a hash."""
    [found] = view["endpoints"] or [{}]
    subsets = found.get("subsets") or ()
    counted = [sum(len(one.get(kind) or ()) for one in subsets) for kind in ("addresses", "notReadyAddresses")]
    cut = (found.get("annotations") or {}).get(CUT)
    return {"total": counted, "subsets": len(subsets), "cut": cut, "labels": found.get("labels")}


def all_ports_but_one(number: int) -> Raw:
    """Every port is offered by other pods, so that each is a subset of its own."""
    ports = [{"name": f"p{one}", "containerPort": 1000 + one} for one in range(PORTS) if one != number]
    return {"containers": [{"name": "c", "image": "app", "ports": ports}]}


STORIES: dict[str, Story] = {
    "pods come and go": service(
        [("", None, NOBODY), ("pods", [pod(0)], addresses(1)), ("pods", [pod(1, False)], addresses(1, 1)),
         ("ready", {1: True}, addresses(2)), ("ready", {0: False}, addresses(1, 1)), ("delete", 1, addresses(0, 1)),
         ("bury", None, addresses(0, 1)), ("ready", {0: True}, addresses(1)), ("end", 0, NOBODY)],
    ),
    "pods before the service": service([("", None, addresses(2))], (TWO,)),
    "published although not ready": service(
        [("", None, addresses(2)), ("delete", 0, addresses(2)),
         ("patch", {"publishNotReadyAddresses": False}, addresses(0, 1))],
        (("pods", [pod(0), pod(1, False)]),), publishNotReadyAddresses=True,
    ),
    "ports by name": service(
        [("", None, addresses(3, 0, 2)), ("patch", {"ports": [{"port": 80}]}, addresses(4)),
         ("patch", {"ports": HTTP}, addresses(3, 0, 2)), ("remove", 2, addresses(2))],
        (("pods", [pod(0, spec=with_port("http", 8080)), pod(1, spec=with_port("http", 8080)),
                   pod(2, spec=with_port("http", 9090)), pod(3)]),), ports=HTTP,
    ),
    "several ports": service(
        [("", None, addresses(3, 0, 2)), ("ready", {1: False}, addresses(1, 2, 2))],
        (("pods", [pod(0), pod(1, spec=with_port("http", 8080))]),),
        ports=[{"name": "a", "port": 53, "protocol": "UDP"}, {"name": "t", "port": 53}, *HTTP,
               {"name": "b", "port": 81, "targetPort": 8080, "appProtocol": "kubernetes.io/h2c"}],
    ),
    "headless": service(
        [("", None, also(addresses(3), marked("service.kubernetes.io/headless", ""))), ("remove", 0, addresses(2))],
        (("pods", [pod(0, spec={"hostname": "a", "subdomain": "STORY"}),
                   pod(1, spec={"hostname": "b", "subdomain": "other"}), pod(2)]),), clusterIP="None",
    ),
    "headless without ports": service(
        [("", None, addresses(2)), ("ready", {0: False}, addresses(1, 1))], (TWO,), clusterIP="None", ports=None,
    ),
    "no selector": service(
        [("pods", [pod(0)], many(0, "endpoints")), ("patch", {"selector": SELECTED}, addresses(1)),
         ("patch", {"selector": None}, addresses(1)), ("pods", [pod(1)], addresses(1)), ("remove", 0, addresses(1))],
        selector=None,
    ),
    "another selector": service(
        [("", None, addresses(2)), ("patch", {"selector": {"colour": "STORY-blue"}}, addresses(1)),
         ("patch", {"selector": {"colour": "STORY-red"}}, NOBODY),
         ("label", (0, {"colour": "STORY-red"}), addresses(1)), ("label", (0, {"colour": None}), NOBODY)],
        (("pods", [pod(0), pod(1, labels={"colour": "STORY-blue"})]),),
    ),
    "a name elsewhere": service(
        [("", None, addresses(1)),
         ("patch", {"type": "ExternalName", "externalName": "example.com", "clusterIP": None, "clusterIPs": None},
          addresses(1)),
         ("remove", 0, addresses(1))],
        (("pods", [pod(0)]),),
    ),
    "deleted": service([("", None, addresses(2)), ("drop", None, also(gone, many(0, "endpoints")))], (TWO,)),
    "deleted, with somebody who holds it": service(
        [("", None, addresses(2)), ("drop", None, addresses(2)), ("remove", 0, addresses(1)),
         ("let go", None, also(gone, many(0, "endpoints")))],
        (TWO,), {"finalizers": ["example.com/holds"]},
    ),
    "hosts, families, addresses": service(
        [("", None, addresses(2)), ("address", (0, ["10.9.9.9"]), addresses(2)),
         ("address", (2, ["10.8.8.8"]), addresses(3))],
        (("pods", [pod(0, spec={"hostNetwork": True}), pod(1, ips=["10.7.7.7", "fd00::7"]), pod(2, ips=["fd00::8"])]),),
    ),
    "described": service(
        [("", None, marked("team", "x")), ("about", {"labels": {"team": None, "tier": "y"}}, marked("tier", "y")),
         ("about", {"labels": {"tier": "z"}, "annotations": {"why": "because"}}, marked("tier", "z"))],
        (TWO,), {"labels": {**LABELS, "team": "x", "service.kubernetes.io/headless": "yes"}},
    ),
    "touched by hand": service(
        [("", None, addresses(2)), ("write", {"subsets": None}, NOBODY), ("ready", {0: False}, addresses(1, 1)),
         ("write", {"metadata": {"labels": {"own": "label"}, "annotations": {"note": "kept"}}}, marked("own", "label")),
         ("ready", {0: True}, addresses(2)), ("erase", None, addresses(2))],
        (TWO,),
    ),
    "there before the service": service(
        [("", None, addresses(2))], (TWO, ("make", {"subsets": [{"addresses": [{"ip": "10.250.0.1"}]}]})),
    ),
    "more than a thousand": service(
        [("", None, lambda view: view["cut"] == "truncated" and view["total"] == [1000, 0]),
         ("ready", dict.fromkeys(range(10), False), lambda view: view["total"] == [880, 120]),
         ("patch", {"ports": [{"name": "x", "port": 80}]}, lambda view: view["cut"] is None)],
        (("pods", [pod(number, spec=all_ports_but_one(number)) for number in range(PODS_OF_PORTS)]),),
        ports=[{"name": f"p{number}", "port": 1 + number, "targetPort": f"p{number}"} for number in range(PORTS)],
    ),
}  # fmt: skip
STORIES["more than a thousand"] = replace(STORIES["more than a thousand"], shown=totals)


def act(side: Side, name: str, what: str, argument: Any) -> None:
    mine = f"{ENDPOINTS}/{name}"
    match what:
        case "make":
            side.call("POST", ENDPOINTS, {"metadata": {"name": name, "labels": {"story": name}}, **argument})
        case "write":
            side.patch(mine, argument)
        case "erase":
            side.call("DELETE", mine)
        case _:
            served(side, name, what, argument)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("endpoints"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_endpoints_of_a_service_come_to_the_same(told: Played, story: str) -> None:
    told[story].result()
