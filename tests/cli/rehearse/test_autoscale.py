"""`kubeqos autoscale plan`: what is printed of a decision, and which nodes belong to a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.cli.rehearse.autoscale import _plain, _text
from kubeqos.cli.rehearse.groups import read_groups
from kubeqos.errors import InputError
from kubeqos.placement.growth.decision import Decision, decide
from kubeqos.scheduler.reading.nodegroups import occupants
from kubeqos.scheduler.reading.snapshot import snapshot

GROUPS = Path(__file__).parents[3] / "examples/autoscale/groups.yaml"
OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]


def node(name: str, **labels: str) -> dict[str, Any]:
    rdt = {"name": "rdt", "classes": [{"name": "gold", "capacity": 2}]}
    return {
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "qosResources": {"containerQoSResources": [rdt]},
        },
    }


def pod(name: str, where: str = "", cls: str = "gold", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": cls}]}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}, **more}
    return {"metadata": metadata, "spec": {"containers": [container], "nodeName": where}, "status": {}}


def decided(nodes: list[Any], pods: list[Any], budgets: list[Any] | None = None) -> Decision:
    ready = [{**one, "spec": {}} for one in nodes]
    cluster, waiting = snapshot(ready, pods)
    return decide(cluster, waiting, read_groups(GROUPS, nodes), occupants(pods, budgets or []))


def test_growth_is_told_with_its_cost() -> None:
    found = decided([], [pod("a"), pod("b"), pod("c"), pod("d", cls="none")])
    lines = _text(found, wide=False).splitlines()
    assert lines[2].split() == ["gold", "0", "2", "0", "2.5"]
    assert "Cost of all groups: 0 now, 5 then." in lines
    assert "add     gold-1 takes 2 of 4 waiting pods" in lines
    assert any(line.startswith("wait    default/d: no group helps") for line in lines)
    assert _plain(found)["add"] == [{"node": "gold-1", "group": "gold"}, {"node": "gold-2", "group": "gold"}]


def test_nodes_are_known_by_their_labels_and_a_new_one_looks_like_them() -> None:
    [spot, gold] = read_groups(GROUPS, [node("m1", pool="gold"), node("m2")])
    assert (spot.members, gold.members) == ((), ("m1",))
    assert gold.template.view.spec.taints == [], "what only holds for a while is not the group's"
    found = decided([node("m1", pool="gold")], [pod(str(number)) for number in range(3)])
    assert found.up.new_nodes == {"gold-1": "gold"}, "one place more is needed than the node that is there has"


def test_what_keeps_a_node_is_told() -> None:
    here = [node("m1", pool="gold"), node("m2", pool="gold")]
    moved = decided(here, [pod("a", "m1", ownerReferences=OWNER)])
    assert "remove  m2: nothing is on it" in _text(moved, wide=False)
    text = _text(moved, wide=True)
    assert "keep    m1: default/a has no place elsewhere" in text
    alone = _text(decided(here, [pod("a", "m1")]), wide=True)
    assert "keep    m1: default/a: nobody would make it again" in alone
    marked = pod("a", "m1", ownerReferences=OWNER)
    marked["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert "not safe to evict" in _text(decided(here, [marked]), wide=True)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    kept = _text(decided(here, [pod("a", "m1", ownerReferences=OWNER)], [budget]), wide=True)
    assert "keep    m1: default/a: PodDisruptionBudget web allows no eviction now" in kept


def test_daemons_go_with_their_node() -> None:
    daemon = [{**OWNER[0], "kind": "DaemonSet"}]
    found = decided([node("m1", pool="gold")], [pod("log", "m1", cls="gold", ownerReferences=daemon)])
    assert [(one.node, one.moves) for one in found.down.removals] == [("m1", {})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: []", "no node groups"),
        ("groups: [{name: a, min: 3, max: 1}]", "3 is more than max, 1"),
        ("groups: [{name: a, cost: -1}]", "negative"),
        ("groups: [{name: a, price: 1}]", "price"),
    ],
)
def test_the_file_is_read_strictly(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "groups.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_groups(path)
    assert said in " ".join(caught.value.lines())
