"""Cluster addresses and node ports: no two services ever have the same, and what was given stays."""

from __future__ import annotations

import copy
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.rules.services.addresses import NODE_PORTS, ServiceAddresses
from kubeqos.rules.services.updates import drop_type_dependent, keep_allocated

Object = dict[str, Any]
SMALL = IPv4Network("10.0.0.0/28")


def service(**spec: Any) -> Object:
    ports = [{"port": 80, "protocol": "TCP"}]
    return {"metadata": {}, "spec": {"type": "ClusterIP", "ports": ports, "selector": {"a": "b"}, **spec}}


def test_the_same_manifests_give_the_same_addresses() -> None:
    found = []
    for _ in range(2):
        ledger = ServiceAddresses()
        for name in ("a", "b", "c"):
            made = service(type="NodePort")
            assert ledger.complete(("ns", name), made) == []
            ledger.put(("ns", name), made)
            found.append((made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]))
    assert found[:3] == found[3:]
    assert len(set(found)) == 3


def test_a_full_range_says_so_and_a_deleted_service_makes_room() -> None:
    ledger = ServiceAddresses(SMALL)
    for number in range(14):
        made = service()
        assert ledger.complete(("ns", str(number)), made) == []
        ledger.put(("ns", str(number)), made)
    [error] = ledger.complete(("ns", "more"), service())
    assert "the range 10.0.0.0/28 is full" in str(error)
    ledger.drop(("ns", "3"))
    assert ledger.complete(("ns", "more"), service()) == []


def test_fixed_addresses_at_the_lower_end_stay_free() -> None:
    ledger = ServiceAddresses()
    for number in range(500):
        made = service()
        ledger.complete(("ns", str(number)), made)
        ledger.put(("ns", str(number)), made)
        assert IPv4Address(made["spec"]["clusterIP"]) > IPv4Address("10.96.1.0")


def test_an_update_that_does_not_say_them_keeps_address_and_ports() -> None:
    ledger = ServiceAddresses()
    old = service(type="NodePort")
    ledger.complete(("ns", "a"), old)
    ledger.put(("ns", "a"), old)
    new = service(type="NodePort", selector={"a": "c"})
    keep_allocated(new, old)
    drop_type_dependent(new, old)
    assert ledger.complete(("ns", "a"), new) == []
    for field in ("clusterIP", "clusterIPs", "ports"):
        assert new["spec"][field] == old["spec"][field]


_types = st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"])
_steps = st.tuples(
    st.integers(0, 6), _types, st.one_of(st.none(), st.integers(1, 14)), st.one_of(st.none(), st.integers(0, 3))
)


@given(steps=st.lists(_steps, max_size=25))
def test_nobody_ever_has_what_another_has(steps: list[tuple[int, str, int | None, int | None]]) -> None:
    ledger = ServiceAddresses(SMALL)
    stored: dict[str, Object] = {}
    for number, kind, fixed, port in steps:
        name = str(number)
        old = stored.get(name)
        new = service(type=kind)
        if fixed is not None and kind != "ExternalName" and old is None:
            new["spec"]["clusterIP"] = f"10.0.0.{fixed}"
            new["spec"]["clusterIPs"] = [f"10.0.0.{fixed}"]
        if port is not None and kind in ("NodePort", "LoadBalancer"):
            new["spec"]["ports"][0]["nodePort"] = NODE_PORTS[port]
        if old is not None:
            keep_allocated(new, copy.deepcopy(old))
            drop_type_dependent(new, copy.deepcopy(old))
        if not ledger.complete(("ns", name), new):
            ledger.put(("ns", name), new)
            stored[name] = new
        addresses = [one["spec"]["clusterIP"] for one in stored.values() if one["spec"].get("clusterIP")]
        ports = [one["spec"]["ports"][0].get("nodePort") for one in stored.values()]
        given = [one for one in ports if one]
        assert len(set(addresses)) == len(addresses)
        assert len(set(given)) == len(given)
        assert len(addresses) == sum(one["spec"]["type"] != "ExternalName" for one in stored.values())
        assert len(given) == sum(one["spec"]["type"] in ("NodePort", "LoadBalancer") for one in stored.values())
