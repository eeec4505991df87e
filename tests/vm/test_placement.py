"""Static CPU and memory managers on two NUMA nodes: where the kernel lets processes run and where their pages lie."""

from __future__ import annotations

import json

import pytest

from tests.vm.node import Node, guaranteed, pod

pytestmark = [pytest.mark.vm, pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)]


def cpu_list(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def partition(node: Node) -> str:
    """What the node says of the kernel's partition for the owner's CPUs, once it has said something."""

    def said() -> str:
        annotations = node.get("/api/v1/nodes/numa")["metadata"]["annotations"]
        held = json.loads(annotations["kubeqos.io/assignments"])["containers"].get("default/owner/main", {})
        return str(held.get("partition", ""))

    return str(node.until("the node tells of the partition", said))


def drifts(node: Node) -> list[str]:
    """What the node has found to be otherwise than it had told the runtime."""
    events = node.get("/api/v1/namespaces/default/events")["items"]
    return [one["message"] for one in events if one["reason"] == "ContainerDrift"]


@pytest.mark.proves("exclusive-cpus")
@pytest.mark.proves("numa-alignment")
def test_a_guaranteed_pod_owns_cores_of_one_node_and_its_pages_lie_there(node: Node) -> None:
    node.start_pod(pod("shared"))
    assert cpu_list(node.process("shared")["cpus"]) == set(range(8))
    node.start_pod(pod("owner", "hog", "memory", "48", resources=guaranteed("2", "128Mi")))
    node.says("owner", "holds 48")
    process = node.process("owner")
    owned, home = cpu_list(process["cpus"]), process["mems"]
    assert owned in ({2, 3}, {4, 5}, {6, 7}), "two threads of one core, and none that is reserved"
    assert home == ("0" if owned == {2, 3} else "1")
    pages = node.ask("pages", id=node.container_id("owner"))
    assert set(pages) == {home} and pages[home] * 4096 >= 48 << 20
    node.until("the shared pod leaves them", lambda: cpu_list(node.process("shared")["cpus"]) == set(range(8)) - owned)
    shared = node.container_id("shared")
    node.ask("write", id=shared, file="cpuset.cpus", text="0-7")
    node.until("the drift is told", lambda: drifts(node))
    node.until("and repaired", lambda: cpu_list(node.process("shared")["cpus"]) == set(range(8)) - owned, seconds=60)
    assert partition(node) == node.levels("owner")[0]["cpuset.cpus.partition"] or "Linux 6.7" in partition(node)
    node.delete("owner")
    node.until("the shared pod gets them back", lambda: cpu_list(node.process("shared")["cpus"]) == set(range(8)))


@pytest.mark.proves("numa-alignment")
def test_what_fits_no_single_node_is_refused_and_says_so(node: Node) -> None:
    node.create(pod("wide", resources=guaranteed("5", "128Mi")))
    node.until("the pod is refused", lambda: node.phase("wide") == "Failed")
    status = node.pod("wide")["status"]
    assert status["reason"] == "TopologyAffinityError", status
