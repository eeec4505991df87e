"""Endpoints: given this service and these pods, then these addresses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.controllers.actions import Create, Patch
from kubeqos.controllers.services.subsets import (
    CAPACITY,
    MANAGED_BY,
    OURS,
    OVER_CAPACITY,
    desired,
    refused,
    truncated,
)
from tests.controllers.test_endpoints import ServiceWorld
from tests.controllers.world import merge

Object = dict[str, Any]
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"


def made(world: ServiceWorld, trigger: str = "") -> Object:
    [action] = desired(world.service, world.pods.values(), None, trigger)
    assert isinstance(action, Create)
    return merge(action.body, {"metadata": {"uid": "uid-ep", "resourceVersion": "1"}})


def ips(subset: Object, kind: str = "addresses") -> list[str]:
    return [one["targetRef"]["name"] for one in subset.get(kind) or ()]


def test_who_is_ready_and_who_is_not_stand_apart() -> None:
    world = ServiceWorld()
    world.pod("p", hostname="h", subdomain="svc")
    world.pod("sick", ready=False)
    world.pod("leaving", going=True)
    world.pod("done")
    world.pods["done"]["status"]["phase"] = "Failed"
    found = made(world, "2026-01-01T00:00:00Z")
    [subset] = found["subsets"]
    assert subset["addresses"] == [
        {"ip": "10.0.0.0", "nodeName": "n1", "hostname": "h",
         "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"}},
    ]  # fmt: skip
    assert (ips(subset, "notReadyAddresses"), subset["ports"]) == (["sick"], [{"port": 8080, "protocol": "TCP"}])
    assert found["metadata"]["labels"] == {"team": "x", MANAGED_BY: OURS}
    assert found["metadata"]["annotations"] == {TRIGGER: "2026-01-01T00:00:00Z"}
    world.service["spec"]["publishNotReadyAddresses"] = True
    [subset] = made(world)["subsets"]
    assert (ips(subset), "notReadyAddresses" in subset) == (["p", "sick", "leaving"], False)


def test_ports_of_the_same_addresses_stand_together() -> None:
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"},
             {"name": "c", "port": 3, "targetPort": "web"}]  # fmt: skip
    world = ServiceWorld(ports=ports)
    world.pod("one")
    world.pod("two", containers=[{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}])
    subsets = made(world)["subsets"]
    assert [(ips(one), [port["name"] for port in one["ports"]]) for one in subsets] == [
        (["one", "two"], ["a", "b"]), (["two"], ["c"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ipFamilies": ["IPv6", "IPv4"]}, "fd00::1"),
        ({"ipFamilies": ["IPv4"]}, "10.0.0.1"),
        ({"ipFamilies": None, "clusterIP": "fd00::99"}, "fd00::1"),
        ({"ipFamilies": None, "clusterIP": "10.0.0.99"}, "10.0.0.1"),
        ({"ipFamilies": None, "clusterIP": "None"}, "fd00::1"),
    ],
)
def test_one_address_of_each_pod_by_the_family_of_the_service(spec: Object, expected: str) -> None:
    world = ServiceWorld(**spec)
    world.pod("p")
    world.pods["p"]["status"] |= {"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]}
    assert [one["ip"] for one in made(world)["subsets"][0]["addresses"]] == [expected]


def test_without_ports_only_a_headless_service_has_addresses() -> None:
    for address, expected in (("None", [{"addresses"}]), ("10.96.0.7", [])):
        world = ServiceWorld(ports=None, clusterIP=address)
        world.pod("p")
        assert [set(one) for one in made(world).get("subsets") or ()] == expected


def test_what_is_right_is_not_written() -> None:
    world = ServiceWorld(ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}])
    world.pod("p")
    world.pod("q", ready=False)
    found = made(world)

    def again() -> list[Create | Patch]:
        return desired(world.service, world.pods.values(), found, "2026-01-01T00:00:00Z")

    assert again() == []
    [subset] = found["subsets"]
    subset["ports"].reverse()
    subset["addresses"][0]["targetRef"]["resourceVersion"] = "7"
    assert again() == [], "neither order nor the version of a pod says anything"
    world.service["metadata"]["labels"] = {"team": "y"}
    [patch] = again()
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"] == {"team": "y", MANAGED_BY: OURS}
    world.pods.clear()
    [patch] = again()
    assert isinstance(patch, Patch)
    assert patch.patch["subsets"] is None
    world.service["spec"]["selector"] = None
    assert again() == []


def subset(ready: int, others: int) -> Object:
    return {"addresses": [{"ip": f"r{n}"} for n in range(ready)],
            "notReadyAddresses": [{"ip": f"n{n}"} for n in range(others)]}  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(CAPACITY, 0)], [(1000, 0)]),
        ([(CAPACITY + 1, 5)], [(1000, 0)]),
        ([(900, 300)], [(900, 100)]),
        ([(1500, 1), (500, 1)], [(750, 0), (250, 0)]),
        ([(400, 800), (500, 100)], [(400, 89), (500, 11)]),
        ([(334, 0)] * 3, [(334, 0), (334, 0), (332, 0)]),
    ],
)
def test_a_thousand_and_no_more(sizes: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    found, is_cut = truncated([subset(*size) for size in sizes])
    counted = [(len(one.get("addresses") or ()), len(one.get("notReadyAddresses") or ())) for one in found]
    assert (counted, is_cut) == (expected, sum(map(sum, sizes)) > CAPACITY)


def test_that_some_are_left_out_is_said_as_long_as_it_is_so() -> None:
    world = ServiceWorld()
    for number in range(CAPACITY + 1):
        world.pod(f"p{number}")
    found = made(world)
    assert found["metadata"]["annotations"] == {OVER_CAPACITY: "truncated"}
    assert desired(world.service, world.pods.values(), found) == [], "it is written once"
    del world.pods["p7"]
    [patch] = desired(world.service, world.pods.values(), found)
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["annotations"][OVER_CAPACITY] is None


def test_what_is_told_of_a_refusal() -> None:
    world = ServiceWorld()
    found = made(world)
    [create] = desired(world.service, (), None)
    assert refused("ns/svc", create, None, "no").message == "Failed to create endpoint for service ns/svc: no"
    world.pod("p")
    [patch] = desired(world.service, world.pods.values(), found)
    told = refused("ns/svc", patch, found, "no")
    assert (told.regarding["kind"], told.message) == ("Endpoints", "Failed to update endpoint ns/svc: no")
