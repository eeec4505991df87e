"""Services as a real kube-apiserver completes, refuses and changes them, and ours; given addresses differ, who has one
and who gets none does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")
PATH = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as servers:
        yield servers


def service(name: str, **spec: Any) -> dict[str, Any]:
    body = {"ports": [{"port": 80}], "selector": {"a": "b"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "", service("a")),
    ("POST", "", service("fixed", clusterIP="10.0.0.77")),
    ("POST", "", service("taken", clusterIP="10.0.0.77")),
    ("POST", "", service("outside", clusterIP="1.2.3.4")),
    ("POST", "", service("first", clusterIP="10.0.0.0")),
    ("POST", "", service("last", clusterIP="10.0.0.255")),
    ("POST", "", service("headless", clusterIP="None")),
    ("POST", "", {**service("alone"), "spec": {"clusterIP": "None"}}),
    ("POST", "", service("np", type="NodePort")),
    ("POST", "", service("np1", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])),
    ("POST", "", service("np2", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])),
    ("POST", "", service("np3", type="NodePort", ports=[{"port": 80, "nodePort": 80}])),
    (
        "POST",
        "",
        service(
            "np4",
            type="NodePort",
            ports=[
                {"name": "t", "port": 80, "nodePort": 30090},
                {"name": "u", "port": 80, "protocol": "UDP", "nodePort": 30090},
            ],
        ),
    ),
    ("POST", "", service("lb", type="LoadBalancer")),
    ("POST", "", service("bare", type="LoadBalancer", allocateLoadBalancerNodePorts=False)),
    ("POST", "", service("local", type="LoadBalancer", externalTrafficPolicy="Local")),
    ("POST", "", service("ext", type="ExternalName", externalName="a.b")),
    ("POST", "", service("dual", ipFamilyPolicy="PreferDualStack")),
    ("POST", "", service("both", ipFamilyPolicy="RequireDualStack")),
    ("POST", "", service("v6", ipFamilies=["IPv6"])),
    ("PATCH", "/a", {"spec": {"type": "NodePort"}}),
    ("PATCH", "/a", {"spec": {"ports": [{"port": 80}]}}),
    ("PATCH", "/a", {"spec": {"type": "ClusterIP"}}),
    ("PATCH", "/a", {"spec": {"clusterIP": "10.0.0.99"}}),
    ("PATCH", "/a", {"spec": {"clusterIP": None, "clusterIPs": None}}),
    ("PATCH", "/a", {"spec": {"type": "ExternalName", "externalName": "x.y"}}),
    ("PATCH", "/ext", {"spec": {"type": "ClusterIP", "externalName": None}}),
    ("PATCH", "/np1", {"spec": {"ports": [{"port": 81}]}}),
    ("PATCH", "/np1", {"spec": {"ports": [{"port": 80, "nodePort": 30090}]}}),
    ("PATCH", "/lb", {"spec": {"type": "ClusterIP"}}),
    ("PATCH", "/local", {"spec": {"externalTrafficPolicy": "Cluster"}}),
    ("DELETE", "/fixed", None),
    ("POST", "", service("again", clusterIP="10.0.0.77")),
    ("DELETE", "/np1", None),
    ("POST", "", service("np5", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])),
]


def test_services_are_given_what_a_real_server_gives_them(pair: tuple[Stock, Ours]) -> None:
    stock, ours = pair
    found = []
    for method, path, body in REQUESTS:
        kind = MERGE if method == "PATCH" else "application/json"
        theirs, own = (comparable(one.call(method, PATH + path, body, kind)) for one in (stock, ours))
        found += [f"{method} {path} {body}: {one}" for one in differences(list(theirs), list(own))]
    assert found == []
