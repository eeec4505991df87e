"""Nothing of Kubernetes modified: kube-apiserver, kube-scheduler, kubelet, containerd 2; beside them our own parts.

A class that the node's agent reports is counted by the stock scheduler, asked for by annotation, judged by the webhook,
and done by the kernel.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.stock import find

from tests.cri.images import BUSYBOX_IMAGE
from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS
from tests.stock.kube_apiserver import acting_as, free_ports, kube_apiserver, process
from tests.stock.kubelet import NODE, Kubelet, stock_kubelet
from tests.stock.needs import needs_stock
from tests.stock.test_stock_apiserver import Stock

pytestmark = [
    *needs_stock("kube-apiserver", "etcd", "kube-scheduler", "kubelet", *PROGRAMS, root=True),
    pytest.mark.kubectl,
    needs_disk,
]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "stock.md").read_text()
FIVE = PAGE.partition("in five commands")[2].partition("```sh\n")[2].partition("\n```")[0].splitlines()
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

    def run(self, command: str) -> str:
        """A command as it stands in the documentation."""
        program, *words = shlex.split(command)
        named = [str(self.words[0])] if program == "kubectl" else [sys.executable, "-m", "kubeqos.cli.main"]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(
            [*named, *words], capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def ours(self, part: str, *words: str) -> list[str]:
        """One of our parts, with the rights that the installation gives it."""
        account = acting_as(self.kubeconfig, f"kubeqos-{part}")
        program = [sys.executable, "-m", "kubeqos.cli.main", part, "--kubeconfig", str(account)]
        return [*program, "--port", "0", *words]

    def start_agent(self) -> None:
        classes = self.get("configmap", "kubeqos-classes", "-n", "kubeqos-system")["data"]["classes.yaml"]
        (self.folder / "classes.yaml").write_text(classes)
        words = ["--node-name", NODE, "--config", str(self.folder / "classes.yaml")]
        words += ["--nri-socket", str(self.kubelet.runtime.nri)]
        self.agent.enter_context(process(self.ours("agent", *words), self.folder, "agent"))

    def asking(self, name: str, asked: str = "", **spec: Any) -> None:
        annotations = {"qos.kubeqos.io/container.c": asked} if asked else {}
        container = {"name": "c", "image": BUSYBOX_IMAGE, "command": ["sleep", "100000"]}
        body = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": body}
        self.kubectl("create", "-n", "team", "-f", "-", manifest=raw)

    def pods(self, name: str, namespace: str = "team") -> Any:
        return self.get("pod", name, "-n", namespace)

    def runs(self, name: str, namespace: str = "team") -> str:
        """Wait for a pod; the cgroup of its container."""

        def container() -> str:
            statuses = self.pods(name, namespace)["status"].get("containerStatuses") or ()
            return next((one["containerID"].rpartition("/")[2] for one in statuses if "running" in one["state"]), "")

        found = self.eventually(f"{name} runs", container)
        pod = self.pods(name, namespace)
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
        words = [scheduler, "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0"]
        stack.enter_context(process(words, folder, "kube-scheduler"))
        stack.enter_context(kubelet.running())
        made.kubectl("wait", "--for=create", f"node/{NODE}", "--timeout=120s")
        made.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=120s")
        made.kubectl("patch", "node", NODE, "-p", '{"spec": {"taints": null}}')  # a controller-manager would
        for words in FIVE[:2]:
            made.run(words)
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        made.kubectl("create", "namespace", "team")
        made.kubectl("label", "namespace", "team", "qos.kubeqos.io/enforce=true")
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


def test_the_five_commands(cluster: Whole) -> None:
    assert [line.partition(" ")[0] for line in FIVE] == ["kubeqos", "kubeqos", "kubectl", "kubectl", "kubectl"]
    cluster.kubectl("delete", "pods", "--all", "-n", "team", "--now")
    cluster.kubelet.runtime.add_image("registry.k8s.io/pause:3.10", ["sleep", "1000000"])
    cluster.run(FIVE[2])
    # The pod of the page, in the node's network: this machine has no other for pods.
    example = yaml.safe_load((ROOT / FIVE[3].rpartition(" ")[2]).read_text())
    cluster.kubectl("apply", "-f", "-", manifest={**example, "spec": {**example["spec"], "hostNetwork": True}})
    assert cgroups.value(cluster.runs("reader", "default"), "io.read_bps") == f"{disk_number()} {1 << 20}"
    shown = cluster.run(FIVE[4])
    assert "qosclass.kubeqos.io/blockio.slow" in shown
    assert f"nodeqos.kubeqos.io/{NODE}" in shown
    cluster.kubectl("delete", "pod", "reader", "--now")


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
