"""A stock cluster of real parts in one folder: kube-apiserver, kube-scheduler, kubelet, containerd 2, beside our own.

Nothing of Kubernetes is modified. Used by the tests of whole clusters.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tools.stock import find

from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS
from tests.stock.kube_apiserver import Part, acting_as, kube_apiserver, process
from tests.stock.kubelet import NODE, Kubelet, stock_kubelet
from tests.stock.test_stock_apiserver import Stock

PARTS = ("kube-apiserver", "etcd", "kube-scheduler", "kubelet", *PROGRAMS)
ROOT = Path(__file__).parents[2]
SLOW = "qos.kubeqos.io/blockio.slow"
PATIENCE = 60
OWNS = "cpuwatch/owns.c"


class Whole(Stock):
    """The cluster, whose agent can come and go."""

    def __init__(self, kubeconfig: Path, folder: Path, kubelet: Kubelet) -> None:
        super().__init__(kubeconfig)
        self.folder, self.kubelet = folder, kubelet
        self.agent = ExitStack()
        self.parts: dict[str, Part] = {}

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
        account = acting_as(self.kubeconfig, f"kubeqos-{part}", NODE if part == "agent" else "")
        program = [sys.executable, "-m", "kubeqos.cli.main", part, "--kubeconfig", str(account)]
        return [*program, "--port", "0", *words]

    def start_agent(self, *more: str) -> None:
        classes = self.get("configmap", "kubeqos-classes", "-n", "kubeqos-system")["data"]["classes.yaml"]
        (self.folder / "classes.yaml").write_text(classes)
        words = ["--node-name", NODE, "--config", str(self.folder / "classes.yaml")]
        words += ["--nri-socket", str(self.kubelet.runtime.nri), "--kubelet-dir", str(self.kubelet.root), *more]
        self.parts["agent"] = self.agent.enter_context(process(self.ours("agent", *words), self.folder, "agent"))

    def asking(self, name: str, asked: str = "", **spec: Any) -> None:
        self.pod(name, {"qos.kubeqos.io/container.c": asked} if asked else {}, **spec)

    def pod(
        self, name: str, annotations: dict[str, str], resources: Any = None, line: str = "sleep 100000", owns: str = "",
        **spec: Any,
    ) -> None:  # fmt: skip
        """`owns` says to the stranger how many CPUs are this pod's alone."""
        command = ["sh", "-c", f"exec {line}"]
        container = {"name": "c", "image": BUSYBOX_IMAGE, "command": command, "resources": resources or {}}
        body = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        metadata = {"name": name, "annotations": annotations, "labels": {OWNS: owns} if owns else {}}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
        self.kubectl("create", "-n", "team", "-f", "-", manifest=raw)

    def resize(self, name: str, cpu: str, *kinds: str) -> None:
        """Ask for other CPUs in place: other requests, unless it is said of what."""
        container = {"name": "c", "resources": {kind: {"cpu": cpu} for kind in kinds or ("requests",)}}
        patch = json.dumps({"spec": {"containers": [container]}})
        self.kubectl("patch", "pod", name, "-n", "team", "--subresource=resize", "-p", patch)

    def cpus(self, name: str) -> str:
        """Where the kernel lets the container of a pod run."""
        return cgroups.value(self.runs(name), "cpuset.cpus")

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

    @contextmanager
    def watched(self) -> Iterator[list[dict[str, Any]]]:
        """A stranger looks whether anybody runs on CPUs that a pod owns (`owns`), for the duration of a block; what it
        has to say is in the list afterwards.
        """
        hierarchy = cgroups.CGROUPS / ("cpuset" if cgroups.VERSION == 1 else "")
        where = f"{self.kubelet.runtime.socket},{hierarchy}{self.kubelet.cgroup_root}"
        words = [sys.executable, "-I", "-S", str(ROOT / "tools" / "cpuwatch.py"), "--node", f"{NODE}={where}"]
        watcher = subprocess.Popen([*words, "--cores", f"{NODE}=this"], stdout=subprocess.PIPE, text=True)
        report: list[dict[str, Any]] = []
        try:
            yield report
        finally:
            watcher.terminate()
            said, _ = watcher.communicate(timeout=60)
        report.append(json.loads(said)[NODE])

    def capacity(self) -> str:
        return str((self.get("node", NODE)["status"].get("allocatable") or {}).get(SLOW, ""))

    def said_of(self, name: str) -> str:
        events = self.get("events", "-n", "team", "--field-selector", f"involvedObject.name={name}")["items"]
        return "\n".join(str(one.get("message", "")) for one in events)


AnyWhole = TypeVar("AnyWhole", bound=Whole)


@contextmanager
def stock_cluster(kind: type[AnyWhole], *parts: str) -> Iterator[AnyWhole]:
    """A running cluster with one node, which takes pods; `parts` are more programs of Kubernetes, with their words."""
    folder = Path(tempfile.mkdtemp(prefix="kq-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        running: dict[str, Part] = {}
        kubeconfig = stack.enter_context(kube_apiserver(folder, parts=running))
        kubelet = stack.enter_context(stock_kubelet(kubeconfig, folder))
        made = kind(kubeconfig, folder, kubelet)
        made.parts |= running
        for name, *more in map(str.split, ("kube-scheduler", *parts)):
            [program] = map(str, find(name) or ())
            words = [program, "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0", *more]
            stack.enter_context(process(words, folder, name))
        made.parts["kubelet"] = stack.enter_context(kubelet.running())
        made.kubectl("wait", "--for=create", f"node/{NODE}", "--timeout=120s")
        made.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=120s")
        made.kubectl("patch", "node", NODE, "-p", '{"spec": {"taints": null}}')  # a controller-manager would
        stack.callback(lambda: made.agent.close())
        yield made
