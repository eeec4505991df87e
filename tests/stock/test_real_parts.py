"""Unmodified kube-scheduler and kube-controller-manager on our API server, with our node agent under the pods.

Each speaks to us as to its own kind: protobuf, streaming lists, every informer it knows. That they find everything is
read from the audit log: nothing that they ask for is unknown here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from tests.apiserver.live import LiveServer, live_server
from tests.stock.kube_apiserver import process
from tests.stock.needs import needs_stock

pytestmark = [*needs_stock("kube-scheduler", "kube-controller-manager"), pytest.mark.kubectl]
PARTS = ("kube-scheduler", "kube-controller-manager")
CONTAINER = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}


class Cluster:
    """Our API server and agent, and Kubernetes' control plane on it."""

    def __init__(self, live: LiveServer, folder: Path) -> None:
        self.live, self.folder = live, folder

    def kubectl(self, *words: str, manifest: Any = None) -> str:
        text = None if manifest is None else json.dumps(manifest)
        command = ["kubectl", "--kubeconfig", str(self.live.kubeconfig), *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def create(self, kind: str, name: str, spec: Any, version: str = "v1") -> None:
        raw = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "-f", "-", manifest=raw)

    def eventually(self, what: str, is_so: Callable[[], Any], seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := is_so()):
            assert time.monotonic() < deadline, f"never happened: {what}\n{self.kubectl('get', 'all,events')}"
            time.sleep(0.3)
        return found

    def unknown(self) -> list[str]:
        """The kinds that Kubernetes' parts asked for and the server does not have."""
        assert self.live.server.audit is not None
        self.live.server.audit.flush()
        lines = list(map(json.loads, (self.folder / "data" / "audit.log").read_text().splitlines()))
        theirs = [one for one in lines if one["agent"].startswith(PARTS)]
        assert {agent.partition("/")[0] for agent in (one["agent"] for one in theirs)} == set(PARTS)
        collections = {collection(one["path"]) for one in theirs if one["code"] == 404}
        return sorted(path for path in collections if self.live.call("GET", path).code == 404)


def collection(path: str) -> str:
    """Where the objects of the kind are that a path is about: an object may be gone, its kind may not."""
    found = re.match(r"(/api/v1|/apis/[^/]+/[^/]+)(/namespaces/[^/]+(?=/))?/[^/]+", path)
    return found[0] if found else path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("parts")
    scheduler, manager = map(str, find("kube-scheduler", "kube-controller-manager") or ())
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    config = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeConfiguration", "nodeName": "n1"}
    (folder / "node.yaml").write_text(json.dumps({**config, "simulatedMachine": "laptop8"}))
    with live_server(folder / "data") as live, ExitStack() as stack:
        common = ["--kubeconfig", str(live.kubeconfig), "--leader-elect=true", "--secure-port=0"]
        node = [sys.executable, "-m", "kubeqos.cli.main", "node", "--kubeconfig", str(live.kubeconfig)]
        node += ["--config", str(folder / "node.yaml"), "--state-dir", str(folder / "state")]
        manager_words = [manager, *common, "--service-account-private-key-file", str(key)]
        for name, words in (("scheduler", [scheduler, *common]), ("manager", manager_words), ("node", node)):
            stack.enter_context(process(words, folder, name))
        made = Cluster(live, folder)
        made.eventually("a node", lambda: made.get("nodes")["items"])
        yield made


