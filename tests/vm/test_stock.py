"""A stock kubelet and our agent that dies: classes stay in the kernel, and nobody who asks starts without its own.

That classes do there what they do elsewhere, test_classes and test_systemd show.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.conftest import STOCK
from tests.vm.node import Node, pod

pytestmark = [pytest.mark.vm, pytest.mark.parametrize("node", [STOCK], indirect=True)]

FEW = ["64", "128"]


def state(node: Node, name: str) -> list[Any]:
    """The container, where its process may run and what it may open, and what its own cgroup and its pod's weigh."""
    weights = [(level["cpu.weight"], level["cpu.idle"]) for level in node.levels(name)[:2]]
    return [node.container_id(name), node.process(name), weights]


@pytest.mark.proves("restart", "class-cpu", "class-ulimits", on=("v2", "stock"))
def test_classes_outlive_the_agent_and_who_asks_waits_for_it(node: Node) -> None:
    resources = {"requests": {"cpu": "100m"}}
    node.start_pod(node.asking(pod("held", resources=resources), {"cpu-class": "latency", "ulimits": "few-files"}))
    before = state(node, "held")
    assert before[1]["limits"]["Max open files"] == FEW and before[2] == [("32", "0")] * 2
    node.kill_agent()
    assert state(node, "held") == before
    node.create(node.asking(pod("asks"), {"ulimits": "few-files"}))
    node.start_pod(pod("plain"))
    assert "running" not in str(node.pod("asks")["status"].get("containerStatuses"))
    node.start_agent()
    node.until("it starts", lambda: node.phase("asks") == "Running")
    assert node.process("asks")["limits"]["Max open files"] == FEW
    assert state(node, "held") == before
    assert all(one["restartCount"] == 0 for one in node.pod("held")["status"]["containerStatuses"])
