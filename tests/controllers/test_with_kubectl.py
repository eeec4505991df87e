"""The controllers seen through the real kubectl and the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controllers.cluster import BROKEN, ControlledCluster, controlled_cluster
from tests.scenarios.cluster import needs_kubectl

pytestmark = [pytest.mark.kubectl, needs_kubectl]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledCluster]:
    with controlled_cluster(tmp_path_factory.mktemp("controllers")) as made:
        yield made
        assert made.manager.metrics.audits._value.get() > 0
        drift = made.manager.controller("resourcequota").drifts  # type: ignore[attr-defined]
        assert drift == {}, "the audit found usage that is not the sum over the objects"


def template(app: str, image: str = "app:1", **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": {"labels": {"app": app, **labels}}, "spec": {"containers": [container]}}


def deployment(name: str, replicas: int, image: str = "app:1", **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template(name, image), **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def pods(cluster: ControlledCluster, app: str, namespace: str = "default") -> list[Any]:
    found = cluster.live.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}").body["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def images(cluster: ControlledCluster, app: str) -> list[str]:
    return sorted({pod["spec"]["containers"][0]["image"] for pod in pods(cluster, app)})


def test_a_deployment_rolls_out_scales_and_rolls_back(cluster: ControlledCluster) -> None:
    cluster.apply(deployment("web", 3))
    assert "successfully rolled out" in cluster.kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    assert len(pods(cluster, "web")) == 3
    cluster.kubectl("scale", "deploy/web", "--replicas=5")
    cluster.kubectl("wait", "deploy/web", "--for=jsonpath={.status.availableReplicas}=5", "--timeout=30s")
    cluster.kubectl("set", "image", "deploy/web", "c=app:2")
    assert "successfully rolled out" in cluster.kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    cluster.wait("only new pods", lambda: images(cluster, "web") == ["app:2"] and len(pods(cluster, "web")) == 5)
    history = cluster.kubectl("rollout", "history", "deploy/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    cluster.kubectl("rollout", "undo", "deploy/web")
    cluster.kubectl("rollout", "status", "deploy/web", "--timeout=30s")
    cluster.wait("the first image again", lambda: images(cluster, "web") == ["app:1"])
    assert cluster.get("deploy", "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    sets = cluster.get("rs", "-l", "app=web")["items"]
    assert sorted(found["spec"]["replicas"] for found in sets) == [0, 5], "a rollback uses the ReplicaSet it had"


def test_a_paused_deployment_is_scaled_and_not_rolled(cluster: ControlledCluster) -> None:
    cluster.apply(deployment("calm", 2))
    cluster.kubectl("rollout", "status", "deploy/calm", "--timeout=30s")
    cluster.kubectl("rollout", "pause", "deploy/calm")
    cluster.kubectl("set", "image", "deploy/calm", "c=app:2")
    cluster.kubectl("scale", "deploy/calm", "--replicas=4")
    cluster.wait("four pods", lambda: len(pods(cluster, "calm")) == 4)
    assert images(cluster, "calm") == ["app:1"]
    cluster.kubectl("rollout", "resume", "deploy/calm")
    cluster.kubectl("rollout", "status", "deploy/calm", "--timeout=30s")
    cluster.wait("new image", lambda: images(cluster, "calm") == ["app:2"])


def test_recreate_ends_the_old_before_it_starts_the_new(cluster: ControlledCluster) -> None:
    cluster.apply(deployment("alone", 2, strategy={"type": "Recreate"}))
    cluster.kubectl("rollout", "status", "deploy/alone", "--timeout=30s")
    cluster.kubectl("set", "image", "deploy/alone", "c=app:2")
    cluster.kubectl("rollout", "status", "deploy/alone", "--timeout=30s")
    cluster.wait("new image", lambda: images(cluster, "alone") == ["app:2"])


def test_a_rollout_that_does_not_progress_is_said_to_have_failed(cluster: ControlledCluster) -> None:
    stuck = deployment("stuck", 1, progressDeadlineSeconds=1)
    stuck["spec"]["template"] = template("stuck", **{BROKEN: "yes"})
    cluster.apply(stuck)
    said = cluster.kubectl("rollout", "status", "deploy/stuck", "--timeout=30s", check=False)
    assert "exceeded its progress deadline" in said


def test_evicted_and_failed_pods_are_replaced(cluster: ControlledCluster) -> None:
    body = {"replicas": 2, "selector": {"matchLabels": {"app": "rs"}}, "template": template("rs")}
    cluster.apply({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"}, "spec": body})
    first = cluster.wait("two pods", lambda: len(found := pods(cluster, "rs")) == 2 and found)
    name = first[0]["metadata"]["name"]
    failed = {"status": {"phase": "Failed", "reason": "Evicted"}}
    patch = {"Content-Type": "application/merge-patch+json"}
    assert cluster.live.call("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", failed, patch).code == 200
    cluster.wait("a third pod", lambda: len(pods(cluster, "rs")) == 3)
    cluster.kubectl("wait", "rs/rs", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=30s")


def test_deleting_in_the_background_in_the_foreground_and_as_orphans(cluster: ControlledCluster) -> None:
    for way in ("background", "foreground", "orphan"):
        cluster.apply(deployment(way, 2))
        cluster.kubectl("rollout", "status", f"deploy/{way}", "--timeout=30s")
        cluster.kubectl("delete", "deploy", way, f"--cascade={way}", "--timeout=30s")
    cluster.wait("pods are gone", lambda: not pods(cluster, "background") + pods(cluster, "foreground"))
    assert cluster.get("rs", "-l", "app in (background,foreground)")["items"] == []
    assert len(pods(cluster, "orphan")) == 2
    [orphan] = cluster.get("rs", "-l", "app=orphan")["items"]
    assert not orphan["metadata"].get("ownerReferences")
    cluster.apply(deployment("orphan", 2))
    adopted = cluster.wait(
        "it is adopted", lambda: cluster.get("rs", "-l", "app=orphan")["items"][0]["metadata"].get("ownerReferences")
    )
    assert adopted[0]["kind"] == "Deployment"
    assert len(cluster.get("rs", "-l", "app=orphan")["items"]) == 1


def test_a_replication_controller(cluster: ControlledCluster) -> None:
    body = {"replicas": 2, "selector": {"app": "rc"}, "template": template("rc")}
    cluster.apply({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}, "spec": body})
    cluster.wait("two pods", lambda: len(pods(cluster, "rc")) == 2)
    cluster.kubectl("scale", "rc/rc", "--replicas=0")
    cluster.wait("no pods", lambda: not pods(cluster, "rc"))
    cluster.kubectl("delete", "rc", "rc", "--timeout=30s")


def test_a_namespace_is_emptied_and_goes(cluster: ControlledCluster) -> None:
    cluster.kubectl("create", "namespace", "leaving")
    cluster.kubectl("create", "quota", "q", "--hard=pods=5,requests.cpu=2", "-n", "leaving")
    cluster.kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "leaving")
    made = deployment("tenant", 2)
    made["metadata"]["namespace"] = "leaving"
    cluster.apply(made)
    cluster.kubectl("rollout", "status", "deploy/tenant", "-n", "leaving", "--timeout=30s")
    assert cluster.get("sa", "-n", "leaving")["items"][0]["metadata"]["name"] == "default"
    used = cluster.get("quota", "q", "-n", "leaving")["status"]["used"]
    assert used == {"pods": "2", "requests.cpu": "200m"}
    cluster.kubectl("delete", "namespace", "leaving", "--timeout=30s")
    assert "NotFound" in cluster.kubectl("get", "namespace", "leaving", check=False)


def test_a_quota_stops_a_replica_set_and_lets_it_go_on(cluster: ControlledCluster) -> None:
    cluster.kubectl("create", "namespace", "bounded")
    cluster.kubectl("create", "quota", "q", "--hard=pods=2", "-n", "bounded")
    made = deployment("greedy", 5)
    made["metadata"]["namespace"] = "bounded"
    cluster.apply(made)
    cluster.wait("two pods", lambda: len(pods(cluster, "greedy", "bounded")) == 2)
    failing = cluster.wait(
        "the deployment says why",
        lambda: [
            c
            for c in cluster.get("deploy", "greedy", "-n", "bounded").get("status", {}).get("conditions", ())
            if c["type"] == "ReplicaFailure"
        ],
    )
    assert "exceeded quota: q" in failing[0]["message"]
    cluster.kubectl("patch", "quota", "q", "-n", "bounded", "--type=merge", "-p", '{"spec":{"hard":{"pods":"9"}}}')
    cluster.kubectl("rollout", "status", "deploy/greedy", "-n", "bounded", "--timeout=40s")
    assert len(pods(cluster, "greedy", "bounded")) == 5


def test_a_disruption_budget_counts_and_is_obeyed(cluster: ControlledCluster) -> None:
    cluster.apply(deployment("guarded", 3))
    cluster.kubectl("rollout", "status", "deploy/guarded", "--timeout=30s")
    cluster.kubectl("create", "pdb", "guard", "--selector=app=guarded", "--min-available=2")
    cluster.kubectl("wait", "pdb/guard", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=30s")
    status = cluster.get("pdb", "guard")["status"]
    assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (3, 2, 3)
    cluster.kubectl("scale", "deploy/guarded", "--replicas=2")
    cluster.kubectl("wait", "pdb/guard", "--for=jsonpath={.status.disruptionsAllowed}=0", "--timeout=30s")
    name = pods(cluster, "guarded")[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    refused = cluster.live.call("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", eviction)
    assert refused.code == 429, refused.body


def test_a_volume_claim_stays_while_it_is_used(cluster: ControlledCluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    pod_spec = {**template("user")["spec"], "volumes": [volume], "nodeName": "keeper"}
    cluster.node("keeper")
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": pod_spec})
    cluster.kubectl("delete", "pvc", "data", "--wait=false")
    assert cluster.get("pvc", "data")["metadata"]["deletionTimestamp"]
    cluster.kubectl("delete", "pod", "user", "--timeout=30s")
    cluster.kubectl("wait", "pvc/data", "--for=delete", "--timeout=30s")


def test_finished_pods_beyond_the_threshold_go(cluster: ControlledCluster) -> None:
    for number in range(6):
        manifest = {"metadata": {"name": f"done-{number}", "labels": {"app": "done"}}, "spec": template("x")["spec"]}
        assert cluster.live.call("POST", "/api/v1/namespaces/default/pods", manifest).code == 201
        path = f"/api/v1/namespaces/default/pods/done-{number}/status"
        patch = {"Content-Type": "application/merge-patch+json"}
        cluster.live.call("PATCH", path, {"status": {"phase": "Succeeded"}}, patch)
    cluster.wait("at most three are left", lambda: len(pods(cluster, "done")) <= 3)


def finish(cluster: ControlledCluster, job: str, phase: str = "Succeeded") -> None:
    """End a job's running pods, as their nodes would."""
    path = f"/api/v1/namespaces/default/pods?labelSelector=job-name%3D{job}"
    for pod in cluster.live.call("GET", path).body["items"]:
        if (pod.get("status") or {}).get("phase") == "Running":
            one = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
            merge = {"Content-Type": "application/merge-patch+json"}
            assert cluster.live.call("PATCH", one, {"status": {"phase": phase}}, merge).code == 200


