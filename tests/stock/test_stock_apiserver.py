"""Scheduler, controllers and node agent beside a real kube-apiserver, which knows none of the proposals' fields.

Each is a process of its own, as on a cluster. KEP-3008 calls this version skew: a control plane without the fields.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.stock.kube_apiserver import Part, kube_apiserver, process
from tests.stock.needs import needs_stock

KUBECTL = shutil.which("kubectl")
pytestmark = [*needs_stock("kube-apiserver", "etcd"), pytest.mark.kubectl]


class Stock:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.words = [str(KUBECTL), "--kubeconfig", str(kubeconfig)]

    def kubectl(self, *words: str, manifest: Any = None) -> str:
        text = None if manifest is None else json.dumps(manifest)
        done = subprocess.run([*self.words, *words], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pod(self, name: str, cpu: str, **spec: Any) -> None:
        container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        self.kubectl("create", "-f", "-", manifest={**raw, "spec": {"containers": [container], **spec}})

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def node_of(self, name: str) -> str:
        return str(self.get("pod", name)["spec"].get("nodeName", ""))

    def condition(self, name: str) -> str:
        conditions = self.get("pod", name)["status"].get("conditions") or ()
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def eventually(is_so: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    folder = tmp_path_factory.mktemp("stock")
    with kube_apiserver(folder) as kubeconfig:
        made = Stock(kubeconfig)
        for name, cpu in (("small", "2"), ("large", "8")):
            made.kubectl("create", "-f", "-", manifest={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
            patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
            made.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
            made.kubectl("taint", "node", name, "node.kubernetes.io/not-ready:NoSchedule-")
        with kubeqos(made, "scheduler", "--port", "0"):
            yield made


def kubeqos(stock: Stock, part: str, *words: str) -> AbstractContextManager[Part]:
    command = [sys.executable, "-m", "kubeqos.cli.main", part, "--kubeconfig", str(stock.kubeconfig), *words]
    return process(command, stock.kubeconfig.parent, part)


def test_a_pod_goes_where_it_fits(stock: Stock) -> None:
    stock.pod("fits", "6")
    eventually(lambda: stock.node_of("fits") == "large")
    scheduled = eventually(lambda: stock.kubectl("get", "events", "--field-selector=reason=Scheduled"))
    assert "Successfully assigned default/fits to large" in scheduled


def test_a_pod_that_fits_nowhere_says_why(stock: Stock) -> None:
    stock.pod("huge", "100")
    message = eventually(lambda: stock.condition("huge"))
    assert message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert "FailedScheduling" in stock.kubectl("get", "events")


def test_a_more_important_pod_takes_the_place(stock: Stock) -> None:
    stock.kubectl("create", "priorityclass", "urgent", "--value=1000")
    stock.pod("urgent", "7", priorityClassName="urgent")
    eventually(lambda: "deletionTimestamp" in stock.get("pod", "fits")["metadata"])
    stock.kubectl("delete", "pod", "fits", "--force", "--grace-period=0")  # no agent runs here to end it
    eventually(lambda: stock.node_of("urgent") == "large")


def test_a_class_that_the_server_does_not_know_is_nobodys_business(stock: Stock) -> None:
    """The server drops the field (KEP-3008, version skew), so the pod is a plain one."""
    container = {"name": "c", "image": "app:1", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "classy"}, "spec": {"containers": [container]}}
    stock.kubectl("create", "--validate=false", "-f", "-", manifest=raw)
    eventually(lambda: stock.node_of("classy"))


def test_controllers_and_a_node_run_a_deployment(stock: Stock, tmp_path: Path) -> None:
    config = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeConfiguration", "nodeName": "agent"}
    (tmp_path / "node.yaml").write_text(json.dumps({**config, "simulatedMachine": "laptop8"}))
    node = kubeqos(stock, "node", "--config", str(tmp_path / "node.yaml"), "--state-dir", str(tmp_path / "state"))
    stock.kubectl("delete", "node", "small", "large")  # nobody is behind them
    with kubeqos(stock, "controllers", "--port", "0"), node:
        stock.kubectl("create", "deployment", "web", "--image=app:1", "--replicas=3")
        eventually(lambda: stock.get("deployment", "web")["status"].get("readyReplicas") == 3, 60)
        stock.kubectl("scale", "deployment", "web", "--replicas=1")
        eventually(lambda: len(stock.get("pods", "-l", "app=web")["items"]) == 1, 60)
        agent = stock.get("node", "agent")
        assert "qosResources" not in agent["status"]
        assert {"type": "Ready", "status": "True"}.items() <= agent["status"]["conditions"][-1].items()


def test_our_controllers_keep_quotas_and_any_kind_on_a_real_server(stock: Stock, tmp_path: Path) -> None:
    """No kube-controller-manager runs here: a quota that nobody has counted for refuses every pod."""
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "shelves.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "shelves", "singular": "shelf", "kind": "Shelf", "listKind": "ShelfList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": ANYTHING}],
        },
    }
    stock.kubectl("create", "-f", "-", manifest=crd)
    stock.kubectl("create", "namespace", "team")
    stock.kubectl("create", "quota", "small", "-n", "team", "--hard=pods=2,requests.cpu=1")
    words = [sys.executable, "-m", "kubeqos.cli.main", "controllers", "--port", "0"]
    with process([*words, "--kubeconfig", str(stock.kubeconfig)], tmp_path, "controllers"):

        def status() -> Any:
            return stock.get("quota", "small", "-n", "team").get("status") or {}

        eventually(lambda: status().get("hard") == {"pods": "2", "requests.cpu": "1"}, 60)
        container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "300m"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
        stock.kubectl("create", "-n", "team", "-f", "-", manifest=pod)
        assert status()["used"]["requests.cpu"] == "300m"
        stock.kubectl("delete", "pod", "a", "-n", "team", "--force")
        eventually(lambda: status()["used"] == {"pods": "0", "requests.cpu": "0"}, 60)
        shelf = {"apiVersion": "example.com/v1", "kind": "Shelf", "metadata": {"name": "top"}}
        stock.kubectl("create", "-n", "team", "-f", "-", manifest=shelf)
        stock.kubectl("delete", "namespace", "team", "--timeout=60s")
        assert not stock.get("shelves.example.com", "-A")["items"]


ANYTHING = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
