"""110 pods on containerd 2 under a real kube-apiserver: started by our node agent, and by a kubelet, in one sitting.

Each gets a containerd of its own and the same pods, which are bound by name, so that nobody schedules. Printed: how
long until the API server shows all of them Running, what the node's process took for it, its memory then, and what it
takes while nothing happens. Needs root, Linux and what `make stock` builds. `python -m bench.starting`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.containerd2 import Containerd2, running_containerd2
from tools.stock import find

from bench.apiserver import cpu_seconds, free_ports, resident_mb
from bench.machine import describe
from bench.stock import StockServer, kube_apiserver, part, programs
from kubeqos.apiserver.auth import write_kubeconfig
from kubeqos.web.pki import Pki

PODS_ON_NODE, IDLE_SECONDS = 110, 30.0
READY_SECONDS, RUNNING_SECONDS = 60.0, 600.0
NAMES = {"ours": "ours", "kubelet": "127.0.0.1"}
"""A kubelet takes an address from its name, and refuses one of the loopback interface everywhere else."""


@dataclass(frozen=True)
class Home:
    """Where one node's things are."""

    folder: Path
    server: StockServer
    runtime: Containerd2
    cgroup_root: str
    node: str

    @property
    def kubeconfig(self) -> Path:
        pki = Pki(self.server.directory / "data/pki")
        path = self.folder / "kubeconfig"
        client = pki.issue_client(f"system:node:{self.node}", ["system:nodes", "system:masters"])
        write_kubeconfig(path, server=self.server.url, authority=pki.ca_pem, client=client, user=self.node)
        return path


def kubelet(home: Home) -> list[str]:
    """Its command line, on cgroup v1 too; nothing of the machine is reserved or measured but what pods need."""
    (port,) = free_ports(1)
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": home.cgroup_root,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "containerRuntimeEndpoint": home.runtime.endpoint,
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # As many as it likes: what is measured is the node, not the manners of its client.
        "kubeAPIQPS": 5000,
        "kubeAPIBurst": 5000,
        "registryPullQPS": 0,
        "maxPods": PODS_ON_NODE + 10,
    }
    (home.folder / "kubelet.json").write_text(json.dumps(config))
    paths = find("kubelet")
    assert paths is not None, "main looked for it"
    words = [str(paths[0]), "--config", str(home.folder / "kubelet.json"), "--hostname-override", home.node]
    words += ["--kubeconfig", str(home.kubeconfig), "--root-dir", str(home.folder / "kubelet")]
    return [*words, "--cert-dir", str(home.folder / "certificates")]


def ours(home: Home) -> list[str]:
    words = [str(Path(sys.executable).parent / "kubeqos"), "node", "--node-name", home.node]
    words += ["--kubeconfig", str(home.kubeconfig), "--state-dir", str(home.folder / "state")]
    words += ["--pod-logs-dir", str(home.folder / "logs"), "--cgroup-root", home.cgroup_root]
    words += ["--container-runtime-endpoint", home.runtime.endpoint, "--max-pods", str(PODS_ON_NODE + 10)]
    return words


COMMANDS = {"ours": ours, "kubelet": kubelet}


def pod(node: str, number: int) -> dict[str, object]:
    container = {
        "name": "c",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1000 & wait; done"],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
    }
    spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
    spec |= {"terminationGracePeriodSeconds": 1, "hostNetwork": True}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{node}-{number}"}, "spec": spec}


@contextlib.contextmanager
def home(server: StockServer, name: str) -> Iterator[Home]:
    """A runtime and a place in the cgroup tree, which are gone afterwards."""
    root = f"/kubeqos-bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as folder:
        cgroups.make(root)
        try:
            with running_containerd2(Path(folder) / "containerd") as runtime:
                yield Home(Path(folder), server, runtime, root, NAMES[name])
        finally:
            mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for point in sorted((one for one in mounts if one.startswith(folder)), reverse=True):
                subprocess.run(["umount", "-l", point], check=True)
            cgroups.remove(root)


def wait_for(what: str, seconds: float, done: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return
        time.sleep(0.1)
    sys.exit(f"{what}: not within {seconds:g} s\n{log.read_text(errors='replace')[-2000:]}")


def is_ready(server: StockServer, node: str) -> bool:
    code, body = server.call("GET", f"/api/v1/nodes/{node}")
    conditions = json.loads(body).get("status", {}).get("conditions") or () if code == 200 else ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def running(server: StockServer, node: str) -> int:
    _, body = server.call("GET", f"/api/v1/namespaces/bench/pods?fieldSelector=spec.nodeName%3D{node}")
    return sum(one["status"].get("phase") == "Running" for one in json.loads(body)["items"])


def measure(server: StockServer, name: str, pods: int, idle: float) -> None:
    with home(server, name) as here:
        log = here.folder / "node.log"
        with part(COMMANDS[name](here), log) as process:
            stat = Path(f"/proc/{process.pid}/stat")
            wait_for("Ready", READY_SECONDS, lambda: is_ready(server, here.node), log)
            time.sleep(2)
            before, begun = cpu_seconds(stat), time.perf_counter()
            for number in range(pods):
                code, body = server.call("POST", "/api/v1/namespaces/bench/pods", pod(here.node, number))
                if code != 201:
                    sys.exit(f"pod {number} was refused: {body.decode()}")
            created = time.perf_counter() - begun
            wait_for("all Running", RUNNING_SECONDS, lambda: running(server, here.node) == pods, log)
            took, spent = time.perf_counter() - begun, cpu_seconds(stat) - before
            time.sleep(5)
            still = cpu_seconds(stat)
            time.sleep(idle)
            resting = (cpu_seconds(stat) - still) / idle
            print(
                f"{name:>8}: {pods} pods Running after {took:6.1f} s (created in {created:.1f} s), "
                f"{1000 * spent / pods:6.1f} ms CPU a pod, {resident_mb(process.pid):4.0f} MB, "
                f"idle {100 * resting:.2f} % of a core",
                flush=True,
            )
            server.call("DELETE", "/api/v1/namespaces/bench/pods", {"gracePeriodSeconds": 1})
            wait_for("all gone", RUNNING_SECONDS, lambda: running(server, here.node) == 0, log)


def main(arguments: Sequence[str] = ()) -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.starting", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS_ON_NODE)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds to look at a node at rest")
    parser.add_argument("names", nargs="*", default=["ours", "kubelet"], help="ours, kubelet")
    given = parser.parse_args(arguments)
    found = programs(None)
    if found is None or find("kubelet", "containerd", "ctr") is None or os.geteuid() != 0:
        print("needs root, and kube-apiserver, etcd, kubelet and containerd 2: `make stock` builds them where Go is")
        return
    print("form: node, runtime, API server and etcd are processes of their own; over TLS")
    with kube_apiserver(found) as server:
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        for name in given.names:
            measure(server, name, given.pods, given.idle)


if __name__ == "__main__":
    print(describe())
    main(sys.argv[1:])
