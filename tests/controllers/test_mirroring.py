"""Mirrored Endpoints: given these for a service without a selector, then these slices."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.controllers.actions import Action, Create, Delete, Patch, Tell
from kubeqos.controllers.services.mirroring import OURS, PER_SUBSET, SKIP, desired
from kubeqos.controllers.services.slices import MANAGED_BY, SERVICE_NAME, TRIGGER
from kubeqos.controllers.services.subsets import LEADER
from tests.controllers.test_endpoints import perform

Object = dict[str, Any]
HTTP = {"name": "http", "port": 80, "protocol": "TCP"}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}


def subset(*ready: str, others: tuple[str, ...] = (), ports: tuple[Object, ...] = (HTTP,)) -> Object:
    found: Object = {"addresses": [{"ip": one} for one in ready], "ports": list(ports)}
    return {**found, "notReadyAddresses": [{"ip": one} for one in others]}


class MirrorWorld:
    """A service that selects nobody, its Endpoints, and the slices that mirror them."""

    def __init__(self, *subsets: Object) -> None:
        self.service: Object | None = {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {}}
        self.metadata: Object = {"name": "svc", "namespace": "ns", "uid": "uid-ep", "labels": {"team": "x"}}
        self.subsets = list(subsets)
        self.is_there = True
        self.slices: dict[str, Object] = {}
        self._number = itertools.count()

    def look(self) -> list[Action]:
        head = {"apiVersion": "v1", "kind": "Endpoints"}
        endpoints = {**head, "metadata": self.metadata, "subsets": self.subsets} if self.is_there else None
        actions = desired(self.service, endpoints, list(self.slices.values()))
        perform(actions, self.slices, self._number)
        return actions

    def found(self) -> dict[tuple[str, tuple[int, ...]], dict[str, bool]]:
        """Who stands where, and is ready or not, by family and ports."""
        by_ports = {}
        for one in self.slices.values():
            key = one["addressType"], tuple(port["port"] for port in one["ports"])
            assert key not in by_ports, "one slice of a family for the same ports"
            by_ports[key] = {each["addresses"][0]: each["conditions"]["ready"] for each in one["endpoints"]}
        return by_ports

    def only(self) -> Object:
        [found] = self.slices.values()
        return found


def test_a_slice_says_what_the_endpoints_say() -> None:
    target = {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "5"}
    address: Object = {"ip": "10.0.0.1", "hostname": "h", "nodeName": "n1", "targetRef": target}
    world = MirrorWorld({"addresses": [address], "ports": [{**HTTP, "appProtocol": "h2c"}]})
    world.metadata["annotations"] = {
        "why": "",
        TRIGGER: "2026",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    [action] = world.look()
    assert isinstance(action, Create)
    assert action.body == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": "svc-",
            "namespace": "ns",
            "labels": {"team": "x", SERVICE_NAME: "svc", MANAGED_BY: OURS},
            "annotations": {"why": ""},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Endpoints", "name": "svc", "uid": "uid-ep", "controller": True,
                 "blockOwnerDeletion": True},
            ],
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "hostname": "h", "nodeName": "n1",
             "targetRef": target},
        ],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80, "appProtocol": "h2c"}],
    }  # fmt: skip
    assert world.look() == []
    address["targetRef"] = {**target, "resourceVersion": "6"}
    assert world.look() == [], "a pod that changed in nothing that matters"
    address["targetRef"] = {**target, "uid": "another"}
    [action] = world.look()
    assert isinstance(action, Patch)


def test_families_and_ports_stand_apart() -> None:
    world = MirrorWorld(
        subset("10.0.0.1", "fd00:0::1", others=("10.0.0.2",)), subset("10.0.0.3", ports=(HTTP, DNS)), subset("10.0.0.4")
    )
    world.look()
    assert world.found() == {
        ("IPv4", (80,)): {"10.0.0.1": True, "10.0.0.2": False, "10.0.0.3": True, "10.0.0.4": True},
        ("IPv6", (80,)): {"fd00::1": True},
        ("IPv4", (53,)): {"10.0.0.3": True},
    }
    assert world.look() == []


def test_ports_with_an_application_protocol_are_others_in_every_subset() -> None:
    web = {**HTTP, "appProtocol": "h2c"}
    world = MirrorWorld(subset("10.0.0.1", ports=(web, DNS)), subset("10.0.0.2", ports=(web,)))
    world.look()
    assert world.found() == {("IPv4", (53, 80)): {"10.0.0.1": True}, ("IPv4", (80,)): {"10.0.0.2": True}}
    assert world.look() == []
    addresses = [f"10.1.{number // 256}.{number % 256}" for number in range(PER_SUBSET)]
    world.subsets = [subset(*addresses, ports=(web,)), subset("10.0.0.2", ports=(web,))]
    world.look()
    [found] = world.found().values()
    assert len(found) == PER_SUBSET, "what stands apart in subsets stands together in a slice, as far as there is room"
    assert world.look() == []


@pytest.mark.parametrize(
    ("written", "family", "shown"),
    [
        ("010.0.0.01", "IPv4", "10.0.0.1"),
        ("::ffff:10.0.0.1", "IPv4", "10.0.0.1"),
        ("FD00:0:0::0001", "IPv6", "fd00::1"),
    ],
)
def test_addresses_are_written_as_they_should_be(written: str, family: str, shown: str) -> None:
    world = MirrorWorld(subset(written))
    world.look()
    assert world.found() == {(family, (80,)): {shown: True}}


def test_a_slice_without_ports() -> None:
    world = MirrorWorld(subset("10.0.0.1", ports=()))
    world.look()
    assert world.found() == {("IPv4", ()): {"10.0.0.1": True}}
    assert world.look() == []


def test_where_nobody_stands_there_is_no_slice() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    world.subsets = []
    [action] = world.look()
    assert isinstance(action, Delete)
    assert world.look() == []


def test_a_slice_is_written_anew_rather_than_replaced() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    [name] = world.slices
    world.subsets = [subset("10.0.0.2")]
    world.look()
    assert "generateName" not in world.only()["metadata"]
    world.subsets = [subset("10.0.0.2", ports=(DNS,))]
    world.look()
    assert list(world.slices) == [name]
    assert world.only()["metadata"]["generateName"] == "svc-"
    assert world.found() == {("IPv4", (53,)): {"10.0.0.2": True}}
    world.subsets = [subset("fd00::1", ports=(DNS,))]
    world.look()
    assert name not in world.slices, "the type of its addresses cannot change"
    assert world.found() == {("IPv6", (53,)): {"fd00::1": True}}


def test_labels_and_annotations_are_those_of_the_endpoints_and_no_others() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.metadata["annotations"] = {"why": "because"}
    world.look()
    for change in ({"labels": {"own": "label"}}, {"annotations": {"own": "note"}}):
        world.only()["metadata"] |= change
        world.look()
        assert world.only()["metadata"]["labels"] == {"team": "x", SERVICE_NAME: "svc", MANAGED_BY: OURS}
        assert world.only()["metadata"]["annotations"] == {"why": "because"}
    world.metadata |= {"labels": {SERVICE_NAME: "other", MANAGED_BY: "me"}, "annotations": {}}
    world.look()
    assert world.only()["metadata"]["labels"] == {SERVICE_NAME: "svc", MANAGED_BY: OURS}
    assert world.only()["metadata"]["annotations"] == {}
    assert world.look() == []


def test_who_wrote_hints_into_a_slice_keeps_them_until_it_is_written() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    world.only()["endpoints"][0]["hints"] = {"forZones": [{"name": "z"}]}
    assert world.look() == []
    world.only()["endpoints"][0]["conditions"]["serving"] = True
    world.look()
    assert world.only()["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]


def test_a_slice_of_older_endpoints_of_this_name_gets_a_new_owner() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    world.metadata["uid"] = "uid-next"
    [action] = world.look()
    assert isinstance(action, Patch)
    assert [one["uid"] for one in world.only()["metadata"]["ownerReferences"]] == ["uid-next"]
    assert world.look() == []


def test_a_second_slice_of_the_same_ports_goes() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    [name] = world.slices
    world.slices["twin"] = {**world.only(), "metadata": {**world.only()["metadata"], "name": "twin", "uid": "u"}}
    world.slices["names"] = {**world.slices["twin"], "addressType": "FQDN"}
    world.slices["names"]["metadata"] = {**world.slices["twin"]["metadata"], "name": "names"}
    world.look()
    assert list(world.slices) == [name]


@pytest.mark.parametrize("change", ["no endpoints", "no service", "a selector", "skipped", "a lock"])
def test_what_is_not_mirrored_any_more_leaves_no_slice(change: str) -> None:
    world = MirrorWorld(subset("10.0.0.1", "fd00::1"))
    world.look()
    assert len(world.slices) == 2
    match change:
        case "no endpoints":
            world.is_there = False
        case "no service":
            world.service = None
        case "a selector":
            world.service = {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"selector": {"a": "b"}}}
        case "skipped":
            world.metadata["labels"] = {SKIP: "true"}
        case "a lock":
            world.metadata["annotations"] = {LEADER: ""}
    world.look()
    assert world.slices == {}
    assert world.look() == []


def test_only_true_skips_and_a_name_elsewhere_does_not() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.metadata["labels"] = {SKIP: "false"}
    world.service = {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"type": "ExternalName", "selector": {}}}
    world.look()
    assert len(world.slices) == 1


def test_endpoints_that_go_get_no_new_slices() -> None:
    world = MirrorWorld(subset("10.0.0.1"))
    world.look()
    world.metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.subsets = [subset("10.0.0.2", "fd00::1")]
    world.look()
    assert world.found() == {("IPv4", (80,)): {"10.0.0.2": True}}


def test_a_subset_has_room_for_so_many_and_those_that_are_ready_come_first() -> None:
    ready = [f"10.0.{number // 256}.{number % 256}" for number in range(PER_SUBSET - 1)]
    world = MirrorWorld(
        subset(*ready, others=("10.1.0.1", "10.1.0.2")), subset("10.2.0.1", "10.2.0.2", "no address", ports=(DNS,))
    )
    told = [one for one in world.look() if isinstance(one, Tell)]
    assert [(one.reason, one.message, one.type) for one in told] == [
        ("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices", "Warning"),
        ("TooManyAddressesToMirror", "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. "
         "2 addresses were skipped", "Warning"),
    ]  # fmt: skip
    assert all(one.regarding["kind"] == "Endpoints" for one in told)
    assert world.found() == {
        ("IPv4", (80,)): {**dict.fromkeys(ready, True), "10.1.0.1": False},
        ("IPv4", (53,)): {"10.2.0.1": True, "10.2.0.2": True},
    }


ADDRESSES = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"]), max_size=3)
SUBSETS = st.builds(
    lambda ready, others, ports: subset(*ready, others=tuple(others), ports=tuple(ports)),
    ADDRESSES, ADDRESSES, st.lists(st.sampled_from([HTTP, DNS]), max_size=2, unique_by=lambda one: str(one["name"])),
)  # fmt: skip


@given(steps=st.lists(st.lists(SUBSETS, max_size=3), max_size=5))
def test_slices_come_to_the_endpoints_whatever_they_were_and_then_rest(steps: list[list[Object]]) -> None:
    world = MirrorWorld()
    for subsets in steps:
        world.subsets = subsets
        world.look()
        anew = MirrorWorld(*subsets)
        anew.look()
        assert world.found() == anew.found()
        assert world.look() == []
