"""Nodes that come, fall silent, come back and go, and what becomes of their pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.model.timestamps import micro_timestamp, timestamp
from tests.controllers.cluster import ControlledCluster, controlled_cluster
from tests.scenarios.cluster import needs_kubectl

pytestmark = [pytest.mark.kubectl, needs_kubectl]
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledCluster]:
    with controlled_cluster(tmp_path_factory.mktemp("nodes")) as made:
        yield made


def register(cluster: ControlledCluster, name: str) -> None:
    assert cluster.live.call("POST", "/api/v1/nodes", {"metadata": {"name": name}}).code == 201


def report(cluster: ControlledCluster, name: str, **conditions: str) -> None:
    """What a node agent says of its node, now."""
    now = timestamp(time.time())
    listed = [
        {"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "Test"}
        for kind, status in conditions.items()
    ]
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"conditions": listed, "capacity": amounts, "allocatable": amounts}
    assert cluster.live.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE).code == 200


def renew(cluster: ControlledCluster, name: str) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    spec = {"holderIdentity": name, "renewTime": micro_timestamp(time.time()), "leaseDurationSeconds": 40}
    if cluster.live.call("PATCH", f"{path}/{name}", {"spec": spec}, MERGE).code == 404:
        assert cluster.live.call("POST", path, {"metadata": {"name": name}, "spec": spec}).code == 201


def taints(cluster: ControlledCluster, name: str) -> set[str]:
    found = cluster.live.call("GET", f"/api/v1/nodes/{name}").body["spec"].get("taints") or ()
    return {f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}" for taint in found}


def ready(cluster: ControlledCluster, name: str) -> str:
    node = cluster.live.call("GET", f"/api/v1/nodes/{name}").body
    return next((c["status"] for c in node["status"].get("conditions") or () if c["type"] == "Ready"), "")


def bound(cluster: ControlledCluster, name: str, node: str, **spec: Any) -> None:
    body = {"nodeName": node, "containers": [{"name": "c", "image": "app:1"}], **spec}
    answer = cluster.live.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": body})
    assert answer.code == 201, answer.body


def test_a_node_that_falls_silent_is_tainted_its_pods_evicted_and_it_may_come_back(cluster: ControlledCluster) -> None:
    register(cluster, "n1")
    assert taints(cluster, "n1") == {"not-ready:NoSchedule"}, "no pod comes before the node has reported"
    renew(cluster, "n1")
    report(cluster, "n1", Ready="True", MemoryPressure="False")
    cluster.wait("the taint goes", lambda: taints(cluster, "n1") == set())
    short = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    ]
    bound(cluster, "quick", "n1", tolerations=short)
    bound(cluster, "patient", "n1")  # tolerates for five minutes, as every pod does
    for _ in range(12):  # twice the grace period: renewing the lease is enough
        renew(cluster, "n1")
        time.sleep(0.2)
    assert ready(cluster, "n1") == "True"
    assert cluster.pod("quick") is not None
    cluster.wait("nobody knows how it is", lambda: ready(cluster, "n1") == "Unknown")
    cluster.wait("tainted", lambda: taints(cluster, "n1") == {"unreachable:NoSchedule", "unreachable:NoExecute"})
    cluster.wait("the pod that does not wait goes", lambda: cluster.pod("quick") is None)
    patient = cluster.pod("patient")
    unready = cluster.wait("its pods serve nobody", lambda: [
        c for c in cluster.pod("patient")["status"]["conditions"] if c["type"] == "Ready" and c["status"] == "False"
    ])  # fmt: skip
    assert unready[0]["reason"] == "NodeNotReady"
    assert "deletionTimestamp" not in patient["metadata"]
    report(cluster, "n1", Ready="True", MemoryPressure="True")
    cluster.wait("it is back, under pressure", lambda: taints(cluster, "n1") == {"memory-pressure:NoSchedule"})


def test_pods_of_a_deleted_node_go(cluster: ControlledCluster) -> None:
    register(cluster, "n2")
    bound(cluster, "left-behind", "n2")
    cluster.kubectl("delete", "node", "n2")
    cluster.wait("its pod is gone", lambda: cluster.pod("left-behind") is None)


def test_drain_says_what_it_would_evict(cluster: ControlledCluster) -> None:
    register(cluster, "n3")
    report(cluster, "n3", Ready="True")
    bound(cluster, "drained", "n3")
    said = cluster.kubectl("drain", "n3", "--dry-run=server", "--force", "--ignore-daemonsets")
    assert "evicting pod default/drained (server dry run)" in said
    assert cluster.pod("drained") is not None
    cluster.kubectl("cordon", "n3")
    cluster.wait("the cordon is a taint", lambda: "unschedulable:NoSchedule" in taints(cluster, "n3"))
    cluster.kubectl("uncordon", "n3")
    cluster.wait("and no longer", lambda: "unschedulable:NoSchedule" not in taints(cluster, "n3"))


def test_a_pod_gets_its_claim_from_a_template(cluster: ControlledCluster) -> None:
    claims = [{"name": "cores", "resourceClaimTemplateName": "eight"}]
    body = {"containers": [{"name": "c", "image": "app:1"}], "resourceClaims": claims}
    manifest = {"metadata": {"name": "hpc"}, "spec": body}
    assert cluster.live.call("POST", "/api/v1/namespaces/default/pods", manifest).code == 201
    cluster.wait("it says what is missing", lambda: "FailedResourceClaimCreation" in cluster.kubectl("get", "events"))
    spec = {"metadata": {"labels": {"from": "template"}}, "spec": {"resourceClassName": "compute"}}
    cluster.apply({
        "apiVersion": "resource.k8s.io/v1alpha1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "eight"}, "spec": spec,
    })  # fmt: skip
    path = "/apis/resource.k8s.io/v1alpha1/namespaces/default/resourceclaims/hpc-cores"
    claim = cluster.wait("the claim", lambda: (a := cluster.live.call("GET", path)).code == 200 and a.body)
    assert claim["spec"]["resourceClassName"] == "compute"
    assert claim["metadata"]["labels"] == {"from": "template"}
    assert claim["metadata"]["ownerReferences"][0]["name"] == "hpc"
    named = cluster.wait("its name in the pod", lambda: cluster.pod("hpc")["status"].get("resourceClaimStatuses"))
    assert named == [{"name": "cores", "resourceClaimName": "hpc-cores"}]
    assert "pending" in cluster.kubectl("get", "resourceclaims", "--no-headers")
    binding = {"metadata": {"name": "hpc"}, "target": {"kind": "Node", "name": "n1"}}
    assert cluster.live.call("POST", "/api/v1/namespaces/default/pods/hpc/binding", binding).code == 201
    cluster.wait("in use", lambda: "allocated,reserved" in cluster.kubectl("get", "resourceclaims", "--no-headers"))
    cluster.kubectl("delete", "pod", "hpc", "--timeout=30s")
    cluster.wait("the claim goes with its pod", lambda: cluster.live.call("GET", path).code == 404)
