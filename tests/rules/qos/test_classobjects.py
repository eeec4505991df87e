"""QOSClass objects: names that the administrator adds, and for whom a class is."""

from __future__ import annotations

from typing import Any

from kubeqos.rules.qos.classes import WELL_KNOWN, Level
from kubeqos.rules.qos.classobjects import ClassObjects


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
