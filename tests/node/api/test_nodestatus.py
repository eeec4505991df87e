"""What a node says about its runtime."""

from __future__ import annotations

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import PROVIDERS_READY
from kubeqos.node.api.nodestatus import RuntimeFacts, conditions, runtime_problem


def said(**conditions: bool) -> cri.RuntimeStatus:
    made = [cri.RuntimeCondition(type=kind, status=ok, reason="Because") for kind, ok in conditions.items()]
    return cri.RuntimeStatus(conditions=made)


def test_a_runtime_that_only_warns_is_ready() -> None:
    """containerd since 2.2 has a condition that is false while deprecated settings are in use."""
    assert runtime_problem(said(RuntimeReady=True, NetworkReady=True, ContainerdHasNoDeprecationWarnings=False)) == ""


def test_runtime_and_network_decide() -> None:
    assert runtime_problem(said(RuntimeReady=True, NetworkReady=False)) == "NetworkReady: Because"
    both = runtime_problem(said(RuntimeReady=False, NetworkReady=False, Other=False))
    assert both == "RuntimeReady: Because; NetworkReady: Because"


def test_class_providers_that_are_away_are_a_condition_until_all_are_back() -> None:
    """A runtime behind the relay says so; one that never lost a provider has no such condition."""

    def shown(facts: RuntimeFacts) -> dict[str, tuple[str, str]]:
        found = conditions(facts, {}, (), "now")
        return {one["type"]: (one["status"], one["message"]) for one in found if one["type"] == PROVIDERS_READY}

    facts = RuntimeFacts("sim").asked(said(RuntimeReady=True))
    assert shown(facts) == {}
    away = facts.asked(said(**{"RuntimeReady": True, PROVIDERS_READY: False}))
    assert shown(away) == {
        PROVIDERS_READY: ("False", "classes are off this node until their provider is back: Because")
    }
    assert away.problem == "", "the node is ready all the same"
    back = away.asked(said(RuntimeReady=True))
    assert shown(back) == {PROVIDERS_READY: ("True", "every class provider answers")}
    assert (away.absent, back.absent) == ("Because", "")
