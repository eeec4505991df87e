"""Pods find the server by its own Service, which is there from the beginning and comes back."""

from __future__ import annotations

from kubeqos.apiserver.registry.upkeep.ownservice import OwnService, advertised
from tests.apiserver.live import LiveServer

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


def test_the_service_is_there_with_the_first_address(live: LiveServer) -> None:
    spec = live.call("GET", SERVICE).body["spec"]
    assert spec["clusterIP"] == str(live.server.settings.service_range[1])
    assert spec["ports"] == [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": live.server.own.port}]


def test_a_server_on_loopback_has_no_endpoints(live: LiveServer) -> None:
    assert live.call("GET", ENDPOINTS).code == 404
    assert [advertised("127.0.0.1"), advertised("::1"), advertised("10.1.2.3")] == ["", "", "10.1.2.3"]


def test_what_is_removed_or_changed_comes_back(live: LiveServer) -> None:
    own = live.server.own
    assert own is not None
    reached = OwnService(own.core, "10.1.2.3", own.port, own.addresses)
    live.run(reached.keep())
    endpoint = {"addresses": ["10.1.2.3"], "conditions": {"ready": True}}
    assert live.call("GET", SLICE).body["endpoints"] == [endpoint]
    assert live.call("GET", ENDPOINTS).body["subsets"][0]["addresses"] == [{"ip": "10.1.2.3"}]
    kept = live.call("GET", SERVICE).body
    merge = {"Content-Type": "application/merge-patch+json"}
    live.call("PATCH", SERVICE, {"metadata": {"labels": {"component": "x", "mine": "y"}}}, merge)
    live.call("PATCH", SLICE, {"endpoints": [{"addresses": ["10.9.9.9"]}]}, merge)
    live.call("DELETE", ENDPOINTS)
    live.run(reached.keep())
    again = live.call("GET", SERVICE).body
    assert again["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes", "mine": "y"}
    assert again["spec"] == kept["spec"]
    assert live.call("GET", SLICE).body["endpoints"] == [endpoint]
    assert live.call("GET", ENDPOINTS).code == 200
    before = live.call("GET", SLICE).body["metadata"]["resourceVersion"]
    live.run(reached.keep())
    assert live.call("GET", SLICE).body["metadata"]["resourceVersion"] == before, "nothing to do, nothing done"
    live.call("DELETE", SERVICE)
    live.run(reached.keep())
    assert live.call("GET", SERVICE).body["spec"]["clusterIP"] == kept["spec"]["clusterIP"]
