"""What a pod holds: per container and class, what its spec asks and what its status says it has."""

from __future__ import annotations

from typing import Any

from kubeqos.model.objects import PodView
from kubeqos.rules.qos.allocated import held_classes, held_spec, with_classes_of
from kubeqos.rules.qos.classes import ClassKey, Level, demand

RDT = frozenset({"rdt"})


def classes(**wanted: str) -> list[dict[str, str]]:
    return [{"name": name, "class": cls} for name, cls in wanted.items()]


def pod(
    asks: dict[str, str],
    has: dict[str, str] | None = None,
    *,
    granted: dict[str, str] | None = None,
    pod_wide: dict[str, str] | None = None,
    pod_has: dict[str, str] | None = None,
    **status: Any,
) -> PodView:
    told: dict[str, Any] = {"name": "main", "qosResources": classes(**(has or {}))}
    if granted is not None:
        told["resources"] = {"qosResources": classes(**granted)}
    return PodView.of(
        {
            "spec": {
                "qosResources": classes(**(pod_wide or {})),
                "containers": [{"name": "main", "resources": {"qosResources": classes(**asks)}}],
            },
            "status": {"containerStatuses": [told], "qosResources": classes(**(pod_has or {})), **status},
        }
    )


def gold(cls: str = "gold", count: int = 1) -> dict[ClassKey, int]:
    return {(Level.CONTAINER, "rdt", cls): count}


def test_a_pod_that_nobody_changes_holds_what_it_asks() -> None:
    assert held_classes(pod({"rdt": "gold"}, {"rdt": "gold"}), RDT) == gold()


def test_until_its_node_says_otherwise_it_holds_both() -> None:
    assert held_classes(pod({"rdt": "exclusive"}, {"rdt": "gold"}), RDT) == gold() | gold("exclusive")


def test_a_change_that_the_node_refused_for_good_is_still_asked() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert held_classes(pod({"rdt": "low"}, {"rdt": "gold"}, conditions=[condition]), RDT) == gold() | gold("low")


def test_what_the_node_set_aside_counts_before_the_runtime_speaks() -> None:
    assert held_classes(pod({"rdt": "silver"}, granted={"rdt": "gold"}), RDT) == gold() | gold("silver")


def test_the_default_of_a_runtime_is_never_counted() -> None:
    assert held_classes(pod({}, {"rdt": "bronze"}), RDT) == {}
    assert held_classes(pod({"rdt": "gold"}, {"rdt": "gold", "blockio": "normal"}), RDT) == gold()
    assert held_classes(pod({"rdt": "gold"}, {"rdt": ""}), RDT) == gold()


def test_a_class_that_the_pod_asks_for_its_containers_is_held_by_them() -> None:
    held = held_classes(pod({}, {"rdt": "gold"}, pod_wide={"rdt": "silver"}), RDT)
    assert held == gold() | gold("silver")


def test_a_pod_level_class_is_held_once() -> None:
    held = held_classes(pod({}, pod_wide={"network": "slow"}, pod_has={"network": "fast"}), RDT)
    assert held == {(Level.POD, "network", "slow"): 1, (Level.POD, "network", "fast"): 1}


def test_a_pod_that_has_ended_holds_nothing() -> None:
    assert held_classes(pod({"rdt": "gold"}, {"rdt": "gold"}, phase="Failed"), RDT) == {}


def test_between_two_versions_a_pod_holds_the_classes_of_both() -> None:
    new, old = pod({"rdt": "silver"}).spec, pod({"rdt": "gold"}).spec
    assert demand(with_classes_of(new, old), RDT) == gold() | gold("silver")
    assert demand(with_classes_of(new, new), RDT) == gold("silver")
    wide = pod({}, pod_wide={"rdt": "gold"}).spec
    assert demand(with_classes_of(new, wide), RDT) == gold() | gold("silver")
    assert demand(with_classes_of(wide, new), RDT) == gold() | gold("silver")


def test_a_pod_without_status_is_its_spec() -> None:
    view = PodView.of({"spec": {"containers": [{"name": "main"}]}})
    assert held_spec(view) is view.spec
