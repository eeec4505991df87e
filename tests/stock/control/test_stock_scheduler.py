"""`kubeqos controller` beside an unmodified kube-apiserver and kube-scheduler: classes are counted by stock parts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from tests.stock.kube_apiserver import acting_as, free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.test_stock_apiserver import Stock, eventually

pytestmark = [*needs_stock("kube-apiserver", "etcd", "kube-scheduler"), pytest.mark.kubectl]
SLOW = "qos.kubeqos.io/blockio.slow"
PATIENCE = 60


class Installed(Stock):
    """A stock cluster with our controller, which can be stopped."""

    def __init__(self, kubeconfig: Path, folder: Path, controller: ExitStack) -> None:
        super().__init__(kubeconfig)
        self._folder = folder
        self.controller = controller
        self.installed = ""

    def kubeqos(self, *words: str) -> str:
        command = [sys.executable, "-m", "kubeqos.cli.main", *words, "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, kind: str, name: str, version: str = "kubeqos.io/v1alpha1", **more: Any) -> None:
        raw = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        self.kubectl("apply", "-f", "-", manifest={**raw, **more})

    def asking(self, name: str, namespace: str, **spec: Any) -> None:
        metadata = {"name": name, "annotations": {"qos.kubeqos.io/container.c": "blockio=slow"}}
        body = {"containers": [{"name": "c", "image": "app:1"}], "terminationGracePeriodSeconds": 0, **spec}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
        self.kubectl("create", "-n", namespace, "-f", "-", manifest=raw)

    def pod_in(self, name: str, namespace: str) -> Any:
        return self.get("pod", name, "-n", namespace)

    def capacity(self) -> str:
        return str((self.get("node", "n1")["status"].get("allocatable") or {}).get(SLOW, ""))


def node_is_ready(stock: Installed) -> None:
    """A node without a kubelet: what one would say of it."""
    stock.apply("Node", "n1", "v1")
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = f'{{"status": {{"capacity": {resources}, "allocatable": {resources}, "conditions": [{ready}]}}}}'
    stock.kubectl("patch", "node", "n1", "--subresource=status", "-p", status.replace("'", '"'))
    stock.kubectl("patch", "node", "n1", "-p", '{"spec": {"taints": null}}')


@pytest.fixture(scope="module")
def stock() -> Iterator[Installed]:
    [scheduler] = find("kube-scheduler") or ()
    with tempfile.TemporaryDirectory(prefix="kq-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        controller = stack.enter_context(ExitStack())
        stock = Installed(kubeconfig, folder, controller)
        stock.installed = stock.kubeqos("install")
        stock.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for namespace in ("enforced", "elsewhere"):
            stock.kubectl("create", "namespace", namespace)
        stock.kubectl("label", "namespace", "enforced", "qos.kubeqos.io/enforce=true")
        node_is_ready(stock)
        words = [scheduler, "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0"]
        stack.enter_context(process(list(map(str, words)), folder, "kube-scheduler"))
        [port] = free_ports(1)
        account = acting_as(kubeconfig, "kubeqos-controller")  # with the rights of the installation, no more
        ours = [sys.executable, "-m", "kubeqos.cli.main", "controller", "--kubeconfig", str(account), "--port", "0"]
        ours += ["--webhook-bind-address", "127.0.0.1", "--webhook-port", str(port)]
        ours += ["--webhook-url", f"https://127.0.0.1:{port}"]
        controller.enter_context(process(ours, folder, "controller"))
        stock.apply("NodeQOS", "n1", spec={})
        offered = '[{"resource": "blockio", "class": "slow", "level": "container", "capacity": 1}]'
        patch = f'{{"status": {{"classes": {offered}}}}}'
        stock.kubectl("patch", "nodeqos", "n1", "--subresource=status", "--type=merge", "-p", patch)
        eventually(lambda: stock.capacity() == "1", PATIENCE)
        eventually(lambda: stock.get("mutatingwebhookconfigurations")["items"], PATIENCE)
        eventually(lambda: stock.get("qosclasses")["items"], PATIENCE)
        yield stock


def waits(stock: Installed, name: str) -> str:
    conditions = stock.pod_in(name, "enforced")["status"].get("conditions") or ()
    return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def test_the_second_pod_waits_and_an_important_one_takes_the_place(stock: Installed) -> None:
    def first() -> bool:
        stock.kubectl("delete", "pod", "first", "-n", "enforced", "--ignore-not-found", "--now")
        stock.asking("first", "enforced")
        resources = stock.pod_in("first", "enforced")["spec"]["containers"][0]["resources"]
        return bool((resources.get("requests") or {}).get(SLOW) == "1")

    eventually(first, PATIENCE)  # the webhooks are known to the API server a moment after they were registered
    eventually(lambda: stock.pod_in("first", "enforced")["spec"].get("nodeName") == "n1", PATIENCE)
    stock.asking("second", "enforced")
    eventually(lambda: f"Insufficient {SLOW}" in waits(stock, "second"), PATIENCE)
    stock.kubectl("create", "priorityclass", "urgent", "--value=1000")
    stock.asking("third", "enforced", priorityClassName="urgent")
    eventually(lambda: stock.pod_in("third", "enforced")["spec"].get("nodeName") == "n1", PATIENCE)
    names = {pod["metadata"]["name"] for pod in stock.get("pods", "-n", "enforced")["items"]}
    assert names == {"second", "third"}
    assert not stock.pod_in("second", "enforced")["spec"].get("nodeName")


def test_what_a_kubelet_resets_is_put_right(stock: Installed) -> None:
    zero = f'{{"status": {{"capacity": {{"{SLOW}": "0"}}, "allocatable": {{"{SLOW}": "0"}}}}}}'
    stock.kubectl("patch", "node", "n1", "--subresource=status", "-p", zero)
    eventually(lambda: stock.capacity() == "1", PATIENCE)


def test_what_cannot_be_had_is_refused_where_it_is_asked_for(stock: Installed) -> None:
    with pytest.raises(AssertionError, match="exceeded quota: q"):
        spec = {"qosResources": {"container": [{"name": "blockio", "classes": [{"name": "slow", "capacity": 0}]}]}}
        stock.kubectl("create", "namespace", "bounded")
        raw = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": {"name": "q"}, "spec": spec}
        stock.kubectl("create", "-n", "bounded", "-f", "-", manifest=raw)
        eventually(lambda: stock.get("qosclassquota", "q", "-n", "bounded").get("status"), PATIENCE)
        for number in range(50):  # the quota is known to the webhook a moment after it was counted
            stock.asking(f"p{number}", "bounded")


def test_a_stopped_controller_blocks_nobody_who_did_not_ask_for_that(stock: Installed) -> None:
    """Last: the controller does not come back."""
    stock.controller.close()
    stock.asking("elsewhere", "elsewhere")
    with pytest.raises(AssertionError, match="failed calling webhook"):
        stock.asking("enforced", "enforced")


def test_nothing_is_left_of_it(stock: Installed) -> None:
    """Last of all: what was installed is taken out again, with what the controller wrote."""
    said = stock.kubeqos("uninstall", "--yes").splitlines()
    assert [line.partition("/")[0] for line in said[:2]] == [
        "validatingwebhookconfiguration",
        "mutatingwebhookconfiguration",
    ], "webhooks go first"
    assert "node/n1 cleaned" in said
    put = {line.removesuffix(" applied") for line in stock.installed.splitlines()}
    assert put <= {line.removesuffix(" deleted") for line in said}
    node = stock.get("node", "n1")
    assert "kubeqos" not in json.dumps([node["metadata"].get("labels"), node["status"]])
    stock.asking("after", "enforced")
    assert "qos.kubeqos.io" not in json.dumps(stock.pod_in("after", "enforced")["spec"])
    again = stock.kubeqos("uninstall", "--yes").splitlines()
    assert again == ["namespace/kubeqos-system deleted"], "which nobody empties here"
