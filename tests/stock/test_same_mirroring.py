"""Endpoints of services that select nobody before our controllers and before an unmodified kube-controller-manager: the
same slices mirror them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.stories import (
    IN_DEFAULT,
    LONG_AGO,
    MANAGER,
    SECONDS,
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
from tests.stock.test_same_endpoints import ENDPOINTS
from tests.stock.test_same_endpoints import act as written
from tests.stock.test_same_endpointslices import LABELS, PATH, SELECTED, SLICES, behind, numbers, pod, stranger

pytestmark = needs_stock(MANAGER)
HTTP = {"name": "http", "port": 80}
WEB = {**HTTP, "appProtocol": "kubernetes.io/h2c"}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}
KEEPER = "endpointslice.kubernetes.io/managed-by"
MANY = 1003


def service(steps: list[Step], before: tuple[tuple[str, Any], ...] = (), **spec: Any) -> Story:
    body = {"ports": [{"port": 80}], **spec}
    others = {"slices": SLICES, "endpoints": ENDPOINTS}
    return Story(PATH, "Service", body, steps, others, before, metadata={"labels": LABELS})


def subset(*ready: str, others: tuple[str, ...] = (), ports: tuple[Raw, ...] = (HTTP,)) -> Raw:
    found = {"addresses": ready, "notReadyAddresses": others}
    return {**{kind: [{"ip": one} for one in ips] for kind, ips in found.items() if ips}, "ports": list(ports)}


def leads_to(*subsets: Raw) -> Raw:
    return {"subsets": list(subsets)}


def at(*wanted: str, **conditions: bool) -> Reached:
    """The addresses in all slices; `conditions` are those of each."""

    def is_so(view: View) -> bool:
        found = [one for each in view["slices"] for one in each.get("endpoints") or ()]
        right = all(conditions.items() <= one["conditions"].items() for one in found)
        return right and sorted(one["addresses"][0] for one in found) == sorted(wanted)

    return is_so


def kept_by(*wanted: str) -> Reached:
    found = sorted(f"{one}-controller.k8s.io" for one in wanted)
    return lambda view: sorted(one["labels"][KEEPER] for one in view["slices"]) == found


def said(kind: str, name: str, value: str | None) -> Reached:
    """All slices have this label or annotation."""
    return lambda view: {(one.get(kind) or {}).get(name) for one in view["slices"]} == {value}


NOBODY = many(0, "slices")
ONE = leads_to(subset("10.2.0.1"))
MADE = ("make", ONE)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
TARGET = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
STORIES: dict[str, Story] = {
    "made": service([("", None, NOBODY), ("make", ONE, at("10.2.0.1", ready=True))]),
    "the service comes later": service([("", None, at("10.2.0.1"))], (MADE,)),
    "other addresses": service(
        [("", None, behind(1)), ("write", leads_to(subset("10.2.0.1", "10.2.0.2")), behind(2)),
         ("write", leads_to(subset("10.2.0.3")), at("10.2.0.3")), ("write", {"subsets": None}, NOBODY),
         ("write", ONE, at("10.2.0.1"))],
        (MADE,),
    ),
    "other ports": service(
        [("", None, numbers(80)), ("write", leads_to(subset("10.2.0.1", ports=(DNS,))), numbers(53)),
         ("write", leads_to(subset("10.2.0.1", ports=(DNS, WEB))), numbers(53, 80)),
         ("write", leads_to(subset("10.2.0.1", ports=(HTTP, DNS))), numbers(53, 80)),
         ("write", leads_to({"addresses": [{"ip": "10.2.0.1"}]}), also(behind(1), numbers()))],
        (MADE,),
    ),
    "several subsets": service(
        [("", None, behind(3, 2)),
         ("write", leads_to(subset("10.2.0.1", ports=(HTTP, DNS)), subset("10.2.0.2", ports=(DNS,))), behind(3, 2)),
         ("write", leads_to(subset("10.2.0.1"), subset("10.2.0.2")), behind(2)),
         ("write", leads_to(subset("10.2.0.1"), subset(others=("10.2.0.1",))), at("10.2.0.1", ready=False))],
        (("make", leads_to(subset("10.2.0.1", "10.2.0.2"), subset("10.2.0.3", ports=(DNS,)))),),
    ),
    "an application's protocol in several subsets": service(
        [("", None, behind(2, 2)),
         ("write", leads_to(subset("10.2.0.1", ports=(WEB,)), subset("10.2.0.2", ports=(WEB,))), behind(2))],
        (("make", leads_to(subset("10.2.0.1", ports=(WEB, DNS)), subset("10.2.0.2", ports=(WEB,)))),),
    ),
    "longer addresses": service(
        [("", None, at("fd00::1")), ("write", leads_to(subset("fd00::1", "10.2.0.1")), behind(2, 2)),
         ("write", leads_to(subset("10.2.0.1", others=("fd00::1",))), behind(1, 2, ready=True)),
         ("write", ONE, at("10.2.0.1"))],
        (("make", leads_to(subset("fd00::1"))),),
    ),
    "not ready": service(
        [("", None, behind(1, ready=False)), ("write", leads_to(subset("10.2.0.1", "10.2.0.2")), behind(2, ready=True)),
         ("write", leads_to(subset("10.2.0.1", others=("10.2.0.2",))), behind(1, ready=False))],
        (("make", leads_to(subset("10.2.0.1", others=("10.2.0.2",)))),),
    ),
    "whose addresses": service(
        [("", None, behind(2)),
         ("write", leads_to({"addresses": [{"ip": "10.2.0.1", "hostname": "b", "nodeName": "n", "targetRef": TARGET}]}),
          behind(1)),
         ("write", leads_to({"addresses": [{"ip": "10.2.0.1", "targetRef": {**TARGET, "uid": "v"}}]}),
          lambda view: "nodeName" not in view["slices"][0]["endpoints"][0])],
        (("make", leads_to({"addresses": [{"ip": "10.2.0.1", "hostname": "a", "nodeName": "n1"},
                                          {"ip": "10.2.0.1", "nodeName": "n2", "targetRef": TARGET}]})),),
    ),
    "a selector": service(
        [("", None, kept_by("endpointslicemirroring")),
         ("patch", {"selector": SELECTED}, also(kept_by("endpointslice"), behind(1))),
         ("patch", {"selector": None}, also(kept_by("endpointslice", "endpointslicemirroring"), behind(2, 2))),
         ("write", leads_to(subset("10.2.0.7", "10.2.0.8")), behind(3, 2))],
        (("node", 0), ("pods", [pod(0)]), MADE),
    ),
    "skipped": service(
        [("", None, NOBODY), ("write", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": None}}},
                              behind(1)),
         ("write", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}, NOBODY),
         ("write", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "yes"}}}, behind(1))],
        (MADE, ("write", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}})),
    ),
    "a lock": service(
        [("", None, behind(1)),
         ("write", {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}}, NOBODY),
         ("write", {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": None}}}, behind(1))],
        (MADE,),
    ),
    "described": service(
        [("", None, also(said("labels", "team", "x"), said("annotations", "why", "because"))),
         ("write", {"metadata": {"labels": {"team": None, "kubernetes.io/service-name": "other", KEEPER: "me"}}},
          said("labels", "team", None)),
         ("write", {"metadata": {"annotations": {"why": None, "empty": ""}}}, said("annotations", "empty", "")),
         ("write", {"metadata": {"annotations": {LAST_APPLIED: "{}", TRIGGER: LONG_AGO}}}, behind(1)),
         ("about", {"labels": {"own": "label"}, "annotations": {"own": "note"}}, said("labels", "own", None))],
        (MADE, ("write", {"metadata": {"labels": {"team": "x"}}}),
         ("write", {"metadata": {"annotations": {"why": "because", TRIGGER: LONG_AGO}}})),
    ),
    "deleted endpoints": service(
        [("", None, behind(1)), ("erase", None, also(NOBODY, many(0, "endpoints"))),
         ("make", leads_to(subset("10.2.0.2")), at("10.2.0.2"))],
        (MADE,),
    ),
    "deleted endpoints that somebody holds": service(
        [("", None, behind(1)), ("erase", None, also(behind(1), many(0, "endpoints"))),
         ("write", leads_to(subset("10.2.0.2", "fd00::1")), at("10.2.0.2")),
         ("write", {"metadata": {"finalizers": None}}, also(NOBODY, lambda view: not view["endpoints"]))],
        (MADE, ("write", {"metadata": {"finalizers": ["example.com/holds"]}})),
    ),
    "deleted service": service([("", None, behind(1)), ("drop", None, also(gone, NOBODY))], (MADE,)),
    "touched by hand": service(
        [("", None, behind(1)), ("slice", {"endpoints": []}, behind(1)),
         ("slice", {"metadata": {"labels": {"own": "label"}}}, said("labels", "own", None)),
         ("slice", {"metadata": {"annotations": {"own": "note"}}}, said("annotations", "own", "note")),
         ("write", leads_to(subset("10.2.0.2")), said("annotations", "own", None)),
         ("unslice", None, at("10.2.0.2")), ("mirrored stranger", None, behind(1))],
        (MADE,),
    ),
    "a name elsewhere": service(
        [("", None, at("10.2.0.1"))], (MADE,), type="ExternalName", externalName="example.com",
    ),
    "more than a thousand": service(
        [("", None, behind(1000)), ("told", "TooManyAddressesToMirror", behind(1000)), ("write", ONE, behind(1))],
        (("make", leads_to(subset(*(f"10.3.{number // 256}.{number % 256}" for number in range(MANY))))),),
    ),
}  # fmt: skip


def told_of(side: Side, name: str, reason: str) -> None:
    """An event says so, in Kubernetes' words."""
    path = f"/api/v1{IN_DEFAULT}/events?fieldSelector=involvedObject.name%3D{name}%2Creason%3D{reason}"
    deadline = time.monotonic() + SECONDS
    while not (found := side.call("GET", path)["items"]):
        assert time.monotonic() < deadline, f"nobody told {reason}"
        time.sleep(0.2)
    most = "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset."
    assert {(one["type"], one["involvedObject"]["kind"], one["message"]) for one in found} == {
        ("Warning", "Endpoints", f"{most} {MANY - 1000} addresses were skipped")
    }


def act(side: Side, name: str, what: str, argument: Any) -> None:
    match what:
        case "mirrored stranger":
            stranger(side, name, "endpointslicemirroring")
        case "told":
            told_of(side, name, argument)
        case _:
            written(side, name, what, argument)


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(request, tmp_path_factory.mktemp("mirroring"), STORIES, act) as stories:
        yield stories


@pytest.mark.parametrize("story", STORIES)
def test_slices_that_mirror_endpoints_come_to_the_same(told: Played, story: str) -> None:
    told[story].result()
