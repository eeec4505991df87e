"""A node that is to have a plugin does not let pods in unpinned while the plugin is on its way."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.objects import PodView
from kubeqos.plugins.managers import NOTHING, AdmittedPod, Refusal
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.settings import Settings
from kubeqos.rules.qos.podqos import QosClass
from kubeqos.topology.alignment.hints import ANYWHERE


def pod(**requests: str) -> AdmittedPod:
    container = {"name": "c", "resources": {"requests": requests}}
    raw: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [container]},
    }
    return AdmittedPod(PodView.of(raw), raw, QosClass.BURSTABLE)


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
    manager = QosResourceManager(Settings(expected=frozenset(expected)))
    admitted = pod(**requests)
    ((ref, _),) = admitted.containers()
    answer = await manager.allocate(admitted, ref, ANYWHERE)
    if waits_for is None:
        assert answer == NOTHING
    else:
        assert isinstance(answer, Refusal)
        assert (answer.retry, answer.message) == (True, f"the resource plugin for {waits_for} is not registered yet")
