"""What the server tells about itself, and what its smaller subresources do."""

from __future__ import annotations

import time
from pathlib import Path

from kubeqos.apiserver.observe import Health
from kubeqos.codec import decode_json
from kubeqos.gates import FeatureGates
from tests.apiserver.live import ADMIN_TOKEN, LiveServer, live_server

ROOM = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default/deployments"
POLICY = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def test_health_is_told_check_by_check() -> None:
    health = Health()
    health.checks["etcd"] = lambda: "disk is full"
    answer = health.respond("/readyz", {})
    assert answer is not None
    assert answer.code == 500
    assert answer.body.decode().splitlines() == [
        "[+]ping ok",
        "[+]log ok",
        "[-]etcd failed: reason withheld",
        "readyz check failed",
    ]
    excluded = health.respond("/readyz", {"exclude": ["etcd"]})
    assert excluded is not None
    assert (excluded.code, excluded.body) == (200, b"ok")
    single = health.respond("/livez/etcd", {})
    assert single is not None
    assert single.code == 500
    assert health.respond("/livez/nope", {}) is None


def sample(metrics: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(f"{name} "))


def test_a_watch_is_long_running_and_not_in_flight(live: LiveServer) -> None:
    connection = live.connect()
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    connection.request("GET", f"{ROOM}/pods?watch=true", headers=headers)
    assert connection.getresponse().status == 200
    metrics = live.call("GET", "/metrics").raw.decode()
    assert sample(metrics, "apiserver_longrunning_requests") == 1
    assert sample(metrics, 'apiserver_current_inflight_requests{request_kind="readOnly"}') == 1  # this very request
    connection.close()


def test_classes_are_told_as_quotas_count_them(tmp_path: Path) -> None:
    rdt = {"name": "rdt", "classes": [{"name": "gold", "capacity": 2}, {"name": "silver"}]}
    quota = {"metadata": {"name": "told"}, "spec": {"qosResources": {"container": [rdt]}}}
    ask = {"qosResources": [{"name": "rdt", "class": "gold"}]}
    pod = {"metadata": {"name": "told"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": ask}]}}
    labels = 'class="{}",level="container",namespace="default",resource="rdt",resourcequota="told"'
    with live_server(tmp_path / "data", FeatureGates.parse("QOSResources=true")) as live:
        assert live.call("POST", f"{ROOM}/resourcequotas", quota).code == 201
        assert live.call("POST", f"{ROOM}/pods", pod).code == 201
        metrics = live.call("GET", "/metrics").raw.decode()
        assert sample(metrics, f"kubeqos_quota_class_used{{{labels.format('gold')}}}") == 1
        assert sample(metrics, f"kubeqos_quota_class_used{{{labels.format('silver')}}}") == 0
        assert sample(metrics, f"kubeqos_quota_class_hard{{{labels.format('gold')}}}") == 2
        assert f"kubeqos_quota_class_hard{{{labels.format('silver')}}}" not in metrics
        assert live.call("DELETE", f"{ROOM}/resourcequotas/told").code == 200
        assert "kubeqos_quota_class_used{" not in live.call("GET", "/metrics").raw.decode()


def test_requests_are_counted_and_audited(live: LiveServer) -> None:
    assert live.call("GET", f"{ROOM}/pods/absent").code == 404
    metrics = live.call("GET", "/metrics").raw.decode()
    line = next(
        line for line in metrics.splitlines() if 'code="404"' in line and line.startswith("apiserver_request_total")
    )
    assert 'verb="GET"' in line
    assert 'resource="pods"' in line
    assert "apiserver_request_duration_seconds_bucket" in metrics
    assert "apiserver_storage_objects" in metrics
    assert sample(metrics, 'apiserver_current_inflight_requests{request_kind="readOnly"}') == 1  # this very request
    assert sample(metrics, 'apiserver_current_inflight_requests{request_kind="mutating"}') == 0
    assert sample(metrics, "apiserver_storage_failed_batches_total") == 0
    assert sample(metrics, "apiserver_storage_batches_total") > 0
    assert sample(metrics, "apiserver_storage_sync_seconds_total") > 0
    time.sleep(1.2)
    lines = (live.server.settings.data_dir / "audit.log").read_bytes().splitlines()
    record = next(r for r in map(decode_json, lines) if r["path"] == f"{ROOM}/pods/absent")
    assert (record["user"], record["verb"], record["code"]) == ("admin", "GET", 404)


def test_a_scale_with_an_old_version_is_refused(live: LiveServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert live.call("POST", APPS, {"metadata": {"name": "d"}, "spec": spec}).code == 201
    scale = live.call("GET", f"{APPS}/d/scale").body
    assert scale["status"]["selector"] == "a=b"
    scale["spec"]["replicas"] = 4
    assert live.call("PUT", f"{APPS}/d/scale", scale).body["spec"]["replicas"] == 4
    assert live.call("PUT", f"{APPS}/d/scale", scale).code == 409
    negative = live.call(
        "PATCH", f"{APPS}/d/scale", {"spec": {"replicas": -1}}, {"Content-Type": "application/merge-patch+json"}
    )
    assert negative.code == 422
    assert live.call("GET", f"{APPS}/d").body["metadata"]["generation"] == 2


def test_an_eviction_spends_the_disruption_budget(live: LiveServer) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    for name in ("one", "two"):
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}
        assert (
            live.call("POST", f"{ROOM}/pods", {"metadata": {"name": name, "labels": {"app": "w"}}, "spec": spec}).code
            == 201
        )
        live.call("PATCH", f"{ROOM}/pods/{name}/status", {"status": {"phase": "Running"}}, merge)
    budget = {"metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}}}
    assert live.call("POST", POLICY, budget).code == 201
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    assert live.call("PATCH", f"{POLICY}/pdb/status", {"status": status}, merge).code == 200

    def evict(name: str) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return live.call("POST", f"{ROOM}/pods/{name}/eviction", body).code

    assert evict("one") == 201
    assert evict("two") == 429
    found = live.call("GET", f"{POLICY}/pdb").body["status"]
    assert found["disruptionsAllowed"] == 0
    assert list(found["disruptedPods"]) == ["one"]
