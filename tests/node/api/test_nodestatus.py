"""What a node says about its runtime."""

from __future__ import annotations

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.node.api.nodestatus import runtime_problem


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
