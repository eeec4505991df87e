"""Which earlier template gives classes back that a client has left out."""

from __future__ import annotations

from typing import Any

from kubeqos.rules.qos.restoredclasses import Origin, restored, shown


def template(image: str, cls: str = "", **labels: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": image}
    if cls:
        container["resources"] = {"qosResources": [{"name": "rdt", "class": cls}]}
    return {"metadata": {"labels": {"app": "web", **labels}}, "spec": {"containers": [container]}}


def revision(number: int, image: str, cls: str = "") -> Origin:
    return Origin(f"revision {number}", template(image, cls, **{"pod-template-hash": f"h{number}"}))


def test_a_copy_of_a_revision_gets_the_classes_of_that_revision() -> None:
    found = restored(template("v2", "silver"), template("v1"), [revision(2, "v2", "silver"), revision(1, "v1", "gold")])
    assert found is not None
    assert found.origin == "revision 1"
    assert found.template == template("v1", "gold")
    assert "restored rdt=gold from revision 1" in found.because


def test_what_a_typed_client_adds_does_not_hide_the_copy() -> None:
    sent = template("v1")
    sent["metadata"]["creationTimestamp"] = None
    sent["spec"]["containers"][0]["resources"] = {}
    assert restored(template("v2"), sent, [revision(1, "v1", "gold")]) is not None


def test_classes_that_somebody_took_away_stay_away() -> None:
    assert restored(template("v1", "gold"), template("v1"), [revision(1, "v1", "gold")]) is None


def test_a_new_template_is_nobodys_copy() -> None:
    assert restored(template("v2", "gold"), template("v3"), [revision(1, "v1", "gold")]) is None
    assert restored(template("v2", "gold"), template("v1", "bronze"), [revision(1, "v1", "gold")]) is None


def test_of_several_the_latest_is_meant_and_the_others_are_named() -> None:
    found = restored(template("v2"), template("v1"), [revision(3, "v1", "silver"), revision(1, "v1", "gold")])
    assert found is not None
    assert shown(found.template) == "rdt=silver"
    assert found.others == ("revision 1",)
    assert restored(template("v2"), template("v1"), [revision(3, "v1"), revision(1, "v1", "gold")]) is None
