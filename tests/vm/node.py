"""A node in a guest, as its owner would set it up: containerd, an API server and `kubeqos node`, as units of systemd.

Tests talk to the API of the cluster and ask `checker` what the kernel says. What a node leaves behind is looked for
when it is taken down: the next test starts on a clean machine, without another boot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tools.vm.vm import PATIENCE, Vm, VmError

from tests.cri.images import BUSYBOX_IMAGE, PAUSE_IMAGE

CHECKER = "/kubeqos/project/tests/vm/checker.py"
CONTAINERD = """\
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_hugetlb_controller = false
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
"""
LOOPBACK = '{"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}\n'
SOCKET = "unix:///run/containerd/containerd.sock"
RELAY = "unix:///run/relay/cri.sock"
IMPORT = """
import subprocess
from pathlib import Path
from tests.cri.images import BUSYBOX_IMAGE, PAUSE_IMAGE, write_image_tar
for name, command in ((PAUSE_IMAGE, ["sleep", "1000000000"]), (BUSYBOX_IMAGE, ["sh"])):
    write_image_tar(Path("/run/image.tar"), name=name, command=command)
    subprocess.run(["ctr", "-n", "k8s.io", "images", "import", "/run/image.tar"], check=True)
Path("/run/image.tar").unlink()
"""
PODS = "/api/v1/namespaces/default/pods"
GATES = "QOSResources=true,QoSResourceManager=true,CCIResourceManager=true"
UNITS = (
    "kq-node",
    "kq-up",
    "kq-agent",
    "kq-kubelet",
    "kq-cpu",
    "kq-memory",
    "kq-driver",
    "kq-relay",
    "kq-api",
    "kq-containerd",
)
REGISTRY = "/run/node/plugins_registry"
SETTINGS = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0-1",
    "kubeReserved": {"memory": "256Mi"},
    "evictionHard": {"memory.available": "64Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "320Mi"}}],
    "featureGates": {"QOSResources": True},
}
SCRATCH = "/mnt/scratch"
CLASSES = """\
resources:
  cpu-class: {provider: cpu, classes: {latency: {weight: 800}, batch: {idle: true}}}
  memory: {provider: memory, classes: {protected: {low: 64Mi}, guarded: {min: 64Mi}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
  blockio:
    provider: blockio
    config:
      Classes:
        slow: [{Devices: [/dev/vdd], ThrottleReadBps: 2Mi}]
        heavy: [{Weight: 800}]
        light: [{Weight: 50}]
"""
START_SECONDS = 180.0


class Node:
    """The node under test. `settings` are those of a NodeConfiguration; `classes` are the relay's classes.yaml."""

    name = "numa"
    agent = "kq-node"

    def __init__(self, vm: Vm, driver: str = "cgroupfs", classes: str = "", **settings: Any) -> None:
        self.vm = vm
        self.driver = driver
        self.classes = classes
        self.settings = settings

    def is_like(self, other: Node) -> bool:
        """Whether it can stand for the other."""
        return (type(self), vars(self)) == (type(other), vars(other))

    # What runs

    def start(self) -> None:
        self.start_containerd()
        self.start_api_server()
        if self.classes:
            self.vm.write("/run/relay/classes.yaml", self.classes)
            words = ["--listen", RELAY, "--runtime", SOCKET, "--config", "/run/relay/classes.yaml"]
            self.unit("kq-relay", "kubeqos", "relay", *words, "--state", "/run/relay/state.json")
        config = {
            "apiVersion": "kubeqos.io/v1alpha1",
            "kind": "NodeConfiguration",
            "nodeName": self.name,
            "stateDir": "/run/node",
            "containerRuntimeEndpoint": RELAY if self.classes else SOCKET,
            "cgroupDriver": self.driver,
            **self.settings,
        }
        self.vm.write("/run/node.yaml", json.dumps(config))
        self.start_agent()
        self.until("the node is ready", self.ready)

    def start_api_server(self) -> None:
        """And meanwhile make a disk of the pods' own, which nobody else reads."""
        self.unit("kq-api", "kubeqos", "apiserver", "--data-dir", "/run/cluster", "--feature-gates", GATES)
        if self.vm.attempt("mountpoint", "-q", SCRATCH)[0] != 0:
            disk = f"mkfs.ext4 -q /dev/vdd && mkdir -p {SCRATCH} && mount /dev/vdd {SCRATCH}"
            self.vm.run("sh", "-c", f"{disk} && head -c 48M /dev/urandom > {SCRATCH}/data && sync", seconds=120)
        self.until("the API server answers", lambda: self.get("/api/v1/namespaces/default") is not None)

    def start_agent(self) -> None:
        self.unit("kq-node", "kubeqos", "node", "--config", "/run/node.yaml", "--kubeconfig", "/run/cluster/kubeconfig")

    def start_containerd(self) -> None:
        systemd = "true" if self.driver == "systemd" else "false"
        self.vm.write("/etc/containerd/config.toml", CONTAINERD.format(pause=PAUSE_IMAGE, systemd=systemd))
        self.vm.write("/run/cni/10-loopback.conflist", LOOPBACK)
        self.unit("kq-containerd", "containerd", properties=("Delegate=yes", "KillMode=process"))
        ctr = ("ctr", "-n", "k8s.io", "images", "ls", "-q")
        self.until("containerd answers", lambda: self.vm.attempt(*ctr)[0] == 0)
        if BUSYBOX_IMAGE not in self.vm.run(*ctr):
            self.vm.run("python3", "-c", IMPORT)

    def unit(self, name: str, *words: str, properties: tuple[str, ...] = ()) -> None:
        options = [f"--property={one}" for one in properties]
        self.vm.attempt("systemctl", "reset-failed", f"{name}.service")
        self.vm.run("systemd-run", f"--unit={name}", "--quiet", *options, *words)

    def log(self, lines: int = 60) -> str:
        """What the agent has said."""
        return self.vm.run("journalctl", "--no-pager", "-o", "cat", "-u", self.agent, "-n", str(lines))

    def kill_agent(self) -> None:
        """As `kill -9` does; nobody starts it again."""
        self.vm.run("systemctl", "kill", "-s", "KILL", f"{self.agent}.service")
        self.until(
            "the agent is gone", lambda: self.vm.attempt("systemctl", "is-active", "--quiet", self.agent)[0] != 0
        )

    def clean(self) -> None:
        """Delete every pod."""
        for pod in (self.get(PODS) or {}).get("items", ()):
            self.delete(pod["metadata"]["name"])

    def stop(self) -> None:
        """Delete every pod, and take everything down."""
        try:
            self.clean()
        finally:
            units = [f"{name}.service" for name in UNITS]
            self.vm.attempt("systemctl", "kill", "-s", "KILL", *units)
            self.vm.attempt("systemctl", "stop", *units)
            self.vm.run("sh", "-c", "rm -rf /run/cluster /run/node /run/relay /run/node.yaml")

    # What the API says

    def get(self, path: str) -> Any:
        """An object, or None while there is none."""
        try:
            code, body = self.vm.api("GET", path)
        except VmError:  # the server is not up yet
            return None
        return body if code == 200 else None

    def ready(self) -> bool:
        node = self.get(f"/api/v1/nodes/{self.name}") or {}
        conditions = node.get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def asking(self, pod: dict[str, Any], classes: dict[str, str]) -> dict[str, Any]:
        """The pod, with classes for its container."""
        main = pod["spec"]["containers"][0]
        main["resources"]["qosResources"] = [{"name": name, "class": value} for name, value in classes.items()]
        return pod

    def create(self, pod: dict[str, Any]) -> None:
        bound = {**pod, "spec": {"nodeName": self.name, **pod["spec"]}}
        code, said = self.vm.api("POST", PODS, bound)
        assert code == 201, said

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"{PODS}/{name}") or {}
        return found

    def phase(self, name: str) -> str:
        return str(self.pod(name).get("status", {}).get("phase", ""))

    def start_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create it, and wait until each of its containers runs."""
        self.create(pod)
        name = pod["metadata"]["name"]

        def runs() -> dict[str, Any] | None:
            found = self.pod(name)
            status = found.get("status", {})
            assert status.get("phase") not in ("Failed", "Succeeded"), status
            states = [one["state"] for one in status.get("containerStatuses", ())]
            return found if states and all("running" in state for state in states) else None

        return dict(self.until(f"{name} runs", runs))

    def delete(self, name: str, wait: bool = True) -> None:
        self.vm.api("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 1})
        if wait:
            self.until(f"{name} goes", lambda: not self.pod(name))

    def container_id(self, name: str, container: str = "main") -> str:
        statuses = self.pod(name)["status"]["containerStatuses"]
        return str(next(one for one in statuses if one["name"] == container)["containerID"].rpartition("/")[2])

    def container_log(self, name: str) -> str:
        uid = self.pod(name)["metadata"]["uid"]
        code, said = self.vm.attempt("sh", "-c", f"cat /var/log/pods/default_{name}_{uid}/*/*.log")
        return "" if code else "\n".join(line.split(" ", 3)[3] for line in said.splitlines())

    def says(self, name: str, word: str) -> str:
        """What a container wrote, once the word is in it."""

        def said() -> str:
            text = self.container_log(name)
            return text if word in text else ""

        return str(self.until(f"{name} says {word!r}", said))

    # What the kernel says

    def ask(self, what: str, **asked: Any) -> Any:
        seconds = 60 + asked.get("seconds", 0)
        return json.loads(self.vm.run("python3", "-I", CHECKER, what, json.dumps(asked), seconds=seconds))

    def process(self, name: str, container: str = "main") -> dict[str, Any]:
        found: dict[str, Any] = self.ask("process", id=self.container_id(name, container))
        return found

    def levels(self, name: str, container: str = "main") -> list[dict[str, str]]:
        """Files of the container's cgroup, its pod's, its tier's (not if Guaranteed) and that of all pods."""
        return list(self.ask("files", id=self.container_id(name, container)).values())

    def until(self, what: str, probe: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
        """What the probe finds, once it finds something."""
        deadline = time.monotonic() + seconds * PATIENCE
        while not (found := probe()):
            if time.monotonic() > deadline:
                raise AssertionError(f"still not: {what}; the agent's log ends:\n{self.log()}")
            time.sleep(0.5)
        return found


def pod(name: str, *script: str, resources: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod with one container, that runs a shell line, or a hog (`pod("a", "hog", "cpu")`)."""
    return pod_of(name, container("main", *script, resources=resources), **spec)


def pod_of(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    whole = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "guest", "hostPath": {"path": "/"}}],
        "containers": list(containers),
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": whole}


SLEEP = "trap 'exit 0' TERM; while true; do sleep 0.2; done"


def container(name: str, *script: str, resources: Any = None, **fields: Any) -> dict[str, Any]:
    words = script or (SLEEP,)
    if words[0] == "hog":
        command = ["busybox", "chroot", "/guest", "python3", "-I", "/kubeqos/project/tests/vm/hog.py", *words[1:]]
    else:
        command = ["sh", "-c", *words]
    return {
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "resources": dict(resources or {}),
        "volumeMounts": [{"name": "guest", "mountPath": "/guest"}],
        **fields,
    }


def guaranteed(cpu: str, memory: str, **more: str) -> dict[str, Any]:
    """Requests that equal limits."""
    amounts = {"cpu": cpu, "memory": memory, **more}
    return {"requests": amounts, "limits": amounts}
