"""`kubeqos` and `kubectl qos` against a running cluster: what each prints, to the letter."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.cluster import ScenarioCluster, needs_kubectl, scenario_cluster
from tests.scenarios.test_scheduling import condition, pod
from tests.shared import commands

pytestmark = [pytest.mark.kubectl, needs_kubectl]
QOS = {
    "containerQoSResources": [
        {"name": "blockio", "classes": [{"name": "high-prio", "capacity": 4}, {"name": "throttled"}]},
        {"name": "rdt", "mutable": True, "classes": [{"name": "gold", "capacity": 1}, {"name": "bronze"}]},
    ],
    "podQoSResources": [{"name": "network", "classes": [{"name": "fast", "capacity": 2}, {"name": "slow"}]}],
}


def submit_two_pods(made: ScenarioCluster, hard: dict[str, str]) -> None:
    """The first has the only slot of its class, the second waits for it; a quota counts both."""
    first = pod("first", ("rdt", "gold"))
    first["spec"]["qosResources"] = [{"name": "network", "class": "fast"}]
    made.apply(first)
    made.wait("first is bound", lambda: made.pod("first")["spec"].get("nodeName"))
    made.apply(pod("second", ("rdt", "gold")))
    made.wait("second waits", lambda: condition(made.pod("second")))
    made.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "limits"},
            "spec": {"hard": hard, "scopes": ["NotTerminating"]},
        }
    )
    made.wait("usage is known", lambda: made.get("quota", "limits")["status"].get("used", {}).get("pods") == "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioCluster]:
    with scenario_cluster(tmp_path_factory.mktemp("cli")) as made:
        made.node("node-a", qos=QOS)
        submit_two_pods(made, {"pods": "4"})
        yield made


def kubeqos(cluster: ScenarioCluster, *words: str, columns: int = 80) -> str:
    environment = {**os.environ, "KUBECONFIG": str(cluster.live.kubeconfig), "COLUMNS": str(columns)}
    done = commands.run(*words, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("columns", [80, 200])
def test_classes(cluster: ScenarioCluster, columns: int) -> None:
    assert kubeqos(cluster, "classes", columns=columns) == (
        "RESOURCE   CLASS       LEVEL       NODES   CAPACITY   USED   FREE\n"
        "blockio    high-prio   container   1       4          0      4\n"
        "blockio    throttled   container   1       inf        0      inf\n"
        "network    fast        pod         1       2          1      1\n"
        "network    slow        pod         1       inf        0      inf\n"
        "rdt        bronze      container   1       inf        0      inf\n"
        "rdt        gold        container   1       1          1      0\n"
    )
    assert kubeqos(cluster, "classes", "rdt", "-o", "wide", columns=columns) == (
        "RESOURCE   CLASS    LEVEL       MUTABLE   NODE     CAPACITY   USED   FREE\n"
        "rdt        bronze   container   Yes       node-a   inf        0      inf\n"
        "rdt        gold     container   Yes       node-a   1          1      0\n"
    )
    assert kubeqos(cluster, "classes", "network", "-o", "name") == "network=fast\nnetwork=slow\n"


def test_describe_node_in_the_layout_of_the_proposal(cluster: ScenarioCluster) -> None:
    text = kubeqos(cluster, "describe", "node", "node-a")
    assert (
        "Pod QoS resources:\n"
        "  NAME      MUTABLE   CLASSES (USED/CAPACITY)\n"
        "  network   No        fast (1/2)  slow (0/inf)\n"
        "\n"
        "Container QoS resources:\n"
        "  NAME      MUTABLE   CLASSES (USED/CAPACITY)\n"
        "  blockio   No        high-prio (0/4)  throttled (0/inf)\n"
        "  rdt       Yes       gold (1/1)  bronze (0/inf)\n"
    ) in text
    assert "  default     first   Burstable   100m   <none>   network=fast, c:rdt=gold" in text


def test_describe_pod(cluster: ScenarioCluster) -> None:
    text = kubeqos(cluster, "describe", "pod", "first")
    assert "QoS Class:  Burstable (container 'c': cpu request 100m ≠ limit none)" in text
    assert "  <pod>       network    fast        <none>" in text
    assert "  c           rdt        gold        <none>" in text


def test_quota_bars(cluster: ScenarioCluster) -> None:
    assert kubeqos(cluster, "quota") == (
        "default/limits  [NotTerminating]\n"
        "RESOURCE   <NONE>                        USED\n"
        "pods       [##########..........]  50%   2/4\n"
    ).replace("<NONE>", "      ")


def test_why(cluster: ScenarioCluster) -> None:
    placed = kubeqos(cluster, "why", "first")
    assert "placement  on node-a: best of the nodes that fit, with" in placed
    waits = kubeqos(cluster, "why", "second")
    assert re.search(r"placement  none, Unschedulable: 0/1 nodes are available: 1 QoS class rdt=gold exhausted", waits)
    assert "FailedScheduling" in waits


def test_the_kubectl_plugin(cluster: ScenarioCluster, tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-qos"
    plugin.write_text(
        f"#!{sys.executable}\nimport sys\nfrom kubeqos.cli.main import main\nsys.argv[0] = {str(plugin)!r}\nmain()\n"
    )
    plugin.chmod(0o755)
    cluster.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    assert "rdt        gold     container   1       1          1      0" in cluster.kubectl("qos", "classes", "rdt")
    assert "Usage: kubectl qos" in cluster.kubectl("qos", "--help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("why", "nobody"), 'pods "nobody" not found'),
        (("describe", "node", "nowhere"), 'nodes "nowhere" not found'),
        (("quota", "none"), 'resourcequotas "none" not found'),
    ],
)
def test_what_is_not_there_is_said_as_kubectl_says_it(
    cluster: ScenarioCluster, words: tuple[str, ...], message: str
) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.live.kubeconfig)}
    done = commands.run(*words, env=environment)
    assert (done.returncode, done.stderr) == (1, f"Error from server (NotFound): {message}\n")
