"""EndpointSlices: given this service and these pods, then these endpoints. And what real kubectl shows of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.controllers.actions import Action, Create, Delete, Patch
from kubeqos.controllers.services import endpoints
from kubeqos.controllers.services.endpoints import MANAGED_BY, OURS, SERVICE_NAME, desired
from tests.controllers.cluster import controlled_cluster
from tests.controllers.world import merge
from tests.scenarios.cluster import needs_kubectl

Object = dict[str, Any]


class ServiceWorld:
    """One service, its slices, and the pods that it selects."""

    def __init__(self, **spec: Any) -> None:
        body = {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
        metadata = {"name": "svc", "namespace": "ns", "uid": "uid-svc", "labels": {"team": "x"}}
        self.service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}
        self.pods: dict[str, Object] = {}
        self.slices: dict[str, Object] = {}
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

    def look(self) -> list[Action]:
        actions = desired(self.service, self.pods.values(), self.slices.values(), {"n1": "z1"})
        for action in actions:
            match action:
                case Create(body=body):
                    name = f"{body['metadata']['generateName']}{next(self._number)}"
                    self.slices[name] = merge(body, {"metadata": {"name": name, "uid": f"uid-{name}"}})
                case Patch(name=name, patch=patch):
                    self.slices[name] = merge(self.slices[name], patch)
                case Delete(name=name):
                    del self.slices[name]
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
    del world.service["spec"]["selector"]
    world.look()
    assert world.slices == {}


def test_slices_that_somebody_else_manages_are_left_alone() -> None:
    world = ServiceWorld(selector=None)
    world.slices["theirs"] = {"metadata": {"name": "theirs", "uid": "u", "labels": {SERVICE_NAME: "svc"}}}
    assert world.look() == []


@given(steps=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=30))
def test_slices_are_never_too_large_hold_every_pod_once_and_change_little(steps: list[tuple[int, bool]]) -> None:
    world = ServiceWorld()
    with pytest.MonkeyPatch.context() as small:
        small.setattr(endpoints, "PER_SLICE", 3)
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
        cluster.kubectl("patch", "pod", pod, "--subresource=status", "-p", '{"status":{"podIP":"10.1.2.3"}}')

        def addresses() -> list[str]:
            items = cluster.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
            return [one["addresses"][0] for each in items for one in each["endpoints"] or ()]

        cluster.wait("the pod's address", lambda: addresses() == ["10.1.2.3"])
        cluster.kubectl("delete", "svc", "web")
        cluster.wait("the slices to go with it", lambda: not cluster.get("endpointslices")["items"])
