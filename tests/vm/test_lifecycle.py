"""What becomes of pods when memory runs out, and when the agent is killed: told by the API, checked in the kernel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.node import Node, container, guaranteed, pod, pod_of

pytestmark = pytest.mark.vm
on_cgroupfs = pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)

MIB = 1 << 20


def ended(node: Node, name: str, of: str) -> dict[str, Any] | None:
    """How the container of this name ended, now or last time."""
    for one in node.pod(name)["status"].get("containerStatuses", ()):
        found: dict[str, Any] | None = one["state"].get("terminated") or one["lastState"].get("terminated")
        if one["name"] == of and found:
            return found
    return None


@on_cgroupfs
@pytest.mark.proves("oom")
def test_a_container_over_its_limit_is_killed_alone(node: Node) -> None:
    limit = {"limits": {"memory": "40Mi"}, "requests": {"memory": "40Mi"}}
    hog = container("hog", "sleep 2; tail /dev/zero", resources=limit)
    node.create(pod_of("mixed", hog, container("calm")))
    found = node.until("the hog is killed", lambda: node.pod("mixed").get("status") and ended(node, "mixed", "hog"))
    assert (found["exitCode"], found["reason"]) == (137, "OOMKilled")
    calm = next(one for one in node.pod("mixed")["status"]["containerStatuses"] if one["name"] == "calm")
    assert "running" in calm["state"] and calm["restartCount"] == 0


@on_cgroupfs
@pytest.mark.proves("restart")
def test_a_running_pod_that_never_restarts_goes_when_it_is_deleted(node: Node) -> None:
    """What is said of it last is how it ended, not that it is yet to start, which the API server would refuse."""
    node.start_pod(pod("once", restartPolicy="Never"))
    node.delete("once")
    told = [one["reason"] for one in node.get("/api/v1/namespaces/default/events")["items"]]
    assert "PodStatusRefused" not in told


@on_cgroupfs
@pytest.mark.proves("restart")
def test_a_killed_agent_finds_its_pods_as_they_were(node: Node) -> None:
    node.start_pod(pod("owner", resources=guaranteed("2", "64Mi")))
    node.start_pod(pod("shared"))

    def state() -> list[Any]:
        return [(node.container_id(name), node.process(name)) for name in ("owner", "shared")]

    before = state()
    node.kill_agent()
    assert state() == before
    node.start_agent()
    node.start_pod(pod("after"))
    assert state() == before
    assert all(one["restartCount"] == 0 for one in node.pod("owner")["status"]["containerStatuses"])
