"""Daemon and stateful sets seen through the real kubectl and the real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kubeqos.controllers.controller import Settings
from kubeqos.model.timestamps import timestamp
from tests.controllers.cluster import ControlledCluster, controlled_cluster
from tests.controllers.test_with_kubectl import images, pods, template
from tests.scenarios.cluster import needs_kubectl

pytestmark = [pytest.mark.kubectl, needs_kubectl]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledCluster]:
    # Nobody sends heartbeats here: the nodes stay what the test says they are.
    with controlled_cluster(tmp_path_factory.mktemp("sets"), Settings(orphan_quarantine_seconds=0.5)) as made:
        for name in ("n1", "n2", "n3"):
            add_node(made, name)
        yield made


def add_node(cluster: ControlledCluster, name: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    now = timestamp(time.time())
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"status": {"conditions": [ready]}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert cluster.live.call("PATCH", f"/api/v1/nodes/{name}/status", status, merge).code == 200


def where(cluster: ControlledCluster, app: str) -> list[str]:
    found = []
    for pod in pods(cluster, app):
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        found += terms["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    return sorted(found)


def test_a_daemon_set_follows_the_nodes_and_rolls_back(cluster: ControlledCluster) -> None:
    body = {"selector": {"matchLabels": {"app": "eye"}}, "template": template("eye")}
    cluster.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "eye"}, "spec": body})
    cluster.wait("a pod for each node", lambda: where(cluster, "eye") == ["n1", "n2", "n3"])
    assert "successfully rolled out" in cluster.kubectl("rollout", "status", "ds/eye", "--timeout=30s")
    add_node(cluster, "n4")
    cluster.wait("a pod for the new node", lambda: "n4" in where(cluster, "eye"))
    cluster.kubectl("taint", "node", "n4", "own=yes:NoExecute")
    cluster.wait("no pod there", lambda: where(cluster, "eye") == ["n1", "n2", "n3"])
    cluster.kubectl("set", "image", "ds/eye", "c=app:2")
    cluster.kubectl("rollout", "status", "ds/eye", "--timeout=30s")
    cluster.wait("new pods", lambda: images(cluster, "eye") == ["app:2"])
    history = cluster.kubectl("rollout", "history", "ds/eye")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    cluster.kubectl("rollout", "undo", "ds/eye")
    cluster.wait("the first image again", lambda: images(cluster, "eye") == ["app:1"])
    columns = cluster.kubectl("get", "ds", "eye", "--no-headers").split()
    assert columns[:6] == ["eye", "3", "3", "3", "3", "3"]


def test_a_stateful_set_keeps_names_and_claims_and_rolls_back(cluster: ControlledCluster) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {
        "replicas": 3,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    cluster.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": body})
    done = "--for=jsonpath={.status.readyReplicas}=3"
    cluster.kubectl("wait", "sts/db", done, "--timeout=30s")
    assert [pod["metadata"]["name"] for pod in pods(cluster, "db")] == ["db-0", "db-1", "db-2"]
    claims = [each["metadata"]["name"] for each in cluster.get("pvc", "-l", "app=db")["items"]]
    assert claims == ["data-db-0", "data-db-1", "data-db-2"]
    cluster.kubectl("set", "image", "sts/db", "c=app:2")
    assert "roll out complete: 3 new pods" in cluster.kubectl("rollout", "status", "sts/db", "--timeout=60s")
    assert images(cluster, "db") == ["app:2"]
    cluster.kubectl("rollout", "undo", "sts/db")
    cluster.wait("the first image again", lambda: images(cluster, "db") == ["app:1"])
    cluster.kubectl("scale", "sts/db", "--replicas=1")
    cluster.wait("one pod", lambda: [pod["metadata"]["name"] for pod in pods(cluster, "db")] == ["db-0"])
    assert len(cluster.get("pvc", "-l", "app=db")["items"]) == 3
    cluster.kubectl("delete", "sts/db")
    cluster.wait("its pods to go with it", lambda: not pods(cluster, "db"))
    assert len(cluster.get("pvc", "-l", "app=db")["items"]) == 3
