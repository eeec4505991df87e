"""Nothing of Kubernetes modified: kube-apiserver, kube-scheduler, kubelet, containerd 2; beside them our own parts.

A class that the node's agent reports is counted by the stock scheduler, asked for by annotation, judged by the webhook,
and done by the kernel.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from tests.cri.images import BUSYBOX_IMAGE
from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS
from tests.stock.kube_apiserver import free_ports, kube_apiserver, process
from tests.stock.kubelet import NODE, Kubelet, stock_kubelet
from tests.stock.needs import needs_stock
from tests.stock.test_stock_apiserver import Stock

pytestmark = [
    *needs_stock("kube-apiserver", "etcd", "kube-scheduler", "kubelet", *PROGRAMS, root=True),
    pytest.mark.kubectl,
    needs_disk,
]
CLASSES = """
resources:
  blockio:
    provider: blockio
    capacity: {slow: 1}
    config: {Classes: {slow: [{Devices: [/dev/vda], ThrottleReadBps: 1Mi}]}}
  cpu-class: {provider: cpu, classes: {high: {weight: 400}}}
"""
SLOW = "qos.kubeqos.io/blockio.slow"
PATIENCE = 60


class Whole(Stock):
    """The cluster, whose agent can come and go."""

    def __init__(self, kubeconfig: Path, folder: Path, kubelet: Kubelet) -> None:
        super().__init__(kubeconfig)
        self.folder, self.kubelet = folder, kubelet
        self.agent = ExitStack()

    def eventually(self, what: str, is_so: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := is_so()):
            logs = "".join(f"{log.name}:\n{log.read_text()[-2500:]}\n" for log in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"never happened: {what}\n{logs}"
            time.sleep(0.5)
        return found

    def ours(self, part: str, *words: str) -> list[str]:
        program = [sys.executable, "-m", "kubeqos.cli.main", part, "--kubeconfig", str(self.kubeconfig)]
        return [*program, "--port", "0", *words]

    def start_agent(self) -> None:
        (self.folder / "classes.yaml").write_text(CLASSES)
        words = ["--node-name", NODE, "--config", str(self.folder / "classes.yaml")]
        words += ["--nri-socket", str(self.kubelet.runtime.nri)]
        self.agent.enter_context(process(self.ours("agent", *words), self.folder, "agent"))

    def asking(self, name: str, asked: str = "", **spec: Any) -> None:
        annotations = {"qos.kubeqos.io/container.c": asked} if asked else {}
        container = {"name": "c", "image": BUSYBOX_IMAGE, "command": ["sleep", "100000"]}
        body = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": body}
        self.kubectl("create", "-n", "team", "-f", "-", manifest=raw)

    def pods(self, name: str) -> Any:
        return self.get("pod", name, "-n", "team")

    def runs(self, name: str) -> str:
        """Wait for a pod; the cgroup of its container."""

        def container() -> str:
            statuses = self.pods(name)["status"].get("containerStatuses") or ()
            return next((one["containerID"].rpartition("/")[2] for one in statuses if "running" in one["state"]), "")

        found = self.eventually(f"{name} runs", container)
        pod = self.pods(name)
        tier = {"Guaranteed": ""}.get(pod["status"]["qosClass"], f"/{pod['status']['qosClass'].lower()}")
        return f"{self.kubelet.cgroup_root}/kubepods{tier}/pod{pod['metadata']['uid']}/{found}"

    def capacity(self) -> str:
        return str((self.get("node", NODE)["status"].get("allocatable") or {}).get(SLOW, ""))

    def said_of(self, name: str) -> str:
        events = self.get("events", "-n", "team", "--field-selector", f"involvedObject.name={name}")["items"]
        return "\n".join(str(one.get("message", "")) for one in events)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Whole]:
    [scheduler] = map(str, find("kube-scheduler") or ())
    folder = Path(tempfile.mkdtemp(prefix="kq-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        kubelet = stack.enter_context(stock_kubelet(kubeconfig, folder))
        made = Whole(kubeconfig, folder, kubelet)
        made.kubectl("apply", "-f", str(files("kubeqos.stock") / "crds"))
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for namespace in ("kubeqos-system", "team"):
            made.kubectl("create", "namespace", namespace)
        made.kubectl("label", "namespace", "team", "qos.kubeqos.io/enforce=true")
        words = [scheduler, "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0"]
        stack.enter_context(process(words, folder, "kube-scheduler"))
        stack.enter_context(kubelet.running())
        made.kubectl("wait", "--for=create", f"node/{NODE}", "--timeout=120s")
        made.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=120s")
        made.kubectl("patch", "node", NODE, "-p", '{"spec": {"taints": null}}')  # a controller-manager would
        [port] = free_ports(1)
        hooks = ["--webhook-bind-address", "127.0.0.1", "--webhook-port", str(port)]
        hooks += ["--webhook-url", f"https://127.0.0.1:{port}"]
        stack.enter_context(process(made.ours("controller", *hooks), folder, "controller"))
        stack.callback(made.agent.close)
        made.start_agent()
        made.eventually("the class is counted", lambda: made.capacity() == "1")
        made.eventually("registered", lambda: made.get("mutatingwebhookconfigurations")["items"])
        yield made
        made.kubectl("delete", "pods", "--all", "-n", "team", "--now")


def test_a_class_is_asked_for_counted_and_done(cluster: Whole) -> None:
    def judged() -> bool:
        cluster.kubectl("delete", "pod", "one", "-n", "team", "--ignore-not-found", "--now")
        cluster.asking("one", "blockio=slow,cpu-class=high")
        resources = cluster.pods("one")["spec"]["containers"][0]["resources"]
        return bool((resources.get("requests") or {}).get(SLOW) == "1")

    cluster.eventually("judged", judged)  # the webhooks are known to the API server a moment after they were registered
    cgroup = cluster.runs("one")
    assert cgroups.value(cgroup, "io.read_bps") == f"{disk_number()} {1 << 20}"
    assert int(cgroups.value(cgroup, "cpu.shares")) == cgroups.shares(400)
    cluster.asking("two", "blockio=slow")

    def waits() -> bool:
        conditions = cluster.pods("two")["status"].get("conditions") or ()
        return any(f"Insufficient {SLOW}" in one.get("message", "") for one in conditions)

    cluster.eventually("two waits", waits)
    cluster.eventually("told", lambda: (cluster.get("qosclass", "blockio.slow").get("status") or {}).get("used") == 1)
    cluster.kubectl("delete", "pod", "one", "-n", "team", "--now")
    assert cgroups.value(cluster.runs("two"), "io.read_bps") == f"{disk_number()} {1 << 20}"


def test_nobody_who_asks_starts_without_the_agent_and_all_others_do(cluster: Whole) -> None:
    cluster.agent.close()
    cluster.asking("high", "cpu-class=high")
    cluster.asking("plain")
    cluster.runs("plain")
    refusal = 'required plugin "kubeqos" not present'
    cluster.eventually("refused", lambda: refusal in cluster.said_of("high"))
    cluster.agent = ExitStack()
    cluster.start_agent()
    assert int(cgroups.value(cluster.runs("high"), "cpu.shares")) == cgroups.shares(400)
