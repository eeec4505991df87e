"""The IP families of services on a cluster that serves IPv4."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.rules.services.families import settle_families
from kubeqos.rules.services.updates import drop_type_dependent, keep_allocated

BOTH = ["IPv4", "IPv6"]
HEADLESS = {"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": BOTH, "ipFamilyPolicy": "RequireDualStack"}


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}], **spec}}


def told(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [error.field for error in settle_families(new, old)]


@pytest.mark.parametrize(
    ("spec", "families", "policy"),
    [
        ({}, ["IPv4"], "SingleStack"),
        ({"ipFamilyPolicy": "PreferDualStack"}, ["IPv4"], "PreferDualStack"),
        ({"clusterIP": "None"}, BOTH, "RequireDualStack"),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, ["IPv6", "IPv4"], "RequireDualStack"),
        ({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}, ["IPv4"], "SingleStack"),
        ({"clusterIP": "None", "selector": {"a": "b"}}, ["IPv4"], "SingleStack"),
    ],
)
def test_what_a_new_service_gets(spec: dict[str, Any], families: list[str], policy: str) -> None:
    new = service(**spec)
    assert told(new) == []
    assert (new["spec"]["ipFamilies"], new["spec"]["ipFamilyPolicy"]) == (families, policy)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"ipFamilyPolicy": "RequireDualStack"}, ["spec.ipFamilyPolicy"]),
        ({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": BOTH}, ["spec.ipFamilyPolicy", "spec.ipFamilies[1]"]),
        ({"ipFamilies": BOTH}, ["spec.ipFamilyPolicy"]),
        ({"ipFamilyPolicy": ""}, ["spec.ipFamilyPolicy"]),
        ({"ipFamilies": ["IPv5"], "type": "Bogus"}, ["spec.ipFamilies[0]"]),
        ({"clusterIP": "fd00::1"}, ["spec.clusterIPs[0]"]),
        ({"clusterIP": "10.0.0.7", "ipFamilies": ["IPv6"]}, ["spec.clusterIPs[0]"]),
    ],
)
def test_what_cannot_be_had_is_told_alone(spec: dict[str, Any], fields: list[str]) -> None:
    assert told(service(**spec)) == fields


def test_a_headless_service_that_gets_a_selector_cannot_keep_both() -> None:
    new = service(**HEADLESS, selector={"a": "b"})
    assert told(new, service(**HEADLESS)) == ["spec.ipFamilyPolicy", "spec.ipFamilies[1]"]


def test_a_policy_that_is_left_out_stays() -> None:
    had = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"]}
    new = service(**had)
    assert told(new, service(**had, ipFamilyPolicy="PreferDualStack")) == []
    assert new["spec"]["ipFamilyPolicy"] == "PreferDualStack"


def test_an_address_that_is_left_out_stays() -> None:
    old, new = service(**HEADLESS), service(clusterIPs=["None"])
    keep_allocated(new, old)
    assert (new["spec"]["clusterIP"], new["spec"]["clusterIPs"]) == ("None", ["None"])


def test_a_port_keeps_its_node_port_by_its_name() -> None:
    old = service(type="NodePort", ports=[{"name": "a", "port": 80, "nodePort": 30001}])
    new = service(type="NodePort", ports=[{"name": "a", "port": 90}])
    keep_allocated(new, old)
    assert new["spec"]["ports"] == [{"name": "a", "port": 90, "nodePort": 30001}]


def test_what_balances_no_more_has_nobody_before_it() -> None:
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    new, old = ({**service(type=kind), "status": status} for kind in ("ClusterIP", "LoadBalancer"))
    drop_type_dependent(new, old)
    assert new["status"] == {"loadBalancer": {}}
