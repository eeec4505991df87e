"""What a kube-scheduler is answered: which nodes, why not the others, which are better, whom to evict."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.errors import InputError
from kubeqos.model.objects import LabelSelectorView, convert
from kubeqos.placement.preempt import DisruptionBudget
from kubeqos.stock.scheduling.extender import filtered, preempted, prioritized
from tests.stock.scheduling.stories import NUMA, POOL_FULL, POOLS, WEB, Raw, Told, node, pod, report

ALL = ["pools", "numa", "plain"]


@pytest.fixture
def told() -> Told:
    return Told(*(node(name) for name in ALL), report("pools", POOLS, slow=1), report("numa", NUMA, slow=4))


def args(asking: Raw, *names: str) -> dict[str, Any]:
    return {"Pod": asking, "Nodes": None, "NodeNames": list(names or ALL)}


def test_nodes_that_cannot_have_it_say_why(told: Told) -> None:
    answer = filtered(told.core, args(pod("wide", "4")))
    assert answer["NodeNames"] == ["pools", "plain"]
    assert list({**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}) == ["numa"]
    assert answer["Error"] == ""
    told.tell(pod("web", "1", on="pools", annotations=WEB))
    answer = filtered(told.core, args(pod("more", "1", annotations=WEB)))
    assert answer["FailedNodes"] == {"pools": POOL_FULL}
    answer = filtered(told.core, args(pod("slow", asked="blockio=slow")))
    assert "plain" in answer["FailedAndUnresolvableNodes"], "evicting somebody gives a node no class"


def test_whole_nodes_are_answered_with_whole_nodes(told: Told) -> None:
    nodes = {"metadata": {}, "items": [node("pools"), node("numa")]}
    answer = filtered(told.core, {"Pod": pod("wide", "4"), "Nodes": nodes, "NodeNames": None})
    assert [one["metadata"]["name"] for one in answer["Nodes"]["items"]] == ["pools"]


def test_a_node_nobody_has_heard_of_takes_pods_that_ask_for_nothing(told: Told) -> None:
    assert filtered(told.core, args(pod("a", "1"), "new"))["NodeNames"] == ["new"]
    answer = filtered(told.core, args(pod("b", asked="blockio=slow"), "new"))
    assert answer["FailedNodes"] == {"new": "node(s) about which kubeqos knows nothing yet"}


def test_what_the_kube_scheduler_counts_itself_is_not_counted_again(told: Told) -> None:
    """It may know of pods that are gone before we do."""
    told.tell(pod("full", "6", on="plain"))
    assert "plain" in filtered(told.core, args(pod("more", "1")))["NodeNames"]


def test_the_freer_class_has_more_points(told: Told) -> None:
    told.tell(pod("other", asked="blockio=slow", on="numa"))
    asking = pod("slow", asked="blockio=slow")
    assert prioritized(told.core, args(asking, "pools", "numa", "new")) == [
        {"Host": "pools", "Score": 10},
        {"Host": "numa", "Score": 7},
        {"Host": "new", "Score": 0},
    ]
    assert {one["Score"] for one in prioritized(told.core, args(pod("plain", "1")))} == {0}


def test_victims_that_do_not_help_are_not_enough(told: Told) -> None:
    told.tell(pod("holder", "1", asked="blockio=slow", on="pools"), pod("other", "1", on="pools"))
    vital = pod("vital", "1", asked="blockio=slow", priority=1000)
    plan: dict[str, Any] = {"Pods": [{"UID": "uid-other"}], "NumPDBViolations": 0}
    asked = {"Pod": vital, "NodeNameToMetaVictims": {"pools": plan, "plain": plan}}
    [(name, victims)] = preempted(told.core, asked)["NodeNameToMetaVictims"].items()
    assert name == "pools", "nobody's eviction gives the other node a class"
    assert [one["UID"] for one in victims["Pods"]] == ["uid-other", "uid-holder"]
    plan["Pods"] = [{"UID": "uid-holder"}]
    assert preempted(told.core, asked)["NodeNameToMetaVictims"] == {"pools": plan}
    whole = {"Pods": [pod("holder")], "NumPDBViolations": 0}
    asked = {"Pod": vital, "NodeNameToVictims": {"pools": whole}}
    assert preempted(told.core, asked)["NodeNameToMetaVictims"] == {"pools": plan}


def test_budgets_that_more_victims_break_are_counted(told: Told) -> None:
    holder = pod("holder", "1", asked="blockio=slow", on="pools")
    holder["metadata"]["labels"] = {"app": "a"}
    told.tell(holder)
    told.core.budgets_changed(
        [DisruptionBudget("default", convert({"matchLabels": {"app": "a"}}, LabelSelectorView), 0)]
    )
    vital = pod("vital", "1", asked="blockio=slow", priority=1000)
    asked = {"Pod": vital, "NodeNameToMetaVictims": {"pools": {"Pods": [], "NumPDBViolations": 0}}}
    assert preempted(told.core, asked)["NodeNameToMetaVictims"]["pools"]["NumPDBViolations"] == 1


@pytest.mark.parametrize("wrong", [{}, {"Pod": 3}, {"Pod": {"metadata": {}, "spec": {}}}])
def test_what_no_kube_scheduler_sends_is_refused(told: Told, wrong: Raw) -> None:
    with pytest.raises(InputError):
        filtered(told.core, wrong)
