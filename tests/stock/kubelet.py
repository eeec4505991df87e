"""An unmodified kubelet, on our API server or a stock one, with a containerd 2 of its own; nothing of it is left.

It is a node in every respect: an identity `system:node:NAME`, a serving certificate of the cluster's authority, and
reviews of who may ask it what. It is called 127.0.0.1, because a kubelet takes an address from its name, and refuses
one of the loopback interface everywhere else.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.stock import find

from kubeqos.apiserver.auth import write_kubeconfig
from tests.apiserver.live import LiveServer
from tests.shared import cgroups
from tests.stock.containerd2 import Containerd2
from tests.stock.kube_apiserver import Part, free_ports, process

NODE = "127.0.0.1"


class Kubelet:
    """How one is started, ended, and started again on what it left."""

    def __init__(self, runtime: Containerd2, folder: Path, kubeconfig: Path, trust: dict[str, Any]) -> None:
        self.runtime, self.folder, self.kubeconfig = runtime, folder, kubeconfig
        self.cgroup_root = f"/kubeqos-test-{uuid.uuid4().hex[:8]}"
        (self.port,) = free_ports(1)
        cgroups.make(self.cgroup_root)
        self._write_configuration(trust)

    def _write_configuration(self, trust: dict[str, Any]) -> None:
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup_root,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "containerRuntimeEndpoint": self.runtime.endpoint,
            "address": NODE,
            "port": self.port,
            "healthzPort": 0,
            **trust,
            "staticPodPath": str(self.folder / "static"),
            "syncFrequency": "2s",
            "nodeStatusUpdateFrequency": "2s",
        }
        (self.folder / "static").mkdir()
        (self.folder / "kubelet.json").write_text(json.dumps(config))

    @contextmanager
    def running(self, name: str = "kubelet") -> Iterator[Part]:
        program = str((find("kubelet") or ())[0])
        words = [program, "--config", str(self.folder / "kubelet.json"), "--hostname-override", NODE]
        words += ["--kubeconfig", str(self.kubeconfig), "--root-dir", str(self.root)]
        words += ["--cert-dir", str(self.folder / "certificates")]
        with process(words, self.folder, name) as part:
            yield part

    @property
    def root(self) -> Path:
        return self.folder / "kubelet"

    def clean(self) -> None:
        """What a kubelet leaves on purpose: pods, the cgroups above them, and mounts of volumes."""
        self.runtime.stop()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in sorted((one for one in mounts if one.startswith(str(self.root))), reverse=True):
            subprocess.run(["umount", "-l", point], check=True)
        cgroups.remove(self.cgroup_root)


@contextmanager
def prepared_kubelet(live: LiveServer, folder: Path) -> Iterator[Kubelet]:
    """A kubelet of our API server that can be started, with its runtime running."""
    pki = live.server.pki
    kubeconfig = folder / "node.kubeconfig"
    issued = pki.issue_client(f"system:node:{NODE}", ["system:nodes"])
    write_kubeconfig(
        kubeconfig, server=f"https://{live.host}:{live.port}", authority=pki.ca_pem, client=issued, user=NODE
    )
    certificate, key = pki.server_files([NODE])
    trust = {
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.ca_file)},
        },
        "authorization": {"mode": "Webhook"},
    }
    with _prepared(folder, kubeconfig, trust) as made:
        yield made


@contextmanager
def stock_kubelet(kubeconfig: Path, folder: Path) -> Iterator[Kubelet]:
    """A kubelet of a stock API server, with an administrator's rights; whom it trusts is not looked at."""
    trust = {
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
    }
    with _prepared(folder, kubeconfig, trust) as made:
        yield made


@contextmanager
def _prepared(folder: Path, kubeconfig: Path, trust: dict[str, Any]) -> Iterator[Kubelet]:
    runtime = Containerd2(folder / "containerd")
    made = Kubelet(runtime, folder, kubeconfig, trust)
    try:
        runtime.start()
        yield made
    finally:
        made.clean()
