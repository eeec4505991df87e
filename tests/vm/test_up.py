"""`kubeqos up` with this machine as a node: its cgroups are kept as any node's, and requests decide between pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import SOCKET, Node, guaranteed, pod
from tests.vm.test_memory import kills

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)]

MIB = 1 << 20
TOLERATIONS = [{"key": "kubeqos.io/real-machine", "operator": "Exists"}]


class UpNode(Node):
    """A whole cluster in one process, with this machine for a node."""

    agent = "kq-up"

    def start(self) -> None:
        self.start_containerd()
        settings = {"cgroupDriver": self.driver, "podLogsDir": "/var/log/pods", **self.settings}
        here = {"name": self.name, "runtime": SOCKET, "settings": settings}
        cluster = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "ClusterConfiguration", "nodes": [here]}
        self.vm.write("/run/cluster.yaml", json.dumps(cluster))
        self.start_agent()
        self.until("the node is ready", self.ready)

    def start_agent(self) -> None:
        words = ("--config", "/run/cluster.yaml", "--data-dir", "/run/cluster")
        self.unit(self.agent, "kubeqos", "up", *words, properties=("Environment=HOME=/root",))

    def create(self, pod: dict[str, Any]) -> None:
        super().create({**pod, "spec": {"tolerations": TOLERATIONS, **pod["spec"]}})


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    settings = {"systemReserved": {"memory": "256Mi"}, "singleProcessOOMKill": True}
    return node_of(request.param, kind=UpNode, **settings)


@pytest.mark.proves("pod-cgroups")
def test_the_machine_of_a_cluster_is_a_node_like_any_other(node: Node) -> None:
    for name, cpu in (("heavy", "800m"), ("light", "100m")):
        amounts = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        node.start_pod(pod(name, "hog", "cpu", "7", resources=amounts))
        node.says(name, "burning")
    for name, weight in (("heavy", "32"), ("light", "4")):
        own, of_pod, tier, everyone = node.levels(name)
        assert own["cpu.weight"] == of_pod["cpu.weight"] == weight
        assert of_pod["memory.max"] == str(128 * MIB)
        assert tier["cpu.weight"] == "36", "what its pods ask for together"
        assert everyone["memory.max"].isdigit(), "what is reserved for the system is not theirs"
    heavy, light = node.container_id("heavy"), node.container_id("light")
    used = node.ask("rates", ids=[heavy, light], seconds=20)
    assert used[heavy]["cpuMicroseconds"] > 4 * used[light]["cpuMicroseconds"] > 0, used
    uid = node.pod("heavy")["metadata"]["uid"]
    node.delete("heavy")
    assert not [path for path in node.ask("tree", path="/kubepods") if uid in path], "a deleted pod leaves nothing"


@pytest.mark.proves("oom")
def test_a_child_that_runs_out_of_memory_goes_alone_where_that_is_set_and_is_told(node: Node) -> None:
    child = "(head -c 200m /dev/zero | tail -c 200m > /dev/null); echo survived; sleep 1000"
    node.start_pod(pod("parent", child, resources=guaranteed("250m", "64Mi")))
    node.says("parent", "survived")
    node.until("the kill is told", lambda: kills(node, "parent"))
    assert "running" in node.pod("parent")["status"]["containerStatuses"][0]["state"]
