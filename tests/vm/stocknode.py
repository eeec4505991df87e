"""A stock node in a guest: an unmodified kubelet with the systemd driver and containerd 2, and `kubeqos agent` by NRI.

The API server is ours: real ones are beside the agent in tests/stock, and take minutes to start in an emulated machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubeqos.stock.asking import CONTAINER_KEY
from kubeqos.stock.names import PLUGIN, REQUIRED_PLUGINS
from tests.stock.containerd2 import configuration
from tests.stock.kubelet import NODE
from tests.vm.node import IMPORT, LOOPBACK, SOCKET, Node

PROGRAMS = "/run/stock"
"""Where Kubernetes' own programs are; they come on a disk of their own."""
PATH = f"PATH={PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDER = Path("/var/lib/containerd2")  # not in /run, from where nothing may be run
KUBELET = "/var/lib/kubelet"
KUBECONFIG = ("--kubeconfig", "/run/cluster/kubeconfig")
PATIENCE = "30s"
"""What the runtime grants plugins; its own two seconds are not enough where everything is twenty times slower."""
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "systemd",
    "containerRuntimeEndpoint": SOCKET,
    "address": NODE,
    "healthzPort": 0,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "localStorageCapacityIsolation": False,
    "runtimeRequestTimeout": "10m",
}


class StockNode(Node):
    """`classes` are those of the agent; `settings`, if any, make the agent's NodeConfiguration: it hands out cores."""

    name = NODE
    agent = "kq-agent"

    def start(self) -> None:
        self.start_containerd()
        self.start_api_server()
        self.vm.run("kubeqos", "install", "--image", "kubeqos:test", *KUBECONFIG, seconds=180)
        self.vm.write("/run/kubelet.json", json.dumps(CONFIGURATION))
        words = ["--config", "/run/kubelet.json", "--hostname-override", NODE, "--root-dir", KUBELET, *KUBECONFIG]
        self.unit("kq-kubelet", f"{PROGRAMS}/kubelet", *words, "--cert-dir", "/run/kubelet-certificates")
        self.until("the kubelet is ready", self.ready)
        self.vm.write("/run/agent/classes.yaml", self.classes)
        if self.settings:
            config = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeConfiguration", "stateDir": "/run/node"}
            self.vm.write("/run/node.yaml", json.dumps({**config, **self.settings}))
            self.vm.run("mkdir", "-p", "/run/node/plugins_registry")
        self.start_agent()
        self.until("the agent tells what the node offers", self.told)

    def start_agent(self) -> None:
        words = ["--node-name", NODE, "--config", "/run/agent/classes.yaml", "--nri-socket", f"{FOLDER}/nri.sock"]
        words += ["--node-config", "/run/node.yaml"] if self.settings else []
        self.unit(self.agent, "kubeqos", "agent", *words, "--kubelet-dir", KUBELET, "--port", "0", *KUBECONFIG)

    def start_containerd(self) -> None:
        mounted = f"mountpoint -q {PROGRAMS} || (mkdir -p {PROGRAMS} && mount -o ro /dev/vde {PROGRAMS})"
        self.vm.run("sh", "-c", mounted)
        config = configuration(FOLDER, Path(SOCKET.removeprefix("unix://")), systemd=True, patience=PATIENCE)
        self.vm.write(f"{FOLDER}/config.toml", config)
        self.vm.write(f"{FOLDER}/cni/10-loopback.conflist", LOOPBACK)
        properties = ("Delegate=yes", "KillMode=process", f"Environment={PATH}")
        words = (f"{PROGRAMS}/containerd", "-c", f"{FOLDER}/config.toml")
        self.unit("kq-containerd", *words, properties=properties)
        self.until("containerd answers", lambda: self.vm.attempt("ctr", "version")[0] == 0)
        self.vm.run("env", "CONTAINERD_SNAPSHOTTER=native", "python3", "-c", IMPORT, seconds=120)

    def stop(self) -> None:
        super().stop()
        self.vm.attempt("systemctl", "stop", "kubepods.slice")
        self.vm.run("sh", "-c", f"rm -rf {KUBELET} {FOLDER} /run/agent /run/kubelet*")

    # What the API says

    def told(self) -> dict[str, Any]:
        """What the agent says of its node."""
        found = self.get(f"/apis/kubeqos.io/v1alpha1/nodeqoses/{NODE}") or {}
        status: dict[str, Any] = found.get("status") or {}
        return status

    def asking(self, pod: dict[str, Any], classes: dict[str, str]) -> dict[str, Any]:
        """By annotation; the second one the webhook would write: nobody who asks starts without the agent."""
        asked = ",".join(f"{name}={value}" for name, value in classes.items())
        if asked:
            required = {REQUIRED_PLUGINS: json.dumps([PLUGIN])}
            pod["metadata"]["annotations"] = {f"{CONTAINER_KEY}main": asked, **required}
        return pod

    def create(self, pod: dict[str, Any]) -> None:
        super().create({**pod, "spec": {"automountServiceAccountToken": False, **pod["spec"]}})