def test_a_deployment_rolls_out_and_is_collected(cluster: Cluster) -> None:
    cluster.kubectl("create", "deployment", "web", "--image=app:1", "--replicas=3")
    cluster.eventually("3 pods", lambda: cluster.get("deployment", "web")["status"].get("readyReplicas") == 3)
    cluster.kubectl("set", "image", "deployment/web", "app=app:2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    images = {pod["spec"]["containers"][0]["image"] for pod in cluster.get("pods", "-l", "app=web")["items"]}
    assert "app:2" in images
    cluster.kubectl("delete", "deployment", "web")
    cluster.eventually("garbage collected", lambda: not cluster.get("replicasets,pods", "-l", "app=web")["items"])


def test_a_more_important_pod_takes_the_place(cluster: Cluster) -> None:
    cluster.kubectl("create", "priorityclass", "urgent", "--value=1000")
    whole = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "6"}}}
    cluster.create("Pod", "low", {"containers": [whole]})
    cluster.eventually("low runs", lambda: cluster.get("pod", "low")["status"].get("phase") == "Running")
    cluster.create("Pod", "high", {"containers": [whole], "priorityClassName": "urgent"})
    cluster.eventually("high runs", lambda: cluster.get("pod", "high")["status"].get("phase") == "Running")
    assert "low" not in {pod["metadata"]["name"] for pod in cluster.get("pods")["items"]}
    cluster.kubectl("delete", "pod", "high", "--now")


def test_a_namespace_is_emptied(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "away")
    cluster.kubectl("create", "configmap", "c", "-n", "away")
    cluster.eventually("an account", lambda: cluster.get("serviceaccounts", "-n", "away")["items"])
    cluster.kubectl("delete", "namespace", "away", "--timeout=90s")


def test_a_daemon_set_and_a_stateful_set_run(cluster: Cluster) -> None:
    def of(app: str, **more: Any) -> Any:
        labels = {"app": app}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}}
        return {"selector": {"matchLabels": labels}, "template": template, **more}

    cluster.create("DaemonSet", "everywhere", of("daemon"), "apps/v1")
    cluster.create("StatefulSet", "db", of("db", replicas=2, serviceName="db"), "apps/v1")
    cluster.eventually("a daemon", lambda: cluster.get("daemonset", "everywhere")["status"].get("numberReady") == 1)
    cluster.eventually("two members", lambda: cluster.get("statefulset", "db")["status"].get("readyReplicas") == 2)
    assert {pod["metadata"]["name"] for pod in cluster.get("pods", "-l", "app=db")["items"]} == {"db-0", "db-1"}


def test_a_node_is_drained(cluster: Cluster) -> None:
    """The members go by eviction, and come back when the node takes pods again; the daemon stays."""
    cluster.kubectl("drain", "n1", "--ignore-daemonsets", "--force", "--timeout=90s")
    left = {pod["metadata"]["ownerReferences"][0]["kind"] for pod in cluster.get("pods")["items"] if bound(pod)}
    assert left == {"DaemonSet"}
    cluster.kubectl("uncordon", "n1")
    cluster.eventually("two members", lambda: cluster.get("statefulset", "db")["status"].get("readyReplicas") == 2)
    cluster.kubectl("delete", "daemonset/everywhere", "statefulset/db")


def bound(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName"))


def test_a_job_completes(cluster: Cluster) -> None:
    pod = {"restartPolicy": "Never", "containers": [{**CONTAINER, "command": ["sh", "-c", "exit 0"]}]}
    cluster.create("Job", "once", {"template": {"spec": pod}, "backoffLimit": 2}, "batch/v1")
    cluster.eventually("the job is done", lambda: cluster.get("job", "once")["status"].get("succeeded") == 1)
    cluster.kubectl("delete", "job", "once")


def test_quota_is_counted(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "bounded")
    cluster.kubectl("create", "quota", "q", "--hard=count/configmaps=3", "-n", "bounded")

    def used() -> Any:
        return cluster.get("quota", "q", "-n", "bounded")["status"].get("used", {}).get("count/configmaps")

    cluster.eventually("counted", lambda: used() == "1")  # kube-root-ca.crt, which the controller-manager puts there
    cluster.kubectl("create", "configmap", "mine", "-n", "bounded")
    cluster.eventually("counted", lambda: used() == "2")


def test_nothing_that_they_look_for_is_unknown(cluster: Cluster) -> None:
    assert cluster.unknown() == []
