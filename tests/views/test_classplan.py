"""Whom a new class file would hurt, told before it is put on a node."""

from __future__ import annotations

from typing import Any

from kubeqos.rules.qos.classes import Level
from kubeqos.views.classplan import NewResource, plan


def node(name: str, **classes: int) -> dict[str, Any]:
    offered = [{"name": "rdt", "mutable": True, "classes": [{"name": n, "capacity": c} for n, c in classes.items()]}]
    return {"metadata": {"name": name}, "status": {"qosResources": {"containerQoSResources": offered}}}


def pod(name: str, cls: str, on: str = "a") -> dict[str, Any]:
    container = {"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": cls}]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **({"nodeName": on} if on else {})},
        "status": {"phase": "Running" if on else "Pending"},
    }


def told(new: dict[str, NewResource], *pods: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    found = plan(new, [node("a", gold=4, silver=0)], pods)
    return [(one.cls, one.change, one.outcome, one.hurts) for one in found]


def rdt(*retired: str, level: Level = Level.CONTAINER, **classes: int) -> dict[str, NewResource]:
    return {"rdt": NewResource(level, classes, frozenset(retired))}


def test_the_same_file_changes_nothing() -> None:
    assert told(rdt(gold=4, silver=0), pod("p", "gold")) == []


def test_a_class_that_goes_is_kept_by_who_has_it_and_closed_to_who_waits() -> None:
    gone = rdt(silver=0)
    assert told(gone) == [("gold", "removed", "nobody has it", False)]
    assert told(gone, pod("p", "gold"), pod("q", "gold")) == [("gold", "removed", "2 keep it until they end", True)]
    waits = told(gone, pod("p", "gold"), pod("w", "gold", on=""))
    assert waits == [("gold", "removed", "1 keep it until they end; 1 waiting cannot come here", True)]
    assert told(rdt("gold", gold=4, silver=0), pod("p", "gold")) == [
        ("gold", "retired", "1 keep it until they end", True)
    ]


def test_capacity_below_use_says_by_how_much() -> None:
    pods = [pod(f"p{n}", "gold") for n in range(3)]
    assert told(rdt(gold=1, silver=0), *pods) == [
        ("gold", "capacity 4 → 1", "over by 2: nobody new until 3 have ended", True)
    ]
    assert told(rdt(gold=3, silver=0), *pods) == [("gold", "capacity 4 → 3", "nobody is hurt", False)]
    assert told(rdt(gold=0, silver=0), *pods) == [("gold", "capacity 4 → inf", "nobody is hurt", False)]


def test_new_classes_and_another_level() -> None:
    assert told(rdt(gold=4, silver=0, bronze=0)) == [("bronze", "new", "open to everybody", False)]
    moved = told(rdt(level=Level.POD, gold=4, silver=0), pod("p", "gold"))
    assert moved[0] == ("gold", "container → pod", "refused while 1 have it", True)


def test_who_is_named() -> None:
    (change,) = plan(rdt(silver=0), [node("a", gold=4, silver=0), node("b", silver=0)], [pod("p", "gold")])
    assert (change.node, change.used, change.pods) == ("a", 1, ("default/p",))