def running(cluster: ControlledCluster, job: str) -> int:
    path = f"/api/v1/namespaces/default/pods?labelSelector=job-name%3D{job}"
    found = cluster.live.call("GET", path).body["items"]
    return sum((pod.get("status") or {}).get("phase") == "Running" for pod in found)


def test_a_job_completes_and_leaves_nothing_behind(cluster: ControlledCluster) -> None:
    cluster.kubectl("create", "job", "once", "--image=app:1")
    cluster.wait("its pod runs", lambda: running(cluster, "once") == 1)
    finish(cluster, "once")
    cluster.kubectl("wait", "job/once", "--for=condition=complete", "--timeout=30s")
    row = cluster.kubectl("get", "job", "once", "--no-headers").split()
    assert row[1:3] == ["Complete", "1/1"]
    cluster.kubectl("delete", "job", "once")
    path = "/api/v1/namespaces/default/pods?labelSelector=job-name%3Donce"
    cluster.wait("its pods are gone", lambda: cluster.live.call("GET", path).body["items"] == [])


def test_an_indexed_job_is_suspended_and_resumed(cluster: ControlledCluster) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}
    body = {
        "completions": 3,
        "parallelism": 3,
        "completionMode": "Indexed",
        "suspend": True,
        "template": {"spec": spec},
    }
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "shards"}, "spec": body})
    cluster.kubectl("wait", "job/shards", "--for=condition=suspended", "--timeout=30s")
    cluster.kubectl("patch", "job", "shards", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    cluster.wait("three pods run", lambda: running(cluster, "shards") == 3)
    finish(cluster, "shards")
    cluster.kubectl("wait", "job/shards", "--for=condition=complete", "--timeout=30s")
    assert cluster.get("job", "shards")["status"]["completedIndexes"] == "0-2"


def test_a_cron_job_makes_jobs_in_time(cluster: ControlledCluster) -> None:
    cluster.kubectl("create", "cronjob", "tick", "--image=app:1", "--schedule=@every 1s")
    cluster.wait("it has made a job", lambda: bool(cluster.get("cronjob", "tick").get("status", {}).get("active")))
    [made] = cluster.get("cronjob", "tick")["status"]["active"][:1]
    owner = cluster.get("job", made["name"])["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("CronJob", "tick")
    cluster.kubectl("create", "job", "by-hand", "--from=cronjob/tick")
    cluster.wait("one more pod runs", lambda: running(cluster, "by-hand") == 1)
    cluster.kubectl("delete", "cronjob", "tick")
    path = f"/apis/batch/v1/namespaces/default/jobs/{made['name']}"
    cluster.wait("its jobs are gone", lambda: cluster.live.call("GET", path).code == 404)


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (
            "Job",
            {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        (
            "CronJob",
            {
                "schedule": "61 * * * *",
                "timeZone": "Moon/Base",
                "jobTemplate": {
                    "spec": {
                        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
                    }
                },
            },
            "unknown time zone Moon/Base",
        ),
    ],
)
def test_what_is_wrong_with_a_job_is_said_in_the_words_of_kubernetes(
    cluster: ControlledCluster, kind: str, body: dict[str, Any], why: str
) -> None:
    path = f"/apis/batch/v1/namespaces/default/{kind.lower()}s"
    answer = cluster.live.call("POST", path, {"metadata": {"name": "wrong"}, "spec": body})
    assert answer.code == 422
    assert why in answer.body["message"]
