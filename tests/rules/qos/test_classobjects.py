"""QOSClass and QOSResource objects: names that the administrator adds, for whom a class is, how it is used."""

from __future__ import annotations

from typing import Any

from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classes import WELL_KNOWN, Level
from kubeqos.rules.qos.classobjects import ClassObjects, class_totals, resource_status


def known(resource: str, cls: str, level: str = "container", namespaces: list[str] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"resource": resource, "class": cls, "level": level}
    return {"spec": spec if namespaces is None else {**spec, "allowedNamespaces": namespaces}}


def asks(cls: str, name: str = "rdt") -> dict[str, Any]:
    return {"containers": [{"resources": {"qosResources": [{"name": name, "class": cls}]}}]}


def test_names_are_added_and_official_ones_keep_their_level() -> None:
    found = ClassObjects.of([known("network", "fast", "pod"), known("k8s.io/rdt", "gold", "pod"), {"spec": None}])
    assert found.levels == {**WELL_KNOWN, "network": Level.POD}
    assert ClassObjects.of([]) == ClassObjects()


def test_a_class_is_for_its_namespaces() -> None:
    found = ClassObjects.of([known("rdt", "gold", namespaces=["a", "b"]), known("rdt", "silver")])
    assert found.refusal("a", asks("gold")) == found.refusal("x", asks("silver")) == ""
    assert found.refusal("x", asks("gold")) == "QoS class rdt=gold is for namespaces a, b (qosclasses.kubeqos.io)"
    assert "for no namespace" in ClassObjects.of([known("rdt", "gold", namespaces=[])]).refusal("a", asks("gold"))
    pod_wide = {"qosResources": [{"name": "rdt", "class": "gold"}], "containers": []}
    assert found.refusal("x", pod_wide)


def test_of_two_objects_for_one_class_both_must_agree() -> None:
    found = ClassObjects.of([known("rdt", "gold", namespaces=["a", "b"]), known("rdt", "gold", namespaces=["b", "c"])])
    assert found.namespaces == {("rdt", "gold"): frozenset({"b"})}


def resource(name: str, level: str = "container", **more: Any) -> dict[str, Any]:
    return {"spec": {"resource": name, "level": level, **more}}


def test_the_object_of_a_resource_speaks_before_those_of_its_classes() -> None:
    found = ClassObjects.of([known("turbo", "high")], [resource("turbo", "pod"), resource("k8s.io/rdt", "pod")])
    assert found.levels == {**WELL_KNOWN, "turbo": Level.POD}


def test_a_resource_that_is_not_to_change_is_not_changed_anywhere() -> None:
    found = ClassObjects.of([], [resource("rdt", mutable=False), resource("network", "pod", mutable=True)])
    why = "classes of rdt may not change while a pod runs (qosresources.kubeqos.io)"
    wide = [{"name": "rdt", "class": "gold"}]
    assert list(found.changes_fixed(asks("gold"), asks("silver"))) == [
        ("spec.containers[0].resources.qosResources", why)
    ]
    assert list(found.changes_fixed({"qosResources": wide}, {})) == [("spec.qosResources", why)]
    assert list(found.changes_fixed(asks("a", "network"), asks("b", "network"))) == []
    assert list(found.changes_fixed(asks("gold"), asks("gold"))) == []
    assert list(ClassObjects().changes_fixed(asks("gold"), asks("silver"))) == []


def node(name: str, *offered: dict[str, Any]) -> NodeView:
    return NodeView.of({"metadata": {"name": name}, "status": {"qosResources": {"containerQoSResources": offered}}})


def test_use_is_counted_over_all_nodes() -> None:
    rdt = {"name": "rdt", "mutable": True, "classes": [{"name": "gold", "capacity": 2}, {"name": "silver"}]}
    nodes = node("a", rdt), node("b", rdt), node("c")
    raw = [
        {"metadata": {"name": f"p{number}"}, "spec": {**asks("gold"), "nodeName": where}, "status": {"phase": phase}}
        for number, (where, phase) in enumerate(
            [("a", "Running"), ("a", "Running"), ("b", "Failed"), ("c", "Running"), ("", "Pending")]
        )
    ]
    totals = class_totals(nodes, (PodView.of(one) for one in raw))
    assert totals["rdt", "gold"].status() == {"nodes": 2, "capacity": 4, "used": 2}
    assert totals["rdt", "silver"].status() == {"nodes": 2, "used": 0}
    assert resource_status("rdt", totals) == {"nodes": 2, "used": 2, "classes": ["gold", "silver"]}
    assert resource_status("nothing", totals) == {"nodes": 0, "used": 0, "classes": []}


def test_a_resource_is_for_its_namespaces_whatever_its_classes_say() -> None:
    found = ClassObjects.of([known("rdt", "gold", namespaces=["a", "b"])], [resource("rdt", allowedNamespaces=["b"])])
    assert found.refusal("b", asks("gold")) == ""
    assert found.refusal("a", asks("gold")) == "QoS resource rdt is for namespaces b (qosresources.kubeqos.io)"
    assert found.refusal("c", asks("gold")) == "QoS class rdt=gold is for namespaces a, b (qosclasses.kubeqos.io)"
    assert found.refusal("c", asks("any")) and found.refusal("c", asks("any", "network")) == ""
