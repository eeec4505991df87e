"""Unmodified kube-scheduler and kube-controller-manager on our API server, over our node agent and over a kubelet.

Each speaks to us as to its own kind: protobuf, streaming lists, all informers it knows. With a kubelet and containerd 2
below, everything but the API server is Kubernetes' own. That they find everything is read from the audit log: nothing
that they ask for is unknown here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from tests.apiserver.live import LiveServer, live_server
from tests.cri.images import BUSYBOX_IMAGE
from tests.stock.containerd2 import PROGRAMS
from tests.stock.kube_apiserver import process
from tests.stock.kubelet import NODE, prepared_kubelet
from tests.stock.needs import needs_stock
from tests.stock.parts import Cluster

CONTROL_PLANE = ("kube-scheduler", "kube-controller-manager")
pytestmark = [*needs_stock(*CONTROL_PLANE), pytest.mark.kubectl]
RUNS = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]


class Parts(Cluster):
    """What differs between the nodes: their names, images that they have, and how much they can hold."""

    node, images, whole = "n1", ("app:1", "app:2"), "6"

    def pod(self, image: int = 0, cpu: str = "100m", command: list[str] = RUNS, **more: Any) -> Any:
        resources = {"requests": {"cpu": cpu}}
        container = {"name": "c", "image": self.images[image], "command": command, "resources": resources}
        return {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container], **more}

    def template(self, app: str, **more: Any) -> Any:
        labels = {"app": app}
        template = {"metadata": {"labels": labels}, "spec": self.pod()}
        return {"selector": {"matchLabels": labels}, "template": template, **more}


class KubeletParts(Parts):
    node, images, whole = NODE, (BUSYBOX_IMAGE, "localhost/kubeqos/busybox:2"), "1200m"


@contextmanager
def our_agent(live: LiveServer, folder: Path) -> Iterator[Parts]:
    config = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeConfiguration", "nodeName": Parts.node}
    (folder / "node.yaml").write_text(json.dumps({**config, "simulatedMachine": "laptop8"}))
    node = [sys.executable, "-m", "kubeqos.cli.main", "node", "--kubeconfig", str(live.kubeconfig)]
    node += ["--config", str(folder / "node.yaml"), "--state-dir", str(folder / "state")]
    with process(node, folder, "node"):
        yield Parts(live, folder, CONTROL_PLANE)


@contextmanager
def a_kubelet(live: LiveServer, folder: Path) -> Iterator[Parts]:
    with prepared_kubelet(live, folder) as kubelet:
        kubelet.runtime.add_image(KubeletParts.images[1], ["sh"])
        with kubelet.running():
            yield KubeletParts(live, folder, (*CONTROL_PLANE, "kubelet"))


KUBELET = pytest.param(a_kubelet, id="kubelet", marks=needs_stock("kubelet", *PROGRAMS, root=True))


@pytest.fixture(scope="module", params=[pytest.param(our_agent, id="agent"), KUBELET])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tmp_path_factory.mktemp("parts")
    scheduler, manager = map(str, find(*CONTROL_PLANE) or ())
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    with live_server(folder / "data") as live, ExitStack() as stack:
        common = ["--kubeconfig", str(live.kubeconfig), "--leader-elect=true", "--secure-port=0"]
        manager_words = [manager, *common, "--service-account-private-key-file", str(key)]
        for name, words in (("scheduler", [scheduler, *common]), ("manager", manager_words)):
            stack.enter_context(process(words, folder, name))
        made = stack.enter_context(request.param(live, folder))
        made.eventually("a node", lambda: made.get("nodes")["items"])
        yield made


def test_a_deployment_rolls_out_and_is_collected(cluster: Parts) -> None:
    cluster.create("Deployment", "web", cluster.template("web", replicas=3), "apps/v1")
    cluster.eventually("3 pods", lambda: cluster.get("deployment", "web")["status"].get("readyReplicas") == 3)
    cluster.kubectl("set", "image", "deployment/web", f"c={cluster.images[1]}")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    images = {pod["spec"]["containers"][0]["image"] for pod in cluster.get("pods", "-l", "app=web")["items"]}
    assert cluster.images[1] in images
    cluster.kubectl("delete", "deployment", "web")
    cluster.eventually("garbage collected", lambda: not cluster.get("replicasets,pods", "-l", "app=web")["items"])


def test_a_more_important_pod_takes_the_place(cluster: Parts) -> None:
    cluster.kubectl("create", "priorityclass", "urgent", "--value=1000")
    cluster.create("Pod", "low", cluster.pod(cpu=cluster.whole))
    cluster.eventually("low runs", lambda: cluster.phase("low") == "Running")
    cluster.create("Pod", "high", cluster.pod(cpu=cluster.whole, priorityClassName="urgent"))
    cluster.eventually("high runs", lambda: cluster.phase("high") == "Running")
    # A victim gives its place up when its containers have ended; its object goes when its kubelet has cleaned up.
    left = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.get("pods")["items"]}
    assert left.get("low", "Failed") in ("Failed", "Succeeded")
    cluster.eventually(
        "low is gone", lambda: "low" not in {p["metadata"]["name"] for p in cluster.get("pods")["items"]}
    )
    cluster.kubectl("delete", "pod", "high", "--now")


def test_a_namespace_is_emptied(cluster: Parts) -> None:
    cluster.kubectl("create", "namespace", "away")
    cluster.kubectl("create", "configmap", "c", "-n", "away")
    cluster.eventually("an account", lambda: cluster.get("serviceaccounts", "-n", "away")["items"])
    cluster.kubectl("delete", "namespace", "away", "--timeout=90s")


def test_a_daemon_set_and_a_stateful_set_run(cluster: Parts) -> None:
    cluster.create("DaemonSet", "everywhere", cluster.template("daemon"), "apps/v1")
    cluster.create("StatefulSet", "db", cluster.template("db", replicas=2, serviceName="db"), "apps/v1")
    cluster.eventually("a daemon", lambda: cluster.get("daemonset", "everywhere")["status"].get("numberReady") == 1)
    cluster.eventually("two members", lambda: cluster.get("statefulset", "db")["status"].get("readyReplicas") == 2)
    # Its revision is the one that it wrote, to the letter: nobody else's name was in the way.
    assert not cluster.get("daemonset", "everywhere")["status"].get("collisionCount")
    assert {pod["metadata"]["name"] for pod in cluster.get("pods", "-l", "app=db")["items"]} == {"db-0", "db-1"}


def test_a_node_is_drained(cluster: Parts) -> None:
    """The members go by eviction, and come back when the node takes pods again; the daemon stays."""
    cluster.kubectl("drain", cluster.node, "--ignore-daemonsets", "--force", "--timeout=90s")
    left = {pod["metadata"]["ownerReferences"][0]["kind"] for pod in cluster.get("pods")["items"] if bound(pod)}
    assert left == {"DaemonSet"}
    cluster.kubectl("uncordon", cluster.node)
    cluster.eventually("two members", lambda: cluster.get("statefulset", "db")["status"].get("readyReplicas") == 2)
    cluster.kubectl("delete", "daemonset/everywhere", "statefulset/db")


def bound(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName"))


def test_a_job_completes(cluster: Parts) -> None:
    pod = cluster.pod(command=["sh", "-c", "exit 0"], restartPolicy="Never")
    cluster.create("Job", "once", {"template": {"spec": pod}, "backoffLimit": 2}, "batch/v1")
    cluster.eventually("the job is done", lambda: cluster.get("job", "once")["status"].get("succeeded") == 1)
    cluster.kubectl("delete", "job", "once")


def test_quota_is_counted(cluster: Parts) -> None:
    cluster.kubectl("create", "namespace", "bounded")
    cluster.kubectl("create", "quota", "q", "--hard=count/configmaps=3", "-n", "bounded")

    def used() -> Any:
        return cluster.get("quota", "q", "-n", "bounded")["status"].get("used", {}).get("count/configmaps")

    cluster.eventually("counted", lambda: used() == "1")  # kube-root-ca.crt, which the controller-manager puts there
    cluster.kubectl("create", "configmap", "mine", "-n", "bounded")
    cluster.eventually("counted", lambda: used() == "2")


def test_nothing_that_they_look_for_is_unknown(cluster: Parts) -> None:
    assert cluster.unknown() == []
