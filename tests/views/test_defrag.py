"""A node's plan from what it publishes: who may move and why others stay, and whether the node can do it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.published import (
    Assignments,
    Holding,
    decode_assignments,
    encode_assignments,
    encode_machine,
)
from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules, TopologySummary, encode_topology
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.objects import PodView
from kubeqos.views.defrag import CORES_STAY, IN_USE, NO_PLUGIN, PAGES_STAY, as_data, defrag_plan


def node(summary: TopologySummary, pools: dict[str, str] | None = None, **owners: str) -> dict[str, Any]:
    held = {f"default/{name}/c": Holding(CpuSet.parse(text), True) for name, text in owners.items()}
    placed = Assignments({name: CpuSet.parse(text) for name, text in (pools or {}).items()}, held)
    annotations = {
        "kubeqos.io/machine": encode_machine(kep80()),
        "kubeqos.io/assignments": encode_assignments(placed),
        "kubeqos.io/topology": encode_topology(summary),
    }
    return {"metadata": {"name": "n", "annotations": annotations}}


def pod(name: str, on: str = "n", annotations: dict[str, str] | None = None, **spec: Any) -> PodView:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations or {}}
    return PodView.of({"metadata": metadata, "spec": {"nodeName": on, "containers": [{"name": "c"}], **spec}})


def plugin(free: str, **roles: PoolRule) -> TopologySummary:
    return TopologySummary(pools={"cpu": Division(Rules("shared", roles), free=free)})


def role(name: str) -> dict[str, str]:
    return {"kubernetes.io/pod-role": name}


def test_a_node_with_a_plugin_can_do_it_and_names_owners_as_the_plugin_does() -> None:
    plan = defrag_plan(node(plugin("10-39,50-79"), a="0-9", b="40-49"), [pod("a"), pod("b"), pod("c", "elsewhere")])
    assert plan.cannot_apply == "" and len(plan.found.moves) == 1
    assert plan.uids["default/a/c"] == "uid-a/c"
    data = as_data(plan)
    assert data["applicable"] and data["before"]["largestNuma"] == 30 and data["after"]["largestNuma"] == 40
    assert data["moves"][0]["fromNuma"] != data["moves"][0]["toNuma"]


def test_what_owners_leave_is_shared_by_whoever_shared_before() -> None:
    raw = node(plugin("10-39,50-79"), {"shared": "10-39,50-79"}, a="0-9", b="40-49")
    placed = decode_assignments(raw["metadata"]["annotations"]["kubeqos.io/assignments"])
    placed = replace(placed, containers={**placed.containers, "default/web/c": Holding(CpuSet.parse("10-39,50-79"))})
    raw["metadata"]["annotations"]["kubeqos.io/assignments"] = encode_assignments(placed)
    plan = defrag_plan(raw, [pod("a"), pod("b"), pod("web")])
    (move,) = plan.found.moves
    then = plan.then.containers
    assert then[move.owner].cpus == move.after
    assert then["default/web/c"].cpus == (CpuSet.parse("10-39,50-79") | move.before) - move.after
    assert plan.then.owners()["shared"] == then["default/web/c"].cpus
    assert sum(map(len, plan.then.owners().values())) == 80


def test_roles_decide_where_an_owner_may_go() -> None:
    rules = {
        "alone": PoolRule("", True, "exclusive"),
        "bound": PoolRule("", True, "bind"),
    }
    plan = defrag_plan(
        node(plugin("10-39,50-79", **rules), a="0-9", b="40-49"),
        [pod("a", annotations=role("alone")), pod("b", annotations=role("bound"))],
    )
    assert plan.staying == {"default/a/c": "it has whole NUMA nodes to itself"}
    assert plan.found.moves == ()


def test_cores_of_a_claim_stay() -> None:
    plan = defrag_plan(node(plugin("10-79"), a="0-9"), [pod("a", resourceClaims=[{"name": "x"}])])
    assert "compute driver" in plan.staying["default/a/c"]
    plan = defrag_plan(
        node(plugin("10-79"), a="0-9"),
        [pod("a", annotations={"cci.resources.alpha.kubernetes.io/pod": "cci-exclusive"})],
    )
    assert "compute driver" in plan.staying["default/a/c"]


def test_a_cpu_manager_plans_and_cannot_apply() -> None:
    raw = node(TopologySummary(), {"shared": "2-39,50-79", "reserved": "0-1"}, a="10-19", b="40-49")
    plan = defrag_plan(raw, [pod("a"), pod("b")])
    assert len(plan.found.moves) == 1 and plan.cannot_apply == NO_PLUGIN
    assert not as_data(plan)["applicable"]


def test_memory_that_a_manager_has_tied_keeps_its_cpus_near() -> None:
    held = {uid: {"cpu": {0: 10}, "memory": {0: 1 << 30}} for uid in ("uid-a", "uid-b")}
    raw = node(TopologySummary(held=held), {"shared": "0-39,50-79"}, a="10-19", b="40-49")
    assert defrag_plan(raw, [pod("a"), pod("b")]).found.moves == ()


def test_an_owner_whose_pod_is_gone_stays() -> None:
    assert defrag_plan(node(plugin("10-79"), a="0-9"), []).staying == {"default/a/c": "its pod is not known"}


def test_what_plugins_and_drivers_cannot_move_is_told_by_kind() -> None:
    shared = Division(Rules("shared"))
    summary = TopologySummary(free={"hugepages-2Mi": {0: 1}}, pools={"cpu": shared, "memory": shared, "NIC": shared})
    raw = node(summary)
    raw["metadata"]["annotations"]["kubeqos.io/compute-drivers"] = "a.io,b.io"
    plan = defrag_plan(raw, [])
    assert plan.fixed == {
        "NIC": IN_USE,
        "hugepages-2Mi": PAGES_STAY,
        "memory": PAGES_STAY,
        "cores of claims (a.io)": CORES_STAY,
        "cores of claims (b.io)": CORES_STAY,
    }
    assert as_data(plan)["fixed"][0] == {"resource": "NIC", "because": IN_USE}
    assert defrag_plan(node(plugin("0-79")), []).fixed == {}


def test_a_node_without_a_machine_says_so() -> None:
    with pytest.raises(KubeqosError, match="does not publish its machine"):
        defrag_plan({"metadata": {"name": "n"}}, [])
