"""One unmodified part of Kubernetes at a time, everything around it ours: scheduler, controller-manager.

A kubelet alone has a module of its own (test_kubelet), and all of them together, too (test_real_parts).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.stock import find

from tests.apiserver.live import live_server
from tests.stock.kube_apiserver import process
from tests.stock.needs import needs_stock
from tests.stock.test_real_parts import Parts, our_agent

pytestmark = [*needs_stock("kube-scheduler", "kube-controller-manager"), pytest.mark.kubectl]
OURS = {"kube-scheduler": "controllers", "kube-controller-manager": "scheduler"}
"""Beside which part of ours each of theirs runs."""


@pytest.fixture(scope="module", params=OURS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder: Path = tmp_path_factory.mktemp("alone")
    theirs, ours = request.param, OURS[request.param]
    program = str((find(theirs) or [""])[0])
    with live_server(folder / "data") as live, ExitStack() as stack:
        words = [program, "--kubeconfig", str(live.kubeconfig), "--leader-elect=true", "--secure-port=0"]
        if theirs == "kube-controller-manager":
            key = folder / "sa.key"
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
            words += ["--service-account-private-key-file", str(key)]
        stack.enter_context(process(words, folder, theirs))
        own = [sys.executable, "-m", "kubeqos.cli.main", ours, "--kubeconfig", str(live.kubeconfig), "--port", "0"]
        stack.enter_context(process(own, folder, ours))
        made = stack.enter_context(our_agent(live, folder))
        made.parts = (theirs,)
        made.eventually("a node", lambda: made.get("nodes")["items"])
        yield made


def test_a_deployment_rolls_out_and_a_job_completes(cluster: Parts) -> None:
    cluster.create("Deployment", "web", cluster.template("web", replicas=2), "apps/v1")
    once = cluster.pod(command=["sh", "-c", "exit 0"], restartPolicy="Never")
    cluster.create("Job", "once", {"template": {"spec": once}}, "batch/v1")
    cluster.eventually("2 pods", lambda: cluster.get("deployment", "web")["status"].get("readyReplicas") == 2)
    cluster.kubectl("set", "image", "deployment/web", f"c={cluster.images[1]}")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    cluster.eventually("the job is done", lambda: cluster.get("job", "once")["status"].get("succeeded") == 1)
    cluster.kubectl("delete", "deployment/web", "job/once")
    cluster.eventually("collected", lambda: not cluster.get("replicasets,pods")["items"])


def test_a_more_important_pod_takes_the_place(cluster: Parts) -> None:
    cluster.kubectl("create", "priorityclass", "urgent", "--value=1000")
    cluster.create("Pod", "low", cluster.pod(cpu=cluster.whole))
    cluster.eventually("low runs", lambda: cluster.phase("low") == "Running")
    cluster.create("Pod", "high", cluster.pod(cpu=cluster.whole, priorityClassName="urgent"))
    cluster.eventually("high runs", lambda: cluster.phase("high") == "Running")
    cluster.kubectl("delete", "pod", "high", "--now")


def test_a_namespace_is_emptied(cluster: Parts) -> None:
    cluster.kubectl("create", "namespace", "away")
    cluster.kubectl("create", "configmap", "c", "-n", "away")
    cluster.kubectl("delete", "namespace", "away", "--timeout=90s")


def test_nothing_that_it_looks_for_is_unknown(cluster: Parts) -> None:
    assert cluster.unknown() == []
