"""KEP-3008's scheduling stories, on small clusters."""

from __future__ import annotations

from typing import Any

from kubeqos.model.annotations.topologysummary import TopologySummary
from kubeqos.model.objects import LabelSelectorView, NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.preempt import DisruptionBudget, NoPreemption, Preemption, Preemptor
from kubeqos.placement.score import Weights
from kubeqos.placement.shape import Shape, compile_shape

GOLD = [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}, {"name": "bronze"}]}]


def node(name: str, *, cpu: str = "4", classes: Any = GOLD, **more: Any) -> NodeFacts:
    raw = {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
            "qosResources": {"containerQoSResources": classes},
        },
    }
    return NodeFacts(NodeView.of(raw), **more)


def shape(cpu: str = "1", *, priority: int = 0, classes: Any = (), pod_classes: Any = (), **spec: Any) -> Shape:
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": cpu}, "qosResources": [{"name": n, "class": c} for n, c in classes]},
    }
    raw = {
        "metadata": {"namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "priority": priority,
            "containers": [container],
            "qosResources": [{"name": n, "class": c} for n, c in pod_classes],
            **spec,
        },
    }
    return compile_shape(PodView.of(raw))


def cluster(*facts: NodeFacts) -> Cluster:
    made = Cluster(1)
    for each in facts:
        made.set_node(each)
    return made


def run(target: Cluster, on: str, uid: str, of: Shape, **more: Any) -> None:
    target.add_pod(on, PlacedPod(uid, uid, of, **more))


def test_an_exhausted_class_says_so_and_a_freed_slot_is_seen() -> None:
    gold = shape(classes=[("rdt", "gold")])
    two = cluster(node("a"), node("b"))
    placer = Placer(two)
    run(two, "a", "p1", gold)
    run(two, "b", "p2", gold)
    refused = placer.place(gold)
    assert isinstance(refused, Unplaced)
    assert refused.message == "0/2 nodes are available: 2 QoS class rdt=gold exhausted (1/1 used)."
    two.remove_pod("p1")
    assert placer.place(gold) == Placed("a", Placer(two).place(gold).points)  # type: ignore[union-attr]


def test_reasons_of_different_kinds_are_counted_together() -> None:
    mixed = cluster(
        node("a", cpu="1"), node("b", cpu="1"), node("c", classes=[]), node("d", spec={"unschedulable": True})
    )
    refused = Placer(mixed).place(shape("2", classes=[("rdt", "gold")]))
    assert isinstance(refused, Unplaced)
    assert refused.message == (
        "0/4 nodes are available: 1 QoS resource rdt not available, 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_a_pod_level_resource_asked_by_a_container_is_explained() -> None:
    facts = NodeView.of(
        {
            "metadata": {"name": "a"},
            "status": {
                "allocatable": {"cpu": "4", "pods": "10"},
                "qosResources": {"podQoSResources": [{"name": "network", "classes": [{"name": "fast"}]}]},
            },
        }
    )
    refused = Placer(cluster(NodeFacts(facts))).place(shape(classes=[("network", "fast")]))
    assert isinstance(refused, Unplaced)
    assert "QoS resource network is pod-level, requested at container level" in refused.message


def test_a_pod_wide_request_means_pod_or_containers_as_the_node_offers_it() -> None:
    either = cluster(node("containers"))
    wide = shape(pod_classes=[("rdt", "gold")])
    assert isinstance(Placer(either).place(wide), Placed)
    run(either, "containers", "p", wide)
    refused = Placer(either).place(wide)
    assert isinstance(refused, Unplaced)
    assert "exhausted (1/1 used)" in refused.message


def test_a_pod_goes_where_its_class_is_freest_and_others_go_where_kubernetes_sends_them() -> None:
    wide = [{"name": "rdt", "classes": [{"name": "gold", "capacity": 4}]}]
    rich = cluster(node("rich", classes=wide), node("half", classes=wide), node("none", classes=[]))
    run(rich, "half", "x", shape("0", classes=[("rdt", "gold")]))
    run(rich, "half", "y", shape("0", classes=[("rdt", "gold")]))
    wanted = Placer(rich).place(shape(classes=[("rdt", "gold")]))
    plain = Placer(rich).place(shape())
    assert isinstance(wanted, Placed) and wanted.node == "rich"
    assert isinstance(plain, Placed) and plain.node == "rich"  # the first of equally empty ones, classes or none
    kept = Placer(rich, Weights(keep_classes=2)).place(shape())
    assert isinstance(kept, Placed) and kept.node == "none"


def test_a_class_slot_alone_is_preempted_from_the_least_important_pod() -> None:
    gold = [("rdt", "gold")]
    two = cluster(node("a"), node("b"))
    run(two, "a", "important", shape("100m", priority=5, classes=gold))
    run(two, "b", "cheap", shape("100m", priority=1, classes=gold))
    run(two, "b", "bystander", shape("100m", priority=0))
    high = shape("100m", priority=10, classes=gold)
    refused = Placer(two).place(high)
    assert isinstance(refused, Unplaced)
    plan = Preemptor(two).preempt(high, refused.explanation)
    assert isinstance(plan, Preemption)
    assert (plan.node, [victim.name for victim in plan.victims]) == ("b", ["cheap"])


def test_budgets_are_respected_where_another_node_can_help() -> None:
    two = cluster(node("a", cpu="1"), node("b", cpu="1"))
    protected = compile_shape(
        PodView.of(
            {
                "metadata": {"namespace": "default", "labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            }
        )
    )
    run(two, "a", "db", protected)
    run(two, "b", "web", shape("1"))
    high = shape("1", priority=10)
    refused = Placer(two).place(high)
    assert isinstance(refused, Unplaced)
    planner = Preemptor(two)
    planner.budgets = [DisruptionBudget("default", LabelSelectorView(match_labels={"app": "db"}), 0)]
    plan = planner.preempt(high, refused.explanation)
    assert isinstance(plan, Preemption)
    assert (plan.node, plan.violations) == ("b", 0)


def test_what_eviction_cannot_help_is_said_in_kubernetes_words() -> None:
    one = cluster(node("a", cpu="1"))
    big = shape("2", priority=10)
    refused = Placer(one).place(big)
    assert isinstance(refused, Unplaced)
    answer = Preemptor(one).preempt(big, refused.explanation)
    assert answer == NoPreemption("0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


def test_a_pod_its_topology_manager_would_refuse_is_not_sent_there() -> None:
    full = {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    aligned = compile_shape(PodView.of({"spec": {"containers": [{"name": "c", "resources": full}]}}))
    split = TopologySummary("single-numa-node", "container", {"cpu": {0: 2, 1: 2}})
    whole = TopologySummary("single-numa-node", "container", {"cpu": {0: 4}})
    both = cluster(node("split", topology=split), node("whole", topology=whole))
    answer = Placer(both).place(aligned)
    assert isinstance(answer, Placed) and answer.node == "whole"


def test_claims_go_to_nodes_with_their_driver() -> None:
    claims = compile_shape(PodView.of({"spec": {"containers": [{"name": "c"}]}}), claim_drivers=["cci.example"])
    with_driver = cluster(node("plain"), node("cci", drivers=frozenset({"cci.example"})))
    answer = Placer(with_driver).place(claims)
    assert isinstance(answer, Placed) and answer.node == "cci"
