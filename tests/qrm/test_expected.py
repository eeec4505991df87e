"""A node that is to have a plugin does not let pods in unpinned while the plugin is on its way."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.annotations.topologysummary import Down
from kubeqos.plugins.managers import NOTHING, AdmittedPod, Refusal
from kubeqos.qrm.edge.capacity import Capacity
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import ANYWHERE


def pod(**requests: str) -> AdmittedPod:
    container = {"name": "c", "resources": {"requests": requests}}
    raw: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [container]},
    }
    return AdmittedPod.of(raw)


@pytest.mark.parametrize(
    ("expected", "requests", "waits_for"),
    [
        ({"cpu"}, {"cpu": "1"}, "cpu"),
        ({"cpu", "memory"}, {"cpu": "1", "memory": "1Gi"}, "cpu, memory"),
        ({"cpu"}, {"memory": "1Gi"}, None),
        (set(), {"cpu": "1"}, None),
    ],
)
async def test_who_asks_for_what_is_to_come_waits(
    expected: set[str], requests: dict[str, str], waits_for: str | None
) -> None:
    manager = QosResourceManager(QrmSettings(expected=frozenset(expected)))
    admitted = pod(**requests)
    ((ref, _),) = admitted.containers()
    answer = await manager.allocate(admitted, ref, ANYWHERE)
    if waits_for is None:
        assert answer == NOTHING
    else:
        assert isinstance(answer, Refusal)
        assert (answer.retry, answer.message) == (True, f"the resource plugin for {waits_for} is not registered yet")


def test_who_is_to_come_is_down_until_then() -> None:
    manager = QosResourceManager(QrmSettings(expected=frozenset({"cpu"})))
    assert manager.down() == [Down("cpu", "is not registered yet", resources=("cpu",))]


def test_who_is_away_is_told_with_all_that_it_serves() -> None:
    manager = QosResourceManager(QrmSettings(names={"example.com/reclaimed": "cpu"}))
    options = pb.ResourcePluginOptions(extra_resources=["example.com/l3"])
    manager.endpoints.expect("cpu", {}, options)
    resources = ("cpu", "example.com/l3", "example.com/reclaimed")
    assert manager.down() == [Down("cpu", "is not connected", resources=resources)]
    manager.endpoints.expect("nic", {}, pb.ResourcePluginOptions(implicit=True))
    manager.endpoints.expect("gpu", {}, pb.ResourcePluginOptions(implicit=True, implicit_roles=["ai"]))
    assert manager.down()[1:] == [
        Down("nic", "is not connected", resources=("nic",), everybody=True),
        Down("gpu", "is not connected", resources=("gpu",), roles=("ai",)),
    ]


async def test_a_restart_revives_no_capacity() -> None:
    """A plugin that was away for longer than its grace is gone; the agent's own restart says nothing about it."""
    now = 0.0
    settings = QrmSettings(stop_grace_seconds=60.0)
    manager = QosResourceManager(settings, clock=lambda: now)
    capacity = {"example.com/net": Capacity(40.0, 38.0, True)}
    manager.endpoints.expect("example.com/net", capacity, pb.ResourcePluginOptions())
    assert [one.allocatable for one in manager.node_resources()] == [38.0]
    await manager.reconcile()
    now = 61.0
    assert await manager.reconcile(), "the ledger has to be written"
    assert not await manager.reconcile()
    assert [one.allocatable for one in manager.node_resources()] == [0.0]
    again = QosResourceManager(settings, clock=lambda: now)
    await again.restore(manager.save(), {})
    assert [(one.capacity, one.allocatable) for one in again.node_resources()] == [(0.0, 0.0)]
    assert [one.name for one in again.down()] == ["example.com/net"]
