"""KEP-3008's scheduling stories through the real kubectl and the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.cluster import ScenarioCluster, needs_kubectl, scenario_cluster

pytestmark = [pytest.mark.kubectl, needs_kubectl]
GOLD = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}, {"name": "bronze"}]}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioCluster]:
    folder: Path = tmp_path_factory.mktemp("scheduling")
    with scenario_cluster(folder) as made:
        made.node("gold-node", qos=GOLD, role="gold")
        yield made


def pod(name: str, *classes: tuple[str, str], **spec: Any) -> dict[str, Any]:
    requests = [{"name": resource, "class": cls} for resource, cls in classes]
    resources = {"requests": {"cpu": "100m"}, "qosResources": requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": resources}], **spec},
    }


def condition(raw: Any) -> Any:
    return next((c for c in (raw.get("status") or {}).get("conditions", ()) if c["type"] == "PodScheduled"), None)


def test_a_class_runs_out_is_freed_and_is_given_to_the_pod_that_waits(cluster: ScenarioCluster) -> None:
    cluster.apply(pod("first", ("rdt", "gold")))
    cluster.wait("first is bound", lambda: cluster.pod("first")["spec"].get("nodeName") == "gold-node")
    cluster.apply(pod("second", ("rdt", "gold")))
    waiting = cluster.wait("second is refused", lambda: condition(cluster.pod("second")))
    assert waiting["reason"] == "Unschedulable"
    assert "QoS class rdt=gold exhausted (1/1 used)" in waiting["message"]
    described = cluster.kubectl("describe", "pod", "second")
    assert "FailedScheduling" in described
    cluster.kubectl("delete", "pod", "first", "--force", "--wait=false")
    cluster.wait("second is bound", lambda: cluster.pod("second")["spec"].get("nodeName") == "gold-node", 5)


def test_a_more_important_pod_takes_the_class_slot(cluster: ScenarioCluster) -> None:
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    assert cluster.pod("second")["spec"]["nodeName"] == "gold-node"
    cluster.apply(pod("urgent", ("rdt", "gold"), priorityClassName="urgent"))
    cluster.wait(
        "the victim is leaving",
        lambda: "deletionTimestamp" in (cluster.pod("second") or {"metadata": {"deletionTimestamp": 1}})["metadata"],
    )
    cluster.kubectl("delete", "pod", "second", "--force", "--ignore-not-found")
    cluster.wait("urgent is bound", lambda: cluster.pod("urgent")["spec"].get("nodeName") == "gold-node", 5)
    told = "Preempting pod default/second on node gold-node, which has a lower priority"
    cluster.wait("both sides are told", lambda: told in cluster.kubectl("describe", "pod", "urgent"))
    events = cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=second")
    assert "Preempted by pod default/urgent on node gold-node" in events


def test_a_catalog_that_changes_lets_a_waiting_pod_in(cluster: ScenarioCluster) -> None:
    cluster.apply(pod("wants-net", ("vendor.example/net", "fast")))
    refused = cluster.wait("it is refused", lambda: condition(cluster.pod("wants-net")))
    assert "QoS resource vendor.example/net not available" in refused["message"]
    cluster.node(
        "net-node", qos={"containerQoSResources": [{"name": "vendor.example/net", "classes": [{"name": "fast"}]}]}
    )
    cluster.wait("it is bound", lambda: cluster.pod("wants-net")["spec"].get("nodeName") == "net-node", 5)


def test_a_pod_level_resource_asked_by_a_container_stays_pending_and_says_why(cluster: ScenarioCluster) -> None:
    cluster.node(
        "pod-level", qos={"podQoSResources": [{"name": "vendor.example/podnet", "classes": [{"name": "fast"}]}]}
    )
    cluster.apply(pod("wrong-level", ("vendor.example/podnet", "fast")))
    refused = cluster.wait("it is refused", lambda: condition(cluster.pod("wrong-level")))
    assert "QoS resource vendor.example/podnet is pod-level, requested at container level" in refused["message"]
