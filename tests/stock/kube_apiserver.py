"""A real kube-apiserver with a real etcd, in a folder of its own; both end with the test.

`make stock` builds them (tools/stock).
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import yaml
from tools.stock import find

from kubeqos.web.pki import Pki

TOKEN = "stock-administrator"
ADMINISTRATORS = "kubeadm:cluster-admins"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"


class Part:
    """One program, which can be killed and started again on what it left."""

    def __init__(self, words: list[str], folder: Path, name: str) -> None:
        self.words, self.folder, self.name = words, folder, name
        self.log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(self.words, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """As a power failure would."""
        self._running.kill()
        self._running.wait()

    def end(self) -> None:
        self._running.terminate()
        self._running.wait(30)


@contextmanager
def kube_apiserver(
    folder: Path,
    modes: str = "RBAC",
    parts: dict[str, Part] | None = None,
    *,
    flags: Sequence[str] = (),
    organizations: Sequence[str] = (ADMINISTRATORS,),
) -> Iterator[Path]:
    """The kubeconfig of an administrator of a stock cluster without controllers, scheduler or nodes.

    `modes` says who decides on what callers may do. A cluster with nodes has `Node` there, and NodeRestriction with it.
    Who wants to kill them finds etcd and the server in `parts`. It goes to nodes with a certificate of these
    `organizations`.
    """
    found = find("kube-apiserver", "etcd")
    assert found is not None, "see needs_stock"
    apiserver, etcd_program = map(str, found)
    clients, peers, secure = free_ports(3)
    store = f"http://127.0.0.1:{clients}"
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    etcd = [
        etcd_program,
        "--data-dir",
        str(folder / "etcd"),
        "--listen-client-urls",
        store,
        "--advertise-client-urls",
        store,
    ]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    server = [apiserver, "--etcd-servers", store, "--cert-dir", str(folder / "pki")]
    server += ["--secure-port", str(secure), "--bind-address", "127.0.0.1", "--token-auth-file", "tokens.csv"]
    server += ["--service-account-issuer", "https://stock", "--service-account-key-file", "sa.key"]
    server += ["--service-account-signing-key-file", "sa.key", "--disable-admission-plugins", "ServiceAccount"]
    server += ["--authorization-mode", modes, "--kubelet-preferred-address-types", "InternalIP"]
    if "Node" in modes:
        server += ["--enable-admission-plugins", "NodeRestriction"]
    pki = Pki(folder / "cluster-pki")
    server += files("--tls-cert-file", "--tls-private-key-file", pki.server_files())
    server += ["--client-ca-file", str(pki.ca_file)]
    server += files("--kubelet-client-certificate", "--kubelet-client-key", kubelet_client(pki, organizations))
    server += flags
    server += ["--allow-privileged=true"]  # as every distribution has it
    with ExitStack() as stack:
        for name, words in (("etcd", etcd), ("kube-apiserver", server)):
            part = stack.enter_context(process(words, folder, name))
            if parts is not None:
                parts[name] = part
        wait_until_ready(secure, folder / "kube-apiserver.log")
        yield written_kubeconfig(folder, secure, pki.ca_file)


def files(certificate_flag: str, key_flag: str, pair: tuple[Path, Path]) -> list[str]:
    return [certificate_flag, str(pair[0]), key_flag, str(pair[1])]


def kubelet_client(pki: Pki, organizations: Sequence[str]) -> tuple[Path, Path]:
    """With what the server goes to nodes: as kubeadm makes it, somebody whom only a role binding lets in."""
    issued = pki.issue_client(KUBELET_CLIENT, organizations)
    paths = pki.directory / "client.crt", pki.directory / "client.key"
    for path, text in zip(paths, (issued.certificate, issued.key), strict=True):
        path.write_bytes(text)
    return paths


@contextmanager
def process(words: list[str], folder: Path, name: str) -> Iterator[Part]:
    part = Part(words, folder, name)
    try:
        yield part
    finally:
        part.end()


def written_kubeconfig(folder: Path, port: int, authority: Path) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stock", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "stock", "context": {"cluster": "stock", "user": "admin"}}],
        "current-context": "stock",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def acting_as(kubeconfig: Path, account: str, node: str = "") -> Path:
    """A kubeconfig of a service account in kubeqos-system, by an administrator who acts as it: as its pod on a node."""
    document = yaml.safe_load(kubeconfig.read_text())
    groups = ["system:serviceaccounts", "system:serviceaccounts:kubeqos-system", "system:authenticated"]
    for user in document["users"]:
        user["user"] |= {"as": f"system:serviceaccount:kubeqos-system:{account}", "as-groups": groups}
        if node:
            user["user"]["as-user-extra"] = {"authentication.kubernetes.io/node-name": [node]}
    path = kubeconfig.with_name(f"{account}.kubeconfig")
    path.write_text(yaml.safe_dump(document))
    return path


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def wait_until_ready(port: int, log: Path, seconds: float = 120) -> None:
    """Ready is more than answering: the roles and the system's priority classes are there too."""
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    request = Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urlopen(request, context=insecure, timeout=10):
                return
        except OSError as error:
            assert time.monotonic() < deadline, f"the kube-apiserver never got ready ({error}); see {log}"
        time.sleep(0.3)
