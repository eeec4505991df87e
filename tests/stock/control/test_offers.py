"""From a node's report to its Node and to QOSClass objects."""

from __future__ import annotations

from typing import Any

from kubeqos.stock.control.offers import (
    ENOUGH,
    Offer,
    class_object,
    class_object_name,
    label_changes,
    offer_of,
    status_changes,
    totals,
)
from kubeqos.stock.names import is_managed

SLOW = {"resource": "blockio", "class": "slow", "level": "container", "capacity": 2, "used": 1}
GOLD = {"resource": "rdt", "class": "gold", "level": "container", "mutable": True}


def report(*classes: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "status": {"classes": list(classes)}}


def node(labels: dict[str, str], **resources: str) -> dict[str, Any]:
    named = {f"qos.kubeqos.io/{name.replace('__', '.')}": amount for name, amount in resources.items()} | {"cpu": "4"}
    return {"metadata": {"name": "n", "labels": labels}, "status": {"capacity": named, "allocatable": dict(named)}}


def test_every_class_is_a_label_and_a_counted_one_a_resource() -> None:
    offer = offer_of(report(SLOW, GOLD), set())
    assert offer.resources == {"qos.kubeqos.io/blockio.slow": "2"}
    assert offer.labels == {"class.qos.kubeqos.io/blockio.slow": "true", "class.qos.kubeqos.io/rdt.gold": "true"}


def test_who_does_not_count_what_others_count_has_enough() -> None:
    assert offer_of(report(GOLD), {("rdt", "gold")}).resources == {"qos.kubeqos.io/rdt.gold": ENOUGH}
    assert offer_of(None, {("rdt", "gold")}) == Offer({}, {})


def test_only_ours_is_changed_and_only_what_differs() -> None:
    offer = offer_of(report(SLOW), set())
    had = node({"zone": "a", "class.qos.kubeqos.io/rdt.gold": "true"}, blockio__slow="0", rdt__gold="3")
    assert label_changes(had, offer) == {
        "class.qos.kubeqos.io/rdt.gold": None,
        "class.qos.kubeqos.io/blockio.slow": "true",
    }
    changed = {"qos.kubeqos.io/rdt.gold": None, "qos.kubeqos.io/blockio.slow": "2"}
    assert status_changes(had, offer) == {"capacity": changed, "allocatable": changed}
    good = node(dict(offer.labels), blockio__slow="2")
    assert label_changes(good, offer) == status_changes(good, offer) == {}


def test_classes_are_summed_over_nodes() -> None:
    found = totals([report(SLOW, GOLD), report(SLOW), report(SLOW, SLOW)])
    assert found["blockio", "slow"].status() == {"nodes": 3, "used": 3, "capacity": 6}
    assert found["rdt", "gold"].status() == {"nodes": 1, "used": 0}
    made = class_object("blockio", "slow", found["blockio", "slow"])
    assert made["metadata"]["name"] == "blockio.slow"
    assert made["spec"] == {
        "resource": "blockio", "class": "slow", "level": "container", "mutable": False, "counted": True,
    }  # fmt: skip
    assert is_managed(made)


def test_objects_have_names_that_an_api_server_takes() -> None:
    assert class_object_name("rdt", "gold") == "rdt.gold"
    odd = class_object_name("vendor.example/Turbo", "High_Prio")
    assert odd == odd.lower()
    assert "_" not in odd
    assert odd != class_object_name("vendor.example/turbo", "high_prio")
