"""EndpointSlices: given this service and these pods, then these endpoints. And what real kubectl shows of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.controllers.actions import Action, Create, Delete, Patch
from kubeqos.controllers.services import endpoints, slices
from kubeqos.controllers.services.slices import MANAGED_BY, OURS, SERVICE_NAME, desired
from tests.controllers.cluster import controlled_cluster
from tests.controllers.world import merge
from tests.scenarios.cluster import needs_kubectl

Object = dict[str, Any]


def perform(actions: list[Action], slices: dict[str, Object], numbers: Iterator[int]) -> None:
    """What is decided about slices is done to these; the drawn part of a name is the next number."""
    for action in actions:
        match action:
            case Create(body=body):
                name = f"{body['metadata']['generateName']}{next(numbers)}"
                slices[name] = merge(body, {"metadata": {"name": name, "uid": f"uid-{name}"}})
            case Patch(name=name, patch=patch):
                slices[name] = merge(slices[name], patch)
            case Delete(name=name):
                del slices[name]


class ServiceWorld:
    """One service, its slices, and the pods that it selects."""

    def __init__(self, **spec: Any) -> None:
        body = {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": 8080}]}
        body |= {"clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], **spec}
        metadata = {"name": "svc", "namespace": "ns", "uid": "uid-svc", "labels": {"team": "x"}}
        self.service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}
        self.pods: dict[str, Object] = {}
        self.slices: dict[str, Object] = {}
        self.nodes = {"n1": "z1"}
        self._number = itertools.count()

    def pod(self, name: str, *, ready: bool = True, going: bool = False, **spec: Any) -> None:
        metadata: Object = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        if going:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        number = next(self._number)
        status: Object = {"phase": "Running", "podIP": f"10.0.{number // 256}.{number % 256}"}
        if ready:
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        body = {"nodeName": "n1", "containers": [{"name": "c"}], **spec}
        self.pods[name] = {"metadata": metadata, "spec": body, "status": status}

    def look(self, trigger: str = "") -> list[Action]:
        actions = desired(self.service, self.pods.values(), self.slices.values(), self.nodes, trigger)
        perform(actions, self.slices, self._number)
        return actions

    def found(self) -> dict[str, Object]:
        every = [one for each in self.slices.values() for one in each["endpoints"]]
        named = {one["targetRef"]["name"]: one for one in every}
        assert len(named) == len(every), "an endpoint stands in two slices"
        return named


def test_every_selected_pod_with_an_address() -> None:
    world = ServiceWorld()
    world.pod("p")
    world.pod("sick", ready=False)
    world.pod("leaving", going=True)
    world.pod("done")
    world.pods["done"]["status"]["phase"] = "Succeeded"
    world.pod("new")
    del world.pods["new"]["status"]["podIP"]
    world.look()
    [slice_] = world.slices.values()
    assert slice_["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
    assert slice_["metadata"]["labels"] == {"team": "x", SERVICE_NAME: "svc", MANAGED_BY: OURS}
    found = world.found()
    assert found["p"] == {
        "addresses": ["10.0.0.0"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        "nodeName": "n1",
        "zone": "z1",
    }
    assert {name: tuple(one["conditions"].values()) for name, one in found.items()} == {
        "p": (True, True, False),
        "sick": (False, False, False),
        "leaving": (False, True, True),
    }
    assert world.look() == []


def test_pods_that_are_not_ready_are_published_where_the_service_says_so() -> None:
    world = ServiceWorld(publishNotReadyAddresses=True)
    world.pod("sick", ready=False)
    world.look()
    assert world.found()["sick"]["conditions"]["ready"] is True


def test_ports_by_name_are_those_of_each_pod() -> None:
    world = ServiceWorld(ports=[{"name": "web", "port": 80, "targetPort": "http"}])
    for name, number in (("old", 8080), ("new", 9090), ("without", 0)):
        ports = [{"name": "http", "containerPort": number}] if number else []
        world.pod(name, containers=[{"name": "c", "ports": ports}])
    world.look()
    by_port = {
        tuple(port["port"] for port in each["ports"]): [one["targetRef"]["name"] for one in each["endpoints"]]
        for each in world.slices.values()
    }
    assert by_port == {(8080,): ["old"], (9090,): ["new"], (): ["without"]}


def test_pods_of_a_stateful_set_keep_their_host_names() -> None:
    world = ServiceWorld(clusterIP="None")
    world.pod("s-0", hostname="s-0", subdomain="svc")
    world.pod("other", hostname="x", subdomain="elsewhere")
    world.look()
    assert world.found()["s-0"]["hostname"] == "s-0"
    assert "hostname" not in world.found()["other"]
    [slice_] = world.slices.values()
    assert slice_["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_a_service_without_pods_has_an_empty_slice_and_one_without_a_selector_none() -> None:
    world = ServiceWorld()
    world.look()
    [slice_] = world.slices.values()
    assert slice_["endpoints"] == []
    assert world.look() == []
    assert ServiceWorld(selector=None).look() == []
    del world.service["spec"]["selector"]
    assert world.look() == [], "slices of a service that no longer selects are whoever's it is now to write them"


def test_a_service_that_goes_keeps_its_slices_right_and_gets_no_new_ones() -> None:
    world = ServiceWorld()
    world.pod("a")
    world.pod("b")
    world.look()
    world.service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    del world.pods["a"]
    world.look()
    assert list(world.found()) == ["b"]
    world.slices.clear()
    assert world.look() == []


def test_a_slice_is_written_anew_rather_than_replaced() -> None:
    world = ServiceWorld()
    world.look()
    [name] = world.slices
    world.pod("a")
    world.look()
    assert list(world.slices) == [name]
    world.pods.clear()
    world.look()
    assert list(world.slices) == [name]
    assert world.slices[name]["ports"] == world.slices[name]["endpoints"] == []


def test_a_slice_of_an_older_service_of_the_same_name_goes() -> None:
    world = ServiceWorld()
    labels = {SERVICE_NAME: "svc", MANAGED_BY: OURS}
    world.slices["old"] = {"metadata": {"name": "old", "uid": "u", "labels": labels}, "addressType": "IPv4"}
    world.look()
    assert "old" not in world.slices
    assert len(world.slices) == 1


def test_labels_follow_those_of_the_service_also_when_they_go() -> None:
    world = ServiceWorld()
    world.pod("a")
    world.look()
    world.service["metadata"]["labels"] = {"tier": "y", MANAGED_BY: "me"}
    world.look()
    [slice_] = world.slices.values()
    assert slice_["metadata"]["labels"] == {"tier": "y", SERVICE_NAME: "svc", MANAGED_BY: OURS}
    assert world.look() == []


def test_the_order_of_ports_says_nothing() -> None:
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "appProtocol": "h2c"}]
    world = ServiceWorld(ports=ports)
    world.pod("a")
    world.look()
    world.service["spec"]["ports"] = ports[::-1]
    assert world.look() == []


def test_slices_of_each_family_of_addresses() -> None:
    world = ServiceWorld(ipFamilies=["IPv4", "IPv6"])
    world.pod("both")
    world.pods["both"]["status"]["podIPs"] = [{"ip": "10.0.0.0"}, {"ip": "fd00:0::1"}]
    world.pod("four")
    world.look()

    def found() -> dict[str, list[list[str]]]:
        return {each["addressType"]: [one["addresses"] for one in each["endpoints"]] for each in world.slices.values()}

    assert found() == {"IPv4": [["10.0.0.0"], ["10.0.0.1"]], "IPv6": [["fd00::1"]]}
    assert world.look() == []
    world.service["spec"]["ipFamilies"] = ["IPv4"]
    world.look()
    assert list(found()) == ["IPv4"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterIP": "10.0.0.1"}, ["IPv4"]),
        ({"clusterIP": "fd00::1"}, ["IPv6"]),
        ({"clusterIP": "None"}, ["IPv4", "IPv6"]),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, ["IPv6"]),
    ],
)
def test_a_service_without_families_has_those_of_its_address(spec: Object, expected: list[str]) -> None:
    assert endpoints.families({"spec": spec}) == expected


def test_pods_of_nodes_that_nobody_knows_are_left_out_until_they_come() -> None:
    world = ServiceWorld()
    world.pod("lost", nodeName="n2")
    world.pod("unbound", nodeName="")
    world.look()
    assert world.found() == {}
    assert endpoints.missed_nodes(world.service, world.pods.values(), world.nodes) == {"n2"}
    world.nodes["n2"] = ""
    world.look()
    assert list(world.found()) == ["lost"]
    world.service["spec"]["publishNotReadyAddresses"] = True
    world.look()
    assert set(world.found()) == {"lost", "unbound"}


@pytest.mark.parametrize(
    ("preferred", "hints"),
    [
        ("PreferClose", {"forZones": [{"name": "z1"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z1"}]}),
        ("PreferSameNode", {"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]}),
        (None, None),
    ],
)
def test_ready_endpoints_are_hinted_to_those_that_are_close(preferred: str | None, hints: Object | None) -> None:
    world = ServiceWorld(trafficDistribution="PreferSameNode")
    world.pod("a")
    world.pod("sick", ready=False)
    world.look()
    world.service["spec"]["trafficDistribution"] = preferred
    world.look()
    assert world.found()["a"].get("hints") == hints
    assert "hints" not in world.found()["sick"]
    assert world.look() == []
    world.service["metadata"]["annotations"] = {"service.kubernetes.io/topology-mode": "Auto"}
    world.look()
    assert "hints" not in world.found()["a"], "the annotation comes first, and its hints are not given"


def test_slices_that_change_anyway_are_filled_first_and_then_the_one_with_the_least_room() -> None:
    world = ServiceWorld()
    for number in range(230):
        world.pod(f"p{number}")
    world.look()

    def sizes() -> list[int]:
        return sorted(len(each["endpoints"]) for each in world.slices.values())

    def left_with(*wanted: int) -> None:
        slices = sorted(world.slices.values(), key=lambda each: len(each["endpoints"]))
        for each, left in zip(slices, wanted, strict=True):
            for one in each["endpoints"][left:]:
                del world.pods[one["targetRef"]["name"]]

    assert sizes() == [30, 100, 100]
    left_with(10, 25, 40)
    world.look()
    assert sizes() == [10, 25, 40]
    for number in range(300, 315):
        world.pod(f"p{number}")
    assert len(world.look()) == 1
    assert sizes() == [10, 25, 55]
    for number in range(400, 480):
        world.pod(f"p{number}")
    assert len(world.look()) == 1
    assert sizes() == [25, 55, 90], "the unchanged slice that eighty fit into"
    left_with(0, 50, 90)
    for number in range(500, 512):
        world.pod(f"p{number}")
    world.look()
    assert sizes() == [62, 90]


def test_since_when_slices_should_be_so() -> None:
    times = endpoints.TriggerTimes()
    world = ServiceWorld()
    world.service["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"

    def turned(name: str, at: str) -> None:
        world.pods[name]["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at}]

    def told() -> str:
        return times.of("ns/svc", world.service, world.pods.values())

    world.pod("a")
    turned("a", "2026-01-01T00:00:05Z")
    assert told() == "2026-01-01T00:00:01Z", "a new service: since it was made"
    assert told() == ""
    world.pod("b")
    turned("b", "2026-01-01T00:00:09Z")
    turned("a", "2026-01-01T00:00:07Z")
    assert told() == "2026-01-01T00:00:07Z", "the earliest of what changed"
    del world.pods["b"]
    assert told() == ""
    times.forget("ns/svc")
    assert told() == "2026-01-01T00:00:01Z"


def test_slices_carry_it_until_they_change_for_no_such_reason() -> None:
    world = ServiceWorld()
    world.pod("a")
    world.pod("b")
    world.look("2026-01-01T00:00:01Z")
    [slice_] = world.slices.values()
    assert slice_["metadata"]["annotations"] == {slices.TRIGGER: "2026-01-01T00:00:01Z"}
    assert world.look() == []
    del world.pods["b"]
    world.look()
    [slice_] = world.slices.values()
    assert slice_["metadata"]["annotations"] == {}


def test_slices_that_somebody_else_manages_are_left_alone() -> None:
    world = ServiceWorld(selector=None)
    world.slices["theirs"] = {"metadata": {"name": "theirs", "uid": "u", "labels": {SERVICE_NAME: "svc"}}}
    assert world.look() == []


@given(steps=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=30))
def test_slices_are_never_too_large_hold_every_pod_once_and_change_little(steps: list[tuple[int, bool]]) -> None:
    world = ServiceWorld()
    with pytest.MonkeyPatch.context() as small:
        small.setattr(slices, "PER_SLICE", 3)
        for number, comes in steps:
            name = f"p{number}"
            if comes and name not in world.pods:
                world.pod(name)
            elif not comes:
                world.pods.pop(name, None)
            actions = world.look()
            assert len(actions) <= 2, "one pod, one slice; and the empty one, which the first pod replaces"
            assert sorted(world.found()) == sorted(world.pods)
            assert all(len(each["endpoints"]) <= 3 for each in world.slices.values())
            assert world.look() == []


@pytest.mark.kubectl
@needs_kubectl
def test_kubectl_sees_addresses_and_endpoints(tmp_path_factory: pytest.TempPathFactory) -> None:
    with controlled_cluster(tmp_path_factory.mktemp("services")) as cluster:
        cluster.kubectl("create", "deployment", "web", "--image=app:1", "--replicas=2")
        cluster.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080")
        address = cluster.get("svc", "web")["spec"]["clusterIP"]
        assert address.startswith("10.")
        assert address in cluster.kubectl("get", "svc", "web")
        cluster.wait("a slice", lambda: cluster.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"])
        [pod, _] = [each["metadata"]["name"] for each in cluster.get("pods", "-l", "app=web")["items"]]
        assert cluster.live.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}).code == 201
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n1"}}
        assert cluster.live.call("POST", f"/api/v1/namespaces/default/pods/{pod}/binding", binding).code == 201
        cluster.kubectl("patch", "pod", pod, "--subresource=status", "-p", '{"status":{"podIP":"10.1.2.3"}}')

        def addresses() -> list[str]:
            items = cluster.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
            return [one["addresses"][0] for each in items for one in each["endpoints"] or ()]

        cluster.wait("the pod's address", lambda: addresses() == ["10.1.2.3"])
        cluster.kubectl("delete", "svc", "web")
        cluster.wait("the slices to go with it", lambda: not cluster.get("endpointslices")["items"])
