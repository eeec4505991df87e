"""Kubernetes' own components for `bench.wire`: kube-apiserver with etcd, kube-scheduler, each in its own process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.stock import find

from bench.apiserver import TOKEN, Server, cpu_seconds, free_ports
from kubeqos.apiserver.auth import write_kubeconfig
from kubeqos.codec import encode_yaml
from kubeqos.web.pki import Pki

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
READY_SECONDS = 120.0


@dataclass
class StockServer(Server):
    """kube-apiserver; what its store takes counts as its own."""

    store: subprocess.Popen[bytes] | None = None

    def cpu_seconds(self) -> float:
        store = cpu_seconds(Path(f"/proc/{self.store.pid}/stat")) if self.store is not None else 0.0
        return super().cpu_seconds() + store


def programs(folder: Path | None) -> dict[str, Path] | None:
    """Where they are: in a folder, or where `make stock` puts them; None if one is missing."""
    if folder is not None:
        found = {name: folder / name for name in PROGRAMS}
        return found if all(path.exists() for path in found.values()) else None
    built = find(*PROGRAMS)
    return dict(zip(PROGRAMS, built, strict=True)) if built is not None else None


@contextlib.contextmanager
def part(words: Sequence[str], log: Path, folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A component as a process of its own, until the block ends; in the folder of its log, or in another."""
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, cwd=folder or log.parent)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def kube_apiserver(found: dict[str, Path]) -> Iterator[StockServer]:
    """A control plane without controllers, scheduler and nodes; the same files as our server's, in the same places."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        clients, peers, port = free_ports(3)
        pki = Pki(directory / "data/pki")
        certificate, key = pki.server_files()
        tokens, accounts = directory / "tokens.csv", directory / "accounts.key"
        tokens.write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        subprocess.run(["openssl", "genrsa", "-out", accounts, "2048"], check=True, capture_output=True)
        store = f"http://127.0.0.1:{clients}"
        etcd = [str(found["etcd"]), "--data-dir", str(directory / "etcd"), "--listen-client-urls", store]
        etcd += ["--advertise-client-urls", store, "--listen-peer-urls", f"http://127.0.0.1:{peers}"]
        words = [str(found["kube-apiserver"]), "--etcd-servers", store, "--secure-port", str(port)]
        words += ["--bind-address", "127.0.0.1", "--tls-cert-file", str(certificate)]
        words += ["--tls-private-key-file", str(key), "--client-ca-file", str(pki.ca_file)]
        words += ["--token-auth-file", str(tokens), "--authorization-mode", "RBAC", "--allow-privileged=true"]
        words += ["--disable-admission-plugins", "ServiceAccount", "--service-account-issuer", "https://stock"]
        for flag in ("--service-account-key-file", "--service-account-signing-key-file"):
            words += [flag, str(accounts)]
        stored = stack.enter_context(part(etcd, directory / "etcd.log"))
        running = stack.enter_context(part(words, directory / "kube-apiserver.log"))
        server = StockServer(running, port, directory, stored)
        _wait_until_ready(server)
        url = f"https://127.0.0.1:{port}"
        write_kubeconfig(directory / "data/kubeconfig", server=url, authority=pki.ca_pem, client=pki.admin())
        yield server


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if server.call("GET", "/readyz")[0] == 200:
                return
        time.sleep(0.5)
    sys.exit(f"kube-apiserver did not become ready:\n{(server.directory / 'kube-apiserver.log').read_text()[-2000:]}")


def kube_scheduler(found: dict[str, Path], directory: Path) -> list[str]:
    """Its command line; it may ask as often as it likes."""
    config = directory / "kube-scheduler.yaml"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(directory / "data/kubeconfig"), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
    }
    config.write_text(encode_yaml(content))
    (port,) = free_ports(1)
    return [str(found["kube-scheduler"]), "--config", str(config), "--secure-port", str(port)]
